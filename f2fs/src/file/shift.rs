//! How do the blocks behind a range move towards the file's beginning (collapse) or its end (insert)?
//!
//! Both move a *gap*: blocks without contents. Collapse turns the range into a gap, moves the gap block by block behind
//! the last block, and cuts it off. Insert starts with a gap behind the last block and moves it to its place. Only
//! existing blocks move; holes are skipped. A block's reservation moves with it, so a shift needs space only for nodes;
//! they are created first.
//!
//! A shift of few blocks takes one step: after a power cut the file is either old or new. In a longer shift, a power
//! cut or an error between two steps leaves the gap half way (after an insert, the size already includes the range):
//! blocks on one side of the gap have their old places, those on the other side their new ones, and none is lost. For
//! that, each step writes the moved contents to the log before a checkpoint can record their new places; it is admitted
//! like a writer of the same number of blocks, so that the log has room. (If the log is full anyway, the contents wait
//! in memory like other accepted contents; a power cut may then leave zeroes in their places. Linux also inserts in
//! steps, but sets the size last.)

use std::ops::Range;
use std::sync::Arc;

use format::{Block, BlockAddr, node};
use vfs::Allocate;

use super::BLOCK;
use super::writeback::or_wait;
use crate::context::Begin;
use crate::error::{Error, Result};
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::free::{LOOKED, STEP};
use crate::node::map::{Lookup, Place, addr_in};
use crate::pack::PackState;
use crate::segment::temperature::Writeback;

/// How many blocks one step moves.
const MOVED: usize = 256;

/// Direction and distance of the move.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Towards the beginning; the first block goes first.
    Down(u64),
    /// Towards the end; the last block goes first.
    Up(u64),
}

impl Way {
    fn target(self, block: u64) -> u64 {
        match self {
            Way::Down(by) => block - by,
            Way::Up(by) => block + by,
        }
    }
}

/// A block about to move.
struct Move {
    from: u64,
    to: u64,
    source: Place,
    target: Place,
    /// Its contents, if only the device has them.
    stored: Option<Box<Block>>,
}

impl Files {
    /// Removes `range` from a file. The caller holds `steps.turn`.
    pub(super) fn collapse(&self, volume: &dyn Begin, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let what = Allocate::Collapse;
        aligned(&range)?;
        let _shift = inode.steps.shift.write();
        let size = inode.size();
        if range.end >= size {
            return Err(vfs::Error::Invalid("a collapse must end before the end of the file").into());
        }
        let mut gap = range.start / BLOCK..range.end / BLOCK;
        let way = Way::Down(gap.end - gap.start);
        let mut rest = gap.end..size.div_ceil(BLOCK);
        self.make_targets(volume, inode, what, rest.clone(), way)?;
        let mut done = false;
        while !done {
            let _admitted = self.admit(MOVED as u64);
            done = self.step(volume, inode, what, |held, content| {
                let mut stretches = STEP;
                gap.start = self.punch(inode, content, gap.clone(), &mut stretches)?;
                if gap.is_empty() {
                    let moves = self.next_moves(inode, content, &mut rest, way, &mut stretches)?;
                    self.carry_out(held, inode, content, moves)?;
                }
                let moved = gap.is_empty() && rest.is_empty();
                Ok(moved && self.truncate_some(held, inode, content, size - (range.end - range.start))?)
            })?;
        }
        Ok(())
    }

    /// Inserts a hole of the length of `range` at the start of `range`. The caller holds `steps.turn`.
    pub(super) fn insert(&self, volume: &dyn Begin, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let what = Allocate::Insert;
        aligned(&range)?;
        let _shift = inode.steps.shift.write();
        let size = inode.size();
        if range.start >= size {
            return Err(vfs::Error::Invalid("an insert must begin before the end of the file").into());
        }
        let grown = self.checked_end(inode, size, range.end - range.start)?;
        // Make holes of blocks reserved behind the end.
        let mut behind = size.div_ceil(BLOCK)..grown.div_ceil(BLOCK);
        let way = Way::Up((range.end - range.start) / BLOCK);
        let mut rest = range.start / BLOCK..size.div_ceil(BLOCK);
        self.make_targets(volume, inode, what, rest.clone(), way)?;
        while !rest.is_empty() {
            let _admitted = self.admit(MOVED as u64);
            self.step(volume, inode, what, |held, content| {
                let mut stretches = STEP;
                behind.start = self.punch(inode, content, behind.clone(), &mut stretches)?;
                if !behind.is_empty() {
                    return Ok(());
                }
                if inode.size() == size {
                    self.clear_tail(inode, content, size)?;
                }
                let moves = self.next_moves(inode, content, &mut rest, way, &mut stretches)?;
                self.nodes.edit_inode(&inode.node, |r| r.i_size = grown.into());
                self.carry_out(held, inode, content, moves)
            })?;
        }
        Ok(())
    }

