//! How is one broken pointer or name of a file repaired?

use format::dentry;
use format::inode::{Inline, RawInode};
use format::nat::NatEntry;
use format::node::{self, Footer};
use format::summary::Summary;
use format::{BlockAddr, Ino, Nid, bits};

use super::edit::Editor;
use super::entries::{refuse, remove};
use super::rebuild::{holds_inode, kind_of_entry, rebuild};
use super::rescue::Unreached;
use super::{Action, RepairError, Session};
use crate::FsckError;
use crate::kind::{DIR, kind_of, mode_of};
use crate::report::{Area, DentryPlace, FindingKind as K, Name, NodeFault, Referrer, Slot, XattrFault};
use crate::xattr;

type Done = Result<(), RepairError>;

/// Repairs pointers and names.
pub fn pointer(e: &mut Editor<'_, '_>, session: &mut Session, unreached: &mut Unreached, kind: &K) -> Done {
    match kind {
        K::OrphanHasName { ino } | K::OrphanHasLinks { ino, .. } => e.orphans.retain(|o| o != ino),
        K::NatInoWrong { nid, is, .. } => {
            let entry = e.entry(*nid)?;
            e.nat.insert(*nid, NatEntry { ino: *is, ..entry });
        }
        K::NodeUnusable { nid, from, fault } => unusable(e, session, unreached, kind, *nid, from, *fault)?,
        K::NodeOffsetWrong { ino, nid, is, .. } => {
            // Either the footer is wrong, or the pointer leads to another node of the file. In the latter case the
            // footer of the right node names this place.
            if let Some(right) = unreached.node_at(e.img, *ino, *is)? {
                let slot = super::unreachable::place(e, *ino, *is)?;
                let set = match slot {
                    Some(slot) => e.set_index(slot, right).map(|()| true)?,
                    None => match node::delta::number(*is) {
                        Some(number) => super::deltas::set(e, *ino, number, right)?,
                        None => false,
                    },
                };
                if set {
                    session.actions.push(Action::NodeAttached { ino: *ino, nid: right });
                    return Ok(());
                }
            }
            if let Some(block) = e.node(*nid)? {
                let f = node::footer(block);
                node::set_footer(block, &Footer { offset: *is, ..f });
            }
        }
        K::AddrOutside { at, .. } | K::BlockTaken { at, .. } | K::ClusterMark { at } => {
            match (unreached.data(*at), kind) {
                (Some(addr), _) => {
                    e.set_slot(*at, addr)?;
                    session.actions.push(Action::DataFound { at: *at, addr });
                }
                // A copy of a directory's block would duplicate the names.
                (None, K::BlockTaken { addr, .. }) if is_names_of_another_place(e, *at, *addr)? => {
                    clear(e, session, *at)?
                }
                (None, K::BlockTaken { addr, .. }) => {
                    e.copies.push((*at, *addr));
                    session.actions.push(Action::BlockCopied { at: *at, addr: *addr });
                }
                _ => match super::deltas::held_at(e, *at)? {
                    // Nothing is lost: a delta node holds the whole block.
                    Some(_) => {
                        e.set_slot(*at, BlockAddr::NEW)?;
                        session.actions.push(Action::Mended { finding: kind.to_string() });
                    }
                    None => clear(e, session, *at)?,
                },
            }
        }
        K::NameLenBad { ino, .. } => {
            e.inode(*ino, |raw| {
                let len = raw.i_name.iter().position(|&b| b == 0).unwrap_or(raw.i_name.len());
                raw.i_namelen = (len as u32).into();
            })?;
        }
        K::InlineMisplaced { ino, what, .. } => {
            let bit = match *what {
                "directory" => Inline::DENTRY,
                "data" => Inline::DATA,
                _ => Inline::EXTRA_ATTR,
            };
            e.inode(*ino, |raw| raw.i_inline &= !bit.bits())?;
        }
        K::InlineNids { ino, .. } => {
            e.inode(*ino, |raw| raw.i_nid = [0.into(); 5])?;
        }
        K::InlineReserved { ino, .. } => {
            if let Some(division) = e.division(*ino)? {
                e.inode(*ino, |raw| raw.set_addr(division, 0, BlockAddr::NULL))?;
            }
        }
        K::DeltaWrong { ino, block } => super::deltas::give_up(e, session, *ino, *block, Some(*block))?,
        K::DeltaWithoutBase { ino, block } => super::deltas::without_base(e, session, *ino, *block, kind)?,
        K::DeltaTwice { ino, block } => super::deltas::keep_one(e, session, *ino, *block)?,
        K::XattrBad { ino, fault } => {
            let lost = unreached.node_at(e.img, *ino, node::XATTR_NODE_OFFSET)?;
            let alone = e.peek(ino.nid())?.is_some_and(|b| RawInode::of(&b).i_xattr_nid.get() == 0);
            match lost.filter(|_| alone) {
                // An unreached node holds the rest of the list.
                Some(nid) => {
                    e.inode(*ino, |raw| raw.i_xattr_nid = nid.0.into())?;
                    session.actions.push(Action::NodeAttached { ino: *ino, nid });
                }
                None => cut_xattrs(e, session, *ino, *fault)?,
            }
        }
        K::DentryBad { place } => mend_entry(e, session, *place)?,
        K::DentrySlots { place, name } => {
            let range = place.slot..place.slot + dentry::slots_for(name.0.len());
            e.change_area(place.dir, place.area, |_, bytes| {
                for slot in range {
                    bits::lsb_put(bytes, slot, true);
                }
            })?;
        }
        K::DentryHash { place, name, stored, .. } => mend_hash(e, *place, name, *stored)?,
        K::DentryBucket { place, name } => mend_bucket(e, session, *place, name)?,
        K::DentryType { ino, stored: DIR, .. } if has_own_dot(e, *ino)? => {
            e.inode(*ino, |raw| raw.i_mode = (raw.i_mode.get() & 0o7777 | mode_of(DIR)).into())?;
        }
        K::SummaryWrong { addr, is, .. } => restore_meant(e, session, unreached, *addr, *is)?,
        K::DentryType { place, ino, is, .. } => {
            let (slot, ino, is) = (place.slot, ino.0, *is);
            e.change_area(place.dir, place.area, |l, bytes| dentry::redirect(l, bytes, slot, ino, is))?;
        }
        K::DentryRepeated { place, name } => {
            remove(e, session, *place, name, None)?;
        }
        K::DirectoryTwice { place, name, ino } => remove(e, session, *place, name, Some(*ino))?,
        K::Dots { dir, which, fault } => super::dots::mend(e, session, unreached, kind, *dir, which, *fault)?,
        _ => {}
    }
    Ok(())
}

