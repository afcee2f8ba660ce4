//! Inode blocks: attributes of a file, places of its blocks, and a proof that it was completely written.
//!
//! 256 bytes, then 3,840 for extents, which grow from the front, and extended attributes, which grow from the back.
//! Further extents are in continuation blocks. The inode lists up to [`RUNS`] of these; if there are more, it lists
//! index blocks, which list them.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut};

use crate::chain::{HEADER, Header, Kind, RUNS_MAX};
use crate::extent::{EXTENT_BYTES, Extent, RawExtent};
pub use crate::time::{RawTime, Time};
use crate::{Addr, BLOCK, BLOCKS_MAX, Block, FIRST, FormatError, Ino, Run};

const WHAT: &str = "inode";
/// Runs in an inode: of continuations, or of index blocks if there are more continuations than this.
pub const RUNS: usize = 6;
/// Most extents of a file.
pub const EXTENTS_LIMIT: usize = RUNS * RUNS_MAX * RUNS_MAX;
/// Bytes for extents and attributes.
pub const AREA: usize = 3840;
const AREA_AT: usize = BLOCK - AREA;
/// Extents that fit without attributes.
pub const EXTENTS_MAX: usize = AREA / EXTENT_BYTES;
const _: () = assert!(EXTENTS_MAX == 320);
/// Most bytes of attributes: extents may be elsewhere.
pub const XATTRS_MAX: usize = AREA;

/// On-disk form.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInode {
    /// Header of every log block.
    pub header: [u8; HEADER],
    /// Number of other log blocks in this piece: continuations, then contents. `form` tells their place.
    pub follow: U32,
    /// CRC-32 over them.
    pub follow_crc: U32,
    /// Distinguishes successive uses of one number.
    pub generation: U32,
    /// Total number of extents.
    pub extents: U32,
    /// Bytes of attributes at the end.
    pub xattr_bytes: U16,
    /// Number of continuation blocks.
    pub continuations: U16,
    /// Kind and permissions, as `st_mode`.
    pub mode: U16,
    /// Place of the piece's other blocks, see [`Form`].
    pub form: U16,
    /// Previous address of this inode; 0: none.
    pub previous: U64,
    /// Number of names.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// The directory in which it was created or to which it was moved; for a directory, its parent.
    pub parent: U32,
    /// Size in bytes.
    pub size: U64,
    /// Blocks stored or reserved, without its own.
    pub blocks: U64,
    /// Times of access, content change, any change, creation.
    pub times: [RawTime; 4],
    /// Device number: major in the upper half, minor in the lower.
    pub rdev: U64,
    /// Flags of `chattr`.
    pub flags: U32,
    /// The project.
    pub project: U32,
    /// Addresses of the continuations or the index blocks.
    pub runs: [RawExtent; RUNS],
    /// Zero.
    pub spare_b: [u8; 24],
    /// Extents and attributes.
    pub area: [u8; AREA],
}

const _: () = assert!(size_of::<RawInode>() == BLOCK && size_of::<RawInode>() - AREA == AREA_AT && AREA_AT == 256);

/// Attributes of an inode without the places of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Distinguishes successive uses of one number.
    pub generation: u32,
    /// Kind and permissions.
    pub mode: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// See [`RawInode::parent`].
    pub parent: Ino,
    /// Size in bytes.
    pub size: u64,
    /// Blocks stored or reserved.
    pub blocks: u64,
    /// Times of access, content change, any change, creation.
    pub times: [Time; 4],
    /// Device number.
    pub rdev: u64,
    /// Flags of `chattr`.
    pub flags: u32,
    /// The project.
    pub project: u32,
}

/// Place of the other blocks in an inode's piece (Scherl 2004, Fig. 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u16)]
pub enum Form {
    /// Behind the inode.
    #[default]
    Behind = 0,
    /// Before the inode, which is the last block.
    Ahead = 1,
    /// Two blocks are for the inode, and it is in the first; the others follow the second.
    First = 2,
    /// Two blocks are for the inode, and it is in the second.
    Second = 3,
}

impl Form {
    /// Decodes its number.
    pub fn from_number(number: u16) -> Option<Self> {
        [Form::Behind, Form::Ahead, Form::First, Form::Second].into_iter().find(|f| *f as u16 == number)
    }
}

/// A name and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// A decoded inode block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its transaction and piece.
    pub header: Header,
    /// Place of the piece's other blocks.
    pub form: Form,
    /// Their number.
    pub follow: u32,
    /// Their checksum.
    pub follow_crc: u32,
    /// Previous address.
    pub previous: Option<Addr>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Extended attributes, ordered by name.
    pub xattrs: Vec<Xattr>,
    /// The first extents; the others are in continuations.
    pub extents: Vec<Extent>,
    /// Total number of extents.
    pub extents_in_all: u32,
    /// Total number of continuation blocks.
    pub continuations: usize,
    /// Addresses of the continuations, or of the index blocks if there are any.
    pub runs: Vec<Run>,
}

