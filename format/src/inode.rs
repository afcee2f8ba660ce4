//! The inode block: its fields, and the division of its 923 address words among extra attributes, block addresses,
//! inline data, an inline directory and inline extended attributes.

pub mod delta;

use bitflags::bitflags;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::node::{ADDRS_PER_BLOCK, RawNodeFooter, Shape};
use crate::superblock::Features;
use crate::{Block, BlockAddr, FormatError, Nid, crc};

/// Address words in an inode.
pub const ADDRS_PER_INODE: u32 = 923;
/// Words of inline extended attributes if no size is given.
pub const DEFAULT_INLINE_XATTR: u32 = 50;
/// Offset of `i_addr` in the block, where extra attributes overlay it.
pub const ADDR_OFFSET: usize = 360;
/// Longest file name in bytes.
pub const NAME_LEN: usize = 255;
/// Bytes of extra attributes in a full structure.
pub const EXTRA_FULL: u16 = 36;

bitflags! {
    /// `i_inline`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Inline: u8 {
        /// Room for extended attributes inside the inode.
        const XATTR = 0x01;
        /// File contents inside the inode.
        const DATA = 0x02;
        /// Directory entries inside the inode.
        const DENTRY = 0x04;
        /// Inline data is not empty.
        const DATA_EXIST = 0x08;
        /// The inline directory contains `.` and `..`.
        const DOTS = 0x10;
        /// Extra attributes are present.
        const EXTRA_ATTR = 0x20;
        /// Blocks must not move.
        const PIN_FILE = 0x40;
        /// Blocks saved by compression were released.
        const COMPRESS_RELEASED = 0x80;
    }
    /// `i_advise`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Advise: u8 {
        /// Data goes to the cold log.
        const COLD = 0x01;
        /// `i_pino` may not be the parent.
        const LOST_PINO = 0x02;
        /// Contents (or names in the directory) are encrypted.
        const ENCRYPT = 0x04;
        /// Its own name is encrypted.
        const ENC_NAME = 0x08;
        /// Blocks past the size are intentional.
        const KEEP_SIZE = 0x10;
        /// Data goes to the hot log.
        const HOT = 0x20;
        /// fs-verity is on.
        const VERITY = 0x40;
        /// Truncation in progress.
        const TRUNC = 0x80;
    }
    /// `i_flags` (the `chattr` bits).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Compressed.
        const COMPRESS = 0x0000_0004;
        /// Every write is durable at once.
        const SYNC = 0x0000_0008;
        /// Cannot change.
        const IMMUTABLE = 0x0000_0010;
        /// Can only grow.
        const APPEND = 0x0000_0020;
        /// Left out of backups.
        const NODUMP = 0x0000_0040;
        /// No access times.
        const NOATIME = 0x0000_0080;
        /// Never compressed.
        const NOCOMP = 0x0000_0400;
        /// Indexed directory.
        const INDEX = 0x0000_1000;
        /// Directory changes are durable at once.
        const DIRSYNC = 0x0001_0000;
        /// New children inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names fold case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// Inode block on disk (`f2fs_inode` with its footer).
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the on-disk names
pub struct RawInode {
    pub i_mode: U16,
    pub i_advise: u8,
    pub i_inline: u8,
    pub i_uid: U32,
    pub i_gid: U32,
    pub i_links: U32,
    pub i_size: U64,
    /// 4 KiB blocks of the file, its nodes, its inode and its reserved blocks.
    pub i_blocks: U64,
    pub i_atime: U64,
    pub i_ctime: U64,
    pub i_mtime: U64,
    pub i_atime_nsec: U32,
    pub i_ctime_nsec: U32,
    pub i_mtime_nsec: U32,
    pub i_generation: U32,
    /// Directories: hash levels. Files: failed cleanings of a pinned file.
    pub i_current_depth: U32,
    pub i_xattr_nid: U32,
    pub i_flags: U32,
    pub i_pino: U32,
    pub i_namelen: U32,
    pub i_name: [u8; NAME_LEN],
    pub i_dir_level: u8,
    /// Largest extent: file block, address, length.
    pub i_ext: [U32; 3],
    pub i_addr: [U32; ADDRS_PER_INODE as usize],
    pub i_nid: [U32; 5],
    pub footer: RawNodeFooter,
}
const _: () = assert!(size_of::<RawInode>() == 4096);
const _: () = assert!(std::mem::offset_of!(RawInode, i_addr) == ADDR_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawInode, i_nid) == 4052);

