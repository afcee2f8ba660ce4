//! How is a file defragmented?
//!
//! The contents of its blocks are copied byte for byte, in file order, to the next places of a log, and the file's
//! nodes then point at these places: like cleaning, but for one file and under its inode's lock, while other operations
//! change the volume. So deltas keep their bases, packed clusters stay packed, and ciphertext and the hashes of a
//! sealed file are moved without a key. Times stay. Dirty contents are written back first.
//!
//! The rules for overwriting in place (cold files, small fsyncs) do not apply: every block moves.
//!
//! *Order.* New places are allocated, contents are copied, and only then do slots change and old blocks become invalid.
//! Old blocks are not reused until the next checkpoint, because the nodes on the device still need them. If the device
//! fails, the new places are freed and the file is unchanged. If the log runs out of free segments, blocks already
//! copied have moved and the rest stays.
//!
//! *Sharing.* Instead of copying, a device that supports it maps the same flash page to the new place
//! ([`Remap::Share`]). The old place stays readable until it is discarded, after the checkpoint that frees it. So a
//! power cut loses no more than with copies. (`REMAP` of Ji HotStorage'16 moves or exchanges, and so destroys what the
//! last checkpoint refers to.)
//!
//! *Refused*: files whose addresses must not change (pinned, immutable), and every file while logs fill holes: its
//! blocks would be scattered again.
//!
//! Left out on purpose: which files to defragment, and whether it pays (the `inspect` crate).

use std::ops::Range;
use std::sync::Arc;

use device::Lba;
use device::model::Remap;
use format::inode::{Inline, InodeFlags};
use format::sit::LogType;
use format::summary::Summary;
use format::{Block, BlockAddr};
use vfs::{FileKind, Moving};

use super::run::BATCH;
use super::writeback::or_wait;
use crate::cause::Cause;
use crate::context::Begin;
use crate::error::{Error, Result};
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::cache::Node;
use crate::node::free::STEP;
use crate::node::map::{addr_in, move_addr_in};
use crate::pack::PackState;
use crate::segment::temperature::{Writeback, data_log};

/// A block about to move.
struct Move {
    from: BlockAddr,
    node: Arc<Node>,
    slot: u32,
}

/// New addresses, and why not all blocks have one.
struct Places {
    at: Vec<BlockAddr>,
    short: Option<Error>,
}

fn scattered() -> Error {
    vfs::Error::Busy("too few free segments, logs fill holes: clean first").into()
}

impl Files {
    /// Moves blocks of a file to adjacent places, at most one step ([`BATCH`] blocks); returns the first block of the
    /// range that is left, or its end, and the number of moved blocks. For an empty range, only checks whether the file
    /// may be moved.
    pub(crate) fn defragment_some(
        &self,
        volume: &dyn Begin,
        inode: &Arc<Inode>,
        blocks: Range<u64>,
        how: Moving,
    ) -> Result<(u64, u64)> {
        self.check_movable(inode)?;
        if blocks.is_empty() {
            return self.ctx.check_writable().map(|()| (blocks.end, 0));
        }
        let _admitted = self.admit(BATCH as u64);
        let change = volume.begin()?;
        let mut content = inode.content.write();
        self.inodes.check_there(inode)?;
        self.check_movable(inode)?;
        if self.logs.seg.lock().lacks_fresh() {
            return Err(scattered());
        }
        if content.pages.range(blocks.clone()).next().is_some() {
            // Moving dirty blocks first would write them twice, or leave them where they are.
            or_wait(self.write_back(&change, inode, &mut content, Writeback::Background))?;
        }
        let (moves, next) = self.blocks_to_move(inode, &content, blocks)?;
        self.move_together(&change, inode, &moves, how)?;
        Ok((next, moves.len() as u64))
    }

    /// Refuses files whose blocks must not move. The texts complete the sentence "skipped: ...".
    fn check_movable(&self, inode: &Inode) -> Result<()> {
        if inode.kind != FileKind::Regular {
            return Err(vfs::Error::Invalid("not a regular file").into());
        }
        if self.inline_room(inode)?.is_some() {
            return Err(vfs::Error::Invalid("its contents are in its inode").into());
        }
        let (inline, flags) = inode.node.inode(|r| (r.inline(), r.flags()));
        if inline.contains(Inline::PIN_FILE) {
            return Err(vfs::Error::NotPermitted("pinned: the addresses of its blocks must not change").into());
        }
        if flags.contains(InodeFlags::IMMUTABLE) {
            return Err(vfs::Error::NotPermitted("immutable").into());
        }
        if inode.node.inode(|r| r.i_links.get()) == 0 {
            return Err(vfs::Error::Invalid("it was deleted").into());
        }
        Ok(())
    }

    /// The next blocks of a range, at most [`BATCH`], that are on the device without newer contents in memory; and the
    /// first block behind them.
    fn blocks_to_move(&self, inode: &Inode, content: &Content, blocks: Range<u64>) -> Result<(Vec<Move>, u64)> {
        let end = blocks.end.min(inode.node.inode(|r| self.nodes.shape(r))?.max_blocks());
        let (mut at, mut moves) = (blocks.start, Vec::with_capacity(BATCH));
        for _ in 0..STEP {
            if at >= end || moves.len() == BATCH {
                break;
            }
            let (stretch, place) = self.nodes.stretch(&inode.node, at)?;
            let here = at..end.min(stretch.end);
            let Some(place) = place else {
                at = here.end;
                continue;
            };
            let bytes = place.node.read();
            for block in here {
                if moves.len() == BATCH {
                    break;
                }
                at = block + 1;
                let slot = place.slot + (block - stretch.start) as u32;
                let from = addr_in(&self.ctx, &place.node, &bytes, slot);
                if from.is_real() && !content.pages.contains_key(&block) {
                    self.ctx.check_data_addr(from, inode.ino, block)?;
                    moves.push(Move { from, node: place.node.clone(), slot });
                }
            }
        }
        Ok((moves, if at >= end { blocks.end } else { at }))
    }

