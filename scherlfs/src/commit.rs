//! What waits becomes one transaction at the end of the log.
//!
//! Each inode is a piece: its block, its continuations, its contents, one behind the other. Inodes of files come first,
//! in the order in which they were changed, then those of directories, so that a directory's blocks lie together. All
//! of it leaves in one request where the path has no gap. Nothing changes in memory before it is written; if it cannot be
//! written, it waits on and will be written over.

use std::collections::BTreeMap;

use device::Lba;
use scherlfs_format::chain::{self, GONE_MAX, Header, Kind, RUNS_MAX};
use scherlfs_format::extent::Extent;
use scherlfs_format::history::Change;
use scherlfs_format::inode::{self as raw, room};
use scherlfs_format::{Addr, BLOCK, Block, Ino, Run, Seq, checksum, directory};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::extents::{Extents, Freed, Place};
use crate::inode::{self, Inode};
use crate::path::{Path, Slot};
use crate::volume::State;

/// Bytes of one request at most.
const REQUEST: usize = 4 << 20;

/// A block on its way: which slot, for whom.
struct Out {
    slot: usize,
    owner: u64,
    /// It is metadata, which an index has, too.
    kept: bool,
    block: Box<Block>,
}

/// An inode with places for all of it.
pub(crate) struct Laid {
    ino: Ino,
    slot: usize,
    /// Index blocks, then continuations.
    conts: Vec<usize>,
    pages: Vec<(u64, usize)>,
    /// Of `conts` the last, which turned out not to be needed.
    unused: usize,
    extents: Extents,
    freed: Freed,
}

impl Laid {
    /// The slot of the inode's block.
    pub fn slot(&self) -> usize {
        self.slot
    }
    /// Where its blocks are.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }
    /// Where its continuations and index blocks are.
    pub fn own<'s>(&'s self, slots: &'s [Slot]) -> impl Iterator<Item = Addr> + 's {
        self.conts[..self.conts.len() - self.unused].iter().map(|s| slots[*s].addr())
    }
    /// Blocks that are nobody's once it is written: those of contents that it replaces, and those it did not need.
    pub fn replaced(&self, slots: &[Slot]) -> Vec<Run> {
        let unused = &self.conts[self.conts.len() - self.unused..];
        let unused = unused.iter().map(|s| Run { start: slots[*s].addr(), blocks: 1 });
        self.freed.runs.iter().copied().chain(unused).collect()
    }
}

/// A transaction that is being laid out.
pub(crate) struct Plan {
    pub path: Path,
    pub slots: Vec<Slot>,
    out: Vec<Out>,
    pub header: Header,
}

impl Plan {
    pub fn new(state: &State) -> Self {
        let header = Header {
            kind: Kind::Inode,
            epoch: state.epoch,
            attempt: state.attempt,
            seq: Seq(state.seq.0 + 1),
            ino: Ino(0),
            piece: 0,
            pieces: 1,
        };
        Plan { path: state.path.clone(), slots: Vec::new(), out: Vec::new(), header }
    }

    fn slot(&mut self) -> Result<usize> {
        self.path.next(&mut self.slots).ok_or(Error::NoSpace)?;
        Ok(self.slots.len() - 1)
    }

    /// Lays an inode out with these of its blocks behind it.
    pub fn lay(&mut self, inode: &Inode, pages: &[u64]) -> Result<Laid> {
        let xattrs = inode.xattr_bytes();
        let slot = self.slot()?;
        // How many continuations there are depends on how many gaps the contents behind them meet.
        let blocks = |extents: &Extents| {
            let conts = raw::continuations(extents.listed(), xattrs);
            conts + raw::indexes(conts)
        };
        let mut count = blocks(&inode.extents);
        let (path, slots) = (self.path.clone(), self.slots.len());
        let mut tries = 0;
        loop {
            let conts = (0..count).map(|_| self.slot()).collect::<Result<Vec<_>>>()?;
            let mut extents = inode.extents.clone();
            let mut freed = Freed::default();
            let mut placed = Vec::with_capacity(pages.len());
            for run in pages.chunk_by(|a, b| a + 1 == *b) {
                for &page in run {
                    let at = self.slot()?;
                    placed.push((page, at));
                    let was = extents.put(page, 1, Place::At(self.slots[at].addr()));
                    freed.runs.extend(was.runs);
                    freed.reserved += was.reserved;
                }
            }
            let needed = blocks(&extents);
            tries += 1;
            if needed == count || (needed < count && tries > 3) {
                let unused = count - needed;
                return Ok(Laid { ino: inode.ino, slot, conts, pages: placed, unused, extents, freed });
            }
            (count, self.path) = (needed.max(if tries > 2 { count } else { 0 }), path.clone());
            self.slots.truncate(slots);
        }
    }

