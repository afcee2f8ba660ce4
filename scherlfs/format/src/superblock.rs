//! The superblock: parameters of the volume, and the places in its last checkpoint.
//!
//! It is stored in blocks 0 and 1. A checkpoint writes the copy that does not hold the previous one, so that one
//! copy is valid after any power cut; the one with the higher number is current.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::extent::{Extent, RawExtent};
use crate::time::{RawTime, Time};
use crate::{Addr, BLOCK, BLOCKS_MAX, Block, COUNT_MAX, Epoch, FIRST, FormatError, Run, Seq, check_seal, seal};

const WHAT: &str = "superblock";
/// Magic of a superblock.
pub const MAGIC: [u8; 8] = *b"ScherlFS";
const VERSION: u32 = 1;
/// Most runs of the log's path in the superblock.
pub const PATH_MAX: usize = 128;
/// Most bytes of a label.
pub const LABEL_MAX: usize = 64;
const CRC_AT: usize = 4092;
/// A feature in `read_only`: some blocks are kept that are neither free nor belong to a file.
pub const KEEPS_HISTORY: u64 = 1;
/// The smallest volume in blocks.
pub const BLOCKS_MIN: u64 = 64;

/// On-disk form.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    /// "ScherlFS".
    pub magic: [u8; 8],
    /// 1.
    pub version: U32,
    /// Logarithm of the size of a block: 12.
    pub block_log: u8,
    /// Placement of inodes, see [`Placement`].
    pub placement: u8,
    /// Zero.
    pub spare_a: [u8; 2],
    /// Features that older programs may ignore.
    pub compat: U64,
    /// Features that older programs may read but not write.
    pub read_only: U64,
    /// Features that older programs must not mount.
    pub incompat: U64,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Its label, UTF-8, padded with zeroes.
    pub label: [u8; 64],
    /// Blocks of the volume.
    pub blocks: U64,
    /// Blocks of a segment, the unit of cleaning.
    pub segment_blocks: U32,
    /// 1: unmounted; no log follows.
    pub flags: U32,
    /// Number of the checkpoint.
    pub checkpoint: U64,
    /// The last transaction that it holds.
    pub seq: U64,
    /// The mount that wrote it.
    pub epoch: U32,
    /// Zero.
    pub spare_f: U32,
    /// Number of runs in the path.
    pub path_runs: U32,
    /// Zero.
    pub spare_b: U32,
    /// Address of the inode map's inode.
    pub ifile: U64,
    /// Address of the free list's inode.
    pub free_list: U64,
    /// Address of the orphan list's inode; 0: there are no orphans.
    pub orphans: U64,
    /// The oldest transaction whose blocks are all kept.
    pub undo_floor: U64,
    /// Free blocks.
    pub free: U64,
    /// Number of used inodes.
    pub inodes: U64,
    /// Blocks reserved for files and not stored.
    pub promised: U64,
    /// Address of the inode of the undo list; 0: there is none.
    pub history: U64,
    /// Start time of the mount that wrote it.
    pub begun: RawTime,
    /// Zero.
    pub spare_c: [u8; 4],
    /// Where the log continues: the runs of free blocks that it fills next, in order.
    pub path: [RawExtent; PATH_MAX],
    /// Secret for the marks of log blocks, see [`Epoch`]; 0: they have none. Only programs that may read the device
    /// may know it.
    pub secret: U64,
    /// Zero.
    pub spare_d: [u8; 256],
    /// A bit for each block of the inode map, set if it has no free entry. A hint.
    pub full: [u8; 2040],
    /// Zero.
    pub spare_e: [u8; 4],
    /// CRC-32 of the block, with this field as zero.
    pub crc: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == BLOCK);

/// Placement of inodes by the writer (Scherl 2004, Fig. 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Placement {
    /// Before their contents, appended.
    #[default]
    Before = 0,
    /// Behind their contents. While a file is being written and need not be durable, its next contents overwrite
    /// the inode.
    After = 1,
    /// While a file is being written, alternately in two blocks before its contents.
    InPlace = 2,
    /// Like [`Placement::InPlace`], but not with every call: at an fsync, after a time, or with another inode.
    Delayed = 3,
}

impl Placement {
    /// All placements, in the order of the figure.
    pub const ALL: [Placement; 4] = [Placement::Before, Placement::After, Placement::InPlace, Placement::Delayed];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Before => "before",
            Placement::After => "after",
            Placement::InPlace => "in-place",
            Placement::Delayed => "delayed",
        }
    }

    /// Parses a name.
    ///
    /// # Errors
    /// The known names.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| "is before, after, in-place or delayed".to_owned())
    }
}

/// A decoded superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Its label.
    pub label: String,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Placement of inodes.
    pub placement: Placement,
    /// True if no log follows.
    pub clean: bool,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// The last transaction in it.
    pub seq: Seq,
    /// The mount that wrote it.
    pub epoch: Epoch,
    /// Secret for the marks; 0: there are none.
    pub secret: u64,
    /// The inode map's inode.
    pub ifile: Addr,
    /// The free list's inode.
    pub free_list: Addr,
    /// The inode of the list of orphans, if there are any.
    pub orphans: Option<Addr>,
    /// The inode of the undo list, if there is one.
    pub history: Option<Addr>,
    /// The oldest transaction that undo can reach.
    pub undo_floor: Seq,
    /// Free blocks.
    pub free: u64,
    /// Number of used inodes.
    pub inodes: u64,
    /// Blocks reserved for files.
    pub promised: u64,
    /// Start time of the mount that wrote it, which distinguishes mounts of copies of one volume.
    pub begun: Time,
    /// Where the log continues.
    pub path: Vec<Run>,
}

