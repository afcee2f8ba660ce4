//! How is an inode rebuilt whose block is lost?
//!
//! A block that reads as zeroes, as ones, or as another block has no fields to repair. But a directory entry names
//! the inode and its type, summaries name it as the owner of its data blocks, and its nodes name it in their
//! footers. A new inode is made from these. Information that only the old one held is lost: owner, permissions,
//! times, the exact size, attributes, inline contents.

use format::dentry::{self, Layout};
use format::hash::name_hash;
use format::inode::{self, Inline, InodeFlags, RawInode};
use format::nat::NatEntry;
use format::node::{self, ADDRS_PER_BLOCK, Footer, NodeKind, Shape};
use format::superblock::Features;
use format::{BLOCK, Block, BlockAddr, Ino};

use super::edit::Editor;
use super::rescue::Unreached;
use super::{Action, RepairError, Session};
use crate::bases::without_deltas;
use crate::hashes::Hashing;
use crate::kind::{DIR, kind_of, mode_of};
use crate::report::{DentryPlace, Referrer};
use crate::{FsckError, signs};

/// A name that leads to an inode.
struct Reference<'f> {
    kind: u8,
    parent: Ino,
    name: &'f [u8],
}

/// The name and type of an inode according to a reference; `None` if it has none, or if the type has no contents.
fn reference_to<'f>(e: &Editor<'_, '_>, from: &'f Referrer) -> Result<Option<Reference<'f>>, FsckError> {
    let root = e.img.sb.root;
    Ok(match from {
        Referrer::Root => Some(Reference { kind: DIR, parent: root, name: b"" }),
        Referrer::Dentry { place, name } => kind_of_entry(e, *place)?
            .filter(|kind| matches!(*kind, 1 | DIR | 7))
            .map(|kind| Reference { kind, parent: place.dir, name: &name.0 }),
        _ => None,
    })
}

/// The type in a directory entry.
pub fn kind_of_entry(e: &Editor<'_, '_>, place: DentryPlace) -> Result<Option<u8>, FsckError> {
    let Some((layout, bytes)) = e.area(place.dir, place.area)? else { return Ok(None) };
    Ok(dentry::at(&layout, &bytes, place.slot).map(|d| d.kind).filter(|k| (1..=7).contains(k)))
}

/// True if a block holds the referenced inode, whatever its footer contains: its checksum is valid under the right
/// footer, or it records the referring name, or a summary has this inode as the owner of its first block.
pub fn holds_inode(e: &Editor<'_, '_>, ino: Ino, block: &Block, from: &Referrer) -> Result<bool, FsckError> {
    let (img, features) = (e.img, e.img.sb.features);
    let mut right = *block;
    let f = node::footer(block);
    node::set_footer(&mut right, &Footer { nid: ino.nid(), ino, offset: 0, ..f });
    let raw = RawInode::of(&right);
    let Ok(division) = raw.divide(without_deltas(features)) else { return Ok(false) };
    if kind_of(raw.i_mode.get()).is_none() {
        return Ok(false);
    }
    if inode::has_checksum(features, raw) && inode::verify_checksum(features, img.seed, &right).is_ok() {
        return Ok(true);
    }
    if let Referrer::Dentry { place, name } = from
        && raw.i_pino.get() == place.dir.0
        && raw.name() == name.0
    {
        return Ok(true);
    }
    if raw.inline().contains(Inline::DENTRY) {
        let area = &block[division.inline_area()];
        return Ok(signs::begins_as_directory(&Layout::inline(area.len()), area, ino));
    }
    signs::has_blocks(img, ino, &right)
}

/// Rebuilds an inode from references to it. False if only its name refers to it: then nothing of it is left.
pub fn rebuild(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &mut Unreached,
    ino: Ino,
    from: &Referrer,
) -> Result<bool, RepairError> {
    let Some(reference) = reference_to(e, from)? else { return Ok(false) };
    if e.nodes.contains_key(&ino.nid()) {
        return Ok(true);
    }
    let was_here = was_here(e, ino)?;
    let below = reference.kind == DIR && (was_here || unreached.records_parent(ino) || matches!(from, Referrer::Root));
    if !below && !unreached.has_any_of(ino) {
        return Ok(false);
    }
    let block = new_inode(e, unreached, ino, &reference)?;
    let entry = e.entry(ino.nid())?;
    // Its block belongs to it only if all tables agree.
    let addr = if was_here { entry.addr } else { BlockAddr::NULL };
    e.nat.insert(ino.nid(), NatEntry { ino, addr, ..entry });
    e.nodes.insert(ino.nid(), block);
    session.rebuilt.insert(ino);
    session.actions.push(Action::InodeRebuilt { ino });
    Ok(true)
}

