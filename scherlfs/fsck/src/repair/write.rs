//! Writes the repaired volume as a checkpoint.
//!
//! It writes only to blocks needed neither by the repaired volume nor by another repair after a power cut. The
//! superblock is written last; only that discards the old state.

use std::collections::{BTreeMap, BTreeSet};

use device::{Lba, Tag};
use scherlfs_format::chain::{self, Header, Kind, RUNS_MAX};
use scherlfs_format::extent::Extent;
use scherlfs_format::inode::{self as raw, Attributes, Xattr, room, xattr_bytes};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{
    Addr, BLOCK, Block, COUNT_MAX, Epoch, FIRST, FREE_LIST, IFILE, Ino, ROOT, Run, Seq, checksum, ifile, lists,
};

use super::RepairError;
use super::file::{File, push};
use super::known::{Known, path_from};
use crate::Disk;
use crate::blocks::Claimed;
use crate::kind::REGULAR;

/// Most pieces in a transaction.
const PIECES: usize = 32_000;
/// Most blocks in a request.
const REQUEST: usize = 256;

/// Blocks available for writing.
struct Room<'a> {
    disk: &'a Disk<'a>,
    known: &'a Known,
    /// Blocks that must not be used.
    kept: Claimed,
    at: u64,
    /// Start of the search, which wraps around the volume.
    start: u64,
    wrapped: bool,
    /// True if blocks without an owner may be used even if they are not in the free list.
    lost: bool,
}

/// Blocks that a volume of over 16 TiB leaves out between two free runs.
fn apart(at: u64) -> bool {
    (at - FIRST + 1).is_multiple_of(1 << 32)
}

impl Room<'_> {
    fn next(&mut self) -> Result<Addr, RepairError> {
        loop {
            if self.at >= self.disk.blocks {
                if self.wrapped {
                    return Err(RepairError::NoSpace);
                }
                (self.wrapped, self.at) = (true, FIRST);
            }
            if self.wrapped && self.at >= self.start {
                return Err(RepairError::NoSpace);
            }
            let at = self.at;
            self.at += 1;
            let free = self.lost || self.known.free.as_ref().is_none_or(|f| f.has(at));
            if free && !self.kept.has(at) && !apart(at) {
                return Ok(Addr(at));
            }
        }
    }
}

/// A checkpoint being built.
struct Checkpoint<'a> {
    room: Room<'a>,
    out: BTreeMap<u64, Box<Block>>,
    header: Header,
    /// Blocks of the repaired volume.
    used: Claimed,
}

/// Contents of an inode to be written.
struct Content<'c> {
    ino: Ino,
    attributes: Attributes,
    xattrs: &'c [Xattr],
    previous: Option<Addr>,
    /// Extents of stored blocks.
    extents: Vec<Extent>,
    /// Blocks to be written.
    pages: Vec<(u64, &'c Block)>,
}

/// Converts blocks by file position to extents.
fn extents_of(blocks: &BTreeMap<u64, Addr>) -> Vec<Extent> {
    let (mut out, mut next) = (Vec::new(), 0);
    for (&n, &start) in blocks {
        if n > next {
            push(&mut out, Extent::Hole { blocks: n - next });
        }
        push(&mut out, Extent::Stored { start, blocks: 1 });
        next = n + 1;
    }
    out
}

fn runs_of(all: &[Addr]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &at in all {
        match runs.last_mut() {
            Some(run) if run.end() == at => run.blocks += 1,
            _ => runs.push(Run { start: at, blocks: 1 }),
        }
    }
    runs
}

