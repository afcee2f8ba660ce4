//! Repair of a damaged volume without losing data.
//!
//! Repair goes in rounds: check, repair the most basic kind of damage, write a new checkpoint, check again. Each
//! round leaves a volume that is no worse than before, even if the power fails. Blocks and nodes that record their
//! owner are given back to it; files that lost their name go to lost+found.
//!
//! A new checkpoint discards what `fsync` wrote after the last one. Mounting the volume replays it; if that fails,
//! the caller may agree to discard it ([`Options::give_up_synced`]). It is discarded only if there are errors, and
//! only if the first round of the repair is possible. The first checkpoint then changes nothing else, so that no
//! later mount replays nodes over blocks that repair has used.

mod commit;
mod deltas;
mod dots;
mod edit;
mod entries;
mod files;
mod names;
mod plan;
mod quota;
mod rebuild;
mod rescue;
mod sums;
mod unreachable;

use std::collections::BTreeSet;
use std::fmt;

use device::{BlockDevice, Lba};
use format::checkpoint::{CpFlags, LogHead};
use format::node::kept::KEPT;
use format::sit::LogType;
use format::superblock::{Features, OFFSET};
use format::{BlockAddr, Ino, Nid};

use super::chain::Chain;
use super::report::{FindingKind as K, Name, Pack, Referrer, Report, Slot, Synced, delta_target};
use super::{FsckError, Options, TAG, begin, load, packs};

