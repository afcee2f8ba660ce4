//! One thing that is done to a volume.

use vfs::{Allocate, Moving};

/// One thing done. Paths have `/` between names.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // the fields say it
pub enum Step {
    Create(String),
    /// A file without a name, so many bytes of this stream, synced or not, then its name.
    Appear(String, usize, u64, bool),
    Mkdir(String),
    /// At a byte, so many bytes of this stream.
    Write(String, u64, usize, u64),
    Truncate(String, u64),
    Fallocate(String, Allocate, u64, u64),
    Rename(String, String),
    Exchange(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Setxattr(String, usize),
    Fsync(String),
    Fdatasync(String),
    Fsyncdir(String),
    Sync,
    /// Time passes, in seconds, and what is due happens.
    Tick(u64),
    /// The mounted volume is told something, by name and value.
    Tune(&'static str, &'static str),
    /// The background cleans a section, moving so many blocks at a time, if one is worth it.
    Clean(usize),
    /// The blocks of a file from this one on are brought together.
    Defragment(String, u64, Moving),
}

/// So many files of so many bytes.
pub(super) fn files(count: usize, len: usize) -> Vec<Step> {
    let file = |i: usize| [Step::Create(format!("f{i}")), Step::Write(format!("f{i}"), 0, len, i as u64)];
    (0..count).flat_map(file).collect()
}
