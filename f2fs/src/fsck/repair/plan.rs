//! Which change answers which finding, and in which order?
//!
//! Findings follow from each other: a flipped bit in an inode breaks its map, a broken map breaks the
//! sums, all of it breaks the tables. So each round mends only the most basic stage that has findings.

use format::inode::{Inline, RawInode};
use format::superblock::Features;
use format::{BlockAddr, Nid};

use super::edit::Editor;
use super::rescue::{Strays, unflip};
use super::{Action, RepairError, Session};
use crate::fsck::load::{Image, log_type};
use crate::fsck::report::{Class, FindingKind as K, Report, Severity};
use crate::fsck::tables::class;
use crate::fsck::walk::Walked;

/// What must be mended before what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Bytes of inodes.
    Inodes,
    /// Pointers and names.
    Pointers,
    /// Nodes nothing leads to.
    Strays,
    /// Sums in inodes.
    Sums,
    /// Tables: every checkpoint written mends them.
    Tables,
}

/// Findings of one round: more wait for the next, so that memory stays bounded.
const MOST: usize = 2000;

fn stage(img: &Image<'_>, kind: &K) -> Stage {
    match kind {
        K::SummaryWrong { addr, is, .. } if is_doubtful(img, *addr, is.nid) => Stage::Pointers,
        K::InodeChecksum { .. } | K::InodeBad { .. } => Stage::Inodes,
        K::OrphanHasName { .. }
        | K::OrphanHasLinks { .. }
        | K::NatInoWrong { .. }
        | K::NodeUnusable { .. }
        | K::NodeOffsetWrong { .. }
        | K::AddrOutside { .. }
        | K::BlockTaken { .. }
        | K::ClusterMark { .. }
        | K::NameLenBad { .. }
        | K::InlineMisplaced { .. }
        | K::InlineReserved { .. }
        | K::XattrBad { .. }
        | K::DentryBad { .. }
        | K::DentrySlots { .. }
        | K::DentryHash { .. }
        | K::DentryBucket { .. }
        | K::DentryType { .. }
        | K::DentryRepeated { .. }
        | K::DirectoryTwice { .. }
        | K::Dots { .. } => Stage::Pointers,
        K::Unreachable { .. } => Stage::Strays,
        K::BlocksWrong { .. }
        | K::LinksWrong { .. }
        | K::ComprBlocksWrong { .. }
        | K::InlineTooLong { .. }
        | K::InlineUnmarked { .. }
        | K::ExtentWrong { .. }
        | K::DirSizeWrong { .. }
        | K::DirDepthWrong { .. }
        | K::ParentWrong { .. }
        | K::DirParentWrong { .. }
        | K::SymlinkEmpty { .. } => Stage::Sums,
        _ => Stage::Tables,
    }
}

/// True for a pointer to a block that the SIT calls free, or that is in a segment of nodes: perhaps it
/// is not the block that was meant.
fn is_doubtful(img: &Image<'_>, addr: BlockAddr, owner: Nid) -> bool {
    let seg = img.sb.locate(addr).map(|(seg, _)| img.segment(seg));
    let among_nodes = seg.and_then(|s| log_type(s.kind)).is_some_and(|l| l.is_node());
    let is_data = img.nat(owner).is_ok_and(|e| e.addr != addr);
    !img.marked(addr) || (among_nodes && is_data)
}