/// True for a slot of a directory that leads to a block with another owner in its summary.
fn is_names_of_another_place(e: &Editor<'_, '_>, at: Slot, addr: BlockAddr) -> Result<bool, FsckError> {
    let dir = e.peek(at.ino.nid())?.is_some_and(|b| kind_of(RawInode::of(&b).i_mode.get()) == Some(DIR));
    let owner = match e.img.sb.locate(addr) {
        Some((seg, off)) if dir => e.img.summary(seg, off)?,
        _ => None,
    };
    Ok(owner.is_some_and(|s| (s.nid, u32::from(s.slot)) != (at.nid, at.index)))
}

fn clear(e: &mut Editor<'_, '_>, session: &mut Session, at: Slot) -> Done {
    e.set_slot(at, BlockAddr::NULL)?;
    session.actions.push(Action::PointerCleared { at });
    Ok(())
}

#[allow(clippy::too_many_arguments)] // the parts of one finding
fn unusable(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &mut Unreached,
    kind: &K,
    nid: Nid,
    from: &Referrer,
    fault: NodeFault,
) -> Done {
    let owner = match from {
        Referrer::Index(slot) => slot.ino,
        Referrer::Xattr(ino) | Referrer::Delta { ino, .. } => *ino,
        _ => nid.as_ino(),
    };
    // Already found in this round through another name of the same inode.
    if matches!(from, Referrer::Dentry { .. }) && (e.nat.contains_key(&nid) || e.nodes.contains_key(&nid)) {
        return Ok(());
    }
    let elsewhere = !matches!(
        fault,
        NodeFault::Twice
            | NodeFault::OutOfRange
            | NodeFault::Mode { .. }
            | NodeFault::NamedElsewhere { .. }
            | NodeFault::NoDeltaNode { .. }
    );
    if elsewhere && let Some(addr) = unreached.node(nid, owner) {
        let version = e.entry(nid)?.version;
        e.nat.insert(nid, NatEntry { version, ino: owner, addr });
        session.actions.push(Action::NodeFound { nid, addr });
        return Ok(());
    }
    match fault {
        NodeFault::FooterNid { addr, .. } | NodeFault::FooterIno { addr, .. }
            if footer_is_at_fault(e, nid, owner, addr, fault)?
                && (!leads_to_inode(from) || holds_inode(e, owner, &*e.img.block(addr)?, from)?) =>
        {
            let mut block = e.img.block(addr)?;
            let f = node::footer(&block);
            node::set_footer(&mut block, &Footer { nid, ino: owner, ..f });
            e.nodes.insert(nid, block);
            session.actions.push(Action::NodeFound { nid, addr });
            return Ok(());
        }
        // The node's footer matches: any other pointer there mistakes a node for data.
        NodeFault::BlockTaken { addr } => {
            e.nodes.insert(nid, e.img.block(addr)?);
            session.actions.push(Action::NodeFound { nid, addr });
            return Ok(());
        }
        NodeFault::Mode { .. } => {
            if let Some(kind) = kind_by_name(e, from)? {
                e.inode(nid.as_ino(), |raw| {
                    raw.i_mode = (raw.i_mode.get() & 0o7777 | mode_of(kind)).into();
                })?;
                return Ok(());
            }
        }
        _ => {}
    }
    if elsewhere && rebuild(e, session, unreached, nid.as_ino(), from)? {
        return Ok(());
    }
    match from {
        Referrer::Dentry { place, name } => match unreached.inode_named(place.dir, &name.0) {
            // The name is right, but its inode number is wrong.
            Some((ino, kind)) => {
                let slot = place.slot;
                e.change_area(place.dir, place.area, |l, b| dentry::redirect(l, b, slot, ino.0, kind))?;
                session.actions.push(Action::NameRestored { dir: place.dir, name: name.clone(), ino });
                Ok(())
            }
            None => remove(e, session, *place, name, Some(nid.as_ino())),
        },
        Referrer::Index(at) => {
            e.set_index(*at, Nid(0))?;
            session.actions.push(Action::PointerCleared { at: *at });
            Ok(())
        }
        Referrer::Xattr(ino) => {
            if let Some(right) = unreached.node_at(e.img, *ino, node::XATTR_NODE_OFFSET)? {
                e.inode(*ino, |raw| raw.i_xattr_nid = right.0.into())?;
                session.actions.push(Action::NodeAttached { ino: *ino, nid: right });
                return Ok(());
            }
            e.inode(*ino, |raw| raw.i_xattr_nid = 0.into())?;
            session.actions.push(Action::XattrsCut { ino: *ino });
            Ok(())
        }
        Referrer::Delta { ino, number } => super::deltas::point_elsewhere(e, session, unreached, *ino, *number, fault),
        Referrer::Orphan => {
            e.orphans.retain(|o| o.nid() != nid);
            Ok(())
        }
        Referrer::Quota(k) => super::quota::restore(e, session, *k, nid, fault),
        Referrer::Root => refuse(kind),
    }
}

