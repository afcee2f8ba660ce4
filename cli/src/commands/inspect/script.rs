//! Which commands of the file systems' own tools defragment the worst files, and what would each cost?
//!
//! `f2fs_io defrag_file` for F2FS, `e4defrag` for ext4, `xfs_fsr` for XFS, `btrfs filesystem defragment` for Btrfs,
//! each with its price before it. Nothing is run: the user reads the printed script, edits it and runs it. File names
//! are untrusted: each is quoted as one word of bash, and no other part of the script contains a name.

use inspect::verdict::Priced;

use super::{Args, Found, Seen, WORST};

/// The lines of the script, ASCII or printable UTF-8 only.
pub fn lines(seen: &Seen<'_>, args: &Args) -> Vec<String> {
    let mut out = vec!["#!/bin/bash".to_owned()];
    out.push(format!(
        "# Written by joulefs {}; nothing was run. Prices are those of profile",
        env!("CARGO_PKG_VERSION")
    ));
    out.push(format!("# {}, which is not this machine.", crate::output::plain(&seen.profile.name)));
    let kind = match seen.found {
        Found::Volume(_) => {
            out.push("# MNT is the volume's mount point.".to_owned());
            out.push(": \"${MNT:?set it to where the volume is mounted}\"".to_owned());
            "f2fs"
        }
        Found::Mounted(m) => m.file_system.as_str(),
    };
    let Some(tool) = tool(kind) else {
        out.push("# JouleFS knows no command that defragments files of this file system.".to_owned());
        return out;
    };
    let mut left = 0;
    let worst = &seen.verdict.worst[..seen.verdict.worst.len().min(args.worst.unwrap_or(WORST))];
    for &i in worst {
        let (file, path) = (&seen.files()[i], seen.path(i));
        let priced = &seen.verdict.priced[i];
        let Some(reads) = priced.pays_after() else {
            left += 1;
            continue;
        };
        // The kernel refuses to move compressed clusters; an uncertain path may belong to another file.
        if file.compressed || !path.is_sure {
            left += 1;
            continue;
        }
        out.push(price(priced, file.layout.extents, file.layout.min_extents, reads));
        let name = match seen.found {
            Found::Volume(_) => format!("\"$MNT\"{}", quoted(&path.bytes)),
            Found::Mounted(_) if path.bytes.starts_with(b"/") => quoted(&path.bytes),
            Found::Mounted(_) => format!("./{}", quoted(&path.bytes)),
        };
        out.push(tool(&name, file.size));
    }
    if left > 0 {
        out.push(format!(
            "# {left} of the {} worst are left out: cost never repaid, compressed, or path uncertain",
            worst.len()
        ));
    }
    if worst.is_empty() {
        out.push("# No file has excess extents.".to_owned());
    }
    out
}

fn price(p: &Priced, extents: u32, fewest: u32, reads: u64) -> String {
    format!(
        "# {extents} extents, fewest {fewest}: {} a read, {} afterwards; copying costs {}, repaid after {reads} reads",
        p.read.energy, p.ideal.energy, p.treatment.energy
    )
}

type Tool = fn(&str, u64) -> String;

/// The command for a file system, from a quoted name and the file's size.
fn tool(file_system: &str) -> Option<Tool> {
    Some(match file_system {
        // The range must be whole blocks.
        "f2fs" => |name, size| format!("f2fs_io defrag_file 0 {} {name}", size.next_multiple_of(4096)),
        "ext4" => |name, _| format!("e4defrag {name}"),
        "xfs" => |name, _| format!("xfs_fsr {name}"),
        "btrfs" => |name, _| format!("btrfs filesystem defragment -- {name}"),
        _ => return None,
    })
}

/// Quotes these bytes as one word of bash. Invisible characters and those that change the text direction are written as
/// numbers.
fn quoted(bytes: &[u8]) -> String {
    let plain = |c: char| !c.is_control() && (c.is_ascii() || c.is_alphanumeric());
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(plain) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let byte = |&b: &u8| match b {
                b'\'' | b'\\' => format!("\\{}", char::from(b)),
                b' '..=b'~' => char::from(b).to_string(),
                // Always three digits, so that a following digit is not part of the escape.
                _ => format!("\\{b:03o}"),
            };
            format!("$'{}'", bytes.iter().map(byte).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn bash_reads_each_name_as_one_word() {
        let names: [&[u8]; 9] = [
            b"/plain name",
            b"/it's $(touch x) `id` \"$HOME\" \\n !!",
            b"/new\nline\t\x1b[2J",
            b"/-leading",
            b"/no\xff\xfeutf8\x01" as &[u8],
            "/\u{202e}gpj \u{e9}\u{4e2d}".as_bytes(),
            b"/1\x012",
            b"/$'x'",
            b"/;rm -rf *;#",
        ];
        for name in names {
            let script = format!("printf '%s\\0' \"$MNT\"{} end", quoted(name));
            let ran = Command::new("bash").args(["-c", &script]).env("MNT", "/m n").output().unwrap();
            let expected = [b"/m n".as_slice(), name, b"\0end\0"].concat();
            assert_eq!(ran.stdout, expected, "{script}");
            assert!(!quoted(name).chars().any(char::is_control));
        }
    }

    #[test]
    fn sizes_are_whole_blocks_and_unknown_file_systems_have_no_command() {
        assert_eq!(tool("f2fs").unwrap()("'x'", 4097), "f2fs_io defrag_file 0 8192 'x'");
        assert!(tool("tmpfs").is_none());
    }
}
