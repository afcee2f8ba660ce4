//! How do blocks of a journal or log become deltas although they resemble no block of their file?
//!
//! Through the pages that they contain ([`frames`](crate::inode::frames)). An fsync stores each version of such a page
//! in a delta node ([`format::node::kept`]): as the difference to the previous version, to a much older one, or alone.
//! The blocks then only refer to these *kept pages*. So a page that is logged again costs only its changed bytes,
//! wherever in the file it lands. Blocks with its earlier versions may be overwritten, because kept pages are not
//! blocks of the file.
//!
//! A kept page lives as long as a block of the file or another kept page depends on it. The newest versions of the most
//! recent pages stay (`PINNED`): the next versions will resemble them.
//!
//! The memory of kept pages ([`crate::inode::known`]) is a hint. Before anything refers to a kept page, a lookup in the
//! nodes confirms that it exists with all pages that it depends on.

use std::cell::Cell;
use std::sync::Arc;

use device::energy::Work;
use format::Block;
use format::delta::codec::{self, Codec};
use format::node::delta::{self as in_node, LONGEST_WHOLE};
use format::node::kept::{self, DEEPEST, KEPT, Part};
use rustc_hash::{FxHashMap, FxHashSet};

use super::encoded::Encoded;
use crate::cause::Cause;
use crate::delta::Deltas;
use crate::error::Result;
use crate::inode::Inode;
use crate::inode::frames::{Layout, Piece, may_have_records};
use crate::inode::known::{Frames, Latest};
use crate::node::cache::Node;
use crate::node::index::Index;

/// Kept pages in memory, over all files: 4 MiB.
pub(crate) const IN_MEMORY: usize = 1024;
/// A page with a longer difference is stored alone if that is shorter still: a chain of long differences costs more.
const SHORT: usize = 600;
/// Longest part of a block's entry that no kept page covers: record headers and the bytes between.
const MOST_LITERAL: usize = 819;

/// The state of an fsync that looks for kept pages.
struct Finding<'f> {
    deltas: &'f Deltas,
    inode: &'f Arc<Node>,
    index: &'f Index,
    frames: &'f mut Frames,
    /// Newly kept pages that are not yet in a node.
    new: Vec<(u64, Encoded)>,
    /// Kept pages that were examined, including new ones.
    pages: FxHashMap<u32, Box<Block>>,
}

