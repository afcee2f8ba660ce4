//! How is one broken pointer, one stray node, one wrong sum of a file mended?

use format::dentry;
use format::hash::name_hash;
use format::inode::{Advise, Inline, InodeFlags, RawInode};
use format::nat::NatEntry;
use format::node::{self, NodeKind, Footer};
use format::{BLOCK, Block, BlockAddr, Ino, Nid, bits};

use super::edit::Editor;
use super::rescue::{Home, Strays, home};
use super::{Action, RepairError, Session};
use crate::fsck::FsckError;
use crate::fsck::report::{Area, DentryPlace, DotFault, FindingKind as K, Name, NodeFault, Referrer, Slot, XattrFault};
use crate::fsck::walk::{DIR, kind_of};
use crate::fsck::xattr;

type Done = Result<(), RepairError>;

fn refuse(kind: &K) -> Done {
    Err(RepairError::NotRepairable { finding: Box::new(kind.clone()) })
}

/// Mends pointers and names.
pub fn pointer(e: &mut Editor<'_, '_>, session: &mut Session, strays: &mut Strays, kind: &K) -> Done {
    match kind {
        K::OrphanHasName { ino } | K::OrphanHasLinks { ino, .. } => e.orphans.retain(|o| o != ino),
        K::NatInoWrong { nid, is, .. } => {
            let entry = e.entry(*nid)?;
            e.nat.insert(*nid, NatEntry { ino: *is, ..entry });
        }
        K::NodeUnusable { nid, from, fault } => unusable(e, session, strays, kind, *nid, from, *fault)?,
        K::NodeOffsetWrong { nid, is, .. } => {
            if let Some(block) = e.node(*nid)? {
                let f = node::footer(block);
                node::set_footer(block, &Footer { offset: *is, ..f });
            }
        }
        K::AddrOutside { at, .. } | K::BlockTaken { at, .. } => match (strays.data(*at), kind) {
            (Some(addr), _) => {
                e.set_slot(*at, addr)?;
                session.actions.push(Action::DataFound { at: *at, addr });
            }
            (None, K::BlockTaken { addr, .. }) => {
                e.copies.push((*at, *addr));
                session.actions.push(Action::BlockCopied { at: *at, addr: *addr });
            }
            _ => clear(e, session, *at)?,
        },
        K::ClusterMark { at } => clear(e, session, *at)?,
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
                _ => return refuse(kind),
            };
            e.inode(*ino, |raw| raw.i_inline &= !bit.bits())?;
        }
        K::InlineReserved { ino, .. } => {
            if let Some(division) = e.division(*ino)? {
                e.inode(*ino, |raw| raw.set_addr(division, 0, BlockAddr::NULL))?;
            }
        }
        K::XattrBad { ino, fault } => cut_xattrs(e, session, *ino, *fault)?,
        K::DentryBad { place } => {
            let slot = place.slot;
            e.change_area(place.dir, place.area, |_, bytes| {
                bits::lsb_put(bytes, slot, false);
            })?;
        }
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
        K::DentryType { place, ino, is, .. } => {
            let (slot, ino, is) = (place.slot, ino.0, *is);
            e.change_area(place.dir, place.area, |l, bytes| dentry::redirect(l, bytes, slot, ino, is))?;
        }
        K::DentryRepeated { place, name } => {
            remove(e, session, *place, name, None)?;
        }
        K::DirectoryTwice { place, name, ino } => remove(e, session, *place, name, Some(*ino))?,
        K::Dots { dir, which, fault } => dots(e, kind, *dir, which, *fault)?,
        _ => {}
    }
    Ok(())
}

fn clear(e: &mut Editor<'_, '_>, session: &mut Session, at: Slot) -> Done {
    e.set_slot(at, BlockAddr::NULL)?;
    session.actions.push(Action::PointerCleared { at });
    Ok(())
}

