//! Small updates of a file that are stored outside its blocks: in its inode, or in delta nodes.
//!
//! Only the newest version of a delta node is used, as for every node. Of several entries for one block, the one in
//! the node of the highest age is current. Its check tells whether a delta fits its block.
//!
//! An fsync may have written a delta node but not the inode. Then size and times of the file come from the node
//! ([`stamped`]).

use format::delta::{self, Codec};
use format::inode::{Division, Inline, RawInode};
use format::node::delta::{self as in_node, FIRST_OFFSET, Stamp};
use format::node::kept::{self, KEPT};
use format::node::{self, Footer};
use format::{Block, Ino, Nid};
use rustc_hash::FxHashMap;

use crate::RescueError;
use crate::index::Version;
use crate::sources::{Part, Sources};

/// A current delta.
pub struct Delta {
    codec: Codec,
    check: u32,
    payload: Vec<u8>,
}

/// All current deltas of one file, by file block.
pub struct Deltas(FxHashMap<u32, Delta>);

/// An inode's delta nodes, found or missing, the root first.
pub fn parts(from: Sources<'_>, raw: &RawInode) -> Result<Vec<Part>, RescueError> {
    let ino = Ino(raw.footer.ino.get());
    let regular = raw.i_mode.get() & 0o170_000 == 0o100_000;
    let root = delta::root(raw, from.place.features);
    let Some(root) = root.filter(|_| regular && !raw.inline().contains(Inline::DATA)) else { return Ok(Vec::new()) };
    let find = |nid: Nid, number: usize| {
        let found = from.index.node_of(nid, ino, FIRST_OFFSET + number as u32);
        found.map_or(Part::Missing, |v| Part::Node(v, nid))
    };
    let first = find(root, 0);
    let mut out = vec![first];
    if let Part::Node(v, _) = first
        && let Some(block) = from.window.block(v.addr)?
    {
        out.extend(in_node::other_nodes(&block).map(|(number, nid)| find(nid, number)));
    }
    Ok(out)
}

/// The delta nodes that were found.
fn blocks(from: Sources<'_>, raw: &RawInode) -> Result<Vec<(Version, Box<Block>)>, RescueError> {
    let mut out = Vec::new();
    for part in parts(from, raw)? {
        if let Part::Node(v, _) = part
            && let Some(block) = from.window.block(v.addr)?
        {
            out.push((v, block));
        }
    }
    Ok(out)
}

impl Deltas {
    /// Collects the deltas of an inode.
    pub fn of_inode(from: Sources<'_>, raw: &RawInode, division: Division) -> Result<Self, RescueError> {
        let mut nodes = blocks(from, raw)?;
        // Of nodes with equal ages the first wins.
        nodes.reverse();
        nodes.sort_by_key(|(_, block)| in_node::age(block));
        let mut out = FxHashMap::default();
        for e in nodes.iter().flat_map(|(_, block)| in_node::entries(block)) {
            out.insert(e.block, Delta { codec: e.codec, check: e.check, payload: e.payload.to_vec() });
        }
        for e in delta::entries(raw, division) {
            out.insert(e.slot, Delta { codec: e.codec, check: e.check, payload: e.payload.to_vec() });
        }
        Ok(Deltas(out))
    }

    /// Applies the delta of a block, if there is one. False if it does not fit.
    pub fn apply(&self, from: Sources<'_>, raw: &RawInode, at: u64, block: &mut Block) -> bool {
        let at = u32::try_from(at).ok().filter(|at| *at < KEPT);
        let Some((at, d)) = at.and_then(|at| Some((at, self.0.get(&at)?))) else { return true };
        let seed = from.place.seed.unwrap_or_default();
        let ino = Ino(raw.footer.ino.get());
        let kept = |id: u32| self.0.get(&KEPT.checked_add(id)?).map(|d| (d.codec, d.payload.clone()));
        let page = kept::decode(&kept, d.codec, &d.payload, Some(block))
            .filter(|page| delta::check(seed, ino, raw.i_generation.get(), at, &page[..]) == d.check);
        page.map(|page| *block = *page).is_some()
    }

    /// True if a file block has a delta without a base.
    pub fn is_whole(&self, at: u64) -> bool {
        u32::try_from(at).is_ok_and(|at| self.0.get(&at).is_some_and(|d| !d.codec.has_base()))
    }

    /// The first file block in the range with a delta without a base.
    pub fn next_whole(&self, blocks: std::ops::Range<u64>) -> Option<u64> {
        let whole = self.0.iter().filter(|(at, d)| **at < KEPT && !d.codec.has_base());
        whole.map(|(at, _)| u64::from(*at)).filter(|at| blocks.contains(at)).min()
    }

    /// True if a file block has a delta.
    pub fn has(&self, at: u64) -> bool {
        u32::try_from(at).is_ok_and(|at| self.0.contains_key(&at))
    }
}

/// True if `a` is newer than `b`, by the versions of their nodes. `None` if unknown.
fn is_later(
    from: Sources<'_>,
    (a, a_changed): (Version, (u64, u32)),
    (b, b_changed): (Version, (u64, u32)),
) -> Option<bool> {
    if a.version != b.version {
        return Some(a.version > b.version);
    }
    if from.index.segment_of(a.addr) == from.index.segment_of(b.addr) {
        return Some(a.addr > b.addr);
    }
    (a_changed != b_changed).then_some(a_changed > b_changed)
}

/// The stamp in a delta node that an fsync wrote after the inode, if any, and whether the order of these versions
/// is ambiguous.
pub fn stamped(from: Sources<'_>, raw: &RawInode, version: Version) -> Result<(Option<Stamp>, bool), RescueError> {
    let mut newest = ((version, (raw.i_ctime.get(), raw.i_ctime_nsec.get())), None);
    let mut ambiguous = false;
    for (v, block) in blocks(from, raw)? {
        let Footer { fsync, .. } = node::footer(&block);
        let stamp = in_node::stamp(&block);
        let this = (v, stamp.ctime);
        match is_later(from, this, newest.0).filter(|_| fsync) {
            Some(true) => newest = (this, Some(stamp)),
            None if fsync => ambiguous |= stamp.size != newest.1.map_or(raw.i_size.get(), |s: Stamp| s.size),
            _ => {}
        }
    }
    Ok((newest.1, ambiguous))
}