fn leads_to_inode(from: &Referrer) -> bool {
    !matches!(from, Referrer::Index(_) | Referrer::Xattr(_) | Referrer::Delta { .. })
}

/// A pointer leads to a free block whose summary has another owner. If the summary of an unreached block has this
/// slot, the slot gets that block.
fn restore_meant(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &mut Unreached,
    addr: BlockAddr,
    is: Summary,
) -> Done {
    let at = Slot { ino: e.entry(is.nid)?.ino, nid: is.nid, index: is.slot.into() };
    let Some(meant) = unreached.data(at) else { return Ok(()) };
    e.set_slot(at, meant)?;
    if let Some((seg, off)) = e.img.sb.locate(addr)
        && let Some(entries) = e.summaries.get_mut(&seg)
    {
        entries.remove(&off);
    }
    session.actions.push(Action::DataFound { at, addr: meant });
    Ok(())
}

/// True if an inode with a non-directory mode holds a directory: its first area begins with a `.` that leads to it.
fn has_own_dot(e: &Editor<'_, '_>, ino: Ino) -> Result<bool, FsckError> {
    let Some(block) = e.peek(ino.nid())? else { return Ok(false) };
    let inline = RawInode::of(&block).inline().contains(Inline::DENTRY);
    let area = if inline { Area::Inline } else { Area::Block(0) };
    let Some((layout, bytes)) = e.area(ino, area)? else { return Ok(false) };
    Ok(dentry::entries(&layout, &bytes, 0).any(|d| d.name == b"." && d.ino == ino.0))
}