/// Bytes of attributes.
pub fn xattr_bytes(xattrs: &[Xattr]) -> usize {
    xattrs.iter().map(|(name, value)| 3 + name.len() + value.len()).sum()
}

/// Number of extents that fit next to `xattr_bytes` bytes of attributes.
pub fn room(xattr_bytes: usize) -> usize {
    AREA.saturating_sub(xattr_bytes) / EXTENT_BYTES
}

/// Number of full continuation blocks for `extents` extents next to `xattr_bytes` bytes of attributes.
pub fn continuations(extents: usize, xattr_bytes: usize) -> usize {
    extents.saturating_sub(room(xattr_bytes)).div_ceil(RUNS_MAX)
}

/// Number of index blocks for scattered continuations.
pub fn indexes(continuations: usize) -> usize {
    if continuations > RUNS { continuations.div_ceil(RUNS_MAX) } else { 0 }
}

fn read_xattrs(bytes: &[u8]) -> Option<Vec<Xattr>> {
    let (mut at, mut all) = (0, Vec::<Xattr>::new());
    while at < bytes.len() {
        let head = bytes.get(at..at + 3)?;
        let (name, value) = (usize::from(head[0]), usize::from(u16::from_le_bytes([head[1], head[2]])));
        let end = at + 3 + name + value;
        let both = bytes.get(at + 3..end)?;
        if name == 0 || all.last().is_some_and(|(last, _)| last.as_slice() >= &both[..name]) {
            return None;
        }
        all.push((both[..name].to_vec(), both[name..].to_vec()));
        at = end;
    }
    Some(all)
}

