//! Which change repairs which finding, and in which order?
//!
//! Findings follow from each other: a flipped bit in an inode breaks its map, a broken map breaks the totals, and
//! all of it breaks the tables. So each round repairs only the most basic stage that has findings.

use format::inode::{self, Advise, Inline, InodeFlags, RawInode};
use format::nat::NatEntry;
use format::summary::Summary;
use format::superblock::Features;
use format::{Block, BlockAddr};

use super::edit::Editor;
use super::rescue::{Unreached, has_right_count, unflip};
use super::{Action, RepairError, Session};
use crate::FsckError;
use crate::bases::without_deltas;
use crate::load::{Image, log_type};
use crate::report::{Class, FindingKind as K, Mark, Report, Severity, Slot};
use crate::signs::misplaced_marks;
use crate::tables::class;
use crate::walk::Walked;

/// Order of repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Bytes of inodes.
    Inodes,
    /// Pointers and names.
    Pointers,
    /// Unreachable nodes.
    Unreachable,
    /// Deltas whose base is missing or wrong: by now every block that can be found is back.
    Deltas,
    /// Totals in inodes.
    Sums,
    /// Tables: every new checkpoint repairs them.
    Tables,
}

/// Most findings per round; more wait for the next, to bound memory.
const MOST: usize = 2000;

fn stage(img: &Image<'_>, unreached: &Unreached, kind: &K) -> Stage {
    match kind {
        K::SummaryWrong { addr, is, .. } if may_miss_its_block(img, unreached, *addr, *is) => Stage::Pointers,
        K::InodeChecksum { .. } | K::InodeBad { .. } => Stage::Inodes,
        K::InlineWrong { .. }
        | K::MarkMisplaced { .. }
        | K::InlineXattrSize { .. }
        | K::ModeWrong { .. }
        | K::ZoneBad { .. }
        | K::DeltaNodeBad { .. }
        | K::DirLevelWrong { .. } => Stage::Inodes,
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
        | K::InlineNids { .. }
        | K::XattrBad { .. }
        | K::DentryBad { .. }
        | K::DentrySlots { .. }
        | K::DentryHash { .. }
        | K::DentryBucket { .. }
        | K::DentryType { .. }
        | K::DentryRepeated { .. }
        | K::DirectoryTwice { .. }
        | K::Dots { .. } => Stage::Pointers,
        K::Unreachable { .. } => Stage::Unreachable,
        K::DeltaWrong { .. } | K::DeltaTwice { .. } | K::DeltaWithoutBase { .. } => Stage::Deltas,
        K::BlocksWrong { .. }
        | K::LinksWrong { .. }
        | K::SizeTooLarge { .. }
        | K::ComprBlocksWrong { .. }
        | K::InlineTooLong { .. }
        | K::InlineUnmarked { .. }
        | K::ExtentWrong { .. }
        | K::DirSizeWrong { .. }
        | K::DirDepthWrong { .. }
        | K::ParentWrong { .. }
        | K::DirParentWrong { .. }
        | K::SymlinkEmpty { .. }
        | K::SymlinkNul { .. } => Stage::Sums,
        _ => Stage::Tables,
    }
}

