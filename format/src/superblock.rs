//! The superblock: geometry, features, identity.

use bitflags::bitflags;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::addr::SecNo;
use crate::nat::NAT_ENTRIES;
use crate::{BLOCKS_PER_SEG, Block, BlockAddr, FormatError, Ino, Nid, SegNo, crc};

pub use crate::{DELTA_MAGIC, MAGIC};

/// Byte offset of the superblock in each of blocks 0 and 1.
pub const OFFSET: usize = 1024;
/// Most entries in the extension list.
pub const MAX_EXTENSIONS: usize = 64;
/// Upper limit of blocks in a volume with deltas: addresses from here on mark inodes with deltas.
pub const MOST_WITH_DELTAS: u32 = 0xFFFF_0000;
const S: &str = "superblock";

bitflags! {
    /// `feature`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Features: u32 {
        /// fscrypt.
        const ENCRYPT = 0x1;
        /// Zoned block device.
        const BLKZONED = 0x2;
        /// Atomic write (a mark that is never on disk).
        const ATOMIC_WRITE = 0x4;
        /// Inodes have extra attributes.
        const EXTRA_ATTR = 0x8;
        /// Project quota.
        const PRJQUOTA = 0x10;
        /// Inodes carry a checksum.
        const INODE_CHECKSUM = 0x20;
        /// The size of inline extended attributes is stored in a field.
        const FLEXIBLE_INLINE_XATTR = 0x40;
        /// Quota files are hidden inodes.
        const QUOTA_INO = 0x80;
        /// Inodes record their creation time.
        const INODE_CRTIME = 0x100;
        /// There is a lost+found.
        const LOST_FOUND = 0x200;
        /// fs-verity.
        const VERITY = 0x400;
        /// The superblock carries a checksum.
        const SB_CHKSUM = 0x800;
        /// Case folding.
        const CASEFOLD = 0x1000;
        /// Compression.
        const COMPRESSION = 0x2000;
        /// Read-only image with two logs.
        const RO = 0x4000;
        /// Device aliasing files.
        const DEVICE_ALIAS = 0x8000;
        /// Several summaries in a block.
        const PACKED_SSA = 0x1_0000;
        /// Inodes may hold deltas. Stored only as the magic, not as a bit: Linux must not mount such a volume.
        const DELTA = 0x8000_0000;
        const _ = !0;
    }
}