    fn addr(&self, slot: usize) -> Addr {
        self.slots[slot].addr()
    }

    /// Where an inode that was laid out will be.
    pub fn place(&self, laid: &Laid) -> Addr {
        self.addr(laid.slot)
    }

    /// Blocks as runs.
    fn runs(&self, slots: &[usize]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for at in slots.iter().map(|s| self.addr(*s)) {
            match runs.last_mut() {
                Some(run) if run.end() == at => run.blocks += 1,
                _ => runs.push(Run { start: at, blocks: 1 }),
            }
        }
        runs
    }

    /// Makes the blocks of an inode; `contents` gives those of its pages.
    pub fn encode<'p>(
        &mut self,
        laid: &Laid,
        inode: &Inode,
        contents: impl Fn(u64) -> Option<&'p Block>,
    ) -> Result<()> {
        let header = Header { kind: Kind::Inode, ino: inode.ino, ..self.header };
        let (owner, xattrs) = (u64::from(inode.ino.0), inode.xattr_bytes());
        let all = laid.extents.write();
        let here = room(xattrs).min(all.len());
        let continuations = raw::continuations(all.len(), xattrs);
        let indexes = raw::indexes(continuations);
        let (index, rest) = laid.conts.split_at(indexes);
        let (conts, unused) = rest.split_at(continuations);
        let runs = self.runs(conts);
        let mut follow: Vec<Out> = Vec::with_capacity(laid.conts.len() + laid.pages.len());
        let part = |kind, n: usize, of: usize| Header { kind, piece: n as u16, pieces: of as u16, ..header };
        for (n, &slot) in index.iter().enumerate() {
            let own = runs.chunks(RUNS_MAX).nth(n).unwrap_or(&[]);
            let block = chain::write_runs(&part(Kind::Index, n, indexes), own);
            follow.push(Out { slot, owner, kept: true, block });
        }
        for (n, (&slot, extents)) in conts.iter().zip(all[here..].chunks(RUNS_MAX)).enumerate() {
            let block = chain::write_continuation(&part(Kind::Continuation, n, continuations), extents);
            follow.push(Out { slot, owner, kept: true, block });
        }
        follow.extend(unused.iter().map(|&slot| Out { slot, owner, kept: false, block: Box::new([0; BLOCK]) }));
        for &(page, slot) in &laid.pages {
            let bytes = contents(page).ok_or_else(|| Error::corrupt("a block that waits is gone"))?;
            let mut block = Box::new(*bytes);
            if inode.is_dir() {
                directory::seal(&mut block, inode.ino, page);
            }
            follow.push(Out { slot, owner, kept: inode.is_metadata(), block });
        }
        let parts: Vec<&[u8]> = follow.iter().map(|o| &o.block[..]).collect();
        let mut attributes = inode.a;
        attributes.blocks = laid.extents.blocks();
        let block = raw::Inode {
            header,
            follow: follow.len() as u32,
            follow_crc: checksum(&parts),
            previous: inode.addr,
            attributes,
            xattrs: inode.xattrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
            extents: all[..here].to_vec(),
            extents_in_all: all.len() as u32,
            continuations,
            runs: if indexes > 0 { self.runs(index) } else { runs },
        };
        self.out.push(Out { slot: laid.slot, owner, kept: true, block: block.write() });
        self.out.extend(follow);
        self.header.piece += 1;
        Ok(())
    }

    /// A list of inodes that are gone.
    fn gone(&mut self, inodes: &[Ino]) -> Result<()> {
        let slot = self.slot()?;
        let header = Header { kind: Kind::Gone, ..self.header };
        self.out.push(Out { slot, owner: 0, kept: false, block: chain::write_gone(&header, inodes) });
        self.header.piece += 1;
        Ok(())
    }

    /// What is left when the plan has become blocks.
    pub fn finish(self) -> Written {
        let header = Header { kind: Kind::Path, piece: 0, pieces: 1, ..self.header };
        let mut blocks: BTreeMap<usize, Out> = self.out.into_iter().map(|o| (o.slot, o)).collect();
        for (n, slot) in self.slots.iter().enumerate() {
            if let Slot::Path(_, runs) = slot {
                let block = chain::write_runs(&header, runs);
                blocks.insert(n, Out { slot: n, owner: 0, kept: false, block });
            }
        }
        Written { path: self.path, slots: self.slots, blocks }
    }
}