/// True if a pointer may lead to a wrong block: its block is free in the SIT, or lies in a segment of nodes, or the
/// summary of an unreached block has this pointer's slot.
fn may_miss_its_block(img: &Image<'_>, unreached: &Unreached, addr: BlockAddr, is: Summary) -> bool {
    let owner = is.nid;
    let seg = img.sb.locate(addr).map(|(seg, _)| img.segment(seg));
    let among_nodes = seg.and_then(|s| log_type(s.kind)).is_some_and(|l| l.is_node());
    let is_data = img.nat(owner).is_ok_and(|e| e.addr != addr);
    !img.marked(addr) || (among_nodes && is_data) || unreached.has_data(is.nid, is.slot)
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
    let mut unreached = Unreached::search(img, walked)?;
    let now = all().map(|k| stage(img, &unreached, k)).min().unwrap_or(Stage::Tables);
    // Until pointers, nodes and names are repaired, a file may still claim unreached blocks.
    e.keep_marked = now < Stage::Sums;
    e.keep_error_marks = now < Stage::Tables;
    tables(&mut e, all())?;
    e.parents = all()
        .filter_map(|k| match k {
            K::DirParentWrong { ino, parent, .. } => Some((*ino, *parent)),
            _ => None,
        })
        .collect();
    let unknown = unreached.unknown_to_nat(img)?;
    for (nid, ino, addr) in &unknown {
        let entry = e.entry(*nid)?;
        e.nat.insert(*nid, NatEntry { version: entry.version, ino: *ino, addr: *addr });
        session.actions.push(Action::NodeFound { nid: *nid, addr: *addr });
    }
    if !unknown.is_empty() {
        (e.keep_marked, e.keep_error_marks) = (true, true);
        return Ok(e);
    }
    if now == Stage::Tables {
        refuse_to_drop_most(img, walked, report)?;
    }
    if now >= Stage::Unreachable && put_back(&mut e, session, &unreached)? {
        (e.keep_marked, e.keep_error_marks) = (true, true);
        return Ok(e);
    }
    let mut taken = 0;
    let stages: Vec<_> = all().map(|k| (stage(img, &unreached, k), k)).collect();
    for (_, kind) in stages.into_iter().filter(|(stage, _)| *stage == now) {
        match now {
            Stage::Inodes => match kind {
                K::DeltaNodeBad { ino, nid, error } => {
                    super::deltas::mend_node(&mut e, session, &unreached, *ino, *nid, error)?
                }
                _ => inode_bytes(&mut e, session, kind)?,
            },
            Stage::Pointers | Stage::Deltas => super::files::pointer(&mut e, session, &mut unreached, kind)?,
            Stage::Unreachable => {
                if let K::Unreachable { nid, ino, addr } = *kind {
                    super::unreachable::reattach(&mut e, session, &unreached, nid, ino, addr)?;
                }
            }
            Stage::Sums => super::sums::sum(&mut e, session, kind)?,
            Stage::Tables => break,
        }
        taken += 1;
        if taken >= MOST {
            break;
        }
    }
    Ok(e)
}