/// Decodes a run of a path, stored as an extent.
pub(crate) fn path_run(raw: &RawExtent, what: &'static str) -> Result<Run, FormatError> {
    match Extent::try_from(raw)? {
        Extent::Stored { start, blocks } => Ok(Run { start, blocks }),
        _ => Err(FormatError::Field { what, field: "run of the path", value: raw.kind.get().into() }),
    }
}

impl Superblock {
    /// Decodes a block.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let raw = RawSuperblock::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: WHAT })?;
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        check_seal(block, CRC_AT, WHAT)?;
        let wrong = |field, value| FormatError::Field { what: WHAT, field, value };
        if raw.version.get() != VERSION {
            return Err(FormatError::Unknown { what: "version", value: raw.version.get().into() });
        }
        if raw.incompat.get() != 0 {
            return Err(FormatError::Unknown { what: "feature", value: raw.incompat.get() });
        }
        if raw.block_log != 12 {
            return Err(wrong("block_log", raw.block_log.into()));
        }
        let blocks = raw.blocks.get();
        if !(BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
            return Err(wrong("blocks", blocks));
        }
        let segment = raw.segment_blocks.get();
        if !segment.is_power_of_two() || !(8..=1 << 20).contains(&segment) {
            return Err(wrong("segment_blocks", segment.into()));
        }
        for (field, value) in [("checkpoint", raw.checkpoint.get()), ("seq", raw.seq.get())] {
            if value > COUNT_MAX {
                return Err(wrong(field, value));
            }
        }
        if raw.epoch.get() == u32::MAX {
            return Err(wrong("epoch", u32::MAX.into()));
        }
        let inside = |field, at: u64| if (FIRST..blocks).contains(&at) { Ok(Addr(at)) } else { Err(wrong(field, at)) };
        let count = raw.path_runs.get() as usize;
        let runs = raw.path.get(..count).ok_or(wrong("path_runs", count as u64))?;
        let path = runs.iter().map(|r| path_run(r, WHAT)).collect::<Result<Vec<_>, _>>()?;
        if let Some(run) = path.iter().find(|r| r.end().0 > blocks) {
            return Err(wrong("path", run.start.0));
        }
        let placement = Placement::ALL.into_iter().find(|p| *p as u8 == raw.placement);
        let placement = placement.ok_or(wrong("placement", raw.placement.into()))?;
        let end = raw.label.iter().position(|b| *b == 0).unwrap_or(raw.label.len());
        Ok(Superblock {
            uuid: raw.uuid,
            label: String::from_utf8_lossy(&raw.label[..end]).into_owned(),
            blocks,
            segment_blocks: segment,
            placement,
            clean: raw.flags.get() & 1 != 0,
            checkpoint: raw.checkpoint.get(),
            seq: Seq(raw.seq.get()),
            epoch: Epoch::new(raw.epoch.get(), raw.secret.get()),
            secret: raw.secret.get(),
            ifile: inside("ifile", raw.ifile.get())?,
            free_list: inside("free_list", raw.free_list.get())?,
            orphans: match raw.orphans.get() {
                0 => None,
                at => Some(inside("orphans", at)?),
            },
            history: match raw.history.get() {
                0 => None,
                at => Some(inside("history", at)?),
            },
            undo_floor: Seq(raw.undo_floor.get()),
            free: raw.free.get().min(blocks),
            inodes: raw.inodes.get(),
            promised: raw.promised.get().min(blocks),
            begun: raw.begun.time(),
            path,
        })
    }

    /// The checkpoint number in a superblock with a valid checksum, even if other fields are invalid. A power cut
    /// never leaves such a block with invalid fields.
    pub fn sealed_number(block: &Block) -> Option<u64> {
        let raw = RawSuperblock::ref_from_bytes(block).ok()?;
        (raw.magic == MAGIC && check_seal(block, CRC_AT, WHAT).is_ok()).then(|| raw.checkpoint.get())
    }

    /// The block for this superblock: not the one of the previous checkpoint.
    pub fn place(&self) -> Addr {
        Addr(self.checkpoint % 2)
    }

    /// Encodes a block. Truncates a label over 64 bytes, and a path over [`PATH_MAX`] runs.
    pub fn write(&self) -> Box<Block> {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.block_log = 12;
        raw.placement = self.placement as u8;
        raw.uuid = self.uuid;
        let label = self.label.as_bytes();
        let label = &label[..label.len().min(raw.label.len())];
        raw.label[..label.len()].copy_from_slice(label);
        raw.blocks = self.blocks.into();
        raw.segment_blocks = self.segment_blocks.into();
        raw.flags = u32::from(self.clean).into();
        raw.checkpoint = self.checkpoint.into();
        raw.seq = self.seq.0.into();
        raw.epoch = self.epoch.count.into();
        raw.secret = self.secret.into();
        raw.ifile = self.ifile.0.into();
        raw.free_list = self.free_list.0.into();
        raw.orphans = self.orphans.unwrap_or_default().0.into();
        raw.history = self.history.unwrap_or_default().0.into();
        raw.read_only = if self.history.is_some() { KEEPS_HISTORY } else { 0 }.into();
        raw.undo_floor = self.undo_floor.0.into();
        raw.free = self.free.into();
        raw.inodes = self.inodes.into();
        raw.promised = self.promised.into();
        raw.begun = self.begun.raw();
        let path = &self.path[..self.path.len().min(PATH_MAX)];
        raw.path_runs = (path.len() as u32).into();
        for (to, run) in raw.path.iter_mut().zip(path) {
            *to = Extent::Stored { start: run.start, blocks: run.blocks }.raw();
        }
        let mut block = Box::new([0; BLOCK]);
        block.copy_from_slice(raw.as_bytes());
        seal(&mut block, CRC_AT);
        block
    }
}