/// A transaction in blocks.
pub(crate) struct Written {
    pub path: Path,
    pub slots: Vec<Slot>,
    blocks: BTreeMap<usize, Out>,
}

impl Written {
    /// Gives all to the device, neighbours in one request.
    pub fn write(&self, state: &State, cause: Cause) -> Result<()> {
        let (mut at, mut data, mut owners) = (None::<u64>, Vec::new(), Vec::new());
        let give = |at: Option<u64>, data: &mut Vec<u8>, owners: &mut Vec<u64>| {
            let done = match at {
                Some(at) if !data.is_empty() => state.dev.write_for(Lba(at), data, owners, cause as u8),
                _ => Ok(()),
            };
            data.clear();
            owners.clear();
            done.map_err(Error::device)
        };
        for (n, slot) in self.slots.iter().enumerate() {
            // A slot that nobody filled is passed over.
            let Some(Out { owner, block, .. }) = self.blocks.get(&n) else { continue };
            let addr = slot.addr().0;
            let goes_on = at.is_some_and(|at| at + owners.len() as u64 == addr) && data.len() < REQUEST;
            if !goes_on {
                give(at, &mut data, &mut owners)?;
                at = Some(addr);
            }
            data.extend_from_slice(&block[..]);
            owners.push(u32::try_from(*owner).map_or(0, |ino| inode::owner(Ino(ino))));
        }
        give(at, &mut data, &mut owners)?;
        if let Some(archive) = &state.archive {
            self.blocks.values().filter(|o| o.kept).for_each(|o| archive.keep(self.slots[o.slot].addr(), &o.block));
        }
        Ok(())
    }

    /// The blocks it takes that are none of a file's: path blocks.
    pub fn paths(&self) -> impl Iterator<Item = Addr> + '_ {
        self.slots.iter().filter_map(|s| match s {
            Slot::Path(a, _) => Some(*a),
            Slot::Block(_) => None,
        })
    }
}

/// What an inode's old blocks were beside its contents: its own and its continuations.
pub(crate) fn own_blocks(inode: &Inode) -> impl Iterator<Item = Run> + '_ {
    let own = inode.addr.map(|start| Run { start, blocks: 1 });
    own.into_iter().chain(inode.runs.iter().copied())
}

impl State {
    /// Takes the blocks of what was written out of the free ones.
    pub(crate) fn take_slots(&mut self, written: &Written) -> Result<()> {
        for slot in &written.slots {
            if !self.free.take(slot.addr().0, 1) {
                return Err(Error::corrupt(format_args!("block {} of the log's path is not free", slot.addr())));
            }
            self.note_written(slot.addr());
        }
        self.logged += written.slots.len() as u64;
        Ok(())
    }

    /// What a failed attempt leaves is none of the next.
    pub(crate) fn next_attempt(&mut self) -> Result<()> {
        match self.attempt.checked_add(1) {
            Some(next) => self.attempt = next,
            None => {
                let why = format!("a transaction could not be written {} times", u8::MAX);
                self.broken.get_or_insert(why.clone());
                return Err(Error::Device(why));
            }
        }
        Ok(())
    }