    /// Creates the nodes for the addresses of moved blocks, or none if not all of them fit.
    fn make_targets(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        what: Allocate,
        blocks: Range<u64>,
        way: Way,
    ) -> Result<()> {
        if self.inline_room(inode)?.is_some() {
            // The inode holds the addresses of all blocks; the first step creates the only node needed.
            return Ok(());
        }
        let direct = inode.node.inode(|r| self.nodes.division(r))?.direct_slots();
        // Count missing direct nodes and all indirect nodes above them; targets come in order.
        let (mut at, mut nodes, mut last) = (blocks.start, [0u64; 2], [None; 2]);
        while at < blocks.end {
            let content = inode.content.read();
            for _ in 0..LOOKED {
                let ends = self.ends(inode, &content, &mut at, blocks.end)?;
                for target in ends.into_iter().flatten().map(|block| way.target(block)) {
                    if matches!(self.nodes.find(&inode.node, target)?, Lookup::At(_)) {
                        continue;
                    }
                    let path = node::path(target, direct).ok_or(vfs::Error::TooBig)?;
                    for (above, (count, last)) in nodes.iter_mut().zip(&mut last).enumerate() {
                        let node = path.depth.checked_sub(1 + above).map(|level| path.offsets[level]);
                        *count += u64::from(node.is_some() && node != *last);
                        *last = node;
                    }
                }
            }
        }
        if nodes[0] == 0 {
            return Ok(());
        }
        // Plus the double indirect node.
        let need = nodes[0] + nodes[1] + 1;
        if self.nodes.space.valid_blocks() + need > self.nodes.space.user_blocks() {
            return Err(Error::no_space());
        }
        let mut at = blocks.start;
        while at < blocks.end {
            self.step(volume, inode, what, |_, content| {
                for _ in 0..STEP {
                    for block in self.ends(inode, content, &mut at, blocks.end)?.into_iter().flatten() {
                        self.nodes.make(&inode.node, way.target(block))?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The first and the last existing block in the stretch at `at`, before `end`; `at` becomes the block behind the
    /// stretch. All blocks between them move into the nodes of these two.
    fn ends(&self, inode: &Inode, content: &Content, at: &mut u64, end: u64) -> Result<[Option<u64>; 2]> {
        if *at >= end {
            return Ok([None; 2]);
        }
        let (stretch, place) = self.nodes.stretch(&inode.node, *at)?;
        let here = *at..end.min(stretch.end);
        let there = self.blocks_there(content, here.clone(), place.as_ref().map(|p| (p, stretch.start)));
        *at = here.end;
        Ok([there.first().copied(), there.last().copied()])
    }

    /// The existing blocks in a part of one stretch. `place` is the place of the stretch's first block, whose number
    /// follows it.
    fn blocks_there(&self, content: &Content, here: Range<u64>, place: Option<(&Place, u64)>) -> Vec<u64> {
        let Some((place, first)) = place else {
            return content.pages.range(here).map(|(i, _)| *i).collect();
        };
        let bytes = place.node.read();
        let slot = |block: u64| place.slot + (block - first) as u32;
        let there = |block: &u64| {
            addr_in(&self.ctx, &place.node, &bytes, slot(*block)) != BlockAddr::NULL
                || content.pages.contains_key(block)
        };
        here.filter(there).collect()
    }

    /// Takes the next blocks to move from `rest`, together with holes. Everything that can fail with a device error
    /// happens here, before any change.
    fn next_moves(
        &self,
        inode: &Arc<Inode>,
        content: &Content,
        rest: &mut Range<u64>,
        way: Way,
        stretches: &mut u64,
    ) -> Result<Vec<Move>> {
        let mut left = rest.clone();
        let mut moves = Vec::new();
        while !left.is_empty() && *stretches > 0 && moves.len() < MOVED {
            *stretches -= 1;
            let at = if matches!(way, Way::Down(_)) { left.start } else { left.end - 1 };
            let (stretch, place) = self.nodes.stretch(&inode.node, at)?;
            let here = left.start.max(stretch.start)..left.end.min(stretch.end);
            let place = place.as_ref().map(|p| (p, stretch.start));
            let mut there = self.blocks_there(content, here.clone(), place);
            if matches!(way, Way::Up(_)) {
                there.reverse();
            }
            let all = there.len() <= MOVED - moves.len();
            there.truncate(MOVED - moves.len());
            for &from in &there {
                moves.push(self.plan(inode, content, from, way.target(from))?);
            }
            match (way, there.last()) {
                (Way::Down(_), Some(&last)) if !all => left.start = last + 1,
                (Way::Down(_), _) => left.start = here.end,
                (Way::Up(_), Some(&last)) if !all => left.end = last,
                (Way::Up(_), _) => left.end = here.start,
            }
        }
        *rest = left;
        Ok(moves)
    }

    fn plan(&self, inode: &Arc<Inode>, content: &Content, from: u64, to: u64) -> Result<Move> {
        let source = self.nodes.make(&inode.node, from)?;
        let target = self.nodes.make(&inode.node, to)?;
        let on_device = !content.pages.contains_key(&from) && source.addr(&self.ctx, source.slot).is_real();
        let stored = if on_device { self.deltas.load_stored(inode, from)? } else { None };
        Ok(Move { from, to, source, target, stored })
    }

    /// Moves blocks and writes their contents to new places. Until the new map is durable, the old map must lead to the
    /// old contents.
    fn carry_out(&self, held: &PackState, inode: &Arc<Inode>, content: &mut Content, moves: Vec<Move>) -> Result<()> {
        for Move { from, to, source, target, stored } in moves {
            self.move_room(&inode.node, &source, &target)?;
            let was_dirty =
                usize::from(content.pages.contains_key(&from)) + usize::from(content.pages.contains_key(&to));
            content.pages.remove(&to);
            if let Some(page) = content.pages.remove(&from).or(stored) {
                content.pages.insert(to, page);
            }
            match (usize::from(content.pages.contains_key(&to)), was_dirty) {
                (now, was) if now > was => inode.gained_dirty(&self.inodes, now - was),
                (now, was) => inode.lost_dirty(&self.inodes, was - now),
            }
        }
        or_wait(self.write_back(held, inode, content, Writeback::Background)).map(drop)
    }
}

fn aligned(range: &Range<u64>) -> Result<()> {
    if !range.start.is_multiple_of(BLOCK) || !range.end.is_multiple_of(BLOCK) {
        return Err(vfs::Error::Invalid("collapse and insert want multiples of 4096").into());
    }
    Ok(())
}