impl Checkpoint<'_> {
    /// Writes an inode with its blocks; returns its address.
    fn write_inode(&mut self, content: &Content<'_>) -> Result<Addr, RepairError> {
        let bytes = xattr_bytes(content.xattrs);
        let stored: BTreeMap<u64, Addr> = match content.pages.is_empty() {
            true => BTreeMap::new(),
            false => stored(&content.extents),
        };
        let at = self.room.next()?;
        let back = (self.room.at, self.room.wrapped);
        let mut count = 0;
        let (own, pages, extents) = loop {
            (self.room.at, self.room.wrapped) = back;
            let own = (0..count).map(|_| self.room.next()).collect::<Result<Vec<_>, _>>()?;
            let pages = content.pages.iter().map(|_| self.room.next()).collect::<Result<Vec<_>, _>>()?;
            let mut extents = match content.pages.is_empty() {
                true => content.extents.clone(),
                false => {
                    let mut all = stored.clone();
                    all.extend(content.pages.iter().map(|(n, _)| *n).zip(pages.iter().copied()));
                    extents_of(&all)
                }
            };
            while matches!(extents.last(), Some(Extent::Hole { .. })) {
                extents.pop();
            }
            let conts = raw::continuations(extents.len(), bytes);
            let needed = conts + raw::indexes(conts);
            if needed <= count {
                break (own, pages, extents);
            }
            count = needed;
        };
        let here = room(bytes).min(extents.len());
        let conts = raw::continuations(extents.len(), bytes);
        let indexes = raw::indexes(conts);
        // Blocks that a shorter list does not need remain free.
        let (index, rest) = own.split_at(indexes);
        let rest = &rest[..conts];
        let header = Header { kind: Kind::Inode, ino: content.ino, ..self.header };
        let part = |kind, n: usize, of: usize| Header { kind, piece: n as u16, pieces: of as u16, ..header };
        let runs = runs_of(rest);
        let mut follow: Vec<(Addr, Box<Block>)> = Vec::new();
        for (n, at) in index.iter().enumerate() {
            let some = runs.chunks(RUNS_MAX).nth(n).unwrap_or(&[]);
            follow.push((*at, chain::write_runs(&part(Kind::Index, n, indexes), some)));
        }
        let mut first: u64 = extents[..here].iter().map(|e| e.blocks()).sum();
        for (n, (at, list)) in rest.iter().zip(extents[here..].chunks(RUNS_MAX)).enumerate() {
            follow.push((*at, chain::write_continuation(&part(Kind::Continuation, n, conts), first, list)));
            first += list.iter().map(|e| e.blocks()).sum::<u64>();
        }
        follow.extend(pages.iter().zip(&content.pages).map(|(at, (_, block))| (*at, Box::new(**block))));
        let parts: Vec<&[u8]> = follow.iter().map(|(_, b)| &b[..]).collect();
        let blocks = extents.iter().filter(|e| !matches!(e, Extent::Hole { .. })).map(|e| e.blocks()).sum();
        let inode = raw::Inode {
            form: raw::Form::Behind,
            header,
            follow: follow.len() as u32,
            follow_crc: checksum(&parts),
            previous: content.previous,
            attributes: Attributes { blocks, ..content.attributes },
            xattrs: content.xattrs.to_vec(),
            extents: extents[..here].to_vec(),
            extents_in_all: extents.len() as u32,
            continuations: conts,
            runs: if indexes > 0 { runs_of(index) } else { runs },
        };
        let of_contents = extents.iter().flat_map(|e| match *e {
            Extent::Stored { start, blocks } => start.0..start.0 + u64::from(blocks),
            _ => 0..0,
        });
        of_contents.chain([at.0]).chain(own.iter().map(|a| a.0)).for_each(|at| _ = self.used.claim(at));
        self.out.insert(at.0, inode.write());
        self.out.extend(follow.into_iter().map(|(at, block)| (at.0, block)));
        self.header.piece += 1;
        Ok(at)
    }

    /// The runs of unused blocks.
    fn free(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for at in (FIRST..self.room.disk.blocks).filter(|at| !self.used.has(*at) && !apart(*at)) {
            match runs.last_mut() {
                Some(run) if run.end().0 == at => run.blocks += 1,
                _ => runs.push(Run { start: Addr(at), blocks: 1 }),
            }
        }
        runs
    }
}

fn stored(extents: &[Extent]) -> BTreeMap<u64, Addr> {
    let mut from = 0;
    let mut out = BTreeMap::new();
    for e in extents {
        if let Extent::Stored { start, blocks } = *e {
            out.extend((0..u64::from(blocks)).map(|n| (from + n, Addr(start.0 + n))));
        }
        from += e.blocks();
    }
    out
}

/// Attributes for a lost hidden file.
fn hidden() -> Attributes {
    Attributes { mode: REGULAR | 0o444, nlink: 1, parent: ROOT, ..Attributes::default() }
}

/// Writes the checkpoint.
pub(crate) fn checkpoint(disk: &Disk<'_>, known: &Known, files: &BTreeMap<Ino, File>) -> Result<(), RepairError> {
    // First only blocks in the free list.
    match write_checkpoint(disk, known, files, false) {
        Err(RepairError::NoSpace) => {}
        written => return commit(disk, written?),
    }
    commit(disk, write_checkpoint(disk, known, files, true)?)
}