/// True if summary and NAT agree on a node but the footer names another.
fn footer_is_at_fault(
    e: &Editor<'_, '_>,
    nid: Nid,
    owner: Ino,
    addr: BlockAddr,
    fault: NodeFault,
) -> Result<bool, FsckError> {
    let Some((seg, off)) = e.img.sb.locate(addr) else { return Ok(false) };
    let marked = bits::msb_test(&e.img.segment(seg).map, usize::from(off));
    let free = !e.walked.reached.has(seg, off);
    let by_nat = e.entry(nid)?.ino == owner;
    let summary_agrees = match (e.img.summary(seg, off)?, fault) {
        (Some(s), _) => s.nid == nid,
        (None, NodeFault::FooterIno { .. }) => true,
        (None, _) => false,
    };
    Ok(marked && free && by_nat && summary_agrees)
}

/// The type of an inode according to its name's entry.
fn kind_by_name(e: &Editor<'_, '_>, from: &Referrer) -> Result<Option<u8>, FsckError> {
    match from {
        Referrer::Dentry { place, .. } => kind_of_entry(e, *place),
        Referrer::Root => Ok(Some(DIR)),
        Referrer::Quota(_) => Ok(Some(1)),
        _ => Ok(None),
    }
}

fn cut_xattrs(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, fault: XattrFault) -> Done {
    let (Some(block), Some(division)) = (e.peek(ino.nid())?, e.division(ino)?) else { return Ok(()) };
    let raw = RawInode::of(&block);
    let inline = if raw.inline().contains(Inline::XATTR) { division.xattr_area() } else { 0..0 };
    let nid = Nid(raw.i_xattr_nid.get());
    let mut list = block[inline.clone()].to_vec();
    let outside = if nid.0 == 0 { None } else { e.peek(nid)? };
    if let Some(node) = &outside {
        list.extend_from_slice(&node[..node::FOOTER]);
    }
    let from = match fault {
        // The entries may still be valid; the next round checks them.
        XattrFault::Magic { .. } => {
            list[..4].copy_from_slice(&format::xattr::MAGIC.to_le_bytes());
            list.len()
        }
        XattrFault::Overrun { at, .. } | XattrFault::StaleTail { at } => at,
        // The last entry leaves no room for the terminator, so drop it.
        XattrFault::Unterminated => xattr::last_entry(&list),
    };
    if !matches!(fault, XattrFault::StaleTail { .. } | XattrFault::Magic { .. }) {
        session.actions.push(Action::XattrsCut { ino });
    }
    if let Some(tail) = list.get_mut(from..) {
        tail.fill(0);
    }
    let (here, there) = list.split_at(inline.len());
    if let Some(block) = e.node(ino.nid())? {
        block[inline].copy_from_slice(here);
    }
    if outside.is_some()
        && let Some(node) = e.node(nid)?
    {
        node[..node::FOOTER].copy_from_slice(there);
    }
    Ok(())
}

