//! Which superblock and which summaries of the logs are valid?

use device::{BlockDevice, Lba};
use format::checkpoint::{Checkpoint, CpFlags, LogHead};
use format::summary::{self, SummaryKind};
use format::superblock::{DELTA_MAGIC, Features, MAGIC, RawSuperBlock, SuperBlock};
use format::{BLOCK, BLOCKS_PER_SEG, Block, BlockAddr};

use super::report::{FindingKind as K, Report};
use super::{FsckError, TAG};

/// Feature bits with known structures.
pub const KNOWN: Features = Features::ENCRYPT
    .union(Features::ATOMIC_WRITE)
    .union(Features::BLKZONED)
    .union(Features::EXTRA_ATTR)
    .union(Features::PRJQUOTA)
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::QUOTA_INO)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::VERITY)
    .union(Features::SB_CHKSUM)
    .union(Features::RO)
    .union(Features::CASEFOLD)
    .union(Features::COMPRESSION)
    .union(Features::DELTA);
/// Feature bits that change the structures in unknown ways.
const REFUSED: Features = Features::DEVICE_ALIAS.union(Features::PACKED_SSA);

/// Reads one block.
pub fn read_block(dev: &dyn BlockDevice, at: BlockAddr) -> Result<Box<Block>, FsckError> {
    let mut b = Box::new([0; BLOCK]);
    dev.read(Lba(u64::from(at.0)), &mut b[..], TAG)?;
    Ok(b)
}

/// Reads both superblocks; the first valid one is used, as in Linux.
pub fn superblock(dev: &dyn BlockDevice, report: &mut Report) -> Result<SuperBlock, FsckError> {
    if dev.blocks() < 2 {
        return Err(FsckError::NotF2fs { first: None });
    }
    let blocks = [read_block(dev, BlockAddr(0))?, read_block(dev, BlockAddr(1))?];
    let (sb, bad) = match (SuperBlock::check(&blocks[0]), SuperBlock::check(&blocks[1])) {
        (Ok(a), Ok(_)) => {
            let raw = |i: usize| &blocks[i][format::superblock::OFFSET..];
            if let Some(offset) = raw(0).iter().zip(raw(1)).position(|(a, b)| a != b) {
                report.add(K::SuperblockCopiesDiffer { offset });
            }
            (a.compared_with(&blocks[1]), None)
        }
        (Ok(a), Err(error)) => (a, Some((1, error))),
        (Err(error), Ok(b)) => (b, Some((0, error))),
        (Err(error), Err(_)) => {
            // An F2FS superblock of another shape is not a foreign device.
            let ours = blocks.iter().any(|b| [MAGIC, DELTA_MAGIC].contains(&RawSuperBlock::of(b).magic.get()));
            return Err(if ours { FsckError::Superblock(error) } else { FsckError::NotF2fs { first: Some(error) } });
        }
    };
    if let Some((copy, error)) = bad {
        report.add(K::SuperblockBad { copy, error });
    }
    let unknown = sb.features.difference(KNOWN);
    if sb.devices > 1 {
        return Err(FsckError::Unsupported { what: format!("a volume over {} devices", sb.devices) });
    }
    if sb.features.intersects(REFUSED) {
        let names = sb.features.intersection(REFUSED).names().join(", ");
        return Err(FsckError::Unsupported { what: format!("feature {names}") });
    }
    // A volume made by `mkfs.f2fs -O ro` has two logs, and no summaries.
    if sb.features.contains(Features::RO) && sb.ssa_segs == 0 {
        return Err(FsckError::Unsupported { what: "feature ro without summaries of segments".into() });
    }
    if !unknown.is_empty() {
        report.add(K::UnknownFeatures { bits: unknown.bits() });
    }
    let needs = u64::from(sb.main.0) + u64::from(sb.main_segs) * u64::from(BLOCKS_PER_SEG);
    if needs > dev.blocks() {
        report.add(K::DeviceTooSmall { blocks: dev.blocks(), needs });
    }
    Ok(sb)
}

