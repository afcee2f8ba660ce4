//! Which superblock and which checkpoint are valid?
//!
//! As in Linux: the first valid superblock, and the newer of two complete packs. A pack with unreadable summaries is
//! still used, and a finding reports what is lost.

use device::{BlockDevice, Lba, Tag};
use format::checkpoint::{self, Checkpoint, CpFlags};
use format::summary;
use format::superblock::{DELTA_MAGIC, Features, MAGIC, RawSuperBlock, SuperBlock};
use format::{BLOCK, BLOCKS_PER_SEG, Block, BlockAddr, FormatError};

use crate::InspectError;
use crate::finding::{Finding, Findings};

/// The tag of all reads.
pub const TAG: Tag = Tag { cause: 0, owner: 0 };

/// Features that change the format in ways this reader does not understand.
const REFUSED: Features = Features::DEVICE_ALIAS.union(Features::PACKED_SSA);

/// Reads one block.
pub fn block(dev: &dyn BlockDevice, at: BlockAddr) -> Result<Box<Block>, device::DeviceError> {
    let mut b = Box::new([0; BLOCK]);
    dev.read(Lba(u64::from(at.0)), &mut b[..], TAG)?;
    Ok(b)
}

/// The superblock to use.
///
/// # Errors
/// If there is none, or this reader does not support the volume.
pub fn superblock(dev: &dyn BlockDevice, found: &mut Findings) -> Result<SuperBlock, InspectError> {
    if dev.blocks() < 2 {
        return Err(InspectError::NotF2fs);
    }
    // Treat an unreadable copy like a missing one.
    let copies = [0, 1].map(|n| block(dev, BlockAddr(n)).unwrap_or_else(|_| Box::new([0; BLOCK])));
    let sb = match (SuperBlock::check(&copies[0]), SuperBlock::check(&copies[1])) {
        (Ok(first), Ok(_)) => first.compared_with(&copies[1]),
        (Ok(only), Err(error)) => {
            found.add(Finding::Superblock { copy: 1, error });
            only
        }
        (Err(error), Ok(only)) => {
            found.add(Finding::Superblock { copy: 0, error });
            only
        }
        (Err(error), Err(_)) => {
            let of_ours = |b: &Block| [MAGIC, DELTA_MAGIC].contains(&RawSuperBlock::of(b).magic.get());
            let ours = copies.iter().any(|b| of_ours(b));
            return Err(if ours { InspectError::Superblock(error) } else { InspectError::NotF2fs });
        }
    };
    if sb.devices > 1 {
        return Err(InspectError::Unsupported { what: format!("a volume over {} devices", sb.devices) });
    }
    let refused = sb.features.intersection(REFUSED);
    if !refused.is_empty() {
        return Err(InspectError::Unsupported { what: format!("feature {}", refused.names().join(", ")) });
    }
    let needs = u64::from(sb.main.0) + u64::from(sb.main_segs) * u64::from(BLOCKS_PER_SEG);
    if needs > dev.blocks() {
        found.add(Finding::CutShort { blocks: dev.blocks(), needs });
    }
    Ok(sb)
}

/// A checkpoint pack with its journals.
pub struct Pack {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Bytes of the NAT journal; empty if unreadable.
    pub nat_journal: Vec<u8>,
    /// Bytes of the SIT journal; empty if unreadable.
    pub sit_journal: Vec<u8>,
}

/// Version and payload of a pack, if head and tail agree.
fn whole(dev: &dyn BlockDevice, sb: &SuperBlock, pack: u8, found: &mut Findings) -> Option<(u64, Vec<u8>)> {
    let start = sb.cp.plus(u32::from(pack) * BLOCKS_PER_SEG);
    let unreadable = FormatError::Short { structure: "checkpoint", have: 0, need: BLOCK };
    let mut bad = |error| {
        found.add(Finding::Pack { pack, error });
        None
    };
    let Ok(head) = block(dev, start) else { return bad(unreadable) };
    let version = match checkpoint::version(&head) {
        Ok(version) => version,
        Err(error) => return bad(error),
    };
    // A power cut never leaves a head with an impossible block count, so this is damage: the pack is used, with a
    // finding.
    if let Ok(blocks) = checkpoint::pack_blocks(&head) {
        let Ok(tail) = block(dev, start.plus(blocks - 1)) else { return bad(unreadable) };
        match checkpoint::version(&tail) {
            Ok(same) if same == version => {}
            Ok(tail) => {
                found.add(Finding::PackTorn { pack, head: version, tail });
                return None;
            }
            Err(error) => return bad(error),
        }
    }
    let mut bytes = head.to_vec();
    for i in 1..=sb.cp_payload {
        let Ok(more) = block(dev, start.plus(i)) else { return bad(unreadable) };
        bytes.extend_from_slice(&more[..]);
    }
    Some((version, bytes))
}

/// The pack to use; `None`, with a finding, if there is none.
pub fn pack(dev: &dyn BlockDevice, sb: &SuperBlock, found: &mut Findings) -> Option<Pack> {
    let (first, second) = (whole(dev, sb, 0, found), whole(dev, sb, 1, found));
    let (which, bytes) = match (first, second) {
        (Some(a), Some(b)) if b.0 > a.0 => (1, b.1),
        (Some(a), _) => (0, a.1),
        (None, Some(b)) => (1, b.1),
        (None, None) => {
            found.add(Finding::NoCheckpoint);
            return None;
        }
    };
    match Checkpoint::check(sb, &bytes) {
        Ok(checkpoint) => {
            let start = sb.cp.plus(which * BLOCKS_PER_SEG);
            let journals = journals(dev, start, &checkpoint);
            if journals.is_none() {
                found.add(Finding::NoJournals);
            }
            let (nat_journal, sit_journal) = journals.unwrap_or_default();
            Some(Pack { checkpoint, nat_journal, sit_journal })
        }
        Err(error) => {
            found.add(Finding::Pack { pack: which as u8, error });
            found.add(Finding::NoCheckpoint);
            None
        }
    }
}

/// The NAT journal is stored in the summary of the hot data log, the SIT journal in that of the cold data log; compact
/// summaries begin with both.
fn journals(dev: &dyn BlockDevice, start: BlockAddr, cp: &Checkpoint) -> Option<(Vec<u8>, Vec<u8>)> {
    if cp.flags.contains(CpFlags::COMPACT_SUM) {
        let first = *block(dev, start.plus(cp.start_sum)).ok()?;
        let (nat, sit) = summary::compact_journals(std::slice::from_ref(&first))?;
        return Some((nat.to_vec(), sit.to_vec()));
    }
    // The log summaries precede the tail; those of node logs, if present, come last.
    let logs = if cp.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT) { 6 } else { 3 };
    let hot = (cp.pack_blocks - 1).checked_sub(logs).filter(|&i| i >= cp.start_sum)?;
    let journal = |log: u32| Some(summary::journal(&*block(dev, start.plus(hot + log)).ok()?).to_vec());
    Some((journal(0)?, journal(2)?))
}