impl Finding<'_> {
    fn compute(&mut self, cause: Cause) {
        let costs = &self.deltas.ctx.options.delta_costs;
        self.frames.luck.spent += costs.encode_pj;
        let (work, time) = match cause {
            Cause::DeltaDecode => (Work::DeltaDecode, costs.decode),
            _ => (Work::DeltaEncode, costs.encode),
        };
        self.deltas.ctx.compute(work, time, cause.of(self.inode.ino));
    }

    /// The newest version of a page, if it exists.
    fn latest(&mut self, key: u32) -> Option<(Latest, Box<Block>)> {
        let l = *self.frames.latest.get(&key)?;
        // Its bytes may be in memory although it is no longer in a node: `page` below would not notice.
        let there = self.pages.contains_key(&l.id) || self.index.root(l.id) == Some((l.root, l.depth));
        let page = if there { self.page(l.id) } else { None };
        if page.is_none() {
            self.frames.latest.remove(&key);
        }
        page.map(|page| (l, page))
    }

    /// A kept page.
    fn page(&mut self, id: u32) -> Option<Box<Block>> {
        if let Some(page) = self.pages.get(&id) {
            return Some(page.clone());
        }
        let page = self.deltas.kept_page(self.inode, self.index, id).ok().flatten()?;
        self.pages.insert(id, page.clone());
        Some(page)
    }

    /// The id under which the page is kept from now on. `None` if that takes too much room.
    fn keep(&mut self, key: u32, page: &Block) -> Option<u32> {
        let next = self.frames.next;
        // Codec and payload of the new version, its root and its distance from the root.
        let mut best: Option<(Codec, Vec<u8>, u32, usize)> = None;
        if let Some((l, old)) = self.latest(key) {
            let (id, top, depth) = (l.id, l.root, l.depth);
            if *old == *page {
                return Some(id);
            }
            // Too deep to continue the chain: the difference to the root page is often short, too.
            let base = if depth < DEEPEST { Some((id, old, depth + 1)) } else { self.page(top).map(|p| (top, p, 1)) };
            self.compute(Cause::DeltaEncode);
            let mut data = Vec::new();
            if let Some((base, bytes, depth)) = base
                && let Some(codec) = codec::encode(&bytes, page, 2 * SHORT, &mut data)
            {
                best = Some((codec, kept::encode_head(key, Some(base), &data), top, depth));
            }
        }
        if best.as_ref().is_none_or(|(_, payload, ..)| payload.len() > SHORT) {
            let most = best.as_ref().map_or(LONGEST_WHOLE - 4, |(_, payload, ..)| payload.len() - 4);
            self.compute(Cause::DeltaEncode);
            if let Some(data) = codec::encode_alone(page, most) {
                best = Some((Codec::Alone, kept::encode_head(key, None, &data), next, 0));
            }
        }
        let (codec, payload, root, depth) = best?;
        if next >= KEPT - 1 {
            return None;
        }
        self.frames.next += 1;
        let check = self.deltas.page_check(self.inode, KEPT | next, page);
        self.new.push((u64::from(KEPT | next), Encoded::new(codec, check, payload)));
        self.pages.insert(next, Box::new(*page));
        self.deltas.note_kept_page(self.inode, next, page);
        self.frames.latest.insert(key, Latest { id: next, root, depth });
        Some(next)
    }

    /// A kept page that may contain a part of a record, if this fsync writes only that part of the record.
    fn guess(&self, block: u64, piece: &Piece) -> Option<u32> {
        // Without this check, a kept page that is gone would cost the whole block its entry.
        let there = |id: &u32| self.index.root(*id).is_some();
        self.frames.records.get(&piece.record).copied().filter(there).or_else(|| {
            let d = self.deltas.noted(self.inode, self.index, block).ok()?.filter(|d| d.codec == Codec::Parts)?;
            let (parts, ..) = kept::parts(&d.payload)?;
            let mut at = 0;
            let here = parts.iter().find(|p| {
                let is_here = at == piece.at && p.id != 0 && usize::from(p.from) == piece.from;
                at += usize::from(p.len);
                is_here
            });
            here.map(|p| p.id).filter(there)
        })
    }

    /// The entry of a block with these pieces. `None` if kept pages cover too little of it.
    fn entry(&mut self, index: u64, block: &Block, pieces: &[(Piece, Option<u32>)]) -> Option<Encoded> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        let zeroes = |parts: &mut Vec<Part>, from: usize, to: usize| {
            if to > from {
                parts.push(Part { id: 0, from: 0, len: (to - from) as u16 });
            }
        };
        for (piece, id) in pieces {
            let Some(id) = id else { continue };
            zeroes(&mut parts, at, piece.at);
            parts.push(Part { id: *id, from: piece.from as u16, len: piece.len as u16 });
            at = piece.at + piece.len;
        }
        if parts.is_empty() {
            return None;
        }
        zeroes(&mut parts, at, block.len());
        let row = kept::join_parts(|id| self.page(id), &parts)?;
        let mut data = Vec::new();
        self.compute(Cause::DeltaEncode);
        let codec = codec::encode(&row, block, MOST_LITERAL, &mut data)?;
        let check = self.deltas.page_check(self.inode, index as u32, block);
        Some(Encoded::new(Codec::Parts, check, kept::encode_parts(&parts, codec, &data)))
    }
}

impl Deltas {
    /// A kept page. `None` if it or a page that it depends on does not exist.
    pub(super) fn kept_page(&self, inode: &Arc<Node>, index: &Index, id: u32) -> Result<Option<Box<Block>>> {
        if index.root(id).is_none() {
            return Ok(None);
        }
        let key = (inode.ino, inode.inode(|r| r.i_generation.get()), id);
        if let Some(page) = self.kept_pages.lock().get(&key) {
            return Ok(Some(page.clone()));
        }
        self.ctx.compute(Work::DeltaDecode, self.ctx.options.delta_costs.decode, Cause::DeltaDecode.of(inode.ino));
        let failed = Cell::new(None);
        let find = |id: u32| match self.noted_entry(inode, index, KEPT.checked_add(id)?) {
            Ok(found) => found.map(|d| (d.codec, d.payload)),
            Err(e) => {
                failed.set(Some(e));
                None
            }
        };
        let page = kept::page(&find, id);
        if let Some(e) = failed.into_inner() {
            return Err(e);
        }
        if let Some(page) = &page {
            self.note_kept_page(inode, id, page);
        }
        Ok(page)
    }

