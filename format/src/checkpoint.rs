//! The checkpoint block and its version bitmaps.

use std::ops::Range;

use bitflags::bitflags;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::sit::LogType;
use crate::superblock::SuperBlock;
use crate::{BLOCK, Block, FormatError, SegNo, crc, summary};

const S: &str = "checkpoint";
/// Offset of the version bitmaps.
pub const BITMAPS: usize = 192;
/// Offset of the checksum, except on volumes with a large NAT bitmap.
pub const CHECKSUM_OFFSET: u32 = 4092;

bitflags! {
    /// `ckpt_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CpFlags: u32 {
        /// Clean unmount: node summaries are in the pack.
        const UMOUNT = 0x1;
        /// The pack has orphan blocks.
        const ORPHAN = 0x2;
        /// Data summaries are compact.
        const COMPACT_SUM = 0x4;
        /// Linux detected an error.
        const ERROR = 0x8;
        /// fsck is needed.
        const FSCK = 0x10;
        /// Node summaries are in the pack although the volume stayed mounted.
        const FASTBOOT = 0x20;
        /// Node footers carry the checkpoint's CRC.
        const CRC_RECOVERY = 0x40;
        /// nat_bits are in the pack.
        const NAT_BITS = 0x80;
        /// All free space is discarded.
        const TRIMMED = 0x100;
        /// fsck wrote this checkpoint: compare node footers without CRC.
        const NOCRC_RECOVERY = 0x200;
        /// The NAT bitmap may extend past the block; the checksum precedes it.
        const LARGE_NAT_BITMAP = 0x400;
        /// Quota files may be wrong: Linux rechecks them.
        const QUOTA_NEED_FSCK = 0x800;
        /// Checkpoints were disabled.
        const DISABLED = 0x1000;
        /// Checkpoints were disabled without cleaning first.
        const DISABLED_QUICK = 0x2000;
        /// A resize was in progress.
        const RESIZEFS = 0x4000;
        const _ = !0;
    }
}

/// First 192 bytes of a checkpoint block (`f2fs_checkpoint`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the on-disk names
pub struct RawCheckpoint {
    pub checkpoint_ver: U64,
    pub user_block_count: U64,
    pub valid_block_count: U64,
    pub rsvd_segment_count: U32,
    pub overprov_segment_count: U32,
    pub free_segment_count: U32,
    pub cur_node_segno: [U32; 8],
    pub cur_node_blkoff: [U16; 8],
    pub cur_data_segno: [U32; 8],
    pub cur_data_blkoff: [U16; 8],
    pub ckpt_flags: U32,
    pub cp_pack_total_block_count: U32,
    pub cp_pack_start_sum: U32,
    pub valid_node_count: U32,
    pub valid_inode_count: U32,
    pub next_free_nid: U32,
    pub sit_ver_bitmap_bytesize: U32,
    pub nat_ver_bitmap_bytesize: U32,
    pub checksum_offset: U32,
    pub elapsed_time: U64,
    pub alloc_type: [u8; 16],
}
const _: () = assert!(size_of::<RawCheckpoint>() == BITMAPS);

/// The position of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogHead {
    /// Its segment.
    pub seg: SegNo,
    /// Next block to write, 0..=511 (512 only in memory).
    pub next: u16,
    /// True if it fills holes of a used segment (threaded logging, SSR).
    pub threaded: bool,
}

impl LogHead {
    /// The head of a log whose stored position is invalid: a segment that no volume has.
    pub const NOWHERE: Self = LogHead { seg: SegNo(u32::MAX), next: 0, threaded: false };
}

/// A checkpoint with a valid checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Version: of two valid packs the newer one is used.
    pub version: u64,
    /// Blocks available to users.
    pub user_blocks: u64,
    /// Valid blocks: data, nodes and reserved ones.
    pub valid_blocks: u64,
    /// Segments reserved for cleaning.
    pub reserved_segs: u32,
    /// Segments not available to users (overprovisioning).
    pub overprov_segs: u32,
    /// Segments without valid blocks that no log uses.
    pub free_segs: u32,
    /// The six logs, indexed by [`LogType`].
    pub logs: [LogHead; 6],
    /// Flags.
    pub flags: CpFlags,
    /// Number of blocks in the pack.
    pub pack_blocks: u32,
    /// First summary block, from the pack's start.
    pub start_sum: u32,
    /// Valid nodes.
    pub valid_nodes: u32,
    /// Valid inodes.
    pub valid_inodes: u32,
    /// Where the search for free nids starts.
    pub next_free_nid: u32,
    /// Seconds mounted, over the volume's life.
    pub elapsed: u64,
    /// Which copy of each SIT block is valid; most significant bit first.
    pub sit_bitmap: Vec<u8>,
    /// Which copy of each NAT block is valid.
    pub nat_bitmap: Vec<u8>,
    /// The stored CRC, which node footers repeat.
    pub crc: u32,
}

