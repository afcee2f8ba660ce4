//! What does an inode record about its file?
//!
//! Fields are taken as they are, within bounds that keep arithmetic sound. An invalid inode keeps its name and size,
//! and its blocks are unknown.

use format::inode::{self, Advise, Inline, InodeFlags, RawInode};
use format::node::Shape;
use format::superblock::Features;
use format::{Block, BlockAddr, Ino, delta};

use crate::finding::{Finding, Findings};
use crate::piece::{self, Piece};

/// Type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe, a socket.
    Special,
    /// An invalid mode.
    Unknown,
}

impl Kind {
    fn from_mode(mode: u16) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Directory,
            0o120_000 => Kind::Link,
            0o020_000 | 0o060_000 | 0o010_000 | 0o140_000 => Kind::Special,
            _ => Kind::Unknown,
        }
    }
    fn has_blocks(self) -> bool {
        matches!(self, Kind::File | Kind::Directory | Kind::Link)
    }
}

/// What an inode block alone tells about a file.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Inode number.
    pub ino: Ino,
    /// Address of its block.
    pub addr: BlockAddr,
    /// Its type.
    pub kind: Kind,
    /// Parent, as recorded in the inode.
    pub parent: Ino,
    /// Name, as recorded in the inode.
    pub name: Box<[u8]>,
    /// False if the file may have been renamed or moved since.
    pub name_is_sure: bool,
    /// True if the name is encrypted.
    pub name_is_encrypted: bool,
    /// Bytes.
    pub size: u64,
    /// Block count, as recorded in the inode.
    pub i_blocks: u64,
    /// Link count.
    pub links: u32,
    /// Last change of contents: nanoseconds since 1970.
    pub mtime_ns: i64,
    /// True if the contents are in the inode.
    pub inline: bool,
    /// How the blocks are spread over nodes; `None` if there are none, or if that is unknown.
    pub shape: Option<Shape>,
    /// Blocks of a compressed cluster, as a power of two.
    pub log_cluster: Option<u8>,
    /// True if the space that compression saved was released.
    pub released: bool,
    /// True if blocks must not move.
    pub pinned: bool,
    /// Free bytes for deltas in the inode, including their entries.
    pub delta_room: u16,
    /// Deltas in the inode.
    pub deltas: u8,
    /// False if anything in the inode is invalid.
    pub lawful: bool,
    /// True if the file has no other node: [`own`](Self::own) is then complete.
    pub alone: bool,
    /// The inode's own slots, if the file has no other node.
    pub own: Vec<Piece>,
}

/// Reads an inode and the runs of its own slots.
pub fn draft(
    features: Features,
    seed: u32,
    ino: Ino,
    addr: BlockAddr,
    block: &Block,
    found: &mut Findings,
) -> (Draft, Vec<Piece>) {
    let raw = RawInode::of(block);
    let (inline, advise) = (raw.inline(), raw.advise());
    let kind = Kind::from_mode(raw.i_mode.get());
    let mut out = Draft {
        ino,
        addr,
        kind,
        parent: Ino(raw.i_pino.get()),
        name: raw.name().into(),
        name_is_sure: !advise.contains(Advise::LOST_PINO) && raw.i_links.get() < 2 || kind == Kind::Directory,
        name_is_encrypted: advise.contains(Advise::ENC_NAME),
        size: raw.i_size.get(),
        i_blocks: raw.i_blocks.get(),
        links: raw.i_links.get(),
        mtime_ns: (raw.i_mtime.get() as i64)
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(raw.i_mtime_nsec.get())),
        inline: inline.intersects(Inline::DATA | Inline::DENTRY),
        shape: None,
        log_cluster: None,
        released: inline.contains(Inline::COMPRESS_RELEASED),
        pinned: inline.contains(Inline::PIN_FILE),
        delta_room: 0,
        deltas: 0,
        lawful: true,
        alone: true,
        own: Vec::new(),
    };
    let mut pieces = Vec::new();
    if inode::verify_checksum(features, seed, block).is_err() {
        out.lawful = false;
        found.add(Finding::Checksum { count: 1, ino });
    }
    let parts = raw.divide(features).and_then(|d| Ok((d, raw.shape(features)?, raw.log_cluster(features)?)));
    let (division, shape, log_cluster) = match parts {
        Ok(parts) => parts,
        Err(error) => {
            out.lawful = false;
            found.add(Finding::Inode { count: 1, ino, error });
            return (out, pieces);
        }
    };
    let root = delta::root(raw, features);
    out.alone = raw.i_xattr_nid.get() == 0 && root.is_none() && (0..5).all(|k| raw.nid(k).0 == 0);
    out.deltas = delta::entries(raw, division).count().min(u8::MAX.into()) as u8;
    if out.inline || !kind.has_blocks() {
        return (out, pieces);
    }
    (out.shape, out.log_cluster) = (Some(shape), log_cluster);
    let slots = shape.direct_slots.min(division.addressed());
    piece::runs(ino, 0, (0..slots).map(|slot| raw.addr(division, slot)), &mut pieces);
    let unsuitable = out.pinned
        || log_cluster.is_some()
        || kind != Kind::File
        || advise.intersects(Advise::ENCRYPT | Advise::VERITY)
        || raw.flags().contains(InodeFlags::COMPRESS);
    if !unsuitable {
        let used: usize = delta::entries(raw, division).map(|e| delta::HEADER + e.payload.len()).sum();
        out.delta_room = delta::room(raw, division).saturating_sub(delta::TRAILER + used) as u16;
    }
    (out, pieces)
}