    /// An inode was written where the plan said.
    pub(crate) fn apply(&mut self, inode: &mut Inode, laid: Laid, slots: &[Slot]) -> Result<()> {
        let old: Vec<Run> = own_blocks(inode).collect();
        let replaced = laid.replaced(slots);
        inode.addr = Some(slots[laid.slot].addr());
        inode.runs = laid.own(slots).map(|start| Run { start, blocks: 1 }).collect();
        inode.a.blocks = laid.extents.blocks();
        inode.extents = laid.extents;
        self.promised = self.promised.saturating_sub(laid.freed.reserved);
        replaced.into_iter().chain(old).try_for_each(|run| self.die(run))
    }

    /// Writes what waits. Not durable before the next flush.
    pub(crate) fn commit(&mut self) -> Result<bool> {
        if self.waiting.is_empty() && self.gone.is_empty() {
            self.since = None;
            return Ok(false);
        }
        self.begin_epoch()?;
        let is_dir = |ino: &Ino| self.inodes.get(ino).is_some_and(|i| i.is_dir());
        let (dirs, files): (Vec<Ino>, Vec<Ino>) = self.waiting.values().copied().partition(is_dir);
        let order: Vec<Ino> = files.into_iter().chain(dirs).collect();
        let lists = self.gone.chunks(GONE_MAX).count();
        let mut plan = Plan::new(self);
        plan.header.pieces = u16::try_from(order.len() + lists).map_err(|_| Error::device("too many inodes wait"))?;
        let mut laid = Vec::with_capacity(order.len());
        for ino in &order {
            let inode = self.inodes.get(ino).ok_or_else(|| Error::corrupt("an inode that waits is gone"))?;
            let pages: Vec<u64> = inode.pages.keys().copied().collect();
            let one = plan.lay(inode, &pages)?;
            plan.encode(&one, inode, |n| inode.pages.get(&n).map(|p| &**p))?;
            laid.push(one);
        }
        for some in self.gone.chunks(GONE_MAX) {
            plan.gone(some)?;
        }
        let listed: Vec<usize> = plan.out.iter().filter(|o| o.owner == 0).map(|o| o.slot).collect();
        let written = plan.finish();
        self.next_attempt()?;
        written.write(self, self.care.cause)?;

        self.take_slots(&written)?;
        (self.seq, self.attempt) = (Seq(self.seq.0 + 1), 0);
        self.path = written.path.clone();
        let mut changes = Vec::with_capacity(laid.len() + self.gone.len());
        let (mut now, dev) = (i64::MIN, self.dev.clone());
        for one in laid {
            let was = self.imap.get(&*dev, one.ino)?.addr;
            let Some(mut inode) = self.inodes.remove(&one.ino) else { continue };
            let applied = self.apply(&mut inode, one, &written.slots);
            self.drop_wait(&mut inode);
            now = now.max(inode.a.times[inode::CHANGED].secs);
            let (ino, addr, generation) = (inode.ino, inode.addr.unwrap_or_default(), inode.a.generation);
            self.pages_written(&mut inode);
            self.inodes.insert(ino, inode);
            applied?;
            changes.push(Change { ino, was, is: Some(addr) });
            self.imap.written(&*dev, ino, addr, generation)?;
        }
        for ino in std::mem::take(&mut self.gone) {
            changes.push(Change { ino, was: self.imap.get(&*dev, ino)?.addr, is: None });
            self.imap.gone(&*dev, ino)?;
        }
        // What never was on the disk and is gone again was no change.
        changes.retain(|c| c.was.is_some() || c.is.is_some());
        self.remember(self.seq, now, changes)?;
        let notes = written.paths().chain(listed.into_iter().map(|s| written.slots[s].addr()));
        for start in notes.collect::<Vec<_>>() {
            self.die_for_good(Run { start, blocks: 1 })?;
        }
        self.since = None;
        Ok(true)
    }

    /// Pages of a directory stay in memory as long as there is room for them; those of a file go.
    fn pages_written(&mut self, inode: &mut Inode) {
        let pages = std::mem::take(&mut inode.pages);
        if let Some(names) = &mut inode.names {
            self.dir_blocks += names.written(pages);
        }
        if self.dir_blocks > self.dir_cache {
            self.dir_blocks -= inode.names.take().map_or(0, |n| n.blocks());
        }
    }
}

/// The extents of an inode without its contents, as a reader finds them.
pub(crate) fn decode(extents: &[Extent]) -> Result<Extents> {
    Extents::read(extents).map_err(Error::corrupt)
}