/// True if a valid name fits at a slot without covering another entry.
fn fits(layout: &dentry::Layout, bytes: &[u8], slot: usize, name: &[u8]) -> bool {
    let slots = dentry::slots_for(name.len());
    let lawful = !name.is_empty() && !name.iter().any(|b| matches!(b, 0 | b'/'));
    lawful
        && slot + slots <= layout.slots
        && (slot + 1..slot + slots).all(|next| dentry::at(layout, bytes, next).is_none())
}

/// Repairs a used slot with an invalid name: the inode records the name, and the hash confirms it.
fn mend_entry(e: &mut Editor<'_, '_>, session: &mut Session, place: DentryPlace) -> Done {
    let Some((layout, bytes)) = e.area(place.dir, place.area)? else { return Ok(()) };
    let slot = place.slot;
    let (hash, ino) = dentry::raw_hash_and_ino(&layout, &bytes, slot);
    let known = match e.peek(Nid(ino))? {
        Some(b) if ino != 0 => {
            let raw = RawInode::of(&b);
            kind_of(raw.i_mode.get()).map(|kind| (raw.name().to_vec(), Ino(raw.i_pino.get()), kind))
        }
        _ => None,
    };
    if let Some((name, parent, kind)) = known {
        if e.hashing(place.dir)?.hash(&name) == Some(hash) && fits(&layout, &bytes, slot, &name) {
            e.change_area(place.dir, place.area, |l, b| dentry::insert(l, b, slot, &name, hash, ino, kind))?;
            let restored = Action::NameRestored { dir: place.dir, name: Name(name), ino: Ino(ino) };
            session.actions.push(restored);
            return Ok(());
        }
        if parent == place.dir {
            session.lost_names.insert((parent, name));
        }
    }
    e.change_area(place.dir, place.area, |_, bytes| {
        bits::lsb_put(bytes, slot, false);
    })?;
    Ok(())
}

/// Repairs an entry whose hash does not match its name. If the hash matches the name in the inode, the entry's name
/// was damaged; otherwise the hash was.
fn mend_hash(e: &mut Editor<'_, '_>, place: DentryPlace, name: &Name, stored: u32) -> Done {
    let Some((layout, bytes)) = e.area(place.dir, place.area)? else { return Ok(()) };
    let Some(d) = dentry::at(&layout, &bytes, place.slot) else { return Ok(()) };
    let (ino, kind) = (d.ino, d.kind);
    let known = e.peek(Nid(ino))?.map(|b| RawInode::of(&b).name().to_vec()).unwrap_or_default();
    let hashing = e.hashing(place.dir)?;
    let restore = hashing.hash(&known) == Some(stored) && fits(&layout, &bytes, place.slot, &known);
    let (right, hash) = match hashing.hash(&name.0) {
        _ if restore => (known, stored),
        Some(hash) => (name.0.clone(), hash),
        None => return Ok(()),
    };
    let slot = place.slot;
    e.change_area(place.dir, place.area, |l, bytes| dentry::insert(l, bytes, slot, &right, hash, ino, kind))?;
    Ok(())
}

fn mend_bucket(e: &mut Editor<'_, '_>, session: &mut Session, place: DentryPlace, name: &Name) -> Done {
    let Some((layout, bytes)) = e.area(place.dir, place.area)? else { return Ok(()) };
    let Some(d) = dentry::at(&layout, &bytes, place.slot) else { return Ok(()) };
    let (ino, kind, hash) = (Ino(d.ino), d.kind, d.hash);
    if e.insert(place.dir, &name.0, hash, ino, kind)? {
        e.remove_entry(place)?;
    } else {
        remove(e, session, place, name, Some(ino))?;
    }
    Ok(())
}