/// Writes all blocks of the checkpoint, and its superblock.
fn write_checkpoint(
    disk: &Disk<'_>,
    known: &Known,
    files: &BTreeMap<Ino, File>,
    lost: bool,
) -> Result<(BTreeMap<u64, Box<Block>>, Superblock), RepairError> {
    let mut kept = known.needed.clone();
    files.values().flat_map(File::blocks).for_each(|at| _ = kept.claim(at.0));
    let start = known.sb.path.first().map_or(FIRST, |r| r.start.0).clamp(FIRST, disk.blocks);
    let room = Room { disk, known, kept, at: start, start, wrapped: false, lost };
    let last = known.sb.seq.0.saturating_add(known.transactions);
    let header = Header {
        kind: Kind::Inode,
        // A wrong counter must not reach its maximum.
        epoch: Epoch::new(
            if known.sb.epoch.count < u32::MAX / 2 { known.sb.epoch.count + 1 } else { 1 },
            known.sb.secret,
        ),
        attempt: 0,
        seq: Seq(last.min(COUNT_MAX - 1_000_000) + 1),
        ino: Ino(0),
        piece: 0,
        pieces: 1,
    };
    let mut cp = Checkpoint { room, out: BTreeMap::new(), header, used: Claimed::default() };
    let mut places: BTreeMap<Ino, Addr> = BTreeMap::new();
    let changed: Vec<(&Ino, &File)> = files.iter().filter(|(_, f)| f.changed).collect();
    let chunks = changed.len().div_ceil(PIECES);
    let mut hidden_pieces = 2;
    for (n, some) in changed.chunks(PIECES).enumerate() {
        let last = n + 1 == chunks;
        cp.header.pieces = some.len() as u16 + if last { hidden_pieces } else { 0 };
        for (ino, file) in some {
            let content = Content {
                ino: **ino,
                attributes: file.attributes,
                xattrs: &file.xattrs,
                previous: file.at,
                extents: file.extents.clone(),
                pages: file.pages.iter().map(|(n, b)| (*n, &**b)).collect(),
            };
            places.insert(**ino, cp.write_inode(&content)?);
        }
        if !last {
            cp.header = Header { seq: Seq(cp.header.seq.0 + 1), piece: 0, ..cp.header };
        }
    }
    if changed.is_empty() {
        cp.header.pieces = hidden_pieces;
    }
    hidden_pieces = cp.header.pieces;
    let promised =
        |f: &File| f.extents.iter().filter(|e| matches!(e, Extent::Reserved { .. })).map(|e| e.blocks()).sum::<u64>();
    for (ino, file) in files.iter().filter(|(_, f)| !f.changed) {
        file.blocks().for_each(|at| _ = cp.used.claim(at.0));
        places.insert(*ino, file.at.unwrap_or_default());
    }
    let at_map = write_map(&mut cp, known, files, &places)?;
    let at_list = write_free_list(&mut cp)?;
    debug_assert_eq!(cp.header.piece, hidden_pieces);
    let free = cp.free();
    let head = Addr(cp.room.at);
    let sb = Superblock {
        clean: true,
        blocks: disk.blocks,
        checkpoint: if known.next < COUNT_MAX / 2 { known.next } else { 1 },
        seq: cp.header.seq,
        epoch: cp.header.epoch,
        ifile: at_map,
        free_list: at_list,
        orphans: None,
        history: None,
        undo_floor: cp.header.seq,
        free: free.iter().map(|r| u64::from(r.blocks)).sum(),
        inodes: files.len() as u64 + 1,
        promised: files.values().map(promised).sum(),
        path: path_from(&free, head),
        ..known.sb.clone()
    };
    Ok((cp.out, sb))
}