/// The changes of one round.
pub fn plan<'i, 'd>(
    img: &'i Image<'d>,
    walked: &'i Walked,
    report: &Report,
    session: &mut Session,
) -> Result<Editor<'i, 'd>, RepairError> {
    let orphans = img.orphans(&mut Report::default())?;
    let mut e = Editor::new(img, walked, orphans);
    let serious = |k: &K| k.severity() > Severity::Note;
    let all = || report.findings.iter().map(|f| &f.kind).filter(|k| serious(k));
    let now = all().map(|k| stage(img, k)).min().unwrap_or(Stage::Tables);
    // Until everything found its place, blocks nothing leads to may still be someone's.
    e.keep_marked = now < Stage::Sums;
    tables(&mut e, all())?;
    let mut strays = match now {
        Stage::Pointers => Strays::search(img, walked)?,
        _ => Strays::default(),
    };
    let mut taken = 0;
    for kind in all().filter(|k| stage(img, k) == now) {
        match now {
            Stage::Inodes => inode_bytes(&mut e, session, kind)?,
            Stage::Pointers => super::files::pointer(&mut e, session, &mut strays, kind)?,
            Stage::Strays => {
                if let K::Unreachable { nid, ino, addr } = *kind {
                    super::stray::stray(&mut e, session, nid, ino, addr)?;
                }
            }
            Stage::Sums => super::files::sum(&mut e, session, kind)?,
            Stage::Tables => break,
        }
        taken += 1;
        if taken >= MOST {
            break;
        }
    }
    Ok(e)
}

/// What a new checkpoint needs to be told, whatever else the round does.
fn tables<'k>(e: &mut Editor<'_, '_>, findings: impl Iterator<Item = &'k K>) -> Result<(), RepairError> {
    for kind in findings {
        match kind {
            K::SummaryWrong { addr, is, .. } => {
                if let Some((seg, off)) = e.img.sb.locate(*addr) {
                    e.summaries.entry(seg).or_default().insert(off, *is);
                }
            }
            K::SummaryKindWrong { segment, .. } => {
                e.footers.insert(*segment);
            }
            K::LogBlockTaken { log, .. } => e.leave[log.index()] = true,
            K::SitClassWrong { segment, holds, .. } => {
                if let Some(log) = e.img.log_of(*segment)
                    && *holds != class(log)
                {
                    e.leave[log.index()] = true;
                }
                e.footers.insert(*segment);
                if *holds == Class::Both {
                    move_nodes_out(e, *segment)?;
                }
            }
            K::LogTypeWrong { log, segment, .. } => {
                let holds = e.walked.classes.get(segment);
                e.leave[log.index()] |= holds.is_some_and(|c| *c != class(*log));
            }
            K::DeviceTooSmall { .. } | K::NoCheckpoint => {
                return Err(RepairError::NotRepairable { finding: Box::new(kind.clone()) });
            }
            _ => {}
        }
    }
    Ok(())
}

/// A segment that holds data and nodes keeps the data.
fn move_nodes_out(e: &mut Editor<'_, '_>, seg: format::SegNo) -> Result<(), RepairError> {
    for n in 0..e.img.sb.nat_blocks() {
        for (nid, entry) in e.img.nat_live(n)? {
            let here = e.img.sb.locate(entry.addr).is_some_and(|(s, _)| s == seg);
            if here && e.walked.nids.has(nid.0) {
                // Every changed node gets a new place.
                e.node(nid)?;
            }
        }
    }
    Ok(())
}

fn inode_bytes(e: &mut Editor<'_, '_>, session: &mut Session, kind: &K) -> Result<(), RepairError> {
    let (K::InodeChecksum { ino, .. } | K::InodeBad { ino, .. }) = *kind else { return Ok(()) };
    if e.nodes.contains_key(&ino.nid()) {
        return Ok(());
    }
    let Some(block) = e.peek(ino.nid())? else { return Ok(()) };
    let (img, features) = (e.img, e.img.sb.features);
    let mut restored = unflip(img, &block);
    if restored.is_none() && !features.contains(Features::EXTRA_ATTR) {
        // No inode of such a volume has extra attributes: the flag is what was flipped.
        let mut plain = block.clone();
        let raw = RawInode::of_mut(&mut plain);
        raw.i_inline &= !Inline::EXTRA_ATTR.bits();
        restored = Some(plain);
    }
    session.actions.push(match restored {
        Some(_) => Action::BitRestored { ino },
        None if RawInode::of(&block).shape(features).is_err() => {
            return Err(RepairError::NotRepairable { finding: Box::new(kind.clone()) });
        }
        None => Action::ChecksumRenewed { ino },
    });
    e.nodes.insert(ino.nid(), restored.unwrap_or(block));
    Ok(())
}
