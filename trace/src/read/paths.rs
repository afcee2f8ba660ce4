//! Where does a path lead, by its text alone? A recording does not contain symbolic links.

/// An absolute path without `.`, `..` and doubled slashes: `path` relative to the directory `from`, which is already in
/// this form. Empty parts are dropped; `..` at the root stays there.
pub(crate) fn normal(from: &[u8], path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(from.len() + path.len() + 1);
    if !path.starts_with(b"/") && from != b"/" {
        out.extend_from_slice(from);
    }
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => out.truncate(memchr::memrchr(b'/', &out).unwrap_or(0)),
            part => {
                out.push(b'/');
                out.extend_from_slice(part);
            }
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// True for paths of devices and kernel interfaces, which are not stored.
pub(crate) fn is_special(path: &[u8]) -> bool {
    [&b"/dev"[..], b"/proc", b"/sys"].iter().any(|top| {
        path.strip_prefix(*top).is_some_and(|rest| {
            // Shared memory under `/dev/shm` is a file system.
            (rest.is_empty() || rest.starts_with(b"/")) && !rest.starts_with(b"/shm/")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_plain() {
        for (from, path, expected) in [
            ("/", "a", "/a"),
            ("/home", "a/b", "/home/a/b"),
            ("/home", "/a//b/", "/a/b"),
            ("/home", "", "/home"),
            ("/home/x", "../y/./z", "/home/y/z"),
            ("/home", "../../..", "/"),
            ("/", "..", "/"),
            ("/home", "/", "/"),
            ("/home", "/../x", "/x"),
        ] {
            let got = normal(from.as_bytes(), path.as_bytes());
            assert_eq!(String::from_utf8(got).unwrap(), expected, "{path} from {from}");
        }
    }

    #[test]
    fn devices_are_no_files() {
        for special in ["/dev", "/dev/null", "/proc/self/maps", "/sys/class", "/dev/pts/1"] {
            assert!(is_special(special.as_bytes()), "{special}");
        }
        for file in ["/device", "/home/dev/null", "/", "/dev/shm/x", "/system"] {
            assert!(!is_special(file.as_bytes()), "{file}");
        }
    }
}
