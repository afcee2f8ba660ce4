//! Parses the users, groups and masks in mount options.

use std::process::Command;

/// The ID of a user (`what` is `uid`) or a group (`gid`), given as a number or a name.
pub fn id(what: &str, text: &str) -> Result<u32, String> {
    if !text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return crate::commands::mkfs::id(text);
    }
    let (list, of) = if what == "uid" { ("passwd", "user") } else { ("group", "group") };
    let file = std::fs::read_to_string(format!("/etc/{list}")).unwrap_or_default();
    found(&file, text)
        // Users may come from another source (LDAP), which `getent` queries.
        .or_else(|| {
            let out = Command::new("getent").args([list, "--", text]).output().ok()?;
            found(&String::from_utf8_lossy(&out.stdout), text)
        })
        .ok_or_else(|| format!("unknown {of} {text:?}; give a known name or a number"))
}

/// The number in `name:password:number:...`.
fn found(lines: &str, name: &str) -> Option<u32> {
    let mut all = lines.lines().map(|line| line.split(':'));
    all.find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten())
}

/// A mask of permission bits to remove, in octal.
pub fn mask(text: &str) -> Result<u16, String> {
    let octal = !text.is_empty() && text.bytes().all(|c| (b'0'..=b'7').contains(&c));
    let mask = octal.then(|| u16::from_str_radix(text, 8).ok()).flatten().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| format!("{text:?} is not a mask; write the permission bits to remove in octal, 0 to 777"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_numbers_and_names() {
        assert_eq!((id("uid", "0"), id("uid", "root"), id("gid", "root")), (Ok(0), Ok(0), Ok(0)));
        assert_eq!(id("uid", "4294967294"), Ok(u32::MAX - 1));
        for wrong in ["", "-1", "+1", "4294967295", "1x"] {
            assert!(id("uid", wrong).is_err(), "{wrong}");
        }
        assert!(id("gid", "nobody-is-called-so").unwrap_err().contains("unknown group \"nobody-is-called-so\""));
        assert_eq!(found("a:x:1:2::/:/bin/sh\nab:x:7:8::/:/bin/sh\n", "ab"), Some(7));
        assert_eq!(found("a:x:1:2\n", "b"), None);
    }

    #[test]
    fn masks_are_octal_and_of_rights_alone() {
        assert_eq!((mask("022"), mask("0"), mask("777")), (Ok(0o22), Ok(0), Ok(0o777)));
        for wrong in ["", "8", "-1", "1000", "rwx", "0o22"] {
            assert!(mask(wrong).is_err(), "{wrong}");
        }
    }
}
