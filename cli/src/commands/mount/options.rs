//! Which options does `-o` of `joulefs mount` take, of which file system, and what do they mean?
//!
//! What is set by them is [`super::parse`]'s and the file systems' own; this is what people read, and what a mistyped name is
//! compared with.

use crate::{meant, output};

/// An option: its name, its values (empty: it takes none), what it means.
pub type Choice = (&'static str, &'static str, &'static str);

/// Of every file system.
const EITHER: &[Choice] = &[
    ("ro", "", "nothing is written"),
    ("rw", "", "the default"),
    ("allow_other", "on|off", "users other than who mounts may in; default: only if root mounts"),
    ("uid", "N|NAME", "show everything as belonging to this user; see below"),
    ("gid", "N|NAME", "the same of a group"),
    ("umask", "OCTAL", "rights that nobody has to anything; see below"),
    ("dmask", "OCTAL", "the same of directories"),
    ("fmask", "OCTAL", "the same of all that is no directory"),
    ("noatime", "", "access times stand still"),
    ("relatime", "", "the default: access times follow if they are older than the last change, or than a day"),
    ("dev", "", "device nodes work; root only"),
    ("suid", "", "set-id programs run as their owners; root only"),
    ("noexec", "", "programs do not run"),
    ("writeback", "on|off", "the kernel keeps what is written for a while; default on"),
    ("threads", "N", "that serve; default 2"),
    ("dirty", "MIB", "of contents that may wait; default 32"),
    ("dir_cache", "MIB", "of directories that are kept; default 16"),
    ("power", "battery|powered|auto", "default battery; auto: as the system says"),
    (
        "commit",
        "SECONDS",
        "every change is durable within this time, and sooner when nothing changes for 0.3 s; 0: only after fsync and \
         unmount. Default 5; if power= is given and there is a battery, 15 and not sooner; with sleep= 0. Files that stay \
         open are included if root mounts; else the kernel may keep their contents for 35 s more",
    ),
    ("commit_idle", "on|off", "off: not sooner when nothing changes; default on"),
    ("stats", "FILE", "what was written and why, at the end; JSON if FILE ends in .json"),
    (
        "log",
        "FILE",
        "messages are added to FILE, too; from the background they go to the system's log (/dev/log) in any case",
    ),
    (
        "retry",
        "SECONDS",
        "for so long a last checkpoint that failed is tried again, every 2 seconds, and the image stays locked; default 60",
    ),
];

/// Of F2FS.
const F2FS: &[Choice] = &[
    ("norecovery", "", "read-only, as of the last checkpoint: what was synced since is not replayed, and not lost"),
    (
        "checkpoint",
        "newest|older",
        "older: read-only, by the checkpoint before the newest one, for a volume whose newest one is wrong; default newest",
    ),
    ("disable_roll_forward", "", "what was synced since the last checkpoint is given up"),
    ("discard", "on|off", "tell the device which blocks are free; default on"),
    ("nodiscard", "", "as discard=off"),
    (
        "mode",
        "adaptive|lfs",
        "lfs: blocks go to the ends of the logs alone, never in place (but of pinned files) or into holes; default adaptive",
    ),
    ("inline", "on|off", "small files lie in their inodes; default on"),
    (
        "delta",
        "on|off|inode|nodes",
        "small updates become deltas, in the inode or in nodes of their own, or only in one of these; on a volume that may \
         hold deltas, default on",
    ),
    (
        "delta_reads",
        "few|all|joules",
        "which bases are read that are not in memory: those of an fsync of few pages, which then writes one block, and \
         others if that takes fewer joules than writing the pages; all; only for fewer joules; default few",
    ),
    ("delta_return", "on|off", "pages leave the delta nodes of files that are only read, when idle; default off"),
    (
        "prealloc",
        "db[:SIZE]|off",
        "databases and their journals grow into blocks set aside for them, 100K at a time, so that several that grow \
         together stay in few pieces; default off",
    ),
    (
        "streams",
        "one|data|logs|data-moved|logs-moved|moved",
        "what a device with placement handles keeps apart: nothing; hot, warm and cold contents, as Linux 7.2; every log; \
         the same and what cleaning moves; only that; default one",
    ),
    ("node_cache", "MIB", "of nodes that are kept; default: a 64th of the memory, 32 to 256"),
    (
        "compress_algorithm",
        "lz4|zstd[:LEVEL]|lzo|lzo-rle",
        "of new compressed files, on a volume with the feature compression",
    ),
    ("compress_log_size", "2..8", "blocks in a cluster, as a power of two"),
    ("compress_extension", "EXT|*", "new files of this name are compressed; may be repeated"),
    ("nocompress_extension", "EXT", "new files of this name are not; may be repeated"),
    ("compress_chksum", "", "every cluster has a checksum"),
    ("compress_mode", "fs|user", "who decides when a file marked by chattr +c or by its name is compressed"),
    ("gc", "greedy|cost-benefit|atgc|mwhfb|fagc|joule", "who chooses what is cleaned; default cost-benefit"),
    ("background_gc", "on|off", "whether anything is cleaned when idle; default on"),
];

/// Of ScherlFS.
const SCHERLFS: &[Choice] = &[
    (
        "sync",
        "fsync|call|burst",
        "when what was written reaches the disk: when somebody asks, with every call, or with the next burst (with \
         index=FILE: an fsync is durable in FILE.stage and does not wake the disk; WHOEVER LOSES FILE.stage LOSES WHAT WAS \
         SYNCED SINCE THE LAST BURST); default fsync",
    ),
    ("ifile_cache", "MIB", "of inodes' places that are kept; default 16; 0, as dir_cache=0: nothing is kept"),
    ("writeback_seconds", "N", "that contents may wait; default 5"),
    ("checkpoint_bytes", "SIZE", "of log between two checkpoints; default 64M"),
    ("checkpoint_seconds", "N", "between them at most; default: any time"),
    (
        "clean",
        "auto|threading|copying|plugging|combined",
        "how room is made; auto: on a battery not at all, the log threads through holes; on the charger combined, and torn \
         files are brought together",
    ),
    (
        "placement",
        "before|after|in-place|delayed",
        "where the inode goes of a file that is written on in small calls, see joulefs mkfs --help; default: as the volume \
         has it",
    ),
    (
        "undo",
        "SIZE",
        "of what is replaced so much is kept, for joulefs undo; default: as the volume has it, 0: nothing",
    ),
    (
        "index",
        "FILE",
        "names and attributes are in FILE on another disk, too, and answered from there; FILE is made if it is not there, is \
         nearly all holes, and may be lost at any time",
    ),
    (
        "sleep",
        "TIME",
        "such as 10m: the disk sleeps after so long without a request; nothing is written because time passed, and \
         `joulefs ctl DIR stat` says who woke it",
    ),
    ("stage", "SIZE", "so much waits in memory and is written in one burst; default 32M"),
    (
        "keep",
        "SIZE",
        "with index=FILE: so much of what is written and read is in FILE.keep, too, and read from there; small files first, \
         and the rest of a file that somebody begins is read ahead, so that the disk can sleep; it may be lost at any time",
    ),
];

const ALL: [(&str, &[Choice]); 3] =
    [("Options for -o", EITHER), ("Of a volume of F2FS", F2FS), ("Of a volume of ScherlFS", SCHERLFS)];

/// The options of `joulefs mount`.
pub fn of_mounts() -> Vec<&'static Choice> {
    ALL.iter().flat_map(|(_, choices)| *choices).collect()
}

