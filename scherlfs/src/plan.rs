//! Where does each block of a transaction go, and in which requests?
//!
//! A plan takes blocks of the log's path for inodes, continuations, contents and lists, encodes the blocks, and
//! writes them to the device. The volume's state does not change. Left out: what to write, and the effects of a
//! write ([`crate::commit`]).

use std::ops::Deref;

use device::Lba;
use scherlfs_format::chain::{self, Header, Kind, RUNS_MAX};
use scherlfs_format::inode::{self as raw, Form, room};
use scherlfs_format::{Addr, BLOCK, Block, Ino, Run, Seq, checksum, directory};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::extents::{Continuation, Extents, Freed, Place};
use crate::inode::{self, Inode};
use crate::page::Page;
use crate::path::{Path, Slot};
use crate::volume::State;

/// Most bytes in one request.
const REQUEST: usize = 4 << 20;

/// A block to be written: slot and owner.
struct Out {
    slot: usize,
    owner: u64,
    /// True for metadata, which the index gets too.
    kept: bool,
    block: Bytes,
}

/// Contents of a block.
enum Bytes {
    /// A page that also waits in memory.
    Page(Page),
    /// Encoded for this transaction.
    Made(Box<Block>),
}

impl Deref for Bytes {
    type Target = Block;
    fn deref(&self) -> &Block {
        match self {
            Bytes::Page(page) => page,
            Bytes::Made(block) => block,
        }
    }
}

/// An inode with places for all its blocks.
pub(crate) struct Laid {
    at: Addr,
    /// Index among the plan's blocks; `None` if it has a place already.
    slot: Option<usize>,
    /// Index blocks, then continuations, then places that were not needed.
    conts: Vec<usize>,
    pages: Vec<(u64, usize)>,
    /// Number of index blocks in `conts`.
    indexes: usize,
    /// Contents of the continuations in `conts`. The others keep their places.
    loose: Vec<Continuation>,
    extents: Extents,
    freed: Freed,
}

impl Laid {
    /// Address of the inode's block.
    pub fn at(&self) -> Addr {
        self.at
    }
    /// Number of contents blocks that had been reserved.
    pub fn promised(&self) -> u64 {
        self.freed.reserved
    }
    /// The new extents.
    pub fn into_extents(mut self) -> Extents {
        self.extents.written();
        self.extents
    }
    /// The new extents.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }
    /// Addresses of its index blocks.
    pub fn indexes<'s>(&'s self, slots: &'s [Slot]) -> impl Iterator<Item = Addr> + 's {
        self.conts[..self.indexes].iter().map(|s| slots[*s].addr())
    }
    /// Addresses of its continuations and index blocks, including unchanged ones.
    pub fn own<'s>(&'s self, slots: &'s [Slot]) -> impl Iterator<Item = Addr> + 's {
        self.indexes(slots).chain(self.extents.places())
    }
    /// Blocks that become free when it is written: replaced contents and unneeded places.
    pub fn replaced(&self, slots: &[Slot]) -> Vec<Run> {
        let unused = self.conts[self.indexes + self.loose.len()..].iter();
        let unused = unused.map(|s| Run { start: slots[*s].addr(), blocks: 1 });
        self.freed.runs.iter().copied().chain(unused).collect()
    }
}

