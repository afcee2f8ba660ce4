//! How are deltas and delta nodes repaired?
//!
//! Repairing a mark, a pointer or a bit loses nothing. Deltas that cannot be repaired are dropped, and the report
//! names them: their pages revert to their earlier contents. A damaged delta node is dropped; if the other nodes
//! need a root to list them, an empty one replaces it.

use format::delta;
use format::inode::RawInode;
use format::node::delta::{FIRST_OFFSET, MOST_NODES, ROOT_CAPACITY};
use format::node::kept::KEPT;
use format::node::{self, Footer};
use format::{Block, BlockAddr, FormatError, Ino, Nid};

use super::edit::Editor;
use super::rescue::Unreached;
use super::{Action, RepairError, Session};
use crate::FsckError;
use crate::bases::{Bases, current_entries, may_have_nodes};
use crate::report::{FindingKind as K, NodeFault, Slot};
use crate::zone;

type Done = Result<(), RepairError>;

/// Restores the mark of a zone, or drops the zone.
pub fn mend_zone(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, kind: &K) -> Done {
    let Some(block) = e.peek(ino.nid())? else { return Ok(()) };
    let (mended, action) = match zone::with_mark(e.img, &block) {
        Some(marked) => (marked, Action::Mended { finding: kind.to_string() }),
        None => (zone::without(e.img, &block)?, Action::DeltasGivenUp { ino, block: None }),
    };
    e.nodes.insert(ino.nid(), mended);
    session.actions.push(action);
    Ok(())
}

/// Changes a delta node and updates its checksum.
fn change<T>(e: &mut Editor<'_, '_>, nid: Nid, change: impl FnOnce(&mut Block) -> T) -> Result<Option<T>, FsckError> {
    let seed = e.img.seed;
    Ok(e.node(nid)?.map(|block| {
        let out = change(block);
        node::delta::seal(seed, block);
        out
    }))
}

/// The root of an inode's delta nodes, if it is readable.
fn root(e: &Editor<'_, '_>, ino: Ino) -> Result<Option<(Nid, Box<Block>)>, FsckError> {
    let Some(inode) = e.peek(ino.nid())? else { return Ok(None) };
    let raw = RawInode::of(&inode);
    let Some(nid) = delta::root(raw, e.img.sb.features).filter(|_| may_have_nodes(raw)) else { return Ok(None) };
    Ok(readable_node(e, ino, nid)?.map(|block| (nid, block)))
}

/// A delta node of an inode, if it is readable.
fn readable_node(e: &Editor<'_, '_>, ino: Ino, nid: Nid) -> Result<Option<Box<Block>>, FsckError> {
    let sound = |b: &Block| node::footer(b).ino == ino && node::delta::verify(e.img.seed, b).is_ok();
    Ok(e.peek(nid)?.filter(|b| sound(b)))
}

/// The inode's delta nodes, the root first.
fn nodes(e: &Editor<'_, '_>, ino: Ino) -> Result<Vec<Nid>, FsckError> {
    let Some((first, block)) = root(e, ino)? else { return Ok(Vec::new()) };
    let others = node::delta::other_nodes(&block).map(|(_, nid)| nid);
    let mut out = vec![first];
    for nid in others {
        out.extend(readable_node(e, ino, nid)?.map(|_| nid));
    }
    Ok(out)
}

/// Drops the delta of one file block: the inode's, or else all those in delta nodes. `lost` is the block whose last
/// changes are lost, if known.
pub fn give_up(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, block: u32, lost: Option<u32>) -> Done {
    let Some(division) = e.division(ino)? else { return Ok(()) };
    let mut dropped = 0;
    e.inode(ino, |raw| dropped = delta::drop_slots(raw, division, block..block.saturating_add(1)))?;
    if dropped == 0 {
        drop_from_nodes(e, ino, block)?;
    }
    let action = match lost {
        Some(block) => loss_of(e, ino, block)?,
        None => Action::DeltasGivenUp { ino, block: None },
    };
    session.actions.push(action);
    Ok(())
}

/// What dropping the entries of a file block loses: its last changes, or the whole block if it has no address.
fn loss_of(e: &Editor<'_, '_>, ino: Ino, block: u32) -> Result<Action, FsckError> {
    let is_new = block < KEPT && e.slot(ino, block.into())?.is_some_and(|(_, addr)| addr == BlockAddr::NEW);
    Ok(if is_new { Action::PackedLost { ino, block } } else { Action::DeltasGivenUp { ino, block: Some(block) } })
}