/// Extra attributes, overlaid on the first words of `i_addr`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the on-disk names
pub struct RawExtra {
    pub i_extra_isize: U16,
    /// In 4-byte words.
    pub i_inline_xattr_size: U16,
    pub i_projid: U32,
    pub i_inode_checksum: U32,
    pub i_crtime: U64,
    pub i_crtime_nsec: U32,
    pub i_compr_blocks: U64,
    pub i_compress_algorithm: u8,
    pub i_log_cluster_size: u8,
    pub i_compress_flag: U16,
}
const _: () = assert!(size_of::<RawExtra>() == EXTRA_FULL as usize);

/// Value that `i_extra_isize` must reach for a field of [`RawExtra`] to exist.
pub mod extra_end {
    /// `i_inline_xattr_size`.
    pub const INLINE_XATTR_SIZE: u32 = 4;
    /// `i_projid`.
    pub const PROJID: u32 = 8;
    /// `i_inode_checksum`.
    pub const CHECKSUM: u32 = 12;
    /// `i_crtime` with its nanoseconds.
    pub const CRTIME: u32 = 24;
    /// All compression fields.
    pub const COMPRESS: u32 = 36;
}

/// Division of an inode's address words. Every range lies inside the 923 words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// Words taken by extra attributes.
    pub extra: u32,
    /// Words taken by inline extended attributes, at the end.
    pub xattr: u32,
    /// Words taken by the zone of deltas, before the extended attributes; they hold no addresses.
    pub zone: u32,
}

impl Division {
    /// Block addresses that the inode itself can hold.
    #[inline]
    pub fn direct_slots(self) -> u32 {
        ADDRS_PER_INODE - self.extra - self.xattr
    }
    /// Block addresses that fit next to the zone of deltas.
    #[inline]
    pub fn addressed(self) -> u32 {
        self.direct_slots() - self.zone
    }
    /// Byte range of inline data or of an inline directory in the block: from one reserved word after the extra
    /// attributes up to the extended attributes.
    #[inline]
    pub fn inline_area(self) -> std::ops::Range<usize> {
        let start = ADDR_OFFSET + 4 * (self.extra as usize + 1);
        let end = ADDR_OFFSET + 4 * (ADDRS_PER_INODE - self.xattr) as usize;
        start..end.max(start)
    }
    /// Byte range of inline extended attributes in the block.
    #[inline]
    pub fn xattr_area(self) -> std::ops::Range<usize> {
        let end = ADDR_OFFSET + 4 * ADDRS_PER_INODE as usize;
        end - 4 * self.xattr as usize..end
    }
}

