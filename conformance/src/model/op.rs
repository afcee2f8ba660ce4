//! What can be asked of a file system, in few enough names that operations meet each other.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Which directory: an index into [`Dir::PATHS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dir(pub u8);

/// Which name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(pub u8);

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub Dir, pub Name);

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub at: u64,
    /// How many.
    pub len: u64,
}

impl Dir {
    /// Directories as names from the root. The same names are files at other times.
    pub const PATHS: [&'static [u8]; 5] = [&[], &[0], &[1], &[0, 2], &[0, 2, 1]];
}

impl Name {
    /// How many names there are.
    pub const COUNT: u8 = 8;

    /// Its bytes: short ones, one of a hot and one of a cold extension, one of 255 bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self.0 {
            5 => b"name5.db".to_vec(),
            6 => b"name6.jpg".to_vec(),
            7 => vec![b'L'; 255],
            n => vec![b'n', b'0' + n],
        }
    }
}

/// One operation. Fields are small so that shrinking reads well.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields say it
pub enum Op {
    Create(Place),
    Mkdir(Place),
    Symlink(Place, u16),
    Mknod(Place),
    Link(Place, Place),
    Unlink(Place),
    Rmdir(Place),
    /// With the bits of `RenameFlags`.
    Rename(Place, Place, u32),
    Write(Place, Range, u8),
    Truncate(Place, u64),
    /// 0 reserve, 1 reserve keeping the size, 2 punch, 3 zero, 4 zero keeping the size, 5 collapse, 6 insert.
    Fallocate(Place, u8, Range),
    Chmod(Place, u16),
    Chown(Place, u32),
    Setxattr(Place, u8, u16, u32),
    Removexattr(Place, u8),
    Read(Place, Range),
    Stat(Place),
    Readlink(Place),
    Xattrs(Place),
    SeekData(Place, u64),
    SeekHole(Place, u64),
    List(Dir),
    Fsync(Place, bool),
    Fsyncdir(Dir),
    Sync,
    /// Half a minute passes and background work is done.
    Tick,
    /// Unmounts, checks, mounts.
    Remount,
}

fn place() -> impl Strategy<Value = Place> + Clone {
    (select(vec![0u8, 0, 0, 1, 1, 2, 3, 4]), 0..Name::COUNT).prop_map(|(d, n)| Place(Dir(d), Name(n)))
}

/// Offsets near where something changes: sectors, blocks, the inline area (3,488 bytes without an
/// attribute area, 3,688 with), the inode's 923 pointers, direct nodes of 1,018, indirect nodes.
fn offset() -> impl Strategy<Value = u64> + Clone {
    let edges = vec![
        0u64,
        3488,
        3688,
        4096,
        8192,
        65536,
        923 * 4096,
        (923 + 1018) * 4096,
        (923 + 2 * 1018) * 4096,
        (923 + 3 * 1018) * 4096,
        (923 + 2 * 1018 + 1018 * 1018) * 4096,
    ];
    prop_oneof![
        6 => 0u64..20_000,
        2 => (0u64..40).prop_map(|b| b * 4096),
        3 => (select(edges), 0u64..9000).prop_map(|(e, d)| (e + d).saturating_sub(4500)),
    ]
}

fn length() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        4 => 0u64..5000,
        2 => select(vec![1u64, 511, 512, 3488, 3689, 4095, 4096, 4097, 8192]),
        1 => 0u64..100_000,
    ]
}

fn range() -> impl Strategy<Value = Range> + Clone {
    (offset(), length()).prop_map(|(at, len)| Range { at, len })
}

fn blocks() -> impl Strategy<Value = Range> + Clone {
    prop_oneof![
        4 => (0u64..12, 1u64..8).prop_map(|(at, len)| Range { at: at * 4096, len: len * 4096 }),
        1 => (915u64..930, 1u64..20).prop_map(|(at, len)| Range { at: at * 4096, len: len * 4096 }),
        2 => range(),
    ]
}

fn op() -> impl Strategy<Value = Op> + Clone {
    prop_oneof![
        10 => place().prop_map(Op::Create),
        6 => place().prop_map(Op::Mkdir),
        2 => (place(), select(vec![1u16, 60, 3487, 3489, 3689, 4000])).prop_map(|(p, n)| Op::Symlink(p, n)),
        1 => place().prop_map(Op::Mknod),
        3 => (place(), place()).prop_map(|(a, b)| Op::Link(a, b)),
        4 => place().prop_map(Op::Unlink),
        2 => place().prop_map(Op::Rmdir),
        8 => (place(), place(), select(vec![0u32, 0, 0, 1, 2, 2, 4, 3])).prop_map(|(a, b, f)| Op::Rename(a, b, f)),
        16 => (place(), range(), any::<u8>()).prop_map(|(p, r, s)| Op::Write(p, r, s)),
        6 => (place(), offset()).prop_map(|(p, n)| Op::Truncate(p, n)),
        8 => (place(), 0u8..7, blocks()).prop_map(|(p, k, r)| Op::Fallocate(p, k, r)),
        1 => (place(), 0u16..0o7777).prop_map(|(p, m)| Op::Chmod(p, m)),
        1 => (place(), 0u32..9).prop_map(|(p, m)| Op::Chown(p, m)),
        3 => (place(), 0u8..3, 0u16..900, 0u32..3).prop_map(|(p, n, l, f)| Op::Setxattr(p, n, l, f)),
        1 => (place(), 0u8..3).prop_map(|(p, n)| Op::Removexattr(p, n)),
        6 => (place(), range()).prop_map(|(p, r)| Op::Read(p, r)),
        3 => place().prop_map(Op::Stat),
        1 => place().prop_map(Op::Readlink),
        1 => place().prop_map(Op::Xattrs),
        2 => (place(), offset()).prop_map(|(p, o)| Op::SeekData(p, o)),
        2 => (place(), offset()).prop_map(|(p, o)| Op::SeekHole(p, o)),
        2 => (0u8..5).prop_map(|d| Op::List(Dir(d))),
        4 => (place(), any::<bool>()).prop_map(|(p, d)| Op::Fsync(p, d)),
        1 => (0u8..5).prop_map(|d| Op::Fsyncdir(Dir(d))),
        2 => Just(Op::Sync),
        1 => Just(Op::Tick),
        2 => Just(Op::Remount),
    ]
}

/// At most `longest` operations.
pub fn sequence(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..longest)
}