impl Inode {
    /// Decodes a block.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let header = Header::expect(block, Kind::Inode)?;
        let raw = RawInode::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: WHAT })?;
        let wrong = |field, value| FormatError::Field { what: WHAT, field, value };
        if header.ino == Ino(0) {
            return Err(wrong("ino", 0));
        }
        let bytes = usize::from(raw.xattr_bytes.get());
        let area = raw.area.get(AREA.wrapping_sub(bytes)..).ok_or(wrong("xattr_bytes", bytes as u64))?;
        let xattrs = read_xattrs(area).ok_or(wrong("attributes", bytes as u64))?;
        let (all, blocks) = (raw.extents.get(), usize::from(raw.continuations.get()));
        let here = room(bytes).min(all as usize);
        // Each of them lists at least one extent.
        if blocks < continuations(all as usize, bytes) || blocks > all as usize - here {
            return Err(wrong("continuations", blocks as u64));
        }
        let extents = raw.area[..here * EXTENT_BYTES]
            .chunks_exact(EXTENT_BYTES)
            .map(|b| RawExtent::read_from_bytes(b).map_err(|_| wrong("extents", 0)).and_then(|r| Extent::try_from(&r)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut runs = Vec::new();
        for r in raw.runs.iter().filter(|r| r.blocks.get() > 0) {
            runs.push(crate::superblock::path_run(r, WHAT)?);
        }
        let named = if indexes(blocks) > 0 { indexes(blocks) } else { blocks };
        if runs.iter().map(|r| u64::from(r.blocks)).sum::<u64>() != named as u64 {
            return Err(wrong("runs of continuations", blocks as u64));
        }
        let previous = raw.previous.get();
        if previous != 0 && !(FIRST..BLOCKS_MAX).contains(&previous) {
            return Err(wrong("previous", previous));
        }
        if let Some(t) = raw.times.iter().find(|t| t.nanos.get() >= 1_000_000_000) {
            return Err(wrong("nanoseconds", t.nanos.get().into()));
        }
        Ok(Inode {
            header,
            form: Form::from_number(raw.form.get()).ok_or(wrong("form", raw.form.get().into()))?,
            follow: raw.follow.get(),
            follow_crc: raw.follow_crc.get(),
            previous: (previous != 0).then_some(Addr(previous)),
            attributes: Attributes {
                generation: raw.generation.get(),
                mode: raw.mode.get(),
                nlink: raw.nlink.get(),
                uid: raw.uid.get(),
                gid: raw.gid.get(),
                parent: Ino(raw.parent.get()),
                size: raw.size.get(),
                blocks: raw.blocks.get(),
                times: [raw.times[0].time(), raw.times[1].time(), raw.times[2].time(), raw.times[3].time()],
                rdev: raw.rdev.get(),
                flags: raw.flags.get(),
                project: raw.project.get(),
            },
            xattrs,
            extents,
            extents_in_all: all,
            continuations: blocks,
            runs,
        })
    }

    /// Encodes a block. `extents` are those that fit the inode; attributes and runs must fit, too.
    pub fn write(&self) -> Box<Block> {
        self.write_with(&self.extents.iter().map(|e| e.raw()).collect::<Vec<_>>())
    }

    /// The same with these extents, already in on-disk form, instead of its own.
    pub fn write_with(&self, extents: &[RawExtent]) -> Box<Block> {
        let mut block = Box::new([0; BLOCK]);
        let raw: &mut RawInode = transmute_mut!(&mut *block);
        let a = &self.attributes;
        raw.form = (self.form as u16).into();
        raw.follow = self.follow.into();
        raw.follow_crc = self.follow_crc.into();
        raw.generation = a.generation.into();
        raw.extents = self.extents_in_all.into();
        let bytes = xattr_bytes(&self.xattrs);
        raw.xattr_bytes = (bytes as u16).into();
        raw.continuations = (self.continuations as u16).into();
        raw.mode = a.mode.into();
        raw.previous = self.previous.unwrap_or_default().0.into();
        raw.nlink = a.nlink.into();
        raw.uid = a.uid.into();
        raw.gid = a.gid.into();
        raw.parent = a.parent.0.into();
        raw.size = a.size.into();
        raw.blocks = a.blocks.into();
        for (to, t) in raw.times.iter_mut().zip(&a.times) {
            *to = t.raw();
        }
        raw.rdev = a.rdev.into();
        raw.flags = a.flags.into();
        raw.project = a.project.into();
        for (to, r) in raw.runs.iter_mut().zip(&self.runs) {
            *to = Extent::Stored { start: r.start, blocks: r.blocks }.raw();
        }
        let listed = extents[..extents.len().min(AREA / EXTENT_BYTES)].as_bytes();
        raw.area[..listed.len()].copy_from_slice(listed);
        let mut at = AREA.saturating_sub(bytes);
        for (name, value) in &self.xattrs {
            let head = [&[name.len() as u8][..], &(value.len() as u16).to_le_bytes(), name, value].concat();
            if let Some(to) = raw.area.get_mut(at..at + head.len()) {
                to.copy_from_slice(&head);
            }
            at += head.len();
        }
        self.header.write(&mut block);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Seq};

    fn inode() -> Inode {
        let header = Header {
            kind: Kind::Inode,
            epoch: Epoch::new(3, 8),
            attempt: 1,
            seq: Seq(77),
            ino: Ino(9),
            piece: 0,
            pieces: 2,
        };
        let xattrs = vec![(b"user.a".to_vec(), vec![1; 300]), (b"user.b".to_vec(), Vec::new())];
        let extents: Vec<_> = (0..room(xattr_bytes(&xattrs)) as u64)
            .map(|n| Extent::Stored { start: Addr(10 + 2 * n), blocks: 1 })
            .collect();
        let attributes = Attributes {
            mode: 0o100644,
            nlink: 1,
            size: 1 << 40,
            times: [Time { secs: -5, nanos: 999_999_999 }; 4],
            parent: Ino(2),
            ..Attributes::default()
        };
        Inode {
            header,
            form: Form::Second,
            follow: 5,
            follow_crc: 6,
            previous: Some(Addr(4)),
            attributes,
            xattrs,
            extents_in_all: extents.len() as u32 + 339,
            extents,
            continuations: 2,
            runs: vec![Run { start: Addr(7), blocks: 1 }, Run { start: Addr(9), blocks: 1 }],
        }
    }

    #[test]
    fn an_inode_reads_as_it_was_written() {
        assert_eq!(Inode::read(&inode().write()), Ok(inode()));
    }

    #[test]
    fn no_changed_bit_of_an_inode_goes_unseen() {
        let mut block = inode().write();
        for bit in 0..BLOCK * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Inode::read(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn fields_under_a_checksum_that_holds_are_checked_all_the_same() {
        let changed = |change: &dyn Fn(&mut Inode)| {
            let mut i = inode();
            change(&mut i);
            Inode::read(&i.write())
        };
        assert!(changed(&|_| ()).is_ok());
        assert!(changed(&|i| i.header.ino = Ino(0)).is_err());
        assert!(changed(&|i| i.extents_in_all = u32::MAX).is_err());
        assert!(changed(&|i| i.runs.truncate(1)).is_err());
        assert!(changed(&|i| i.xattrs.reverse()).is_err());
        assert!(changed(&|i| i.attributes.times[2].nanos = 1_000_000_000).is_err());
        assert!(changed(&|i| i.previous = Some(Addr(1))).is_err());
    }
}