/// A change by a repair that users may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the message explains the fields
pub enum Action {
    /// A superblock copy was rewritten from the other.
    SuperblockRestored { copy: u8 },
    /// A dangling name was removed.
    EntryRemoved { dir: Ino, name: Name, ino: Ino },
    /// A dangling pointer was cleared: the file has a hole there.
    PointerCleared { at: Slot },
    /// A node was found by its footer.
    NodeFound { nid: Nid, addr: BlockAddr },
    /// A data block was found by its summary.
    DataFound { at: Slot, addr: BlockAddr },
    /// A block claimed by two files was copied for the second.
    BlockCopied { at: Slot, addr: BlockAddr },
    /// A node of a file was reattached to its tree.
    NodeAttached { ino: Ino, nid: Nid },
    /// An inode got its name back.
    NameRestored { dir: Ino, name: Name, ino: Ino },
    /// An inode without a name was moved to lost+found.
    Adopted { ino: Ino },
    /// A node without an owner was dropped.
    NodeDropped { nid: Nid, ino: Ino },
    /// A flipped bit of an inode was restored.
    BitRestored { ino: Ino },
    /// An inode's checksum was recomputed from its contents.
    ChecksumRenewed { ino: Ino },
    /// Extended attributes behind damage were dropped.
    XattrsCut { ino: Ino },
    /// Unreadable deltas, or those of one file block, were dropped: the blocks revert to their contents before
    /// these small changes, or before the last of them.
    DeltasGivenUp {
        /// The inode.
        ino: Ino,
        /// The file block; `None` for all with deltas, if it is not known which.
        block: Option<u32>,
    },
    /// A block that existed only in a dropped delta node is lost.
    PackedLost {
        /// The inode.
        ino: Ino,
        /// The file block.
        block: u32,
    },
    /// An inode whose block is lost was rebuilt from references to it. Owner, permissions, times, the exact size,
    /// attributes and inline contents are lost.
    InodeRebuilt {
        /// The inode.
        ino: Ino,
    },
    /// Invalid sizes of an inode's extra attributes were reset.
    ExtraReset {
        /// The inode.
        ino: Ino,
    },
    /// An inode's field was set to the counted value.
    Mended { finding: String },
    /// Changes that `fsync` wrote after the checkpoint were discarded.
    SyncedGivenUp(Synced),
    /// A lost quota file was recreated.
    QuotaFileMade {
        /// Which one.
        file: Referrer,
        /// Its inode.
        ino: Ino,
    },
    /// The newest checkpoint was discarded in favour of the one before it.
    NewestGivenUp {
        /// Its pack.
        pack: Pack,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::SuperblockRestored { copy } => write!(f, "superblock copy {copy} restored"),
            Action::EntryRemoved { dir, name, ino } => {
                write!(f, "directory {dir}: {name} (inode {ino}) removed")
            }
            Action::PointerCleared { at } => write!(f, "{at}: cleared"),
            Action::NodeFound { nid, addr } => write!(f, "node {nid} found again at {addr}"),
            Action::DataFound { at, addr } => write!(f, "{at}: data found again at {addr}"),
            Action::BlockCopied { at, addr } => write!(f, "{at}: got a copy of {addr}"),
            Action::NodeAttached { ino, nid } => write!(f, "inode {ino}: node {nid} put back"),
            Action::NameRestored { dir, name, ino } => {
                write!(f, "directory {dir}: {name} leads to inode {ino} again")
            }
            Action::Adopted { ino } => write!(f, "inode {ino} put into lost+found"),
            Action::NodeDropped { nid, ino } => write!(f, "node {nid} of inode {ino} dropped"),
            Action::BitRestored { ino } => write!(f, "inode {ino}: one flipped bit corrected"),
            Action::ChecksumRenewed { ino } => write!(f, "inode {ino}: checksum recomputed"),
            Action::InodeRebuilt { ino } => write!(
                f,
                "inode {ino}: its block is lost; rebuilt from its name and its blocks, owned by root, without its \
                 times, attributes and exact size"
            ),
            Action::ExtraReset { ino } => write!(f, "inode {ino}: sizes of extra attributes corrected"),
            Action::DeltasGivenUp { ino, block: Some(block) } if *block >= KEPT => {
                let page = delta_target(*block);
                write!(f, "inode {ino}: {page} is lost, on which blocks of this journal or log are based")
            }
            Action::DeltasGivenUp { ino, block: Some(block) } => {
                write!(
                    f,
                    "inode {ino}: the last small changes of file block {block} are lost; it holds what it held before"
                )
            }
            Action::DeltasGivenUp { ino, block: None } => {
                write!(
                    f,
                    "inode {ino}: the last small changes of some of its blocks are lost; they hold what they held before, \
                     or zeroes if a delta node held all of them"
                )
            }
            Action::PackedLost { ino, block } => {
                write!(f, "inode {ino}: file block {block} is lost, which only a delta node held; it reads as zeroes")
            }
            Action::XattrsCut { ino } => write!(f, "inode {ino}: damaged extended attributes cut off"),
            Action::Mended { finding } => write!(f, "repaired: {finding}"),
            Action::QuotaFileMade { file, ino } => {
                write!(f, "{file} rebuilt as inode {ino}; fsck.f2fs or Linux must recount the usage")
            }
            Action::NewestGivenUp { pack } => write!(f, "the newest checkpoint, in pack {pack}, discarded"),
            Action::SyncedGivenUp(synced) => write!(f, "discarded: {}", K::Synced(synced.clone())),
        }
    }
}

/// Why a repair stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// There is no volume to repair, or the device failed.
    #[error(transparent)]
    Fsck(#[from] FsckError),
    /// The device is read-only.
    #[error("the device is read-only")]
    ReadOnly,
    /// Data that was fsynced after the checkpoint would be lost.
    #[error("{files} files were fsynced after the checkpoint ({nodes} node blocks); a repair would discard them")]
    NeedsRecovery {
        /// Fsynced inodes.
        files: u64,
        /// Node blocks that roll-forward replays.
        nodes: u64,
    },
    /// The checkpoint does not record where `fsync` wrote after it.
    #[error("the checkpoint does not locate the node log, so any files fsynced after it would be lost")]
    ChainUnknown,
    /// A volume state that repair does not handle.
    #[error("repair does not support checkpoint flags {flags:?}")]
    Flags {
        /// The flags.
        flags: CpFlags,
    },
    /// A finding without a safe repair.
    #[error("no safe repair for: {finding}")]
    NotRepairable {
        /// The finding.
        finding: Box<K>,
    },
    /// No free segment is left.
    #[error("no free segment is left for repaired blocks")]
    NoSpace,
    /// lost+found is full.
    #[error("lost+found is full")]
    LostFoundFull,
    /// A directory needs a block that no node can address.
    #[error("directory {dir}: a block has no node to be recorded in")]
    DirectoryTooDeep {
        /// The directory.
        dir: Ino,
    },
    /// The rounds of repair did not lead to a clean volume.
    #[error("{errors} errors are left after {rounds} rounds, the first: {first}")]
    NotConverging {
        /// Remaining errors.
        errors: u64,
        /// Completed rounds.
        rounds: u32,
        /// One of them.
        first: Box<K>,
    },
    /// A round failed after others were completed.
    #[error("{why}")]
    Stopped {
        /// Completed changes, in order.
        actions: Vec<Action>,
        /// Why the repair stopped.
        why: Box<RepairError>,
    },
}

