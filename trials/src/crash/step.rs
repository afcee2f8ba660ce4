//! A single operation on a volume.

use vfs::{Allocate, Moving};

/// An operation. Paths have `/` between names.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // the field names suffice
pub enum Step {
    Create(String),
    /// Creates a file without a name, writes bytes of this stream, syncs it if true, then names it.
    Appear(String, usize, u64, bool),
    Mkdir(String),
    /// Offset, length, and stream of the data.
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
    /// Time passes, in seconds, and due background work is done.
    Tick(u64),
    /// Sets a tunable of the mounted volume, by name and value.
    Tune(&'static str, &'static str),
    /// Background cleaning of a section, moving this many blocks per step, if one is worth it.
    Clean(usize),
    /// Defragments a file from this block on.
    Defragment(String, u64, Moving),
}

/// `count` files of `len` bytes.
pub(super) fn files(count: usize, len: usize) -> Vec<Step> {
    let file = |i: usize| [Step::Create(format!("f{i}")), Step::Write(format!("f{i}"), 0, len, i as u64)];
    (0..count).flat_map(file).collect()
}