fn remove(e: &mut Editor<'_, '_>, session: &mut Session, place: DentryPlace, name: &Name, ino: Option<Ino>) -> Done {
    if e.remove_entry(place)? {
        session.lost_names.insert((place.dir, name.0.clone()));
        let ino = ino.unwrap_or(Ino(0));
        session.actions.push(Action::EntryRemoved { dir: place.dir, name: name.clone(), ino });
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // the parts of one finding
fn unusable(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    strays: &mut Strays,
    kind: &K,
    nid: Nid,
    from: &Referrer,
    fault: NodeFault,
) -> Done {
    let owner = match from {
        Referrer::Index(slot) => slot.ino,
        Referrer::Xattr(ino) => *ino,
        _ => nid.as_ino(),
    };
    let elsewhere = !matches!(fault, NodeFault::Twice | NodeFault::OutOfRange | NodeFault::Mode { .. });
    if elsewhere && let Some(addr) = strays.node(nid, owner) {
        let version = e.entry(nid)?.version;
        e.nat.insert(nid, NatEntry { version, ino: owner, addr });
        session.actions.push(Action::NodeFound { nid, addr });
        return Ok(());
    }
    match fault {
        NodeFault::FooterNid { addr, .. } | NodeFault::FooterIno { addr, .. } => {
            if footer_is_at_fault(e, nid, owner, addr, fault)? {
                let mut block = e.img.block(addr)?;
                let f = node::footer(&block);
                node::set_footer(&mut block, &Footer { nid, ino: owner, ..f });
                e.nodes.insert(nid, block);
                session.actions.push(Action::NodeFound { nid, addr });
                return Ok(());
            }
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
    match from {
        Referrer::Dentry { place, name } => remove(e, session, *place, name, Some(nid.as_ino())),
        Referrer::Index(at) => {
            e.set_index(*at, Nid(0))?;
            session.actions.push(Action::PointerCleared { at: *at });
            Ok(())
        }
        Referrer::Xattr(ino) => {
            e.inode(*ino, |raw| raw.i_xattr_nid = 0.into())?;
            session.actions.push(Action::XattrsCut { ino: *ino });
            Ok(())
        }
        Referrer::Orphan => {
            e.orphans.retain(|o| o.nid() != nid);
            Ok(())
        }
        Referrer::Root | Referrer::Quota(_) => refuse(kind),
    }
}

/// True if the summary and the NAT vouch for a node whose footer says otherwise.
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
    let vouched = match (e.img.summary(seg, off)?, fault) {
        (Some(s), _) => s.nid == nid,
        (None, NodeFault::FooterIno { .. }) => true,
        (None, _) => false,
    };
    Ok(marked && free && by_nat && vouched)
}

/// The type a name says its inode has.
fn kind_by_name(e: &Editor<'_, '_>, from: &Referrer) -> Result<Option<u8>, FsckError> {
    let place = match from {
        Referrer::Dentry { place, .. } => *place,
        Referrer::Root => return Ok(Some(DIR)),
        Referrer::Quota(_) => return Ok(Some(1)),
        _ => return Ok(None),
    };
    let Some((layout, bytes)) = e.area(place.dir, place.area)? else { return Ok(None) };
    Ok(dentry::at(&layout, &bytes, place.slot).map(|d| d.kind).filter(|k| (1..=7).contains(k)))
}

/// Mode bits of a dentry type number.
fn mode_of(kind: u8) -> u16 {
    [0o100_000, 0o040_000, 0o020_000, 0o060_000, 0o010_000, 0o140_000, 0o120_000]
        .get(usize::from(kind).wrapping_sub(1))
        .copied()
        .unwrap_or(0o100_000)
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
        XattrFault::Overrun { at, .. } | XattrFault::StaleTail { at } => at,
        // The last entry leaves no room for the end: it must go.
        XattrFault::Unterminated => xattr::last_entry(&list),
    };
    if !matches!(fault, XattrFault::StaleTail { .. }) {
        session.actions.push(Action::XattrsCut { ino });
    }
    if let Some(tail) = list.get_mut(from..) {
        tail.fill(0);
    }
    let (here, there) = list.split_at(inline.len());
    if let Some(block) = e.node(ino.nid())? {
        block[inline].copy_from_slice(here);
    }
    if outside.is_some() && let Some(node) = e.node(nid)? {
        node[..node::FOOTER].copy_from_slice(there);
    }
    Ok(())
}

/// Either the hash or the name was damaged: the inode knows its name.
fn mend_hash(e: &mut Editor<'_, '_>, place: DentryPlace, name: &Name, stored: u32) -> Done {
    let Some((layout, bytes)) = e.area(place.dir, place.area)? else { return Ok(()) };
    let Some(d) = dentry::at(&layout, &bytes, place.slot) else { return Ok(()) };
    let (ino, kind) = (d.ino, d.kind);
    let known = e.peek(Nid(ino))?.map(|b| RawInode::of(&b).name().to_vec()).unwrap_or_default();
    let restore = known.len() == name.0.len() && name_hash(&known) == stored && !known.is_empty();
    let (right, hash) = if restore { (known, stored) } else { (name.0.clone(), name_hash(&name.0)) };
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

fn dots(e: &mut Editor<'_, '_>, kind: &K, dir: Ino, which: &str, fault: DotFault) -> Done {
    let Some(block) = e.peek(dir.nid())? else { return Ok(()) };
    let raw = RawInode::of(&block);
    let inline = raw.inline().contains(Inline::DENTRY);
    let area = if inline { Area::Inline } else { Area::Block(0) };
    let parent = Ino(raw.i_pino.get());
    let to = match (which, fault) {
        (".", _) => dir,
        _ if dir == e.img.sb.root => dir,
        _ => parent,
    };
    if e.area(dir, area)?.is_none() && !inline {
        if e.slot(dir, 0)?.is_none() {
            return refuse(kind);
        }
        e.data.insert((dir, 0), Box::new([0; BLOCK]));
    }
    let name = which.as_bytes();
    let mut placed = true;
    e.change_area(dir, area, |l, bytes| {
        let slots: Vec<usize> =
            dentry::entries(l, bytes, 0).filter(|d| d.name == name).map(|d| d.slot).collect();
        match slots.split_first() {
            Some((first, more)) => {
                dentry::redirect(l, bytes, *first, to.0, DIR);
                more.iter().for_each(|slot| dentry::remove(l, bytes, *slot));
            }
            None => match dentry::room(l, bytes, 1) {
                Some(slot) => dentry::insert(l, bytes, slot, name, 0, to.0, DIR),
                None => placed = false,
            },
        }
    })?;
    if placed { Ok(()) } else { refuse(kind) }
}

/// Finds a place for a node nothing leads to, or drops it.
pub fn stray(e: &mut Editor<'_, '_>, session: &mut Session, nid: Nid, ino: Ino, addr: BlockAddr) -> Done {
    let mut known = None;
    if let Some((seg, off)) = e.img.sb.locate(addr)
        && !e.walked.reached.has(seg, off)
    {
        let block = e.img.block(addr)?;
        let f = node::footer(&block);
        if f.nid == nid && (f.ino == ino || f.ino == nid.as_ino()) {
            known = Some((f, block));
        }
    }
    let Some((f, block)) = known else { return drop(e, session, nid, ino) };
    if f.ino == nid.as_ino() {
        return stray_inode(e, session, nid.as_ino(), &block);
    }
    if !e.walked.inodes.has(f.ino.0) {
        // If its inode is a stray too, that one finds its place first.
        let owner = e.entry(f.ino.nid())?;
        let alive = match e.peek(f.ino.nid())? {
            Some(b) => owner.addr != BlockAddr::NULL && node::footer(&b).ino == f.ino,
            None => false,
        };
        return if alive { Ok(()) } else { drop(e, session, nid, ino) };
    }
    if attach(e, f, &block)? {
        session.actions.push(Action::NodeAttached { ino: f.ino, nid });
        return Ok(());
    }
    drop(e, session, nid, ino)
}

fn drop(e: &mut Editor<'_, '_>, session: &mut Session, nid: Nid, ino: Ino) -> Done {
    e.drop_node(nid)?;
    session.actions.push(Action::NodeDropped { nid, ino });
    Ok(())
}

/// Puts a node back where its footer says, if that place is empty and inside the file.
fn attach(e: &mut Editor<'_, '_>, f: Footer, block: &Block) -> Result<bool, FsckError> {
    let Some(inode) = e.peek(f.ino.nid())? else { return Ok(false) };
    let raw = RawInode::of(&inode);
    let Ok(division) = raw.divide(e.img.sb.features) else { return Ok(false) };
    if raw.inline().intersects(Inline::DATA | Inline::DENTRY) && f.offset != node::XATTR_NODE_OFFSET {
        return Ok(false);
    }
    if let NodeKind::Direct { first } = node::kind_of(f.offset) {
        let from = (u64::from(division.direct_slots()) + first).saturating_mul(BLOCK as u64);
        if from >= raw.i_size.get() && raw.i_size.get() > 0 {
            return Ok(false);
        }
    }
    match home(f.offset) {
        None => Ok(false),
        Some(Home::Xattr) => {
            let inline = if raw.inline().contains(Inline::XATTR) { division.xattr_area() } else { 0..0 };
            let list = [&inode[inline], &block[..node::FOOTER]].concat();
            let fits = raw.i_xattr_nid.get() == 0 && xattr::check(&list).is_ok();
            if fits {
                e.inode(f.ino, |raw| raw.i_xattr_nid = f.nid.0.into())?;
            }
            Ok(fits)
        }
        Some(Home::Inode(k)) => {
            let free = raw.nid(k as usize).0 == 0;
            if free {
                e.set_index(Slot { ino: f.ino, nid: f.ino.nid(), index: k }, f.nid)?;
            }
            Ok(free)
        }
        Some(Home::Node { of, index }) => {
            let Some(holder) = holder(e, raw, of)? else { return Ok(false) };
            let Some(block) = e.peek(holder)? else { return Ok(false) };
            let free = node::word(&block, index as usize) == 0;
            if free {
                e.set_index(Slot { ino: f.ino, nid: holder, index }, f.nid)?;
            }
            Ok(free)
        }
    }
}

/// The indirect node of a file at a footer offset.
fn holder(e: &Editor<'_, '_>, raw: &RawInode, offset: u32) -> Result<Option<Nid>, FsckError> {
    Ok(match home(offset) {
        Some(Home::Inode(k)) => Some(raw.nid(k as usize)),
        Some(Home::Node { of, index }) => match home(of) {
            Some(Home::Inode(k)) => {
                e.peek(raw.nid(k as usize))?.map(|b| Nid(node::word(&b, index as usize)))
            }
            _ => None,
        },
        _ => None,
    }
    .filter(|n| n.0 != 0))
}

fn stray_inode(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, block: &Block) -> Done {
    let raw = RawInode::of(block);
    let Some(kind) = kind_of(raw.i_mode.get()) else {
        return drop(e, session, ino.nid(), ino);
    };
    if raw.i_links.get() == 0 {
        // It was deleted while open: Linux frees it at the next mount.
        e.orphans.push(ino);
        return Ok(());
    }
    let (parent, name) = (Ino(raw.i_pino.get()), raw.name().to_vec());
    if e.walked.dirs.has(parent.0) && !name.is_empty() && name != b"." && name != b".." {
        let name_known = Name(name.clone());
        let restored = Action::NameRestored { dir: parent, name: name_known, ino };
        match e.find(parent, &name)? {
            None if session.lost_names.contains(&(parent, name.clone())) => {
                if plain_names(e, parent)? && e.insert(parent, &name, name_hash(&name), ino, kind)? {
                    session.actions.push(restored);
                    return Ok(());
                }
            }
            Some(found) if found.ino != ino && is_misled(e, found.ino, parent, &name)? => {
                let DentryPlace { dir, area, slot } = found.place;
                e.change_area(dir, area, |l, b| dentry::redirect(l, b, slot, ino.0, kind))?;
                session.actions.push(restored);
                return Ok(());
            }
            _ => {}
        }
    }
    if e.is_below_stray(ino, parent)? {
        // A directory that is a stray itself leads here: it is put right first.
        return Ok(());
    }
    e.adopt(ino, kind)?;
    session.actions.push(Action::Adopted { ino });
    Ok(())
}

/// True if a directory's hashes are of the bytes of its names.
fn plain_names(e: &Editor<'_, '_>, dir: Ino) -> Result<bool, FsckError> {
    Ok(e.peek(dir.nid())?.is_some_and(|b| {
        let raw = RawInode::of(&b);
        !raw.flags().contains(InodeFlags::CASEFOLD) && !raw.advise().contains(Advise::ENCRYPT)
    }))
}

/// True if a name leads to an inode that knows itself under another name.
fn is_misled(e: &Editor<'_, '_>, ino: Ino, parent: Ino, name: &[u8]) -> Result<bool, FsckError> {
    Ok(e.peek(ino.nid())?.is_some_and(|b| {
        let raw = RawInode::of(&b);
        raw.i_pino.get() != parent.0 || raw.name() != name
    }))
}

impl Editor<'_, '_> {
    /// True if the parent an inode records is a stray directory that has an entry for it, and not
    /// itself below this inode.
    fn is_below_stray(&self, ino: Ino, parent: Ino) -> Result<bool, FsckError> {
        if self.walked.inodes.has(parent.0) || parent == ino {
            return Ok(false);
        }
        let mut above = parent;
        // A ring of strays has no top: one of them must be taken.
        for _ in 0..64 {
            if above == ino {
                return Ok(false);
            }
            match self.peek(above.nid())? {
                Some(b) if kind_of(RawInode::of(&b).i_mode.get()) == Some(DIR) => {
                    let next = Ino(RawInode::of(&b).i_pino.get());
                    if self.walked.inodes.has(next.0) || next == above {
                        break;
                    }
                    above = next;
                }
                _ => break,
            }
        }
        for area in self.areas(parent)? {
            let Some((layout, bytes)) = self.area(parent, area)? else { continue };
            if dentry::entries(&layout, &bytes, 0).any(|d| d.ino == ino.0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Sets sums to what was counted.
pub fn sum(e: &mut Editor<'_, '_>, session: &mut Session, kind: &K) -> Done {
    match *kind {
        K::BlocksWrong { ino, counted, .. } => e.inode(ino, |raw| raw.i_blocks = counted.into())?,
        K::LinksWrong { ino, counted, .. } => e.inode(ino, |raw| raw.i_links = counted.into())?,
        K::ComprBlocksWrong { ino, counted, .. } => e.inode(ino, |raw| {
            if let Some(extra) = raw.extra_mut() {
                extra.i_compr_blocks = counted.into();
            }
        })?,
        K::InlineTooLong { ino, room, .. } => e.inode(ino, |raw| raw.i_size = (room as u64).into())?,
        K::InlineUnmarked { ino } => e.inode(ino, |raw| raw.i_inline |= Inline::DATA_EXIST.bits())?,
        K::ExtentWrong { ino, .. } => e.inode(ino, RawInode::forget_extent)?,
        K::DirSizeWrong { ino, needs, .. } => e.inode(ino, |raw| raw.i_size = needs.into())?,
        K::DirDepthWrong { ino, needs, .. } => {
            e.inode(ino, |raw| raw.i_current_depth = needs.clamp(1, dentry::MAX_DEPTH).into())?
        }
        K::ParentWrong { ino, parent, .. } => e.inode(ino, |raw| raw.i_pino = parent.0.into())?,
        K::SymlinkEmpty { ino } => {
            let target = match e.slot(ino, 0)? {
                Some((_, addr)) if e.img.sb.locate(addr).is_some() => {
                    let block = e.img.block(addr)?;
                    block.iter().position(|&b| b == 0).unwrap_or(BLOCK)
                }
                _ => 1,
            };
            e.inode(ino, |raw| raw.i_size = (target.max(1) as u64).into())?
        }
        _ => return Ok(()),
    };
    session.actions.push(Action::Mended { finding: kind.to_string() });
    Ok(())
}