/// The file block accepted by `wanted` that a current entry holds completely. Its address, or a missing one, does
/// not matter then.
fn held_whole(
    e: &Editor<'_, '_>,
    ino: Ino,
    wanted: impl Fn(u32) -> Result<bool, FsckError>,
) -> Result<Option<u32>, FsckError> {
    let Some(inode) = e.peek(ino.nid())? else { return Ok(None) };
    let raw = RawInode::of(&inode);
    let features = e.img.sb.features;
    let (Ok(division), Ok(shape)) = (raw.divide(features), raw.shape(features)) else { return Ok(None) };
    let mut blocks = Vec::new();
    for nid in nodes(e, ino)? {
        blocks.extend(readable_node(e, ino, nid)?);
    }
    let current = current_entries(&blocks);
    let find = |id: u32| current.get(&KEPT.checked_add(id)?).map(|e| (e.codec, e.payload.to_vec()));
    let bases = Bases::new(e.img, raw, division, shape);
    for (&block, entry) in current.range(..KEPT).filter(|(_, entry)| !entry.codec.has_base()) {
        if wanted(block)? && bases.is_made(&find, block, entry) {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// The same for a slot.
pub fn held_at(e: &Editor<'_, '_>, at: Slot) -> Result<Option<u32>, FsckError> {
    held_whole(e, at.ino, |block| Ok(e.slot(at.ino, block.into())?.is_some_and(|(slot, _)| slot == at)))
}

/// Repairs a delta without a base block. If it needs none, reserve a block in place of the lost one; otherwise the
/// delta belongs to an unknown block and is dropped.
pub fn without_base(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, block: u32, kind: &K) -> Done {
    let whole = held_whole(e, ino, |of| Ok(of == block))?;
    match (whole, e.slot(ino, block.into())?) {
        (Some(_), Some((at, _))) => {
            e.set_slot(at, BlockAddr::NEW)?;
            session.actions.push(Action::Mended { finding: kind.to_string() });
            Ok(())
        }
        _ => give_up(e, session, ino, block, None),
    }
}

fn drop_from_nodes(e: &mut Editor<'_, '_>, ino: Ino, block: u32) -> Result<(), FsckError> {
    for nid in nodes(e, ino)? {
        if readable_node(e, ino, nid)?.is_some_and(|b| node::delta::find(&b, block).is_some()) {
            change(e, nid, |b| node::delta::rewrite(b, |entry| entry.block != block, &[]))?;
        }
    }
    Ok(())
}

/// If an inode and its delta nodes both have a delta for a block, keep the inode's if it fits. Otherwise do
/// nothing: it is a finding of its own and will be dropped.
pub fn keep_one(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, block: u32) -> Done {
    let Some(inode) = e.peek(ino.nid())? else { return Ok(()) };
    let raw = RawInode::of(&inode);
    let features = e.img.sb.features;
    let (Ok(division), Ok(shape)) = (raw.divide(features), raw.shape(features)) else { return Ok(()) };
    let addr = raw.addr(division, block);
    let bases = Bases::new(e.img, raw, division, shape);
    let fits = |entry: delta::Entry<'_>| bases.fits(addr, block, (entry.codec, entry.payload, entry.check));
    if e.img.sb.locate(addr).is_some() && delta::find(raw, division, block).is_some_and(fits) {
        drop_from_nodes(e, ino, block)?;
        session.actions.push(Action::DeltasGivenUp { ino, block: Some(block) });
    }
    Ok(())
}

/// Makes a delta node the file's node with this index. False if there is no place for it.
pub fn set(e: &mut Editor<'_, '_>, ino: Ino, number: usize, nid: Nid) -> Result<bool, FsckError> {
    if number == 0 {
        return e.inode(ino, |raw| delta::set_root(raw, (nid != Nid(0)).then_some(nid)));
    }
    let Some((root, _)) = root(e, ino)? else { return Ok(false) };
    Ok(change(e, root, |b| node::delta::set_other(b, number, nid))?.unwrap_or(false))
}

/// Repairs a pointer that leads to no delta node: points it at the right node, or clears it.
pub fn point_elsewhere(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &Unreached,
    ino: Ino,
    number: usize,
    fault: NodeFault,
) -> Done {
    let right = unreached.node_at(e.img, ino, FIRST_OFFSET + number as u32)?;
    set(e, ino, number, right.unwrap_or(Nid(0)))?;
    session.actions.push(match right {
        Some(nid) => Action::NodeAttached { ino, nid },
        // Listed twice: the other entry still lists it.
        None if fault == NodeFault::Twice && number > 0 => {
            Action::Mended { finding: format!("inode {ino}: delta node number {number} belonged to another place") }
        }
        None => Action::DeltasGivenUp { ino, block: None },
    });
    Ok(())
}

/// The delta node before one flipped bit, if its checksum proves that.
fn unflip(seed: u32, block: &Block) -> Option<Box<Block>> {
    let mut trial = Box::new(*block);
    for bit in 0..8 * node::FOOTER {
        trial[bit / 8] ^= 1 << (bit % 8);
        if node::delta::verify(seed, &trial).is_ok() {
            return Some(trial);
        }
        trial[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

/// Repairs an unreadable delta node, or drops it.
pub fn mend_node(
    e: &mut Editor<'_, '_>,
    session: &mut Session,
    unreached: &Unreached,
    ino: Ino,
    nid: Nid,
    error: &FormatError,
) -> Done {
    let (Some(block), Some(inode)) = (e.peek(nid)?, e.peek(ino.nid())?) else { return Ok(()) };
    if node::delta::verify(e.img.seed, &block).is_ok() {
        return make_room_for_list(e, session, ino, nid, &block);
    }
    let flipped = matches!(error, FormatError::Checksum { .. }).then(|| unflip(e.img.seed, &block)).flatten();
    if let Some(restored) = flipped {
        e.nodes.insert(nid, restored);
        session.actions.push(Action::BitRestored { ino });
        return Ok(());
    }
    let is_root = delta::root(RawInode::of(&inode), e.img.sb.features) == Some(nid);
    let mut others = Vec::new();
    for number in (1..MOST_NODES).filter(|_| is_root) {
        let found = unreached.node_at(e.img, ino, FIRST_OFFSET + number as u32)?;
        others.extend(found.map(|nid| (number, nid)));
    }
    if others.is_empty() {
        if is_root {
            set(e, ino, 0, Nid(0))?;
        } else if let Some((number, _)) =
            root(e, ino)?.and_then(|(_, b)| node::delta::other_nodes(&b).find(|o| o.1 == nid))
        {
            set(e, ino, number, Nid(0))?;
        }
        free(e, nid)?;
        session.actions.push(Action::NodeDropped { nid, ino });
    } else {
        change(e, nid, |b| {
            node::delta::init(b);
            others.iter().all(|(number, nid)| node::delta::set_other(b, *number, *nid))
        })?;
    }
    for block in readable(e, ino, &block)? {
        let action = loss_of(e, ino, block)?;
        session.actions.push(action);
    }
    session.actions.push(Action::DeltasGivenUp { ino, block: None });
    Ok(())
}

/// Drops the oldest deltas of a root that has no room for the list of the other nodes.
fn make_room_for_list(e: &mut Editor<'_, '_>, session: &mut Session, ino: Ino, nid: Nid, block: &Block) -> Done {
    let (mut used, mut gone) = (node::delta::used(block), Vec::new());
    for entry in node::delta::entries(block) {
        if used > ROOT_CAPACITY {
            used -= entry.bytes();
            gone.push(entry.block);
        }
    }
    change(e, nid, |b| node::delta::rewrite(b, |entry| !gone.contains(&entry.block), &[]))?;
    for block in gone {
        let action = loss_of(e, ino, block)?;
        session.actions.push(action);
    }
    Ok(())
}

/// Blocks for which a damaged delta node appears to have entries.
fn readable(e: &Editor<'_, '_>, ino: Ino, block: &Block) -> Result<Vec<u32>, FsckError> {
    let mut out = Vec::new();
    for entry in node::delta::entries(block) {
        let has_room = |addr| addr == BlockAddr::NEW || e.img.sb.locate(addr).is_some();
        if e.slot(ino, entry.block.into())?.is_some_and(|(_, addr)| has_room(addr)) {
            out.push(entry.block);
        }
    }
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// Frees a reached node.
fn free(e: &mut Editor<'_, '_>, nid: Nid) -> Result<(), FsckError> {
    let addr = e.entry(nid)?.addr;
    e.drop_node(nid)?;
    if !e.dropped.contains(&addr) {
        e.dropped.push(addr);
    }
    Ok(())
}

/// Reattaches an unlisted delta node where its footer says, or drops it. If the file's root is gone, this node
/// becomes the root.
pub fn attach(e: &mut Editor<'_, '_>, session: &mut Session, unreached: &Unreached, f: Footer, block: &Block) -> Done {
    let (nid, ino) = (f.nid, f.ino);
    let number = node::delta::number(f.offset).unwrap_or_default();
    let Some(inode) = e.peek(ino.nid())? else { return Ok(()) };
    let raw = RawInode::of(&inode);
    let deltas = crate::bases::without_deltas(e.img.sb.features) != e.img.sb.features;
    let lawful = deltas && may_have_nodes(raw) && node::delta::verify(e.img.seed, block).is_ok();
    let named = delta::root(raw, e.img.sb.features);
    let attached = match named {
        _ if !lawful => false,
        None if number == 0 => set(e, ino, 0, nid)?,
        None if unreached.node_at(e.img, ino, FIRST_OFFSET)?.is_some() => {
            // The root is reattached first.
            return Ok(());
        }
        None => {
            let mut first = Box::new(*block);
            node::set_footer(&mut first, &Footer { offset: FIRST_OFFSET, ..f });
            e.nodes.insert(nid, first);
            set(e, ino, 0, nid)?
        }
        Some(_) if number == 0 => false,
        Some(_) => match root(e, ino)? {
            Some((_, b)) => match node::delta::other_nodes(&b).find(|o| o.0 == number) {
                // Its root is reattached in this round, and lists it.
                Some((_, other)) if other == nid => return Ok(()),
                Some(_) => false,
                None => set(e, ino, number, nid)?,
            },
            None => false,
        },
    };
    if attached {
        session.actions.push(Action::NodeAttached { ino, nid });
        return Ok(());
    }
    e.drop_node(nid)?;
    session.actions.push(Action::NodeDropped { nid, ino });
    if deltas && node::delta::entries(block).next().is_some() {
        session.actions.push(Action::DeltasGivenUp { ino, block: None });
    }
    Ok(())
}
