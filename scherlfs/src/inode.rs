//! An inode in memory, and what of it waits to be written.

use std::collections::BTreeMap;

use device::clock;
use rustc_hash::FxHashSet;
use scherlfs_format::inode::{Attributes, Time, XATTRS_MAX, continuations, indexes};
use scherlfs_format::{Addr, BLOCK, FIRST_INO, IFILE, Ino, ROOT, Run};
use vfs::{Attr, DeviceNumber, FileKind, Timestamp};

use crate::extents::Extents;
use crate::known_names::Names;
use crate::page::Page;

/// Indices of an inode's times.
pub(crate) const ACCESSED: usize = 0;
pub(crate) const MODIFIED: usize = 1;
pub(crate) const CHANGED: usize = 2;
pub(crate) const BORN: usize = 3;

/// The append-only flag of `chattr`.
pub(crate) const APPEND_ONLY: u32 = 0x20;
/// Enforced `chattr` flags: immutable and append-only.
pub(crate) const SEALED: u32 = 0x10 | APPEND_ONLY;

/// An inode.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub a: Attributes,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub extents: Extents,
    /// Address of its last written version.
    pub addr: Option<Addr>,
    /// Its index blocks there. The extents record the continuations.
    pub indexes: Vec<Addr>,
    /// Blocks of contents that wait to be written.
    pub pages: BTreeMap<u64, Page>,
    /// When it began to wait after its last write; `None` if nothing waits.
    pub waits: Option<u64>,
    /// Most blocks for writing it, included in the volume's total.
    pub cost: u64,
    /// Names and blocks of a directory in memory.
    pub names: Option<Box<Names>>,
}

impl Inode {
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.a.mode)
    }
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }
    pub fn is_file(&self) -> bool {
        self.kind() == Some(FileKind::Regular)
    }
    /// Number of blocks for its size.
    pub fn size_blocks(&self) -> u64 {
        self.a.size.div_ceil(BLOCK as u64)
    }
    /// Bytes of its attributes.
    pub fn xattr_bytes(&self) -> usize {
        self.xattrs.iter().map(|(n, v)| 3 + n.len() + v.len()).sum()
    }
    /// True if `bytes` bytes of attributes fit.
    pub fn xattrs_fit(bytes: usize) -> bool {
        bytes <= XATTRS_MAX
    }

    /// Most blocks for writing it: each waiting block may split an extent into three.
    pub fn cost_now(&self) -> u64 {
        if self.waits.is_none() {
            return 0;
        }
        let beside = match self.extents.continuations() {
            // All continuations but the last are full.
            0 => {
                let extents = self.extents.listed() + 2 * self.pages.len() + 1;
                let conts = continuations(extents, self.xattr_bytes());
                conts + indexes(conts)
            }
            _ => self.extents.cost(self.pages.len()),
        };
        1 + (beside + self.pages.len()) as u64
    }

    /// Attributes for `stat`.
    pub fn attr(&self) -> Attr {
        let t = |n: usize| Timestamp { sec: self.a.times[n].secs, nsec: self.a.times[n].nanos };
        // Pages over holes have their room, and will get a block.
        let end = self.extents.end();
        let new = match self.extents.blocks() == end {
            // There are holes only behind its end.
            true => self.pages.range(end..).count(),
            false => self.pages.keys().filter(|b| self.extents.at(**b).0.is_none()).count(),
        } as u64;
        Attr {
            ino: vfs::Ino(self.ino.0.into()),
            generation: self.a.generation,
            kind: self.kind().unwrap_or(FileKind::Regular),
            perm: self.a.mode & 0o7777,
            nlink: self.a.nlink,
            uid: self.a.uid,
            gid: self.a.gid,
            size: self.a.size,
            blocks512: (self.extents.blocks() + new) * 8,
            rdev: DeviceNumber { major: (self.a.rdev >> 32) as u32, minor: self.a.rdev as u32 },
            atime: t(ACCESSED),
            mtime: t(MODIFIED),
            ctime: t(CHANGED),
            crtime: Some(t(BORN)),
        }
    }

    pub fn changed(&mut self, now: Time) {
        self.a.times[CHANGED] = now;
    }
    pub fn modified(&mut self, now: Time) {
        self.a.times[MODIFIED] = now;
        self.a.times[CHANGED] = now;
    }
    /// Effects of a write by an unprivileged user.
    pub fn kill_suid_sgid(&mut self) {
        self.a.mode &= !0o4000;
        if self.a.mode & 0o010 != 0 {
            self.a.mode &= !0o2000;
        }
    }
}

/// Index blocks and continuations of an inode's last written version.
pub(crate) fn lists(inode: &Inode) -> impl Iterator<Item = Addr> + '_ {
    let continuations = inode.extents.places().chain(inode.extents.stale().iter().copied());
    inode.indexes.iter().copied().chain(continuations)
}

/// Blocks of an inode's last written version other than contents: its own and its lists.
pub(crate) fn own_blocks(inode: &Inode) -> impl Iterator<Item = Run> + '_ {
    inode.addr.into_iter().chain(lists(inode)).map(|start| Run { start, blocks: 1 })
}

/// The same, except those in `but`.
pub(crate) fn own_blocks_but(inode: &Inode, but: &[Addr]) -> Vec<Run> {
    let but: FxHashSet<Addr> = but.iter().copied().collect();
    own_blocks(inode).filter(|run| !but.contains(&run.start)).collect()
}

/// Owner of reads and writes of an inode's blocks. Hidden files belong to the volume, except for the inode map,
/// which has a name.
pub(crate) fn owner(ino: Ino) -> u64 {
    let hidden = ino < FIRST_INO && ino != ROOT && ino != IFILE;
    if hidden { 0 } else { ino.0.into() }
}

/// Converts the clock's time to an inode's format.
pub(crate) fn time(t: clock::Time) -> Time {
    Time { secs: t.secs, nanos: t.nanos }
}

/// Converts a timestamp to an inode's format.
pub(crate) fn stamp(t: Timestamp) -> Time {
    Time { secs: t.sec, nanos: t.nsec.min(999_999_999) }
}