    /// Keeps a page's bytes in memory.
    fn note_kept_page(&self, inode: &Node, id: u32, page: &Block) {
        let key = (inode.ino, inode.inode(|r| r.i_generation.get()), id);
        let mut pages = self.kept_pages.lock();
        pages.insert(key, Box::new(*page));
        pages.make_room(|_| false);
    }

    /// Entries for dirty blocks of a journal or log (kept pages first) if they save more blocks than they take nodes.
    /// The caller holds the inode's lock exclusively.
    pub(super) fn plan_frames(
        &self,
        inode: &Inode,
        frames: &mut Frames,
        index: &Index,
        dirty: &[(u64, &Block)],
    ) -> Result<Vec<(u64, Encoded)>> {
        let Some(layout) = self.layout(inode, frames, dirty)? else { return Ok(Vec::new()) };
        if !frames.luck.tries() {
            return Ok(Vec::new());
        }
        frames.load(index);
        let known = |block: u64| {
            dirty.binary_search_by_key(&block, |(index, _)| *index).ok().and_then(|at| dirty.get(at)).map(|(_, b)| *b)
        };
        let mut finding = Finding {
            deltas: self,
            inode: &inode.node,
            index,
            frames: &mut *frames,
            new: Vec::new(),
            pages: FxHashMap::default(),
        };
        let mut found: FxHashMap<u64, Option<u32>> = FxHashMap::default();
        let mut blocks = Vec::new();
        for (index, block) in dirty {
            let mut pieces = Vec::new();
            for piece in layout.pieces(*index) {
                let id = *found.entry(piece.record).or_insert_with(|| {
                    layout.page(piece.record, known).and_then(|(key, page)| finding.keep(key, &page))
                });
                let id = id.or_else(|| finding.guess(*index, &piece));
                pieces.push((piece, id));
            }
            if let Some(e) = finding.entry(*index, block, &pieces) {
                blocks.push((*index, e));
            }
        }
        let mut new = std::mem::take(&mut finding.new);
        let wanted: FxHashSet<u32> = needed(&blocks, &new);
        new.retain(|(id, _)| wanted.contains(&(*id as u32 & !KEPT)));
        let bytes: usize = new.iter().chain(&blocks).map(|(_, e)| in_node::HEADER + e.payload.len()).sum();
        let pays = bytes.div_ceil(in_node::ROOT_CAPACITY) < blocks.len() || (bytes < 2048 && !blocks.is_empty());
        if !finding.frames.luck.wants(pays) {
            finding.frames.forget();
            return Ok(Vec::new());
        }
        frames.note(found.into_iter().filter_map(|(record, id)| Some((record, id?))));
        new.append(&mut blocks);
        Ok(new)
    }

    /// The layout of records in a file.
    fn layout(&self, inode: &Inode, frames: &mut Frames, dirty: &[(u64, &Block)]) -> Result<Option<Layout>> {
        let name = inode.node.inode(|r| may_have_records(r.name()).then(|| r.name().to_vec()));
        let Some(name) = name else { return Ok(None) };
        let stored;
        let first = match dirty.first() {
            Some((0, block)) => Some(*block),
            _ if frames.looked => None,
            _ => {
                stored = self.load_stored(inode, 0).unwrap_or_default();
                stored.as_deref()
            }
        };
        frames.looked = true;
        // An invalidated journal has a header of zeroes: its records keep their layout.
        frames.layout = first.and_then(|block| Layout::of(&name, block)).or(frames.layout);
        Ok(frames.layout)
    }
}

/// The kept pages that the blocks depend on, and those that these pages depend on.
fn needed(blocks: &[(u64, Encoded)], new: &[(u64, Encoded)]) -> FxHashSet<u32> {
    let by_id: FxHashMap<u32, &Encoded> = new.iter().map(|(id, e)| (*id as u32 & !KEPT, e)).collect();
    let mut open: Vec<u32> =
        blocks.iter().flat_map(|(block, e)| kept::pages_used(&e.node_entry(*block as u32))).collect();
    let mut out = FxHashSet::default();
    while let Some(id) = open.pop() {
        if out.insert(id)
            && let Some(e) = by_id.get(&id)
        {
            open.extend(kept::pages_used(&e.node_entry(KEPT | id)));
        }
    }
    out
}