/// Those that a volume has without being mounted: where files are copied to it, or calls replayed on it.
pub fn of_volumes() -> Vec<&'static Choice> {
    F2FS.iter().chain(SCHERLFS).collect()
}

/// The words that an option has for values, of the text that lists them.
pub fn words(values: &str) -> Vec<String> {
    let numbers = |(from, to): (&str, &str)| Some((from.parse::<u32>().ok()?, to.parse::<u32>().ok()?));
    if let Some((from, to)) = values.split_once("..").and_then(numbers) {
        return (from..=to).map(|n| n.to_string()).collect();
    }
    let words = values.split('|').map(|word| word.split(['[', ':']).next().unwrap_or(word));
    words.filter(|w| !w.is_empty() && *w != "*" && w.chars().all(|c| !c.is_uppercase())).map(str::to_owned).collect()
}

/// Columns of the table.
const COLUMNS: usize = 92;

/// The table for `--help`.
pub fn table() -> String {
    let mut text = String::new();
    for (heading, choices) in ALL {
        text += &format!("{heading}:\n");
        for (name, values, meaning) in choices {
            let values = if values.is_empty() { String::new() } else { format!("={values}") };
            text += &format!("  {name}{values}\n");
            text += &format!("        {}\n", output::wrapped(meaning, 8, COLUMNS));
        }
        text += "\n";
    }
    text
}