impl RepairError {
    /// Changes made before the error.
    pub fn actions(&self) -> &[Action] {
        match self {
            RepairError::Stopped { actions, .. } => actions,
            _ => &[],
        }
    }
    /// Why the repair stopped, without the changes made before.
    pub fn why(&self) -> &RepairError {
        match self {
            RepairError::Stopped { why, .. } => why,
            other => other,
        }
    }
}

/// The result of a repair.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// The report before the repair.
    pub before: Report,
    /// The report after it, without errors.
    pub after: Report,
    /// Changes, in order.
    pub actions: Vec<Action>,
    /// Number of checkpoints written.
    pub checkpoints: u32,
}

/// State kept between rounds.
#[derive(Default)]
struct Session {
    actions: Vec<Action>,
    /// Removed dangling names: their inodes may be found later.
    lost_names: BTreeSet<(Ino, Vec<u8>)>,
    /// Rebuilt inodes; if one is a directory, names may be missing.
    rebuilt: BTreeSet<Ino>,
}

/// Repair stops after this number of rounds without fewer errors.
const PATIENCE: u32 = 8;

/// Repairs a volume. A clean one is not written to.
///
/// A volume without errors that cannot be repaired further stays unchanged.
///
/// # Errors
/// [`RepairError`]; the volume is then no worse than before, and completed rounds remain.
pub fn repair(dev: &dyn BlockDevice, options: &Options<'_>) -> Result<Repaired, RepairError> {
    let before = super::check(dev, options)?;
    let wanted = options.older_checkpoint || before.mendable() > 0;
    let refusal = if wanted { refusal(dev, &before, options)? } else { None };
    match refusal {
        Some(refusal) if options.older_checkpoint || before.errors > 0 => return Err(refusal),
        None if wanted => {}
        _ => return Ok(Repaired { after: before.clone(), before, actions: Vec::new(), checkpoints: 0 }),
    }
    if super::begin::superblock(dev, &mut Report::default())?.features.contains(Features::BLKZONED) {
        let what = "repair of a zoned volume, whose blocks cannot be overwritten".to_owned();
        return Err(FsckError::Unsupported { what }.into());
    }
    let mut session = Session::default();
    if options.older_checkpoint {
        let sb = begin::superblock(dev, &mut Report::default())?;
        let given_up = packs::give_newest_up(dev, &sb)?;
        session.actions.extend(given_up.map(|pack| Action::NewestGivenUp { pack }));
    }
    match rounds(dev, options, &before, &mut session) {
        Ok((after, checkpoints)) => Ok(Repaired { before, after, actions: session.actions, checkpoints }),
        Err(why) if session.actions.is_empty() => Err(why),
        Err(why) => Err(RepairError::Stopped { actions: session.actions, why: Box::new(why) }),
    }
}

