//! Which checkpoint is current, and what replaces its invalid fields?
//!
//! Only checksum and version decide, as in Linux: of two whole packs the newer is current, whatever its fields
//! contain. An invalid field is a finding. If the rest of the volume determines its value, it gets that value, so
//! that the volume can still be checked and repaired.

use device::{BlockDevice, Lba};
use format::checkpoint::{self, Checkpoint, CpFlags, LogHead};
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, BLOCKS_PER_SEG, BlockAddr, FormatError, summary};

use super::begin::{has_node_summaries, read_block};
use super::report::{FindingKind as K, Pack, Report};
use super::{FsckError, TAG};

/// First block of a pack.
pub fn pack_start(sb: &SuperBlock, pack: Pack) -> BlockAddr {
    match pack {
        Pack::First => sb.cp,
        Pack::Second => sb.cp.plus(BLOCKS_PER_SEG),
    }
}

/// Version, head and payload of a pack whose head and tail agree. A head with an impossible number of blocks counts
/// as whole: a power cut cannot cause that.
fn whole(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    which: Pack,
    report: &mut Report,
) -> Result<Option<(u64, Vec<u8>)>, FsckError> {
    let start = pack_start(sb, which);
    let head = read_block(dev, start)?;
    let version = match checkpoint::version(&head) {
        Ok(version) => version,
        Err(error) => {
            report.add(K::PackBad { pack: which, error });
            return Ok(None);
        }
    };
    if let Ok(blocks) = checkpoint::pack_blocks(&head) {
        match checkpoint::version(&*read_block(dev, start.plus(blocks - 1))?) {
            Ok(tail) if tail == version => {}
            Ok(tail) => {
                report.add(K::PackTorn { pack: which, head: version, tail });
                return Ok(None);
            }
            Err(error) => {
                report.add(K::PackBad { pack: which, error });
                return Ok(None);
            }
        }
    }
    let mut bytes = head.to_vec();
    for i in 1..=sb.cp_payload {
        bytes.extend_from_slice(&read_block(dev, start.plus(i))?[..]);
    }
    Ok(Some((version, bytes)))
}

/// A whole pack: version, which pack, head and payload.
type Whole = (u64, Pack, Vec<u8>);

/// Returns the newer of two whole packs, the first of equals, and then the other one.
fn both(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    report: &mut Report,
) -> Result<(Option<Whole>, Option<Whole>), FsckError> {
    let first = whole(dev, sb, Pack::First, report)?.map(|(version, bytes)| (version, Pack::First, bytes));
    let second = whole(dev, sb, Pack::Second, report)?.map(|(version, bytes)| (version, Pack::Second, bytes));
    Ok(match (first, second) {
        (Some(a), Some(b)) if b.0 > a.0 => (Some(b), Some(a)),
        (Some(a), b) => (Some(a), b),
        (None, b) => (b, None),
    })
}

/// Makes the older checkpoint current: the newest pack then looks as if a power cut had left it incomplete. Returns
/// that pack.
pub fn give_newest_up(dev: &dyn BlockDevice, sb: &SuperBlock) -> Result<Option<Pack>, FsckError> {
    let (Some((_, pack, _)), Some(_)) = both(dev, sb, &mut Report::default())? else { return Ok(None) };
    dev.write(Lba(u64::from(pack_start(sb, pack).0)), &[0; BLOCK], TAG)?;
    dev.flush(TAG)?;
    Ok(Some(pack))
}

/// The current checkpoint: the newer of two whole packs, the first of equals. With `older` the other one.
pub fn checkpoint(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    older: bool,
    report: &mut Report,
) -> Result<Option<(Pack, Checkpoint)>, FsckError> {
    let (newest, other) = both(dev, sb, report)?;
    let (counts, other) = if older { (other, newest) } else { (newest, other) };
    let Some((_, pack, bytes)) = counts else {
        report.add(K::NoCheckpoint);
        return Ok(None);
    };
    let error = match Checkpoint::read(sb, &bytes) {
        Ok((cp, faults)) if faults.is_empty() => return Ok(Some((pack, cp))),
        Ok((mut cp, faults)) => {
            let other = other.and_then(|(_, _, bytes)| Checkpoint::check(sb, &bytes).ok());
            let unknown = mend(dev, sb, pack, &mut cp, &faults, other.as_ref())?;
            faults.into_iter().for_each(|error| report.add(K::CheckpointField { pack, error }));
            match unknown {
                None => return Ok(Some((pack, cp))),
                Some(error) => error,
            }
        }
        Err(error) => error,
    };
    // The older pack is not used without `older`: its blocks may be overwritten by now.
    report.add(K::PackBad { pack, error });
    report.add(K::NoCheckpoint);
    Ok(None)
}