impl RawInode {
    /// Views a block as an inode; any bytes are valid here.
    #[inline]
    pub fn of(block: &Block) -> &Self {
        // OK to unwrap: same size, alignment 1, every bit pattern valid.
        Self::ref_from_bytes(block).unwrap()
    }
    /// Views a block as an inode, mutably.
    #[inline]
    pub fn of_mut(block: &mut Block) -> &mut Self {
        // OK to unwrap: same size, alignment 1, every bit pattern valid.
        Self::mut_from_bytes(block).unwrap()
    }
    /// The bits of `i_inline`.
    #[inline]
    pub fn inline(&self) -> Inline {
        Inline::from_bits_retain(self.i_inline)
    }
    /// The bits of `i_advise`.
    #[inline]
    pub fn advise(&self) -> Advise {
        Advise::from_bits_retain(self.i_advise)
    }
    /// The bits of `i_flags`.
    #[inline]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.i_flags.get())
    }
    /// The name recorded in the inode, truncated to 255 bytes.
    pub fn name(&self) -> &[u8] {
        &self.i_name[..(self.i_namelen.get() as usize).min(NAME_LEN)]
    }
    /// The hash behind the name of an inode in a directory with encrypted, case-folding names (kernel
    /// `init_dent_inode`); `None` if the name leaves no room for it.
    pub fn hash_behind_name(&self) -> Option<u32> {
        let behind = self.i_name.get(self.name().len()..)?.first_chunk()?;
        Some(u32::from_le_bytes(*behind))
    }
    /// True if only the size marks the end of the contents: blocks behind it are preallocated, or are fs-verity's
    /// hashes.
    #[inline]
    pub fn has_blocks_behind_end(&self) -> bool {
        self.advise().intersects(Advise::KEEP_SIZE | Advise::VERITY)
    }
    /// Extra attributes, if the inode has them. Fields past `i_extra_isize` are unrelated bytes: check with
    /// [`extra_end`].
    #[inline]
    pub fn extra(&self) -> Option<&RawExtra> {
        let present = self.inline().contains(Inline::EXTRA_ATTR);
        // OK to unwrap: 36 bytes exist, alignment 1, every bit pattern valid.
        present.then(|| RawExtra::ref_from_prefix(self.i_addr.as_bytes()).unwrap().0)
    }
    /// Extra attributes, mutable.
    #[inline]
    pub fn extra_mut(&mut self) -> Option<&mut RawExtra> {
        let present = self.inline().contains(Inline::EXTRA_ATTR);
        // OK to unwrap: as in `extra`.
        present.then(|| RawExtra::mut_from_prefix(self.i_addr.as_mut_bytes()).unwrap().0)
    }
    /// Bytes of extra attributes, 0 without them; at most [`EXTRA_FULL`] if [`Self::divide`] succeeds.
    #[inline]
    pub fn extra_isize(&self) -> u32 {
        self.extra().map_or(0, |e| u32::from(e.i_extra_isize.get()))
    }

    /// Checks the sizes and returns the division of the address words.
    #[inline]
    pub fn divide(&self, features: Features) -> Result<Division, FormatError> {
        let inline = self.inline();
        let extra = self.extra_isize();
        if inline.contains(Inline::EXTRA_ATTR)
            && (extra < 4 || extra > u32::from(EXTRA_FULL) || !extra.is_multiple_of(4))
        {
            let must = "a multiple of 4 from 4 to 36";
            return Err(FormatError::field("inode", "i_extra_isize", extra, must));
        }
        let flexible = features.contains(Features::FLEXIBLE_INLINE_XATTR) && inline.contains(Inline::EXTRA_ATTR);
        let xattr = if flexible {
            // As in the kernel, the size counts even if the XATTR bit is not set.
            self.extra().map_or(0, |e| u32::from(e.i_inline_xattr_size.get()))
        } else if inline.intersects(Inline::XATTR | Inline::DENTRY) {
            DEFAULT_INLINE_XATTR
        } else {
            0
        };
        let words = extra / 4;
        if xattr > ADDRS_PER_INODE - words - 1 {
            let must = "small enough to leave an address word";
            return Err(FormatError::field("inode", "i_inline_xattr_size", xattr, must));
        }
        let zone = if features.contains(Features::DELTA) { delta::marked_words(self) } else { 0 };
        if zone > 0 {
            let inside = inline.intersects(Inline::DATA | Inline::DENTRY);
            if inside || zone < 2 || zone > ADDRS_PER_INODE - words - xattr - 1 {
                let must = "a zone of deltas that leaves an address word, in an inode without inline contents";
                return Err(FormatError::field("inode", "i_ext", zone, must));
            }
        }
        Ok(Division { extra: words, xattr, zone })
    }

    /// Blocks in a cluster of a compressed file, as a power of two; `None` if Linux does not treat the inode as
    /// compressed. (It must be a regular file with the flag and with room for the field, on a volume with the
    /// feature.)
    pub fn log_cluster(&self, features: Features) -> Result<Option<u8>, FormatError> {
        let compressed = features.contains(Features::COMPRESSION)
            && self.flags().contains(InodeFlags::COMPRESS)
            && self.i_mode.get() & 0o170_000 == 0o100_000
            && self.extra_isize() >= extra_end::COMPRESS;
        let Some(extra) = self.extra().filter(|_| compressed) else { return Ok(None) };
        match extra.i_log_cluster_size {
            log @ 2..=8 => Ok(Some(log)),
            log => Err(FormatError::field("inode", "i_log_cluster_size", log, "2..=8")),
        }
    }

    /// Blocks saved by compression according to the inode; 0 if it has no room for the count.
    pub fn saved_blocks(&self) -> u64 {
        self.extra().filter(|_| self.extra_isize() >= extra_end::COMPRESS).map_or(0, |e| e.i_compr_blocks.get())
    }
    /// Adds to the count of blocks saved by compression, if there is room for it.
    pub fn add_saved_blocks(&mut self, more: i64) {
        let room = self.extra_isize() >= extra_end::COMPRESS;
        if let Some(e) = self.extra_mut().filter(|_| room) {
            e.i_compr_blocks = e.i_compr_blocks.get().saturating_add_signed(more).into();
        }
    }

    /// Number of file blocks that the inode and its direct nodes address (kernel `ADDRS_PER_INODE`,
    /// `ADDRS_PER_BLOCK`). In a compressed file these are whole clusters, so that no cluster is split.
    #[inline]
    pub fn shape(&self, features: Features) -> Result<Shape, FormatError> {
        let direct_slots = self.divide(features)?.direct_slots();
        Ok(match self.log_cluster(features)? {
            None => Shape::plain(direct_slots),
            Some(log) => {
                let whole = |slots: u32| slots >> log << log;
                Shape { direct_slots: whole(direct_slots), per_node: whole(ADDRS_PER_BLOCK) }
            }
        })
    }

    /// Reads address slot `slot` (past the extra attributes); a slot at or past [`Division::addressed`] reads as a
    /// hole.
    #[inline]
    pub fn addr(&self, division: Division, slot: u32) -> BlockAddr {
        self.slots(division).get(slot as usize).map_or(BlockAddr::NULL, |a| BlockAddr(a.get()))
    }
    /// Sets address slot `slot` for new contents, and drops a delta of the slot. Does nothing at or past
    /// [`Division::addressed`].
    #[inline]
    pub fn set_addr(&mut self, division: Division, slot: u32, to: BlockAddr) {
        self.move_addr(division, slot, to);
        if division.zone > 0 {
            delta::drop_slots(self, division, slot..slot + 1);
        }
    }
    /// Sets address slot `slot` for relocated contents, and keeps a delta of the slot. Does nothing at or past
    /// [`Division::addressed`].
    #[inline]
    pub fn move_addr(&mut self, division: Division, slot: u32, to: BlockAddr) {
        let end = division.extra.saturating_add(division.addressed()) as usize;
        let slots = self.i_addr.get_mut(division.extra as usize..end);
        if let Some(a) = slots.and_then(|s| s.get_mut(slot as usize)) {
            *a = to.0.into();
        }
    }
    /// The address slots, without extra attributes, the zone of deltas and inline extended attributes.
    #[inline]
    fn slots(&self, division: Division) -> &[U32] {
        let end = division.extra.saturating_add(division.addressed()) as usize;
        self.i_addr.get(division.extra as usize..end).unwrap_or(&[])
    }
    /// `i_nid[k]`.
    #[inline]
    pub fn nid(&self, k: usize) -> Nid {
        self.i_nid.get(k).map_or(Nid(0), |n| Nid(n.get()))
    }
    /// Clears the cached extent: the block map is authoritative. The mark of a zone of deltas stays.
    #[inline]
    pub fn forget_extent(&mut self) {
        if self.has_extent() {
            self.i_ext = [0.into(); 3];
        }
    }
    /// True if the inode is marked as having a zone of deltas.
    pub fn has_zone(&self) -> bool {
        delta::marked_words(self) > 0
    }
    /// True if there is a cached extent to clear.
    #[inline]
    pub fn has_extent(&self) -> bool {
        let [from, addr, length] = self.i_ext.map(|w| w.get());
        length != 0 || (addr < delta::MARK && (from, addr) != (0, 0))
    }
}

