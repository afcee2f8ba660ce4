//! Where does an unreachable node belong?
//!
//! An index or xattr node is reattached at the place in its footer; an inode under its recorded name, or in
//! lost+found. A node without a place is dropped.

use format::dentry;
use format::inode::{Advise, Inline, RawInode};
use format::node::{self, Footer, NodeKind};
use format::{BLOCK, Block, BlockAddr, Ino, Nid};

use super::edit::Editor;
use super::rescue::{Home, Unreached, home};
use super::{Action, RepairError, Session};
use crate::FsckError;
use crate::kind::{DIR, kind_of};
use crate::report::{DentryPlace, Name, Slot};
use crate::xattr;

type Done = Result<(), RepairError>;

/// Reattaches an unreachable node at its place, or drops it.
pub fn reattach(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &Unreached,
    nid: Nid,
    ino: Ino,
    addr: BlockAddr,
) -> Done {
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
        return reattach_inode(e, session, nid.as_ino(), &block);
    }
    if !e.walked.inodes.has(f.ino.0) {
        // If its inode is unreachable too, the inode is reattached first.
        let owner = e.entry(f.ino.nid())?;
        let alive = match e.peek(f.ino.nid())? {
            Some(b) => owner.addr != BlockAddr::NULL && node::footer(&b).ino == f.ino,
            None => false,
        };
        return if alive { Ok(()) } else { drop(e, session, nid, ino) };
    }
    if node::delta::number(f.offset).is_some() {
        return super::deltas::attach(e, session, unreached, f, &block);
    }
    if attach(e, f, &block)? {
        session.actions.push(Action::NodeAttached { ino: f.ino, nid });
        return Ok(());
    }
    drop(e, session, nid, ino)
}

pub(super) fn drop(e: &mut Editor<'_, '_>, session: &mut Session, nid: Nid, ino: Ino) -> Done {
    e.drop_node(nid)?;
    session.actions.push(Action::NodeDropped { nid, ino });
    Ok(())
}

/// Reattaches a node at the place in its footer, if that place is empty and inside the file.
fn attach(e: &mut Editor<'_, '_>, f: Footer, block: &Block) -> Result<bool, FsckError> {
    let Some(inode) = e.peek(f.ino.nid())? else { return Ok(false) };
    let raw = RawInode::of(&inode);
    let Ok(division) = raw.divide(e.img.sb.features) else { return Ok(false) };
    if raw.inline().intersects(Inline::DATA | Inline::DENTRY) && f.offset != node::XATTR_NODE_OFFSET {
        return Ok(false);
    }
    let Ok(shape) = raw.shape(e.img.sb.features) else { return Ok(false) };
    if let NodeKind::Direct { first } = shape.kind_of(f.offset) {
        let from = (u64::from(shape.direct_slots) + first).saturating_mul(BLOCK as u64);
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
            let has = node::word(&block, index as usize);
            if has == 0 {
                e.set_index(Slot { ino: f.ino, nid: holder, index }, f.nid)?;
            }
            // If the node with the pointer is unreachable itself, this one comes back with it.
            Ok(has == 0 || has == f.nid.0 && !e.walked.nids.has(holder.0))
        }
    }
}

/// The slot of the pointer to the node at a footer offset of a file, except for extended attributes.
pub fn place(e: &Editor<'_, '_>, ino: Ino, offset: u32) -> Result<Option<Slot>, FsckError> {
    let Some(inode) = e.peek(ino.nid())? else { return Ok(None) };
    Ok(match home(offset) {
        Some(Home::Inode(index)) => Some(Slot { ino, nid: ino.nid(), index }),
        Some(Home::Node { of, index }) => holder(e, RawInode::of(&inode), of)?.map(|nid| Slot { ino, nid, index }),
        _ => None,
    })
}

/// The indirect node of a file at a footer offset.
fn holder(e: &Editor<'_, '_>, raw: &RawInode, offset: u32) -> Result<Option<Nid>, FsckError> {
    Ok(match home(offset) {
        Some(Home::Inode(k)) => Some(raw.nid(k as usize)),
        Some(Home::Node { of, index }) => match home(of) {
            Some(Home::Inode(k)) => e.peek(raw.nid(k as usize))?.map(|b| Nid(node::word(&b, index as usize))),
            _ => None,
        },
        _ => None,
    }
    .filter(|n| n.0 != 0))
}

fn reattach_inode(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, block: &Block) -> Done {
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
    let lawful = !matches!(&name[..], b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'));
    if e.walked.dirs.has(parent.0) && lawful {
        let name_known = Name(name.clone());
        let restored = Action::NameRestored { dir: parent, name: name_known, ino };
        match e.find(parent, &name)? {
            None if session.lost_names.contains(&(parent, name.clone())) || session.rebuilt.contains(&parent) => {
                if let Some(hash) = hash_of_plain(e, parent, &name)?
                    && e.insert(parent, &name, hash, ino, kind)?
                {
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
    if e.is_below_unreachable(ino, parent)? {
        // An unreachable directory leads here and is reattached first.
        return Ok(());
    }
    e.adopt(ino, kind)?;
    session.actions.push(Action::Adopted { ino });
    Ok(())
}

/// A directory's hash of the name recorded in an inode; `None` if its names are encrypted.
fn hash_of_plain(e: &Editor<'_, '_>, dir: Ino, name: &[u8]) -> Result<Option<u32>, FsckError> {
    let encrypted = |b: &Block| RawInode::of(b).advise().contains(Advise::ENCRYPT);
    match e.peek(dir.nid())? {
        Some(b) if !encrypted(&b) => Ok(e.hashing(dir)?.hash(name)),
        _ => Ok(None),
    }
}

/// True if an inode records another parent or name.
fn is_misled(e: &Editor<'_, '_>, ino: Ino, parent: Ino, name: &[u8]) -> Result<bool, FsckError> {
    Ok(e.peek(ino.nid())?.is_some_and(|b| {
        let raw = RawInode::of(&b);
        raw.i_pino.get() != parent.0 || raw.name() != name
    }))
}

impl Editor<'_, '_> {
    /// True if the recorded parent of an inode is an unreachable directory with an entry for it, and is not itself
    /// below this inode.
    fn is_below_unreachable(&self, ino: Ino, parent: Ino) -> Result<bool, FsckError> {
        if self.walked.inodes.has(parent.0) || parent == ino {
            return Ok(false);
        }
        let mut above = parent;
        // A ring of unreachable directories has no top, so one of them is chosen.
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