/// Writes the inode map. Its unchanged blocks keep their places.
fn write_map(
    cp: &mut Checkpoint<'_>,
    known: &Known,
    files: &BTreeMap<Ino, File>,
    places: &BTreeMap<Ino, Addr>,
) -> Result<Addr, RepairError> {
    // Blocks after the last inode hold only generations.
    let end = places.keys().map(|i| ifile::at(*i).0).max().unwrap_or(0);
    let old = known.map.keys().copied().filter(|n| *n <= end);
    let numbers: BTreeSet<u64> = old.chain(places.keys().map(|i| ifile::at(*i).0)).chain([0]).collect();
    let (mut stay, mut fresh): (BTreeMap<u64, Addr>, Vec<(u64, Box<Block>)>) = Default::default();
    for &n in &numbers {
        let old = known.map.get(&n);
        let mut block = old.map_or_else(|| Box::new([0; BLOCK]), |(_, b)| b.clone());
        for entry in 0..ifile::ENTRIES {
            let was = ifile::get(&block, entry);
            let ino = u32::try_from(n * ifile::ENTRIES as u64 + entry as u64).map(Ino);
            let place = ino.ok().and_then(|ino| Some((places.get(&ino)?, files.get(&ino)?)));
            let is = match place {
                Some((addr, file)) => ifile::Place { addr: Some(*addr), generation: file.attributes.generation as u16 },
                // The next generation of a number that is free now.
                None if was.addr.is_some() => ifile::Place { addr: None, generation: was.generation.wrapping_add(1) },
                None => was,
            };
            if is != was {
                ifile::set(&mut block, entry, is);
            }
        }
        match old {
            Some((at, before)) if *before == block => _ = stay.insert(n, *at),
            _ if block.iter().all(|b| *b == 0) && n > 0 => {}
            _ => fresh.push((n, block)),
        }
    }
    let last = numbers.last().copied().unwrap_or(0);
    let like = known.map_attributes.filter(|a| crate::kind::of_mode(a.mode) == REGULAR).unwrap_or_else(hidden);
    let content = Content {
        ino: IFILE,
        attributes: Attributes { size: (last + 1) * BLOCK as u64, ..like },
        xattrs: &[],
        previous: None,
        extents: extents_of(&stay),
        pages: fresh.iter().map(|(n, b)| (*n, &**b)).collect(),
    };
    cp.write_inode(&content)
}

/// Writes the list of free blocks, which excludes its own blocks.
fn write_free_list(cp: &mut Checkpoint<'_>) -> Result<Addr, RepairError> {
    let mut blocks = 1;
    loop {
        let back = (cp.room.at, cp.room.wrapped, cp.header.piece, cp.used.clone(), cp.out.clone());
        let zeroes: Vec<Box<Block>> = (0..blocks).map(|_| Box::new([0; BLOCK])).collect();
        let plan = |pages: &[Box<Block>], size: u64, cp: &mut Checkpoint<'_>| {
            cp.write_inode(&Content {
                ino: FREE_LIST,
                attributes: Attributes { size, ..hidden() },
                xattrs: &[],
                previous: None,
                extents: Vec::new(),
                pages: pages.iter().enumerate().map(|(n, b)| (n as u64, &**b)).collect(),
            })
        };
        plan(&zeroes, 0, cp)?;
        let bytes = lists::write_free(&cp.free());
        (cp.room.at, cp.room.wrapped, cp.header.piece) = (back.0, back.1, back.2);
        if bytes.len() <= blocks * BLOCK {
            // The same places again, with the final contents.
            let pages: Vec<Box<Block>> = (0..blocks)
                .map(|n| {
                    let mut block = Box::new([0; BLOCK]);
                    let some = bytes.get(n * BLOCK..).unwrap_or(&[]);
                    let some = &some[..some.len().min(BLOCK)];
                    block[..some.len()].copy_from_slice(some);
                    block
                })
                .collect();
            return plan(&pages, bytes.len() as u64, cp);
        }
        (cp.used, cp.out) = (back.3, back.4);
        blocks = bytes.len().div_ceil(BLOCK).max(blocks + 1);
    }
}

fn commit(disk: &Disk<'_>, (out, sb): (BTreeMap<u64, Box<Block>>, Superblock)) -> Result<(), RepairError> {
    let (mut first, mut data) = (0, Vec::new());
    for (at, block) in &out {
        if !data.is_empty() && (first + (data.len() / BLOCK) as u64 != *at || data.len() >= REQUEST * BLOCK) {
            disk.dev.write(Lba(first), &data, Tag::default())?;
            data.clear();
        }
        if data.is_empty() {
            first = *at;
        }
        data.extend_from_slice(&block[..]);
    }
    if !data.is_empty() {
        disk.dev.write(Lba(first), &data, Tag::default())?;
    }
    disk.dev.flush(Tag::default())?;
    let block = sb.write();
    for at in [sb.place().0, 1 - sb.place().0] {
        disk.dev.write(Lba(at), &block[..], Tag::default())?;
        disk.dev.flush(Tag::default())?;
    }
    Ok(())
}
