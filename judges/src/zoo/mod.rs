//! Which operations fill a volume with one of everything?
//!
//! [`plan`] returns the same list of operations for the same seed and [`Size`]: files of every way F2FS stores
//! contents, names, attributes and links, created in ways that occur on real volumes (overwrites, truncation, renames,
//! deletion). [`on_path`] performs them below a directory of any mounted file system, [`in_process`] on a
//! [`vfs::FileSystem`]; the resulting trees are equal, modification times included.
//!
//! Left out: concurrency, and what only one of the two executors could do (mapped memory, file locks).

mod attributes;
mod contents;
pub mod in_process;
mod names;
pub mod on_path;

use crate::zoo::plan_state::Plan;

mod plan_state;

/// The kind of node that [`ZooOp::Mknod`] creates.
pub use vfs::FileKind;
/// How [`ZooOp::Rename`] treats its target.
pub use vfs::RenameFlags;

/// One operation. Paths are relative to the root of the tree, without a leading slash; the empty path is the root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ZooOp {
    Mkdir {
        path: Vec<u8>,
        perm: u16,
    },
    /// An empty regular file.
    Create {
        path: Vec<u8>,
        perm: u16,
    },
    Mknod {
        path: Vec<u8>,
        kind: FileKind,
        perm: u16,
        major: u32,
        minor: u32,
    },
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
    },
    Link {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    /// `len` bytes of [`fill`] at `offset`.
    Write {
        path: Vec<u8>,
        offset: u64,
        len: usize,
        stream: u64,
    },
    Truncate {
        path: Vec<u8>,
        size: u64,
    },
    /// Reserve space; the size does not change if `keep_size`.
    Reserve {
        path: Vec<u8>,
        offset: u64,
        len: u64,
        keep_size: bool,
    },
    PunchHole {
        path: Vec<u8>,
        offset: u64,
        len: u64,
    },
    SetXattr {
        path: Vec<u8>,
        name: String,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: Vec<u8>,
        name: String,
    },
    Chown {
        path: Vec<u8>,
        uid: u32,
        gid: u32,
    },
    /// Not for symlinks.
    Chmod {
        path: Vec<u8>,
        perm: u16,
    },
    /// Access and modification time, set to the same value.
    SetTimes {
        path: Vec<u8>,
        sec: i64,
        nsec: u32,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
        flags: RenameFlags,
    },
    Unlink {
        path: Vec<u8>,
    },
    Rmdir {
        path: Vec<u8>,
    },
    Fsync {
        path: Vec<u8>,
    },
}

/// The size of the zoo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 3,300 paths and 31 MB: fits an image of 100 MiB.
    Small,
    /// 8,100 paths, a directory of 5,000 names, 60 MB: fits 200 MiB.
    Medium,
    /// 57,000 paths, a directory of 50,000 names, 145 MB: fits 512 MiB.
    Full,
}

impl Size {
    /// From `small`, `medium` or `full`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "small" => Some(Size::Small),
            "medium" => Some(Size::Medium),
            "full" => Some(Size::Full),
            _ => None,
        }
    }
    /// Names in the largest directory.
    fn big_directory(self) -> usize {
        match self {
            Size::Small => 1000,
            Size::Medium => 5000,
            Size::Full => 50_000,
        }
    }
    /// Number of random files.
    fn random_files(self) -> usize {
        match self {
            Size::Small => 100,
            Size::Medium => 800,
            Size::Full => 3000,
        }
    }
    /// Size of the longest file that is fully written.
    fn longest_dense_file(self) -> usize {
        match self {
            Size::Small => 5 << 20,
            Size::Medium => 20 << 20,
            Size::Full => 64 << 20,
        }
    }
}

/// The operations that create the zoo. The last ones set every path's modification time, so the tree does not depend on
/// the time of its creation.
pub fn plan(seed: u64, size: Size) -> Vec<ZooOp> {
    let mut plan = Plan::new(seed);
    contents::every_mapping(&mut plan, size);
    contents::sparse(&mut plan);
    contents::rewritten(&mut plan);
    contents::at_random(&mut plan, size);
    names::directories(&mut plan, size);
    names::links_and_nodes(&mut plan);
    names::moved_and_deleted(&mut plan);
    attributes::extended(&mut plan);
    attributes::access_lists(&mut plan);
    attributes::modes_and_owners(&mut plan);
    plan.finish()
}

/// The bytes of stream `stream` from `offset`: the data of [`ZooOp::Write`].
pub fn fill(stream: u64, offset: u64, buffer: &mut [u8]) {
    let mut at = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let word = mixed(stream ^ mixed(at / 8)).to_le_bytes();
        let skip = usize::try_from(at % 8).unwrap_or(0);
        let take = rest.len().min(8 - skip);
        let (now, later) = rest.split_at_mut(take);
        now.copy_from_slice(&word[skip..skip + take]);
        at += take as u64;
        rest = later;
    }
}

/// The output function of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
