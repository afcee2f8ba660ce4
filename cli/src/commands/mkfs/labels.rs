//! SELinux labels from `file_contexts`: each line has a regular expression for paths, an optional file type, and a
//! context.
//!
//!     /bin(/.*)?         u:object_r:system_file:s0
//!     /bin/sh     --     u:object_r:shell_exec:s0
//!
//! An expression must match the whole path. As in libselinux, the last matching line wins, lines without special
//! characters before those with them; `<<none>>` means no label. Left out: lookahead and lookbehind, and includes.

use regex::bytes::{Regex, RegexSet, RegexSetBuilder};
use vfs::FileKind;

/// A line.
#[derive(Debug)]
struct Line {
    kind: Option<FileKind>,
    /// `None`: no label.
    context: Option<Vec<u8>>,
}

/// All lines, in ascending order of precedence.
#[derive(Debug)]
pub struct Labels {
    set: RegexSet,
    lines: Vec<Line>,
}

/// Limit for all compiled expressions together: those of a phone take a few megabytes.
const SIZE: usize = 256 << 20;

fn kind(flag: &str) -> Option<FileKind> {
    Some(match flag {
        "--" => FileKind::Regular,
        "-d" => FileKind::Directory,
        "-l" => FileKind::Symlink,
        "-c" => FileKind::CharDevice,
        "-b" => FileKind::BlockDevice,
        "-p" => FileKind::Fifo,
        "-s" => FileKind::Socket,
        _ => return None,
    })
}

/// True if an expression has regular-expression characters (libselinux `spec_hasMetaChars`).
fn is_special(expression: &str) -> bool {
    let mut chars = expression.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => _ = chars.next(),
            '.' | '^' | '$' | '?' | '*' | '+' | '|' | '[' | '(' | '{' => return true,
            _ => {}
        }
    }
    false
}

impl Labels {
    /// Parses a `file_contexts`. The error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for (n, text) in text.lines().enumerate() {
            let words: Vec<&str> = text.split_whitespace().collect();
            let wrong = |e: &str| format!("line {}: {e}", n + 1);
            let (expression, kind, context) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [expression, context] => (expression, None, context),
                [expression, flag, context] => {
                    let kind = kind(flag).ok_or_else(|| {
                        wrong(&format!(
                            "{flag}: unknown file type; use --, -d, -l, -c, \
                        -b, -p or -s"
                        ))
                    })?;
                    (expression, Some(kind), context)
                }
                _ => return Err(wrong("expected a path, an optional file type, and a context")),
            };
            let whole = format!("^(?:{expression})$");
            Regex::new(&whole).map_err(|_| wrong(&format!("{expression}: unsupported expression")))?;
            let context = (context != "<<none>>").then(|| [context.as_bytes(), b"\0"].concat());
            all.push((is_special(expression), whole, Line { kind, context }));
        }
        // Stable: equal elements keep the order of the file.
        all.sort_by_key(|(special, ..)| !special);
        let (expressions, lines): (Vec<_>, Vec<_>) = all.into_iter().map(|(_, whole, line)| (whole, line)).unzip();
        let built = RegexSetBuilder::new(expressions).size_limit(SIZE).dfa_size_limit(SIZE).build();
        Ok(Labels { set: built.map_err(|e| e.to_string())?, lines })
    }

    /// The label of a file; `None` if no line matches, or the winning line is `<<none>>`.
    pub fn of(&self, path: &[u8], kind: FileKind) -> Option<&[u8]> {
        let fit = self.set.matches(path);
        let last = fit.iter().map(|n| &self.lines[n]).rfind(|l| l.kind.is_none_or(|k| k == kind));
        last.and_then(|l| l.context.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_fits_counts_and_plain_paths_before_expressions() {
        let text = "# phone\n/bin/sh -- u:shell\n/(.*)? u:rootfs\n/bin(/.*)? u:bin\n/bin/sh -l u:link\n/bin/x\\.y u:plain\n/none <<none>>\n";
        let labels = Labels::parse(text).unwrap();
        let of = |path: &str, kind| labels.of(path.as_bytes(), kind).map(|l| String::from_utf8_lossy(l).into_owned());
        assert_eq!(of("/bin/sh", FileKind::Regular).as_deref(), Some("u:shell\0"));
        assert_eq!(of("/bin/sh", FileKind::Symlink).as_deref(), Some("u:link\0"));
        assert_eq!(of("/bin/sh", FileKind::Directory).as_deref(), Some("u:bin\0"));
        assert_eq!(of("/bin/x.y", FileKind::Regular).as_deref(), Some("u:plain\0"));
        assert_eq!(of("/binary", FileKind::Regular).as_deref(), Some("u:rootfs\0"));
        assert_eq!(of("/none", FileKind::Regular), None);
        assert_eq!(of("nowhere", FileKind::Regular), None);
    }

    #[test]
    fn what_is_no_line_is_named() {
        for (text, words) in [
            ("/a", "line 1: expected a path"),
            ("/a -q u:x", "-q: unknown file type; use --"),
            ("\n/a( u:x", "line 2: /a(: unsupported expression"),
            ("/a b c d", "line 1"),
        ] {
            let e = Labels::parse(text).unwrap_err();
            assert!(e.contains(words), "{e}");
        }
    }
}