    /// Moves blocks to the next places of one log. If places run out, the blocks that got one have moved.
    fn move_together(&self, _held: &PackState, inode: &Arc<Inode>, moves: &[Move], how: Moving) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let contents = match how {
            Moving::Copy => self.read_scattered(inode, moves)?,
            Moving::Share => Vec::new(),
        };
        let log = inode.node.inode(|r| data_log(r, moves.len()));
        let _order = self.logs.in_order();
        if how == Moving::Share && self.ctx.dev.zones().is_some() {
            return Err(vfs::Error::Unsupported("sharing blocks between the zones of a device".into()).into());
        }
        let places = self.take_places(log, moves)?;
        let moves = &moves[..places.at.len()];
        let given = match how {
            Moving::Copy => self.write_together(inode, &places.at, &contents),
            Moving::Share => self.share(inode, moves, &places.at),
        };
        if let Err(e) = given {
            // Nothing points at the new places: the file is unchanged.
            self.logs.seg.lock().give_back(&places.at)?;
            return Err(e);
        }
        self.point_at(inode, moves, &places.at)?;
        places.short.map_or(Ok(()), Err)
    }

    /// Reads blocks in address order, adjacent ones in one request; returns them in the given order.
    fn read_scattered(&self, inode: &Inode, moves: &[Move]) -> Result<Vec<Block>> {
        let mut order: Vec<usize> = (0..moves.len()).collect();
        order.sort_unstable_by_key(|i| moves[*i].from);
        let mut out = vec![[0; 4096]; moves.len()];
        for run in order.chunk_by(|a, b| moves[*a].from.plus(1) == moves[*b].from) {
            let mut bytes = vec![[0; 4096]; run.len()];
            let at = Lba(moves[run[0]].from.0.into());
            self.ctx.dev.read(at, bytes.as_flattened_mut(), Cause::Defragment.of(inode.ino))?;
            run.iter().zip(bytes).for_each(|(i, block)| out[*i] = block);
        }
        Ok(out)
    }

    /// Allocates the next places of a log while it writes a fresh segment.
    fn take_places(&self, log: LogType, moves: &[Move]) -> Result<Places> {
        let mut owners = Vec::with_capacity(moves.len());
        for m in moves {
            owners.push(Summary {
                nid: m.node.nid,
                version: self.nodes.nat.get(m.node.nid)?.version,
                slot: m.slot as u16,
            });
        }
        let mut old: Vec<BlockAddr> = moves.iter().map(|m| m.from).collect();
        old.sort_unstable();
        if let Some(twice) = old.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::corrupt(format_args!("block {} is twice in one file", twice[0])));
        }
        let age = self.ctx.mounted_seconds();
        let mut seg = self.logs.seg.lock();
        old.iter().try_for_each(|a| seg.check_there(*a))?;
        let mut places = Places { at: Vec::with_capacity(moves.len()), short: None };
        for owner in owners {
            match seg.fresh(log).and_then(|()| seg.allocate(log, owner, BlockAddr::NULL, age)) {
                Ok(p) => places.at.push(p.addr),
                Err(e) => {
                    places.short = Some(e);
                    break;
                }
            }
        }
        Ok(places)
    }

    fn write_together(&self, inode: &Inode, to: &[BlockAddr], contents: &[Block]) -> Result<()> {
        let mut done = 0;
        for run in to.chunk_by(|a, b| a.plus(1) == *b) {
            let bytes = contents[done..done + run.len()].as_flattened();
            self.logs.place(run[0], run.len() as u32, Cause::Defragment as u8);
            self.ctx
                .dev
                .write(Lba(run[0].0.into()), bytes, Cause::Defragment.of(inode.ino))
                .inspect_err(|_| self.logs.left_a_gap())?;
            done += run.len();
        }
        Ok(())
    }

    fn share(&self, inode: &Inode, moves: &[Move], to: &[BlockAddr]) -> Result<()> {
        let pairs: Vec<(BlockAddr, BlockAddr)> = moves.iter().map(|m| m.from).zip(to.iter().copied()).collect();
        for run in pairs.chunk_by(|a, b| a.0.plus(1) == b.0 && a.1.plus(1) == b.1) {
            let (from, to) = (Lba(run[0].0.0.into()), Lba(run[0].1.0.into()));
            self.ctx.dev.remap(from, to, run.len() as u64, Remap::Share, Cause::Defragment.of(inode.ino))?;
        }
        Ok(())
    }

    /// Points the file's slots at the new places.
    fn point_at(&self, inode: &Arc<Inode>, moves: &[Move], to: &[BlockAddr]) -> Result<()> {
        // The copies must be durable before an fsync marks an inode whose nodes point at them.
        self.promises.stray(inode.ino);
        let age = self.ctx.mounted_seconds();
        for (m, addr) in moves.iter().zip(to) {
            let mut bytes = m.node.write();
            move_addr_in(&self.ctx, &m.node, &mut bytes, m.slot, *addr);
            // For readers without the inode's lock.
            m.node.note_move();
            self.nodes.cache.mark_dirty(&m.node);
            self.logs.seg.lock().invalidate(m.from, age)?;
        }
        self.nodes.forget_extent(&inode.node);
        self.ctx.counters.defragmented.fetch_add(moves.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}