/// True if NAT, SIT and summary agree that the block at an inode's address belongs to this inode, and no other node
/// uses it.
fn was_here(e: &Editor<'_, '_>, ino: Ino) -> Result<bool, FsckError> {
    let entry = e.entry(ino.nid())?;
    let Some((seg, off)) = e.img.sb.locate(entry.addr) else { return Ok(false) };
    let summary_agrees = e.img.summary(seg, off)?.is_none_or(|s| s.nid == ino.nid());
    Ok(entry.ino == ino && summary_agrees && e.img.marked(entry.addr) && !e.walked.reached.has(seg, off))
}

fn new_inode(
    e: &Editor<'_, '_>,
    unreached: &mut Unreached,
    ino: Ino,
    reference: &Reference<'_>,
) -> Result<Box<Block>, FsckError> {
    let features = e.img.sb.features;
    let blocks = unreached.blocks_of(e.img, ino);
    let mut block = Box::new([0; BLOCK]);
    let raw = RawInode::of_mut(&mut block);
    let is_root = ino == e.img.sb.root;
    let perm = match reference.kind {
        DIR if is_root => 0o755,
        DIR => 0o700,
        7 => 0o777,
        _ => 0o600,
    };
    raw.i_mode = (mode_of(reference.kind) | perm).into();
    raw.i_links = if reference.kind == DIR { 2 } else { 1 }.into();
    raw.i_blocks = 1.into();
    raw.i_pino = reference.parent.0.into();
    let len = reference.name.len().min(inode::NAME_LEN);
    raw.i_namelen = (len as u32).into();
    raw.i_name[..len].copy_from_slice(&reference.name[..len]);
    if reference.kind == DIR {
        raw.i_current_depth = 1.into();
        if folds(e, ino, &blocks)? {
            raw.i_flags = InodeFlags::CASEFOLD.bits().into();
        }
    }
    divide_as_before(e, raw, reference.parent, blocks.last().map(|(slot, _)| *slot))?;
    let Ok(division) = raw.divide(without_deltas(features)) else { return Ok(block) };
    let mut end = 0;
    for (slot, addr) in &blocks {
        raw.set_addr(division, u32::from(*slot), *addr);
        end = end.max(u64::from(*slot) + 1);
    }
    let shape = Shape::plain(division.direct_slots());
    for (offset, addr) in unreached.nodes_of(ino) {
        let NodeKind::Direct { first } = shape.kind_of(offset) else { continue };
        let node = e.img.block(addr)?;
        let used = (0..ADDRS_PER_BLOCK).rev().find(|i| node::word(&node, *i as usize) != 0).map_or(0, |i| i + 1);
        end = end.max(u64::from(shape.direct_slots) + first + u64::from(used));
    }
    // The size of a symbolic link comes from its target.
    raw.i_size = if reference.kind == 7 { 0 } else { end.saturating_mul(BLOCK as u64) }.into();
    let footer = Footer { nid: ino.nid(), ino, cold: false, offset: 0, ..node::footer(&block) };
    node::set_footer(&mut block, &footer);
    Ok(block)
}

/// Gives a new inode the same extra attributes as its parent or the root, and room for inline attributes if its
/// last block permits that, so that its slots stay the same.
fn divide_as_before(e: &Editor<'_, '_>, raw: &mut RawInode, parent: Ino, last: Option<u16>) -> Result<(), FsckError> {
    let features = e.img.sb.features;
    raw.i_inline = Inline::XATTR.bits();
    if features.contains(Features::EXTRA_ATTR) {
        raw.i_inline |= Inline::EXTRA_ATTR.bits();
        let mut sizes = (inode::EXTRA_FULL.into(), (inode::DEFAULT_INLINE_XATTR as u16).into());
        for like in [e.img.sb.root, parent] {
            if let Some(block) = e.peek(like.nid())?
                && let like = RawInode::of(&block)
                && like.divide(without_deltas(features)).is_ok()
                && let Some(extra) = like.extra()
            {
                sizes = (extra.i_extra_isize, extra.i_inline_xattr_size);
            }
        }
        if let Some(extra) = raw.extra_mut() {
            (extra.i_extra_isize, extra.i_inline_xattr_size) = sizes;
        }
    }
    let slots = |raw: &RawInode| raw.divide(without_deltas(features)).map_or(0, |d| d.direct_slots());
    if last.is_some_and(|last| u32::from(last) >= slots(raw)) {
        raw.i_inline &= !Inline::XATTR.bits();
    }
    Ok(())
}

/// True if the hashes in a directory's blocks match folded names.
fn folds(e: &Editor<'_, '_>, ino: Ino, blocks: &[(u16, BlockAddr)]) -> Result<bool, FsckError> {
    if !e.img.sb.features.contains(Features::CASEFOLD) {
        return Ok(false);
    }
    for (_, addr) in blocks {
        let block = e.img.block(*addr)?;
        for d in dentry::entries(&Layout::BLOCK, &block[..], 0).filter(|d| d.ino != ino.0) {
            let folded = Hashing::Folded.hash(d.name);
            if folded != Some(name_hash(d.name)) {
                return Ok(folded == Some(d.hash));
            }
        }
    }
    Ok(false)
}