/// A transaction being laid out.
pub(crate) struct Plan {
    pub path: Path,
    pub slots: Vec<Slot>,
    out: Vec<Out>,
    /// A block that is written to an existing place, after the others.
    apart: Option<(Addr, Out)>,
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
        Plan { path: state.path.clone(), slots: Vec::new(), out: Vec::new(), apart: None, header }
    }

    fn slot(&mut self) -> Result<usize> {
        self.path.next(&mut self.slots).ok_or(Error::NoSpace)?;
        Ok(self.slots.len() - 1)
    }

    /// Lays an inode out with these of its blocks behind it.
    pub fn lay(&mut self, inode: &Inode, pages: &[u64]) -> Result<Laid> {
        let own = room(inode.xattr_bytes());
        let slot = self.slot()?;
        // The number of continuations to write depends on the gaps among the contents behind them.
        let mut count = inode.extents.loose() + raw::indexes(inode.extents.continuations());
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
                    extents.set_freeing(page, 1, Place::At(self.slots[at].addr()), &mut freed);
                }
            }
            extents.arrange(own);
            let indexes = raw::indexes(extents.continuations());
            let needed = extents.loose() + indexes;
            tries += 1;
            if needed == count || (needed < count && tries > 3) {
                let loose = extents.place(conts[indexes..].iter().map(|s| self.slots[*s].addr()));
                let at = self.slots[slot].addr();
                return Ok(Laid { at, slot: Some(slot), conts, pages: placed, indexes, loose, extents, freed });
            }
            (count, self.path) = (needed.max(if tries > 2 { count } else { 0 }), path.clone());
            self.slots.truncate(slots);
        }
    }

    /// Takes a block without a use yet.
    pub fn reserve(&mut self) -> Result<Addr> {
        self.slot().map(|slot| self.slots[slot].addr())
    }

    /// Lays out contents only; their inode has its place. `None`: it would need continuations.
    pub fn lay_contents(&mut self, inode: &Inode, pages: &[u64], at: Addr) -> Result<Option<Laid>> {
        let (mut extents, mut freed) = (inode.extents.clone(), Freed::default());
        let mut placed = Vec::with_capacity(pages.len());
        for &page in pages {
            let slot = self.slot()?;
            placed.push((page, slot));
            extents.set_freeing(page, 1, Place::At(self.slots[slot].addr()), &mut freed);
        }
        extents.arrange(room(inode.xattr_bytes()));
        let fits = extents.continuations() == 0;
        let (conts, loose) = (Vec::new(), Vec::new());
        let laid = Laid { at, slot: None, conts, pages: placed, indexes: 0, loose, extents, freed };
        Ok(fits.then_some(laid))
    }

    /// Lays out contents with their inode behind them. Also returns the path before the inode, if that was the next
    /// block.
    pub fn lay_ahead(&mut self, inode: &Inode, pages: &[u64]) -> Result<Option<(Laid, Option<Path>)>> {
        let Some(mut laid) = self.lay_contents(inode, pages, Addr::default())? else { return Ok(None) };
        let (path, next) = (self.path.clone(), self.slots.len());
        let slot = self.slot()?;
        (laid.at, laid.slot) = (self.slots[slot].addr(), Some(slot));
        Ok(Some((laid, (slot == next).then_some(path))))
    }

    /// The laid-out contents with their addresses.
    pub fn contents<'i>(&self, laid: &Laid, inode: &'i Inode) -> Result<Vec<(Addr, &'i Page)>> {
        let gone = || Error::corrupt("a block that waits is gone");
        let block = |page: &u64| inode.pages.get(page).ok_or_else(gone);
        laid.pages.iter().map(|(page, slot)| Ok((self.addr(*slot), block(page)?))).collect()
    }

    fn addr(&self, slot: usize) -> Addr {
        self.slots[slot].addr()
    }

    /// The address of a laid-out inode.
    pub fn place(&self, laid: &Laid) -> Addr {
        laid.at
    }

    /// Blocks as runs.
    fn runs(&self, slots: &[usize]) -> Vec<Run> {
        runs(slots.iter().map(|s| self.addr(*s)))
    }

    /// Encodes the blocks of an inode; `contents` returns those of its pages.
    pub fn encode(&mut self, laid: &Laid, inode: &Inode, contents: impl Fn(u64) -> Option<Page>) -> Result<()> {
        let header = Header { kind: Kind::Inode, ino: inode.ino, ..self.header };
        let owner = u64::from(inode.ino.0);
        let continuations = laid.extents.continuations();
        let (index, rest) = laid.conts.split_at(laid.indexes);
        let (conts, unused) = rest.split_at(laid.loose.len());
        let runs = runs(laid.extents.places());
        let mut follow: Vec<Out> = Vec::with_capacity(laid.conts.len() + laid.pages.len());
        let part = |kind, n: usize, of: usize| Header { kind, piece: n as u16, pieces: of as u16, ..header };
        for (n, &slot) in index.iter().enumerate() {
            let own = runs.chunks(RUNS_MAX).nth(n).unwrap_or(&[]);
            let block = chain::write_runs(&part(Kind::Index, n, laid.indexes), own);
            follow.push(Out { slot, owner, kept: true, block: Bytes::Made(block) });
        }
        for (&slot, c) in conts.iter().zip(&laid.loose) {
            let header = part(Kind::Continuation, c.number, continuations);
            let block = chain::write_raw_continuation(&header, c.first, &c.extents);
            follow.push(Out { slot, owner, kept: true, block: Bytes::Made(block) });
        }
        follow.extend(unused.iter().map(|&slot| Out {
            slot,
            owner,
            kept: false,
            block: Bytes::Made(Box::new([0; BLOCK])),
        }));
        for &(page, slot) in &laid.pages {
            let mut block = contents(page).ok_or_else(|| Error::corrupt("a block that waits is gone"))?;
            if inode.is_dir() {
                directory::seal(Page::make_mut(&mut block), inode.ino, page);
            }
            follow.push(Out { slot, owner, kept: inode.is_metadata(), block: Bytes::Page(block) });
        }
        let parts: Vec<&[u8]> = follow.iter().map(|o| &o.block[..]).collect();
        let mut attributes = inode.a;
        attributes.blocks = laid.extents.blocks();
        let block = raw::Inode {
            header,
            form: Form::Behind,
            follow: follow.len() as u32,
            follow_crc: checksum(&parts),
            previous: inode.addr,
            attributes,
            xattrs: inode.xattrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
            extents: Vec::new(),
            extents_in_all: laid.extents.listed() as u32,
            continuations,
            runs: if laid.indexes > 0 { self.runs(index) } else { runs },
        };
        let slot = laid.slot.ok_or_else(|| Error::corrupt("an inode without a place"))?;
        let block = Bytes::Made(block.write_with(&laid.extents.own()));
        self.out.push(Out { slot, owner, kept: true, block });
        self.out.extend(follow);
        self.header.piece += 1;
        Ok(())
    }

    /// Encodes an inode whose contents are not behind it, with the given form, total number of blocks and checksum.
    pub fn encode_apart(
        &mut self,
        laid: &Laid,
        inode: &Inode,
        previous: Option<Addr>,
        (form, follow, follow_crc): (Form, u32, u32),
    ) -> Result<()> {
        self.encode_contents(laid, inode)?;
        let owner = u64::from(inode.ino.0);
        let all = laid.extents.own();
        let block = raw::Inode {
            header: Header { kind: Kind::Inode, ino: inode.ino, ..self.header },
            form,
            follow,
            follow_crc,
            previous,
            attributes: scherlfs_format::inode::Attributes { blocks: laid.extents.blocks(), ..inode.a },
            xattrs: inode.xattrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
            extents_in_all: all.len() as u32,
            extents: Vec::new(),
            continuations: 0,
            runs: Vec::new(),
        };
        // In one request with its neighbours, if it has no place yet.
        let slot = laid.slot.or_else(|| self.slots.iter().position(|s| s.addr() == laid.at));
        let block = Bytes::Made(block.write_with(&all));
        let out = Out { slot: slot.unwrap_or_default(), owner, kept: true, block };
        match slot {
            Some(_) => self.out.push(out),
            None => self.apart = Some((laid.at, out)),
        }
        self.header.piece += 1;
        Ok(())
    }

    /// Fills a reserved block, so that its neighbours can be one request.
    pub fn fill(&mut self, at: Addr, ino: Ino) {
        if let Some(slot) = self.slots.iter().position(|s| s.addr() == at) {
            let block = Bytes::Made(Box::new([0; BLOCK]));
            self.out.push(Out { slot, owner: ino.0.into(), kept: false, block });
        }
    }

    /// Encodes blocks of contents.
    pub fn encode_contents(&mut self, laid: &Laid, inode: &Inode) -> Result<()> {
        let contents = self.contents(laid, inode)?;
        let owner = u64::from(inode.ino.0);
        let blocks = laid.pages.iter().zip(contents);
        self.out.extend(blocks.map(|((_, slot), (_, block))| Out {
            slot: *slot,
            owner,
            kept: false,
            block: Bytes::Page(block.clone()),
        }));
        Ok(())
    }

    /// Encodes a list of deleted inodes.
    pub fn gone(&mut self, inodes: &[Ino]) -> Result<()> {
        let slot = self.slot()?;
        let header = Header { kind: Kind::Gone, ..self.header };
        let block = Bytes::Made(chain::write_gone(&header, inodes));
        self.out.push(Out { slot, owner: 0, kept: false, block });
        self.header.piece += 1;
        Ok(())
    }

    /// Slots of blocks without an inode: lists.
    pub fn unowned_slots(&self) -> Vec<usize> {
        self.out.iter().filter(|o| o.owner == 0).map(|o| o.slot).collect()
    }

    /// The encoded result of the plan.
    pub fn finish(self) -> Written {
        let header = Header { kind: Kind::Path, piece: 0, pieces: 1, ..self.header };
        let mut blocks: Vec<Option<Out>> = Vec::new();
        blocks.resize_with(self.slots.len(), || None);
        for out in self.out {
            let slot = out.slot;
            blocks[slot] = Some(out);
        }
        for (n, slot) in self.slots.iter().enumerate() {
            if let Slot::Path(_, runs) = slot {
                let block = Bytes::Made(chain::write_runs(&header, runs));
                blocks[n] = Some(Out { slot: n, owner: 0, kept: false, block });
            }
        }
        Written { path: self.path, slots: self.slots, blocks, apart: self.apart }
    }
}