/// Seed of all inode checksums of a volume.
pub fn checksum_seed(uuid: &[u8; 16]) -> u32 {
    crc::crc32(!0, uuid)
}

/// Checksum of an inode block without the checksum field.
pub fn checksum(seed: u32, block: &Block) -> u32 {
    let raw = RawInode::of(block);
    let at = ADDR_OFFSET + 8;
    let mut c = crc::crc32(seed, raw.footer.ino.as_bytes());
    c = crc::crc32(c, raw.i_generation.as_bytes());
    c = crc::crc32(c, &block[..at]);
    c = crc::crc32(c, &[0; 4]);
    crc::crc32(c, &block[at + 4..])
}

/// True if inodes with these features and fields have a checksum.
pub fn has_checksum(features: Features, raw: &RawInode) -> bool {
    features.contains(Features::INODE_CHECKSUM)
        && raw.inline().contains(Inline::EXTRA_ATTR)
        && raw.extra_isize() >= extra_end::CHECKSUM
}

/// Makes room for a checksum in an inode with extra attributes: block addresses move behind it. False if there is no
/// room: the inode has inline contents, or more addresses than would fit, so that file blocks would change their nodes.
/// Files behind the inode keep their addresses and summaries, which count from the first address.
pub fn make_room_for_checksum(features: Features, raw: &mut RawInode) -> bool {
    let Ok(d) = raw.divide(features) else { return false };
    let (from, to) = (d.extra as usize, (extra_end::CHECKSUM / 4) as usize);
    if from >= to {
        return true;
    }
    let end = from + d.addressed() as usize;
    let Some(last) = end.checked_sub(to - from).filter(|last| *last >= from) else { return false };
    let is_full = raw.i_addr[last..end].iter().any(|word| word.get() != 0);
    if is_full
        || d.extra == 0
        || raw.i_nid.iter().any(|nid| nid.get() != 0)
        || raw.inline().intersects(Inline::DATA | Inline::DENTRY)
    {
        return false;
    }
    raw.i_addr.copy_within(from..last, to);
    raw.i_addr[from..to].fill(0.into());
    if let Some(extra) = raw.extra_mut() {
        extra.i_extra_isize = (extra_end::CHECKSUM as u16).into();
    }
    true
}

/// Checks an inode's checksum, if it has one.
pub fn verify_checksum(features: Features, seed: u32, block: &Block) -> Result<(), FormatError> {
    let raw = RawInode::of(block);
    if let Some(extra) = raw.extra().filter(|_| has_checksum(features, raw)) {
        let (stored, computed) = (extra.i_inode_checksum.get(), checksum(seed, block));
        if stored != computed {
            return Err(FormatError::Checksum { structure: "inode", stored, computed });
        }
    }
    Ok(())
}

/// Stores an inode's checksum, if it has one. The footer must be final.
pub fn seal(features: Features, seed: u32, block: &mut Block) {
    if has_checksum(features, RawInode::of(block)) {
        let sum = checksum(seed, block);
        if let Some(extra) = RawInode::of_mut(block).extra_mut() {
            extra.i_inode_checksum = sum.into();
        }
    }
}