/// Repairs that only a new checkpoint needs, independent of the stage.
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
            K::NatReserved { nid, .. } => {
                let version = e.entry(*nid)?.version;
                e.nat.insert(*nid, NatEntry { version, ino: nid.as_ino(), addr: BlockAddr(1) });
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

/// A segment with data and nodes keeps the data.
fn move_nodes_out(e: &mut Editor<'_, '_>, seg: format::SegNo) -> Result<(), RepairError> {
    for n in 0..e.img.sb.nat_blocks() {
        for (nid, entry) in e.img.nat_live(n)? {
            let here = e.img.sb.locate(entry.addr).is_some_and(|(s, _)| s == seg);
            if here && e.walked.nids.has(nid.0) {
                // Every changed node gets a new address.
                e.node(nid)?;
            }
        }
    }
    Ok(())
}

/// Refuses to free more blocks than the tree uses if the tree lacks inodes that the checkpoint counts: then it is
/// not the tree of this checkpoint, and its files would be lost.
fn refuse_to_drop_most(img: &Image<'_>, walked: &Walked, report: &Report) -> Result<(), RepairError> {
    let surplus = report.findings.iter().filter_map(|f| match &f.kind {
        kind @ K::SitSurplus { count, .. } => Some((kind, u64::from(*count))),
        _ => None,
    });
    let unused: u64 = surplus.clone().map(|(_, count)| count).sum();
    let inodes = walked.counts.dirs + walked.counts.files;
    match surplus.map(|(kind, _)| kind).next() {
        Some(kind) if unused > walked.counts.written_blocks && inodes < u64::from(img.cp.valid_inodes) => {
            Err(RepairError::NotRepairable { finding: Box::new(kind.clone()) })
        }
        _ => Ok(()),
    }
}

/// Puts unreached data blocks back into the holes of files according to their summaries, if the SIT's counts are
/// right; true if there were any.
fn put_back(e: &mut Editor<'_, '_>, session: &mut Session, unreached: &Unreached) -> Result<bool, RepairError> {
    let img = e.img;
    let mut any = false;
    for (nid, slot, addr) in unreached.all_data() {
        let Some((seg, _)) = img.sb.locate(addr) else { continue };
        if !has_right_count(img, seg) || !e.walked.nids.has(nid.0) {
            continue;
        }
        let at = Slot { ino: img.nat(nid)?.ino, nid, index: slot.into() };
        if e.is_hole(at)? {
            e.set_slot(at, addr)?;
            session.actions.push(Action::DataFound { at, addr });
            any = true;
        }
    }
    Ok(any)
}

fn inode_bytes(e: &mut Editor<'_, '_>, session: &mut Session, kind: &K) -> Result<(), RepairError> {
    let (K::InodeChecksum { ino, .. }
    | K::InodeBad { ino, .. }
    | K::InlineWrong { ino, .. }
    | K::MarkMisplaced { ino, .. }
    | K::InlineXattrSize { ino, .. }
    | K::ModeWrong { ino, .. }
    | K::ZoneBad { ino, .. }
    | K::DirLevelWrong { ino, .. }) = *kind
    else {
        return Ok(());
    };
    // Marks are independent of each other and of the rest of the inode.
    if let K::MarkMisplaced { what, .. } = *kind {
        let features = e.img.sb.features;
        e.inode(ino, |raw| match what {
            // After a repair of the mode the mark may be valid.
            _ if !misplaced_marks(raw, features).any(|still| still == what) => {}
            Mark::Casefold => raw.i_flags = (raw.flags() - InodeFlags::CASEFOLD).bits().into(),
            Mark::Compressed => raw.i_flags = (raw.flags() - InodeFlags::COMPRESS).bits().into(),
            Mark::Encrypted => raw.i_advise &= !(Advise::ENCRYPT | Advise::ENC_NAME).bits(),
            Mark::Verity => raw.i_advise &= !Advise::VERITY.bits(),
        })?;
        session.actions.push(Action::Mended { finding: kind.to_string() });
        return Ok(());
    }
    if e.nodes.contains_key(&ino.nid()) {
        return Ok(());
    }
    if let K::ZoneBad { .. } = *kind {
        return super::deltas::mend_zone(e, session, ino, kind);
    }
    let field = match *kind {
        K::InlineWrong { is, .. } => e.inode(ino, |raw| raw.i_inline = is)?,
        // The words stay unchanged, and hold no attributes.
        K::InlineXattrSize { .. } => e.inode(ino, |raw| raw.i_inline &= !Inline::XATTR.bits())?,
        K::ModeWrong { is, .. } => e.inode(ino, |raw| raw.i_mode = is.into())?,
        K::DirLevelWrong { is, .. } => e.inode(ino, |raw| raw.i_dir_level = is)?,
        _ => false,
    };
    if field {
        session.actions.push(Action::Mended { finding: kind.to_string() });
        return Ok(());
    }
    let Some(block) = e.peek(ino.nid())? else { return Ok(()) };
    let (img, features) = (e.img, e.img.sb.features);
    let mut restored = unflip(img, &block);
    if restored.is_none() && !features.contains(Features::EXTRA_ATTR) {
        // No inode of such a volume has extra attributes, so the flag was flipped.
        let mut plain = block.clone();
        let raw = RawInode::of_mut(&mut plain);
        raw.i_inline &= !Inline::EXTRA_ATTR.bits();
        restored = Some(plain);
    }
    session.actions.push(match restored {
        Some(_) => Action::BitRestored { ino },
        None => {
            let mut lawful = block.clone();
            let changed = make_shape_lawful(img, &mut lawful)?;
            restored = changed.then_some(lawful);
            if changed { Action::ExtraReset { ino } } else { Action::ChecksumRenewed { ino } }
        }
    });
    e.nodes.insert(ino.nid(), restored.unwrap_or(block));
    Ok(())
}

/// Gives extra attributes with invalid sizes the sizes of the root directory's. False if nothing was wrong.
fn make_shape_lawful(img: &Image<'_>, block: &mut Block) -> Result<bool, FsckError> {
    // A zone is repaired separately.
    let features = without_deltas(img.sb.features);
    if RawInode::of(block).divide(features).is_err() {
        let root = img.block(img.nat(img.sb.root.nid())?.addr)?;
        let like = RawInode::of(&root);
        let sizes = like.divide(features).ok().and(like.extra()).map(|e| (e.i_extra_isize, e.i_inline_xattr_size));
        // If the root itself is damaged, use sizes with room for everything that the features may need.
        let (extra, xattr) = sizes.unwrap_or((inode::EXTRA_FULL.into(), (inode::DEFAULT_INLINE_XATTR as u16).into()));
        let raw = RawInode::of_mut(block);
        if let Some(e) = raw.extra_mut() {
            (e.i_extra_isize, e.i_inline_xattr_size) = (extra, xattr);
        }
        return Ok(true);
    }
    if RawInode::of(block).log_cluster(features).is_err() {
        // The smallest cluster: a mark that does not begin one is then found and cleared.
        if let Some(e) = RawInode::of_mut(block).extra_mut() {
            e.i_log_cluster_size = 2;
        }
        return Ok(true);
    }
    Ok(false)
}