/// Replaces invalid fields by values derived from the others, the other pack, or the size of the volume. Returns a
/// fault that cannot be mended.
fn mend(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    pack: Pack,
    cp: &mut Checkpoint,
    faults: &[FormatError],
    other: Option<&Checkpoint>,
) -> Result<Option<FormatError>, FsckError> {
    let fault = |name: &str| faults.iter().find(|f| matches!(f, FormatError::Field { field, .. } if *field == name));
    settle_logs(sb, cp);
    // Reserved segments change only with the size of the volume.
    for (name, field, from) in [
        ("overprov_segment_count", &mut cp.overprov_segs, other.map(|o| o.overprov_segs)),
        ("rsvd_segment_count", &mut cp.reserved_segs, other.map(|o| o.reserved_segs)),
    ] {
        if let Some(fault) = fault(name) {
            match from {
                Some(from) => *field = from,
                None => return Ok(Some(fault.clone())),
            }
        }
    }
    if fault("user_block_count").is_some() {
        cp.user_blocks = user_blocks(sb, cp);
    }
    let (total, start) = (fault("cp_pack_total_block_count"), fault("cp_pack_start_sum"));
    if let Some(fault) = total {
        let Some(blocks) = derived_blocks(dev, sb, pack, cp)? else { return Ok(Some(fault.clone())) };
        cp.pack_blocks = blocks;
    }
    if start.is_some() {
        let summaries = summary_blocks(cp);
        match summaries.and_then(|n| (cp.pack_blocks - 1).checked_sub(n)).filter(|at| *at > sb.cp_payload) {
            Some(at) => cp.start_sum = at,
            None => return Ok(start.cloned()),
        }
    }
    Ok(None)
}

/// Blocks available to users, derived from the segments that are not.
pub fn user_blocks(sb: &SuperBlock, cp: &Checkpoint) -> u64 {
    u64::from(sb.main_segs.saturating_sub(cp.overprov_segs)) * u64::from(BLOCKS_PER_SEG)
}

/// Invalidates the position of logs that claim the same segment.
fn settle_logs(sb: &SuperBlock, cp: &mut Checkpoint) {
    if sb.features.contains(Features::RO) {
        return;
    }
    let stored = cp.logs;
    for (k, log) in cp.logs.iter_mut().enumerate() {
        if stored.iter().enumerate().any(|(i, other)| i != k && other.seg == log.seg) {
            *log = LogHead::NOWHERE;
        }
    }
}

/// Number of summary blocks in a pack; `None` if unknown.
fn summary_blocks(cp: &Checkpoint) -> Option<u32> {
    let nodes = if has_node_summaries(cp) { 3 } else { 0 };
    if !cp.flags.contains(CpFlags::COMPACT_SUM) {
        return Some(3 + nodes);
    }
    if cp.logs[..3].contains(&LogHead::NOWHERE) {
        return None;
    }
    let entries = cp.logs[..3].iter().map(|log| if log.threaded { 512 } else { usize::from(log.next) }).sum();
    Some(summary::compact_blocks(entries) as u32 + nodes)
}

/// Length of a pack derived from the start of its summaries, if its tail is found there.
fn derived_blocks(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    pack: Pack,
    cp: &Checkpoint,
) -> Result<Option<u32>, FsckError> {
    let tail = summary_blocks(cp).and_then(|n| cp.start_sum.checked_add(n));
    let Some(tail) = tail.filter(|at| (2..BLOCKS_PER_SEG).contains(at)) else { return Ok(None) };
    let block = read_block(dev, pack_start(sb, pack).plus(tail))?;
    Ok((checkpoint::version(&block) == Ok(cp.version)).then_some(tail + 1))
}
