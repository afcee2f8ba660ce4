//! Which options does `-o` of `joulefs mount` accept, for which file system, and what do they mean?
//!
//! [`super::parse`] and the file systems parse them; this table is for the help and for suggestions after typos.

use crate::{meant, output};

/// An option: its name, its values (empty if it takes none), its description.
pub type Choice = (&'static str, &'static str, &'static str);

/// For all file systems.
const EITHER: &[Choice] = &[
    ("ro", "", "mount read-only"),
    ("rw", "", "the default"),
    ("allow_other", "on|off", "other users may access the mount; default: only if root mounts"),
    ("uid", "N|NAME", "show all files as owned by this user; see below"),
    ("gid", "N|NAME", "show all files as owned by this group; see below"),
    ("umask", "OCTAL", "permission bits to remove from all files; see below"),
    ("dmask", "OCTAL", "the same for directories"),
    ("fmask", "OCTAL", "the same for all other files"),
    ("noatime", "", "do not update access times"),
    ("relatime", "", "the default: update an access time if it is older than the last change, or than a day"),
    ("dev", "", "allow device nodes; root only"),
    ("suid", "", "honour set-uid and set-gid bits; root only"),
    ("noexec", "", "do not run programs"),
    ("writeback", "on|off", "the kernel caches writes; default on"),
    ("threads", "N", "number of serving threads; default 2"),
    ("dirty", "MIB", "maximum of unwritten contents in memory; default 32"),
    ("dir_cache", "MIB", "cache for directories; default 16"),
    ("power", "battery|powered|auto", "default battery; auto: ask the system"),
    (
        "commit",
        "SECONDS",
        "make every change durable within this time, or as soon as nothing changes for 0.3 s; 0: only at fsync and \
         unmount. Default 5; with power= and a battery 15, without the 0.3 s rule; with sleep= 0. If root mounts, files \
         that stay open are included; otherwise the kernel may hold their contents for 35 s more",
    ),
    ("commit_idle", "on|off", "commit early when nothing changes for 0.3 s; default on"),
    ("stats", "FILE", "write the blocks written by cause to FILE at the end; JSON if FILE ends in .json"),
    ("log", "FILE", "append messages to FILE too; a background mount always logs to the system log (/dev/log)"),
    (
        "retry",
        "SECONDS",
        "how long to retry a failed last checkpoint, every 2 seconds, with the image locked; default 60",
    ),
];

/// For F2FS.
const F2FS: &[Choice] = &[
    ("norecovery", "", "read-only, as of the last checkpoint: files fsynced since then are neither replayed nor lost"),
    (
        "checkpoint",
        "newest|older",
        "older: read-only, from the checkpoint before the newest one, for a volume whose newest one is wrong; default \
         newest",
    ),
    ("disable_roll_forward", "", "discard files fsynced since the last checkpoint"),
    ("discard", "on|off", "tell the device which blocks are free; default on"),
    ("nodiscard", "", "as discard=off"),
    (
        "discard_unit",
        "segment|block|price",
        "segment: discard segments that become free; block: also holes of 64 KiB or more when idle, and every hole if the \
         volume is more than 80 % full, as Linux does; price: when idle, also holes whose discard costs less than it can \
         save inside the flash. Default segment; with profile=phone or card price",
    ),
    (
        "fsync_mode",
        "strict|posix|nobarrier",
        "how often an fsync empties the device's cache. strict: an fsync that a power cut interrupts leaves each block as \
         it was or as it should be; posix: once, as Linux, and it may leave other data in the file; nobarrier: never, as \
         vendors of phones mount: A POWER CUT MAY UNDO FSYNCS OR LEAVE OTHER DATA IN THEIR FILES. Default strict",
    ),
    (
        "in_place",
        "BLOCKS|price",
        "when an fsync overwrites pages in place: up to this many, or where that costs fewer joules than new places. \
         Default 8, as in Linux; with profile=phone or card price",
    ),
    (
        "mode",
        "adaptive|lfs",
        "lfs: write only at the ends of the logs, never in place (except pinned files) or into holes; default adaptive",
    ),
    ("inline", "on|off", "store small files in their inodes; default on"),
    (
        "delta",
        "on|off|inode|nodes",
        "store small updates as deltas: in the inode and in delta nodes, or only in one of these; default on for a \
         volume that may hold deltas",
    ),
    (
        "delta_layout",
        "joulefs|medfs",
        "what an fsync writes with delta nodes, for comparisons. joulefs: one node; medfs: compact pages, their meta page \
         and the inode, as published (FAST '25), which writes more. Every mount reads both. Default joulefs",
    ),
    (
        "delta_reads",
        "few|all|joules",
        "which bases to read if they are not in memory. few: those of an fsync of few pages, which then writes one \
         block, and others if reading them costs fewer joules than writing the pages; all: every base; joules: only \
         if reading costs fewer joules. Default few",
    ),
    (
        "delta_return",
        "on|off",
        "when idle, rewrite pages stored in delta nodes as whole pages, in files that are only read; default off",
    ),
    (
        "prealloc",
        "db[:SIZE]|off",
        "reserve blocks ahead of growing databases and their journals, 100K at a time, so that they stay in few \
         extents; default off",
    ),
    (
        "streams",
        "one|data|logs|data-moved|logs-moved|moved",
        "what to separate on a device with placement handles. one: nothing; data: hot, warm and cold contents, as \
         Linux 7.2; logs: every log; -moved: also blocks that cleaning moves; moved: only these. Default one",
    ),
    ("node_cache", "MIB", "cache for nodes; default: a 64th of the memory, 32 to 256"),
    (
        "compress_algorithm",
        "lz4|zstd[:LEVEL]|lzo|lzo-rle",
        "algorithm for new compressed files, on a volume with the feature compression",
    ),
    ("compress_log_size", "2..8", "blocks in a cluster, as a power of two"),
    ("compress_extension", "EXT|*", "compress new files with this extension; may be repeated"),
    ("nocompress_extension", "EXT", "do not compress new files with this extension; may be repeated"),
    ("compress_chksum", "", "store a checksum for each cluster"),
    (
        "compress_mode",
        "fs|user",
        "when to compress files marked by chattr +c or by extension. fs: when they are \
        written; user: on request",
    ),
    (
        "gc",
        "greedy|cost-benefit|atgc|mwhfb|fagc|joule",
        "policy that chooses the sections to clean; default \
        joule, which spends little more than it saves; with mode=lfs and on zoned devices cost-benefit, Linux's",
    ),
    (
        "profile",
        "phone|laptop|card|disk",
        "the class of device whose prices decide what to clean and which pages become deltas; default phone, or the \
        device of --profile",
    ),
    (
        "wear",
        "UJ",
        "what the wear of a programmed block of 4 KiB is worth in microjoules, where cleaning, deltas and discards weigh \
        joules; default 0, only joules count; with profile=phone or card 20",
    ),
    ("background_gc", "on|off", "clean when idle; default on"),
];

/// For ScherlFS.
const SCHERLFS: &[Choice] = &[
    (
        "sync",
        "fsync|call|burst",
        "when changes reach the disk: at fsync, with every call, or with the next burst (needs index=FILE: an fsync is \
         durable in FILE.stage and does not wake the disk; IF FILE.stage IS LOST, FSYNCS SINCE THE LAST BURST ARE \
         LOST); default fsync",
    ),
    ("ifile_cache", "MIB", "cache for inode locations; default 16; 0 disables it, as dir_cache=0 does for directories"),
    ("writeback_seconds", "N", "unwritten contents wait at most this long; default 5"),
    ("checkpoint_bytes", "SIZE", "size of the log between two checkpoints; default 64M"),
    ("checkpoint_seconds", "N", "maximum time between two checkpoints; default: no limit"),
    (
        "clean",
        "auto|threading|copying|plugging|combined",
        "how to free space. auto: on battery do not clean, but write the log into holes; on external power use combined, \
         and defragment files",
    ),
    (
        "placement",
        "before|after|in-place|delayed",
        "where to put the inode of a file that grows by small writes, see joulefs mkfs --help; default: as stored in \
         the volume",
    ),
    ("undo", "SIZE", "how much replaced data to keep for joulefs undo; default: as stored in the volume; 0: nothing"),
    (
        "index",
        "FILE",
        "keep a copy of names and attributes in FILE on another disk and answer from there; FILE is created if \
         missing, is sparse, and may be lost at any time",
    ),
    (
        "sleep",
        "TIME",
        "the disk's sleep timer, such as 10m. Then no write starts only because time has passed, and \
         `joulefs ctl DIR stat` shows what woke the disk",
    ),
    ("stage", "SIZE", "maximum size of the changes that wait in memory for a burst; default 32M"),
    (
        "keep",
        "SIZE",
        "size of FILE.keep (needs index=FILE), a copy of data that was written or read, which serves reads while the \
         disk sleeps. Small files come first; when a program starts reading a file, the rest is read ahead. May be \
         lost at any time",
    ),
];

const ALL: [(&str, &[Choice]); 3] =
    [("Options for -o", EITHER), ("For F2FS volumes", F2FS), ("For ScherlFS volumes", SCHERLFS)];

/// All options of `joulefs mount`.
pub fn of_mounts() -> Vec<&'static Choice> {
    ALL.iter().flat_map(|(_, choices)| *choices).collect()
}