impl Features {
    /// Every bit with its name in `mkfs.f2fs -O`.
    pub const NAMES: [(Features, &'static str); 18] = [
        (Features::ENCRYPT, "encrypt"),
        (Features::BLKZONED, "blkzoned"),
        (Features::ATOMIC_WRITE, "atomic_write"),
        (Features::EXTRA_ATTR, "extra_attr"),
        (Features::PRJQUOTA, "project_quota"),
        (Features::INODE_CHECKSUM, "inode_checksum"),
        (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
        (Features::QUOTA_INO, "quota_ino"),
        (Features::INODE_CRTIME, "inode_crtime"),
        (Features::LOST_FOUND, "lost_found"),
        (Features::VERITY, "verity"),
        (Features::SB_CHKSUM, "sb_checksum"),
        (Features::CASEFOLD, "casefold"),
        (Features::COMPRESSION, "compression"),
        (Features::RO, "ro"),
        (Features::DEVICE_ALIAS, "device_alias"),
        (Features::PACKED_SSA, "packed_ssa"),
        (Features::DELTA, "delta"),
    ];

    /// Names of the set bits; a bit without a name is given as a number.
    pub fn names(self) -> Vec<String> {
        let mut rest = self.bits();
        let mut out = Vec::new();
        for (bit, name) in Self::NAMES {
            if self.contains(bit) {
                out.push(name.to_owned());
                rest &= !bit.bits();
            }
        }
        out.extend((0..32).filter(|i| rest >> i & 1 == 1).map(|i| format!("bit {:#x}", 1u32 << i)));
        out
    }
}

/// One of up to eight devices (`f2fs_device`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the on-disk names
pub struct RawDevice {
    pub path: [u8; 64],
    pub total_segments: U32,
}

/// The superblock on disk (`f2fs_super_block`).
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the on-disk names
pub struct RawSuperBlock {
    pub magic: U32,
    pub major_ver: U16,
    pub minor_ver: U16,
    pub log_sectorsize: U32,
    pub log_sectors_per_block: U32,
    pub log_blocksize: U32,
    pub log_blocks_per_seg: U32,
    pub segs_per_sec: U32,
    pub secs_per_zone: U32,
    pub checksum_offset: U32,
    pub block_count: U64,
    pub section_count: U32,
    pub segment_count: U32,
    pub segment_count_ckpt: U32,
    pub segment_count_sit: U32,
    pub segment_count_nat: U32,
    pub segment_count_ssa: U32,
    pub segment_count_main: U32,
    pub segment0_blkaddr: U32,
    pub cp_blkaddr: U32,
    pub sit_blkaddr: U32,
    pub nat_blkaddr: U32,
    pub ssa_blkaddr: U32,
    pub main_blkaddr: U32,
    pub root_ino: U32,
    pub node_ino: U32,
    pub meta_ino: U32,
    pub uuid: [u8; 16],
    pub volume_name: [U16; 512],
    pub extension_count: U32,
    pub extension_list: [[u8; 8]; MAX_EXTENSIONS],
    pub cp_payload: U32,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub feature: U32,
    pub encryption_level: u8,
    pub encrypt_pw_salt: [u8; 16],
    pub devs: [RawDevice; 8],
    pub qf_ino: [U32; 3],
    pub hot_ext_count: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_stop_reason: [u8; 32],
    pub s_errors: [u8; 16],
    pub reserved: [u8; 258],
    pub crc: U32,
}
const _: () = assert!(size_of::<RawSuperBlock>() == 3072);
const _: () = assert!(std::mem::offset_of!(RawSuperBlock, uuid) == 108);
const _: () = assert!(std::mem::offset_of!(RawSuperBlock, qf_ino) == 2745);
const _: () = assert!(std::mem::offset_of!(RawSuperBlock, crc) == 3068);

impl RawSuperBlock {
    /// Views the structure in block 0 or 1; any bytes are valid here.
    pub fn of(block: &Block) -> &Self {
        // OK to unwrap: 3072 bytes exist, alignment 1, every bit pattern valid.
        Self::ref_from_bytes(&block[OFFSET..]).unwrap()
    }
    /// Computes the checksum of the contents.
    pub fn compute_crc(&self) -> u32 {
        crc::crc32(crc::SEED, &self.as_bytes()[..3068])
    }
    /// Writes the structure into a block, without its first 1024 bytes, and updates the checksum if the volume has
    /// one.
    pub fn store(&self, block: &mut Block) {
        let mut raw = self.clone();
        if Features::from_bits_retain(raw.feature.get()).contains(Features::SB_CHKSUM) {
            raw.crc = raw.compute_crc().into();
        }
        block[OFFSET..].copy_from_slice(raw.as_bytes());
    }
}

/// A checked superblock. All areas are in order and inside the recorded size of the device, so arithmetic with its
/// numbers does not overflow.
#[derive(Debug, Clone)]
pub struct SuperBlock {
    /// Feature bits, unknown ones included.
    pub features: Features,
    /// Size of the volume in blocks.
    pub block_count: u64,
    /// Segments in a section.
    pub segs_per_sec: u32,
    /// Sections in a zone.
    pub secs_per_zone: u32,
    /// Segments of the main area.
    pub main_segs: u32,
    /// Segments of the whole volume from segment 0 on.
    pub segment_count: u32,
    /// Segments of SIT (both copies), NAT (both copies), SSA.
    pub sit_segs: u32,
    /// See `sit_segs`.
    pub nat_segs: u32,
    /// See `sit_segs`.
    pub ssa_segs: u32,
    /// First block of the checkpoint area; the second pack begins 512 blocks later.
    pub cp: BlockAddr,
    /// First block of the SIT.
    pub sit: BlockAddr,
    /// First block of the NAT.
    pub nat: BlockAddr,
    /// First block of the SSA.
    pub ssa: BlockAddr,
    /// First block of the main area.
    pub main: BlockAddr,
    /// The root directory.
    pub root: Ino,
    /// Volume identity; the seed of inode checksums.
    pub uuid: [u8; 16],
    /// Extra blocks in a checkpoint pack that hold the SIT bitmap.
    pub cp_payload: u32,
    /// Quota inodes: user, group, project; 0 if none.
    pub quota_inos: [Ino; 3],
    /// Suffixes of cold files, lower case.
    pub cold_extensions: Vec<Vec<u8>>,
    /// Suffixes of hot files, lower case.
    pub hot_extensions: Vec<Vec<u8>>,
    /// Volume label.
    pub label: String,
    /// Number of further devices, if the volume spans any.
    pub devices: usize,
    /// True if one copy allows deltas and the other does not; then deltas are disabled.
    pub mixed: bool,
    /// True if the other copy could not be read: it may be plain F2FS, so no delta must be written.
    pub alone: bool,
    /// The on-disk structure, for changing and storing it.
    pub raw: Box<RawSuperBlock>,
}

impl SuperBlock {
    /// Checks block 0 or 1 (requirements of the kernel's `sanity_check_raw_super`).
    pub fn check(block: &Block) -> Result<Self, FormatError> {
        let r = RawSuperBlock::of(block);
        let want = |field, value: u64, ok: bool, must| {
            if ok { Ok(()) } else { Err(FormatError::Field { structure: S, field, value, must }) }
        };
        let exact =
            |field, value: U32, must_be: u32, must| want(field, value.get().into(), value.get() == must_be, must);
        let magic = r.magic.get();
        want("magic", magic.into(), magic == MAGIC || magic == DELTA_MAGIC, "0xf2f52010")?;
        let mut features = Features::from_bits_retain(r.feature.get());
        want("feature", r.feature.get().into(), !features.contains(Features::DELTA), "a set without bit 0x80000000")?;
        features.set(Features::DELTA, magic == DELTA_MAGIC);
        if features.contains(Features::SB_CHKSUM) {
            exact("checksum_offset", r.checksum_offset, 3068, "3068")?;
            let (stored, computed) = (r.crc.get(), r.compute_crc());
            if stored != computed {
                return Err(FormatError::Checksum { structure: S, stored, computed });
            }
        }
        if features.contains(Features::DELTA) {
            let needs = Features::EXTRA_ATTR | Features::INODE_CHECKSUM;
            want(
                "feature",
                r.feature.get().into(),
                features.contains(needs),
                "extra_attr and inode_checksum, for deltas",
            )?;
            let blocks = r.block_count.get();
            want("block_count", blocks, blocks < MOST_WITH_DELTAS.into(), "below 0xffff0000, for deltas")?;
        }
        exact("log_blocksize", r.log_blocksize, 12, "12: only 4 KiB blocks are understood")?;
        exact("log_blocks_per_seg", r.log_blocks_per_seg, 9, "9")?;
        let (ls, lb) = (r.log_sectorsize.get(), r.log_sectors_per_block.get());
        want("log_sectorsize", ls.into(), (9..=12).contains(&ls), "9..=12")?;
        want("log_sectors_per_block", lb.into(), lb == 12 - ls, "12 - log_sectorsize")?;

        let segs = u64::from(r.segment_count.get());
        let main_segs = u64::from(r.segment_count_main.get());
        let sections = u64::from(r.section_count.get());
        let per_sec = u64::from(r.segs_per_sec.get());
        let zone = u64::from(r.secs_per_zone.get());
        let blocks = r.block_count.get();
        want("segment_count", segs, (9..=8_388_608).contains(&segs), "9..=8388608")?;
        want("block_count", blocks, blocks < u64::from(u32::MAX), "below 2^32 - 1")?;
        want("segment_count", segs, segs <= blocks / 512, "at most block_count / 512")?;
        want("segs_per_sec", per_sec, (1..=segs).contains(&per_sec), "1..=segment_count")?;
        let ok = (1..=segs).contains(&sections) && sections * per_sec == main_segs;
        want("section_count", sections, ok, "segment_count_main / segs_per_sec")?;
        want("secs_per_zone", zone, (1..=sections).contains(&zone), "1..=section_count")?;

        let area = |field, at: U32, before: u64, segs: u64| {
            let end = before + segs * u64::from(BLOCKS_PER_SEG);
            want(field, at.get().into(), u64::from(at.get()) == end, "the end of the area before it").map(|()| end)
        };
        let segment0 = u64::from(r.segment0_blkaddr.get());
        want("segment0_blkaddr", segment0, segment0 >= 2, "past both superblocks")?;
        let cp = area("cp_blkaddr", r.cp_blkaddr, segment0, 0)?;
        exact("segment_count_ckpt", r.segment_count_ckpt, 2, "2")?;
        let sit = area("sit_blkaddr", r.sit_blkaddr, cp, 2)?;
        let sit_segs = u64::from(r.segment_count_sit.get());
        let nat_segs = u64::from(r.segment_count_nat.get());
        let ssa_segs = u64::from(r.segment_count_ssa.get());
        let nat = area("nat_blkaddr", r.nat_blkaddr, sit, sit_segs)?;
        let ssa = area("ssa_blkaddr", r.ssa_blkaddr, nat, nat_segs)?;
        let main = area("main_blkaddr", r.main_blkaddr, ssa, ssa_segs)?;
        let end = main + main_segs * 512;
        want(
            "segment_count_main",
            main_segs,
            end <= segment0 + segs * 512 && end <= blocks,
            "small enough to end inside the volume",
        )?;
        let sit_blocks = sit_segs / 2 * 512;
        let ok = sit_segs % 2 == 0 && sit_blocks * 55 >= main_segs;
        want("segment_count_sit", sit_segs, ok, "even, and an entry for every main segment")?;
        let ok = nat_segs % 2 == 0 && nat_segs > 0;
        want("segment_count_nat", nat_segs, ok, "even and not 0")?;
        // Read-only images are made without summaries.
        let ok = ssa_segs * 512 >= main_segs || ssa_segs == 0 && features.contains(Features::RO);
        want("segment_count_ssa", ssa_segs, ok, "large enough for a block for every main segment")?;
        let payload = r.cp_payload.get();
        want("cp_payload", payload.into(), payload < 512 - 8, "below 504")?;
        exact("node_ino", r.node_ino, 1, "1")?;
        exact("meta_ino", r.meta_ino, 2, "2")?;
        exact("root_ino", r.root_ino, 3, "3")?;
        let (cold, hot) = (r.extension_count.get() as usize, usize::from(r.hot_ext_count));
        want(
            "extension_count",
            cold as u64,
            cold.saturating_add(hot) <= MAX_EXTENSIONS,
            "at most 64 with hot_ext_count",
        )?;

        let ext = |range: std::ops::Range<usize>| -> Vec<Vec<u8>> {
            r.extension_list[range].iter().map(|e| trim_nul(e).to_ascii_lowercase()).collect()
        };
        let name: Vec<u16> = r.volume_name.iter().map(|c| c.get()).take_while(|&c| c != 0).collect();
        Ok(SuperBlock {
            features,
            block_count: blocks,
            segs_per_sec: r.segs_per_sec.get(),
            secs_per_zone: r.secs_per_zone.get(),
            main_segs: r.segment_count_main.get(),
            segment_count: r.segment_count.get(),
            sit_segs: r.segment_count_sit.get(),
            nat_segs: r.segment_count_nat.get(),
            ssa_segs: r.segment_count_ssa.get(),
            cp: BlockAddr(r.cp_blkaddr.get()),
            sit: BlockAddr(r.sit_blkaddr.get()),
            nat: BlockAddr(r.nat_blkaddr.get()),
            ssa: BlockAddr(r.ssa_blkaddr.get()),
            main: BlockAddr(r.main_blkaddr.get()),
            root: Ino(r.root_ino.get()),
            uuid: r.uuid,
            cp_payload: payload,
            quota_inos: r.qf_ino.map(|i| Ino(i.get())),
            cold_extensions: ext(0..cold),
            hot_extensions: ext(cold..cold + hot),
            label: String::from_utf16_lossy(&name),
            devices: r.devs.iter().filter(|d| d.path[0] != 0).count(),
            mixed: false,
            alone: false,
            raw: Box::new(r.clone()),
        })
    }

    /// Compares with the volume's other copy: if one valid copy is plain F2FS, deltas are disabled, since Linux
    /// would mount the volume by that copy.
    #[must_use]
    pub fn compared_with(mut self, other: &Block) -> Self {
        if let Ok(other) = Self::check(other) {
            let (a, b) = (self.features.contains(Features::DELTA), other.features.contains(Features::DELTA));
            self.mixed = a != b;
            self.features.set(Features::DELTA, a && b);
        }
        self
    }

    /// Sections of the main area.
    pub fn sections(&self) -> u32 {
        self.main_segs / self.segs_per_sec
    }
    /// The section a segment is in.
    #[inline]
    pub fn section_of(&self, seg: SegNo) -> SecNo {
        SecNo(seg.0 / self.segs_per_sec)
    }
    /// First block of a main segment.
    #[inline]
    pub fn seg_start(&self, seg: SegNo) -> BlockAddr {
        self.main.plus(seg.0.saturating_mul(BLOCKS_PER_SEG))
    }
    /// Segment and offset of a main block; `None` outside the main area.
    #[inline]
    pub fn locate(&self, addr: BlockAddr) -> Option<(SegNo, u16)> {
        let off = addr.0.checked_sub(self.main.0)?;
        let seg = off / BLOCKS_PER_SEG;
        (seg < self.main_segs).then_some((SegNo(seg), (off % BLOCKS_PER_SEG) as u16))
    }
    /// True for a node number that the superblock names or that no node may have: no new node gets it, even if it
    /// is free. Linux looks for its own inodes and for quota files under these numbers.
    pub fn is_named(&self, nid: Nid) -> bool {
        nid.0 <= self.root.0 || self.quota_inos.iter().any(|ino| ino.nid() == nid)
    }
    /// Blocks of one SIT copy.
    pub fn sit_blocks(&self) -> u32 {
        self.sit_segs / 2 * 512
    }
    /// Blocks of one NAT copy.
    pub fn nat_blocks(&self) -> u32 {
        self.nat_segs / 2 * 512
    }
    /// One more than the largest node number.
    pub fn max_nid(&self) -> u32 {
        self.nat_blocks().saturating_mul(NAT_ENTRIES)
    }
    /// Bytes of the SIT version bitmap in a checkpoint.
    pub fn sit_bitmap_bytes(&self) -> usize {
        self.sit_blocks() as usize / 8
    }
    /// Bytes of the NAT version bitmap in a checkpoint.
    pub fn nat_bitmap_bytes(&self) -> usize {
        self.nat_blocks() as usize / 8
    }
    /// Address of SIT block `n` in its first or second copy.
    pub fn sit_block(&self, n: u32, second: bool) -> BlockAddr {
        self.sit.plus(n).plus(if second { self.sit_blocks() } else { 0 })
    }
    /// Address of NAT block `n` in its first or second copy (the copies alternate by segment).
    pub fn nat_block(&self, n: u32, second: bool) -> BlockAddr {
        self.nat.plus((n / 512).saturating_mul(1024)).plus(n % 512 + if second { 512 } else { 0 })
    }
    /// Address of the summary of a main segment. Read-only images may have none (`ssa_segs` 0).
    pub fn ssa_block(&self, seg: SegNo) -> BlockAddr {
        self.ssa.plus(seg.0)
    }
}

fn trim_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}