fn compute_crc(block: &Block, at: usize) -> u32 {
    let mut c = crc::crc32(crc::SEED, &block[..at]);
    if at < CHECKSUM_OFFSET as usize {
        c = crc::crc32(c, &block[at + 4..]);
    }
    c
}

/// The version in a pack's head or tail block, if its checksum is valid.
pub fn version(block: &Block) -> Result<u64, FormatError> {
    check_crc(block).map(|(raw, _)| raw.checkpoint_ver.get())
}

fn check_crc(block: &Block) -> Result<(&RawCheckpoint, u32), FormatError> {
    // OK to unwrap: 192 bytes exist, alignment 1, every bit pattern valid.
    let raw = RawCheckpoint::ref_from_prefix(block).unwrap().0;
    let at = raw.checksum_offset.get();
    if !(BITMAPS as u32..=CHECKSUM_OFFSET).contains(&at) {
        return Err(FormatError::field(S, "checksum_offset", at, "192..=4092"));
    }
    let at = at as usize;
    let stored = block[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
    let computed = compute_crc(block, at);
    if stored != computed {
        return Err(FormatError::Checksum { structure: S, stored, computed });
    }
    Ok((raw, stored))
}

/// Number of blocks in a pack according to its head (3 to 512), if the head's checksum is valid.
pub fn pack_blocks(head: &Block) -> Result<u32, FormatError> {
    let (raw, _) = check_crc(head)?;
    let n = raw.cp_pack_total_block_count.get();
    if !(3..=512).contains(&n) {
        return Err(FormatError::field(S, "cp_pack_total_block_count", n, "3..=512"));
    }
    Ok(n)
}

/// Byte ranges of the SIT and NAT bitmaps in a head block followed by its payload blocks. `sum_at` is the offset of
/// the checksum. Large bitmaps follow it; f2fs-tools before 1.13 left it at the end of the block.
fn bitmap_ranges(sb: &SuperBlock, flags: CpFlags, sum_at: u32) -> (Range<usize>, Range<usize>) {
    let (sit, nat) = (sb.sit_bitmap_bytes(), sb.nat_bitmap_bytes());
    let (sit_at, nat_at) = if flags.contains(CpFlags::LARGE_NAT_BITMAP) {
        let first = if sum_at == BITMAPS as u32 { BITMAPS + 4 } else { BITMAPS };
        (first + nat, first)
    } else if sb.cp_payload > 0 {
        (BLOCK, BITMAPS)
    } else {
        (BITMAPS, BITMAPS + sit)
    };
    (sit_at..sit_at + sit, nat_at..nat_at + nat)
}

impl Checkpoint {
    /// Checks a pack's head with its payload blocks (`1 + cp_payload` blocks, as bytes): checksum, sizes, log
    /// positions inside the main area, counts within bounds.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(sb: &SuperBlock, bytes: &[u8]) -> Result<Self, FormatError> {
        let (checkpoint, faults) = Self::read(sb, bytes)?;
        match faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(checkpoint),
        }
    }

    /// Like [`Self::check`], but accepts invalid fields: returns the fields as stored, and their faults. A log with
    /// an invalid position is [`LogHead::NOWHERE`]. The bitmaps have the length that the superblock implies.
    ///
    /// # Errors
    /// If the checksum is wrong, or the bitmaps do not fit the pack.
    pub fn read(sb: &SuperBlock, bytes: &[u8]) -> Result<(Self, Vec<FormatError>), FormatError> {
        let need = (1 + sb.cp_payload as usize) * BLOCK;
        let short = FormatError::Short { structure: S, have: bytes.len(), need };
        if bytes.len() < need {
            return Err(short);
        }
        let head: &Block = bytes.first_chunk().ok_or(short)?;
        let (raw, crc) = check_crc(head)?;
        let flags = CpFlags::from_bits_retain(raw.ckpt_flags.get());
        let mut faults = Vec::new();
        let mut want = |field, value: u64, ok: bool, must| {
            if !ok {
                faults.push(FormatError::Field { structure: S, field, value, must });
            }
            ok
        };
        let blocks = raw.cp_pack_total_block_count.get();
        want("cp_pack_total_block_count", blocks.into(), (3..=512).contains(&blocks), "3..=512");
        let (sit_len, nat_len) = (raw.sit_ver_bitmap_bytesize.get(), raw.nat_ver_bitmap_bytesize.get());
        let ok = sit_len as usize == sb.sit_bitmap_bytes();
        want("sit_ver_bitmap_bytesize", sit_len.into(), ok, "one bit for every SIT block");
        let ok = nat_len as usize == sb.nat_bitmap_bytes();
        want("nat_ver_bitmap_bytesize", nat_len.into(), ok, "one bit for every NAT block");
        let sum_at = raw.checksum_offset.get();
        let (sit, nat) = bitmap_ranges(sb, flags, sum_at);
        let large = flags.contains(CpFlags::LARGE_NAT_BITMAP);
        let ok = if large { sum_at == BITMAPS as u32 } else { sum_at == CHECKSUM_OFFSET };
        want("checksum_offset", sum_at.into(), ok, "192 with a large NAT bitmap, else 4092");
        let limit = if large && ok { need } else { sum_at as usize };
        if nat.end > limit || sit.end > if sit.start >= BLOCK { need } else { limit } {
            let must = "small enough to fit the pack";
            return Err(FormatError::field(S, "nat_ver_bitmap_bytesize", nat_len, must));
        }

        let mut logs = [LogHead::default(); 6];
        for (log, head) in LogType::ALL.into_iter().zip(&mut logs) {
            let k = log.index();
            let (seg, next) = match k {
                0..3 => (raw.cur_data_segno[k].get(), raw.cur_data_blkoff[k].get()),
                _ => (raw.cur_node_segno[k - 3].get(), raw.cur_node_blkoff[k - 3].get()),
            };
            let inside = want("cur_segno", seg.into(), seg < sb.main_segs, "inside the main area");
            let lawful = want("cur_blkoff", next.into(), next < 512, "below 512");
            let threaded = raw.alloc_type[k] == 1;
            *head = if inside && lawful { LogHead { seg: SegNo(seg), next, threaded } } else { LogHead::NOWHERE };
        }
        // A read-only image has two logs, hot data and hot node; the fields of the others are zero.
        let ro = sb.features.contains(crate::superblock::Features::RO);
        for (i, a) in logs.iter().enumerate() {
            let twice = !ro && *a != LogHead::NOWHERE && logs[..i].iter().any(|b| b.seg == a.seg);
            want("cur_segno", a.seg.0.into(), !twice, "a segment of its own for each log");
        }
        let start_sum = raw.cp_pack_start_sum.get();
        let ok = start_sum > sb.cp_payload && start_sum < blocks;
        want("cp_pack_start_sum", start_sum.into(), ok, "past the payload and inside the pack");
        // Without orphans the summaries follow the payload, and their number determines the length of the pack.
        let nodes = if flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT) { 3 } else { 0 };
        let entries = logs[..3].iter().map(|log| if log.threaded { 512 } else { usize::from(log.next) }).sum();
        let data = if flags.contains(CpFlags::COMPACT_SUM) { summary::compact_blocks(entries) as u32 } else { 3 };
        let first = 1 + sb.cp_payload;
        let ends_there = !flags.contains(CpFlags::ORPHAN) && first + data + nodes + 1 == blocks;
        let misplaced = ok && ends_there && start_sum != first;
        want("cp_pack_start_sum", start_sum.into(), !misplaced, "right behind the payload, as there are no orphans");
        // Linux lets a read-only image use every block, since it needs no reserve.
        let main_blocks = (u64::from(sb.main_segs) + u64::from(ro)) * 512;
        let (user, valid) = (raw.user_block_count.get(), raw.valid_block_count.get());
        want("user_block_count", user, user > 0 && user < main_blocks, "1..main blocks");
        want("valid_block_count", valid, valid <= user, "at most user_block_count");
        let nodes = raw.valid_node_count.get();
        let ok = u64::from(nodes) <= valid && nodes < sb.max_nid();
        want("valid_node_count", nodes.into(), ok, "at most valid_block_count");
        let inodes = raw.valid_inode_count.get();
        want("valid_inode_count", inodes.into(), inodes <= nodes, "at most valid_node_count");
        let (rsvd, over) = (raw.rsvd_segment_count.get(), raw.overprov_segment_count.get());
        let ok = over < sb.main_segs && (ro || over > 0);
        want("overprov_segment_count", over.into(), ok, "1..main segments");
        let ok = rsvd < sb.main_segs && (ro || rsvd > 0);
        want("rsvd_segment_count", rsvd.into(), ok, "1..main segments");

        let checkpoint = Checkpoint {
            version: raw.checkpoint_ver.get(),
            user_blocks: user,
            valid_blocks: valid,
            reserved_segs: rsvd,
            overprov_segs: over,
            free_segs: raw.free_segment_count.get(),
            logs,
            flags,
            pack_blocks: blocks,
            start_sum,
            valid_nodes: nodes,
            valid_inodes: inodes,
            next_free_nid: raw.next_free_nid.get(),
            elapsed: raw.elapsed_time.get(),
            sit_bitmap: bytes[sit].to_vec(),
            nat_bitmap: bytes[nat].to_vec(),
            crc,
        };
        Ok((checkpoint, faults))
    }

    /// Encodes head and payload blocks, and stores the checksum in `self.crc` too.
    pub fn encode(&mut self, sb: &SuperBlock) -> Vec<u8> {
        let mut out = vec![0; (1 + sb.cp_payload as usize) * BLOCK];
        let large = self.flags.contains(CpFlags::LARGE_NAT_BITMAP);
        let sum_at = if large { BITMAPS as u32 } else { CHECKSUM_OFFSET };
        let unused = U32::new(!0);
        let mut raw = RawCheckpoint {
            checkpoint_ver: self.version.into(),
            user_block_count: self.user_blocks.into(),
            valid_block_count: self.valid_blocks.into(),
            rsvd_segment_count: self.reserved_segs.into(),
            overprov_segment_count: self.overprov_segs.into(),
            free_segment_count: self.free_segs.into(),
            cur_node_segno: [unused; 8],
            cur_node_blkoff: [U16::new(0); 8],
            cur_data_segno: [unused; 8],
            cur_data_blkoff: [U16::new(0); 8],
            ckpt_flags: self.flags.bits().into(),
            cp_pack_total_block_count: self.pack_blocks.into(),
            cp_pack_start_sum: self.start_sum.into(),
            valid_node_count: self.valid_nodes.into(),
            valid_inode_count: self.valid_inodes.into(),
            next_free_nid: self.next_free_nid.into(),
            sit_ver_bitmap_bytesize: (self.sit_bitmap.len() as u32).into(),
            nat_ver_bitmap_bytesize: (self.nat_bitmap.len() as u32).into(),
            checksum_offset: sum_at.into(),
            elapsed_time: self.elapsed.into(),
            alloc_type: [0; 16],
        };
        for (k, head) in self.logs.iter().enumerate() {
            let (seg, next) = match k {
                0..3 => (&mut raw.cur_data_segno[k], &mut raw.cur_data_blkoff[k]),
                _ => (&mut raw.cur_node_segno[k - 3], &mut raw.cur_node_blkoff[k - 3]),
            };
            *seg = head.seg.0.into();
            *next = head.next.into();
            raw.alloc_type[k] = u8::from(head.threaded);
        }
        out[..BITMAPS].copy_from_slice(raw.as_bytes());
        let (sit, nat) = bitmap_ranges(sb, self.flags, sum_at);
        out[sit].copy_from_slice(&self.sit_bitmap);
        out[nat].copy_from_slice(&self.nat_bitmap);
        // OK to unwrap: `out` is at least one block long.
        let head: &mut Block = out.first_chunk_mut().unwrap();
        self.crc = compute_crc(head, sum_at as usize);
        head[sum_at as usize..sum_at as usize + 4].copy_from_slice(&self.crc.to_le_bytes());
        out
    }
}