/// Options that apply without a mount: for copying files into an image, or replaying calls.
pub fn of_volumes() -> Vec<&'static Choice> {
    F2FS.iter().chain(SCHERLFS).collect()
}

/// The literal values of an option, from the text that lists them.
pub fn words(values: &str) -> Vec<String> {
    let numbers = |(from, to): (&str, &str)| Some((from.parse::<u32>().ok()?, to.parse::<u32>().ok()?));
    if let Some((from, to)) = values.split_once("..").and_then(numbers) {
        return (from..=to).map(|n| n.to_string()).collect();
    }
    let words = values.split('|').map(|word| word.split(['[', ':']).next().unwrap_or(word));
    words.filter(|w| !w.is_empty() && *w != "*" && w.chars().all(|c| !c.is_uppercase())).map(str::to_owned).collect()
}

/// Width of the table.
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

/// A suggestion for an unknown option.
pub fn meant_by_name(name: &str) -> String {
    meant::tip(name, ALL.iter().flat_map(|(_, choices)| choices.iter().map(|choice| choice.0)))
}

/// The error for an unknown option.
pub fn unknown(option: &str, name: &str) -> String {
    format!("unknown mount option {option:?}{}; see joulefs mount --help", meant_by_name(name))
}

/// A suggestion for a wrong value of an option with literal values.
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

    /// Names appear in source as match patterns: `"name" =>`, or `"name" | "other" =>`.
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
                        && ["on", "off", "newest", "older", "phone", "laptop", "card", "disk"].contains(&word);
                    assert!(known.is_ok() || ours || word == "auto", "{name}={word}: {known:?}");
                }
            }
        }
    }

    #[test]
    fn a_mistyped_name_or_value_is_answered_with_what_was_meant() {
        assert!(unknown("no_atime", "no_atime").contains("did you mean noatime?"));
        assert!(unknown("blubb", "blubb").ends_with("\"blubb\"; see joulefs mount --help"));
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