/// Why a volume must not be written to.
fn refusal(dev: &dyn BlockDevice, before: &Report, options: &Options<'_>) -> Result<Option<RepairError>, RepairError> {
    if dev.read_only() {
        return Ok(Some(RepairError::ReadOnly));
    }
    if let Some(unknown) = before.findings.iter().find(|f| matches!(f.kind, K::UnknownFeatures { .. })) {
        return Ok(Some(RepairError::NotRepairable { finding: Box::new(unknown.kind.clone()) }));
    }
    let mut report = Report::default();
    let Some(image) = load::Image::load_by(dev, options.older_checkpoint, &mut report)? else {
        return Ok(Some(not_repairable(&report)));
    };
    if before.errors > 0 && !options.give_up_synced {
        let head = image.cp.logs[LogType::WarmNode.index()];
        if head == LogHead::NOWHERE && !image.cp.flags.contains(CpFlags::UMOUNT) {
            return Ok(Some(RepairError::ChainUnknown));
        }
        // Check this before discarding the newest checkpoint for a repair that would then stop.
        let chain = Chain::read(&image)?;
        if options.older_checkpoint && !chain.synced.is_empty() {
            return Ok(Some(RepairError::NeedsRecovery { files: chain.synced.len() as u64, nodes: chain.nodes() }));
        }
    }
    let flags = image.cp.flags & (CpFlags::DISABLED | CpFlags::DISABLED_QUICK | CpFlags::RESIZEFS);
    Ok((!flags.is_empty()).then_some(RepairError::Flags { flags }))
}

/// Repairs the volume round by round. Returns the last report and the number of checkpoints written.
fn rounds(
    dev: &dyn BlockDevice,
    options: &Options<'_>,
    before: &Report,
    session: &mut Session,
) -> Result<(Report, u32), RepairError> {
    restore_superblock(dev, before, session)?;
    let (mut rounds, mut best, mut stalled) = (0, u64::MAX, 0);
    loop {
        let mut report = Report::default();
        let image = match load::Image::load(dev, &mut report)? {
            Some(image) => image,
            None => return Err(not_repairable(&report)),
        };
        let walked = super::examine(&image, &mut report, options)?;
        let left = report.mendable();
        let chain = Chain::read(&image)?;
        // The next mount replays the chain, and its checkpoint is whole again, so nothing needs to be discarded.
        let replayed = !chain.synced.is_empty() && report.errors == 0;
        stalled = if left < best { 0 } else { stalled + 1 };
        best = best.min(left);
        if left == 0 || replayed || (report.errors == 0 && stalled > PATIENCE) {
            return Ok((report, rounds));
        }
        if !chain.synced.is_empty() && !options.give_up_synced {
            return Err(RepairError::NeedsRecovery { files: chain.synced.len() as u64, nodes: chain.nodes() });
        }
        if stalled > PATIENCE {
            let first = report.errors().next().cloned().unwrap_or(K::NoCheckpoint);
            return Err(RepairError::NotConverging { errors: report.errors, rounds, first: Box::new(first) });
        }
        rounds += 1;
        if !chain.synced.is_empty() {
            // A repair that cannot begin discards nothing.
            plan::plan(&image, &walked, &report, &mut Session::default())?;
            let orphans = image.orphans(&mut Report::default())?;
            commit::commit(edit::Editor::new(&image, &walked, orphans))?;
            session.actions.extend(chain.synced.into_iter().map(Action::SyncedGivenUp));
            continue;
        }
        // Changes planned in a failed round were not made.
        let done = session.actions.len();
        let planned = plan::plan(&image, &walked, &report, session).and_then(commit::commit);
        if planned.is_err() {
            session.actions.truncate(done);
        }
        planned?;
    }
}

fn not_repairable(report: &Report) -> RepairError {
    let finding = report.errors().last().cloned().unwrap_or(K::NoCheckpoint);
    RepairError::NotRepairable { finding: Box::new(finding) }
}

fn restore_superblock(dev: &dyn BlockDevice, report: &Report, session: &mut Session) -> Result<(), RepairError> {
    for finding in &report.findings {
        let copy = match finding.kind {
            K::SuperblockBad { copy, .. } => copy,
            K::SuperblockCopiesDiffer { .. } => 1,
            _ => continue,
        };
        let good = begin::read_block(dev, BlockAddr(u32::from(1 - copy)))?;
        let mut block = begin::read_block(dev, BlockAddr(u32::from(copy)))?;
        block[OFFSET..].copy_from_slice(&good[OFFSET..]);
        dev.write(Lba(u64::from(copy)), &block[..], TAG).map_err(FsckError::from)?;
        dev.flush(TAG).map_err(FsckError::from)?;
        session.actions.push(Action::SuperblockRestored { copy });
    }
    Ok(())
}