/// Blocks as runs.
fn runs(blocks: impl Iterator<Item = Addr>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for at in blocks {
        match runs.last_mut() {
            Some(run) if run.end() == at => run.blocks += 1,
            _ => runs.push(Run { start: at, blocks: 1 }),
        }
    }
    runs
}

/// An encoded transaction.
pub(crate) struct Written {
    pub path: Path,
    pub slots: Vec<Slot>,
    /// By slot; `None` for an unfilled one.
    blocks: Vec<Option<Out>>,
    apart: Option<(Addr, Out)>,
}

impl Written {
    /// Writes everything to the device, neighbours in one request.
    pub fn write(&self, state: &State, cause: Cause) -> Result<()> {
        // A request may have megabytes: its memory is allocated once.
        let mut room = state.request.lock();
        let (mut at, mut parts, mut owners) = (0, Vec::<&[u8]>::with_capacity(self.slots.len()), Vec::new());
        let mut give = |at: u64, parts: &mut Vec<&[u8]>, owners: &mut Vec<u64>| {
            let done = match parts.is_empty() {
                true => Ok(()),
                false => state.dev.write_parts_for(Lba(at), parts, (owners, cause as u8), &mut room),
            };
            parts.clear();
            owners.clear();
            done.map_err(Error::device)
        };
        let inodes = |owner: u64| u32::try_from(owner).map_or(0, |ino| inode::owner(Ino(ino)));
        for (slot, out) in self.slots.iter().zip(&self.blocks) {
            let Some(Out { owner, block, .. }) = out else { continue };
            let addr = slot.addr().0;
            let goes_on = at + parts.len() as u64 == addr && parts.len() < REQUEST / BLOCK;
            if !goes_on {
                give(at, &mut parts, &mut owners)?;
                at = addr;
            }
            parts.push(&block[..]);
            owners.push(inodes(*owner));
        }
        give(at, &mut parts, &mut owners)?;
        if let Some((at, Out { owner, block, .. })) = &self.apart {
            give(at.0, &mut vec![&block[..]], &mut vec![inodes(*owner)])?;
        }
        if let Some(archive) = &state.archive {
            self.blocks
                .iter()
                .flatten()
                .filter(|o| o.kept)
                .for_each(|o| archive.keep(self.slots[o.slot].addr(), &o.block));
            self.apart.iter().for_each(|(at, out)| archive.keep(*at, &out.block));
        }
        Ok(())
    }

    /// Its blocks that belong to no file: path blocks.
    pub fn paths(&self) -> impl Iterator<Item = Addr> + '_ {
        self.slots.iter().filter_map(|s| match s {
            Slot::Path(a, _) => Some(*a),
            Slot::Block(_) => None,
        })
    }
}