/// The summaries of the six logs in the checkpoint.
pub struct LogSummaries {
    /// Summary block per log; `None` if the pack has none (node logs, unclean shutdown).
    pub blocks: [Option<Box<Block>>; 6],
    /// Entries from here on are unknown (the compact form omits unwritten ones).
    pub known: [u16; 6],
    /// NAT journal bytes.
    pub nat_journal: Vec<u8>,
    /// SIT journal bytes.
    pub sit_journal: Vec<u8>,
}

/// True if the pack contains the node logs' summaries.
pub fn has_node_summaries(cp: &Checkpoint) -> bool {
    cp.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT)
}

/// Reads the summaries of a pack that begins at `start`.
pub fn log_summaries(
    dev: &dyn BlockDevice,
    start: BlockAddr,
    cp: &Checkpoint,
    report: &mut Report,
) -> Result<LogSummaries, FsckError> {
    let nodes = has_node_summaries(cp);
    let tail = cp.pack_blocks - 1;
    let mut out = LogSummaries {
        blocks: [const { None }; 6],
        known: [512; 6],
        nat_journal: vec![0; summary::JOURNAL_BYTES],
        sit_journal: vec![0; summary::JOURNAL_BYTES],
    };
    let at = |back: u32| tail.checked_sub(back).filter(|&i| i >= cp.start_sum);
    if nodes {
        for k in 3..6u32 {
            match at(6 - k) {
                Some(i) => out.blocks[k as usize] = Some(read_block(dev, start.plus(i))?),
                None => report.add(K::SummariesShort),
            }
        }
    }
    if cp.flags.contains(CpFlags::COMPACT_SUM) && cp.logs[..3].contains(&LogHead::NOWHERE) {
        // The number of entries of each log is not known, so only the journals before them can be read.
        if let Some((nat, sit)) = summary::compact_journals(&[*read_block(dev, start.plus(cp.start_sum))?]) {
            (out.nat_journal, out.sit_journal) = (nat.to_vec(), sit.to_vec());
        }
    } else if cp.flags.contains(CpFlags::COMPACT_SUM) {
        let used = |k: usize| {
            if cp.logs[k].threaded { 512 } else { usize::from(cp.logs[k].next) }
        };
        let entries: usize = (0..3).map(used).sum();
        let end = tail.saturating_sub(if nodes { 3 } else { 0 });
        let mut blocks = Vec::new();
        for i in 0..summary::compact_blocks(entries) as u32 {
            let i = cp.start_sum + i;
            if i >= end {
                report.add(K::SummariesShort);
                break;
            }
            blocks.push(*read_block(dev, start.plus(i))?);
        }
        if let Some((nat, sit)) = summary::compact_journals(&blocks) {
            out.nat_journal = nat.to_vec();
            out.sit_journal = sit.to_vec();
        }
        let mut n = 0;
        for k in 0..3 {
            let mut block = Box::new([0; BLOCK]);
            for i in 0..used(k) {
                if let Some(s) = summary::compact_get(&blocks, n) {
                    summary::put(&mut block, i, s);
                }
                n += 1;
            }
            summary::set_kind(&mut block, SummaryKind::Data);
            out.known[k] = used(k) as u16;
            out.blocks[k] = Some(block);
        }
    } else {
        let base = if nodes { 6 } else { 3 };
        for k in 0..3u32 {
            match at(base - k) {
                Some(i) => out.blocks[k as usize] = Some(read_block(dev, start.plus(i))?),
                None => report.add(K::SummariesShort),
            }
        }
        let journal =
            |k: usize| out.blocks[k].as_ref().map_or(vec![0; summary::JOURNAL_BYTES], |b| summary::journal(b).to_vec());
        (out.nat_journal, out.sit_journal) = (journal(0), journal(2));
    }
    Ok(out)
}