/// Which name may be meant by one that nobody knows.
pub fn meant_by_name(name: &str) -> String {
    meant::tip(name, ALL.iter().flat_map(|(_, choices)| choices.iter().map(|choice| choice.0)))
}

/// What is said of a name that nobody knows.
pub fn unknown(option: &str, name: &str) -> String {
    format!("unknown mount option {option:?}{}; see joulefs mount --help", meant_by_name(name))
}

/// What may be meant by a wrong value of an option, if it has words for values.
pub fn meant_by(name: &str, value: Option<&str>) -> String {
    let choices = ALL.iter().flat_map(|(_, choices)| choices.iter());
    let Some((.., values, _)) = choices.into_iter().find(|choice| choice.0 == name) else { return String::new() };
    let words = words(values);
    value.map_or(String::new(), |value| meant::tip(value, words.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::{MountOptions, OptionError};

    /// A name stands in a source as what is matched: `"name" =>`, or `"name" | "other" =>`.
    fn matched(source: &str) -> Vec<&str> {
        let arms = source.lines().map(str::trim).filter(|line| line.starts_with('"') && line.contains("=>"));
        let words = arms.flat_map(|line| line.split("=>").next().unwrap_or("").split('|'));
        words.filter_map(|w| w.trim().strip_prefix('"')?.split('"').next()).collect()
    }

    #[test]
    fn the_table_has_every_option_there_is_and_no_other() {
        let sources = [
            include_str!("../mount.rs"),
            include_str!("../../../../volume/src/options/f2fs.rs"),
            include_str!("../../../../volume/src/options/scherlfs.rs"),
            include_str!("../../../../f2fs/src/compress/options.rs"),
        ];
        let known: Vec<&str> = sources.iter().flat_map(|s| matched(s.split("#[cfg(test)]").next().unwrap())).collect();
        let listed: Vec<&str> = ALL.iter().flat_map(|(_, c)| c.iter().map(|choice| choice.0)).collect();
        // Names of values are matched in the same way.
        let values = ["fs", "user", "lz4", "lzo", "lzo-rle", "zstd"];
        for name in known.iter().filter(|name| !values.contains(name)) {
            assert_eq!(listed.iter().filter(|l| l == &name).count(), 1, "{name} is not in the table once");
        }
        for name in listed {
            assert!(known.contains(&name), "{name} is in the table, and nobody takes it");
        }
    }

    #[test]
    fn every_word_that_the_table_gives_as_a_value_is_one() {
        for (_, choices) in ALL {
            for (name, values, _) in choices {
                let words = values.split('|').filter(|v| !v.is_empty() && v.chars().all(|c| !c.is_uppercase()));
                for word in words.filter(|w| !w.contains(['[', '.', '*'])) {
                    let known = MountOptions::default().set(name, Some(word));
                    let ours = matches!(known, Err(OptionError::Unknown(_)))
                        && ["on", "off", "newest", "older"].contains(&word);
                    assert!(known.is_ok() || ours || word == "auto", "{name}={word}: {known:?}");
                }
            }
        }
    }

    #[test]
    fn a_mistyped_name_or_value_is_answered_with_what_was_meant() {
        assert!(unknown("no_atime", "no_atime").contains("did you mean noatime?"));
        assert!(unknown("warp", "warp").ends_with("\"warp\"; see joulefs mount --help"));
        assert_eq!(meant_by("gc", Some("gredy")), "; did you mean greedy?");
        assert_eq!(meant_by("threads", Some("gredy")), "");
        assert_eq!(meant_by("compress_algorithm", Some("zst")), "; did you mean zstd?");
    }

    #[test]
    fn the_table_fits_a_terminal_and_holds_every_meaning() {
        let text = table();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        for (_, choices) in ALL {
            for (name, _, meaning) in choices {
                let words: Vec<&str> = text.split_whitespace().collect();
                let own: Vec<&str> = meaning.split_whitespace().collect();
                assert!(words.windows(own.len()).any(|w| w == own), "{name}");
            }
        }
    }
}
