//! A second reader of the log behind the checkpoint, independent of the writer's code.
//!
//! First it lists all blocks along the path, recognizing path blocks by position; then it divides the list into
//! complete transactions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::extent::Extent;
use scherlfs_format::inode::Form;
use scherlfs_format::superblock::{Placement, Superblock};
use scherlfs_format::{
    Addr, Block, Epoch, FIRST_INO, FREE_LIST, HISTORY, IFILE, Ino, ORPHANS, ROOT, Run, Seq, checksum, inode as raw,
};

use crate::kind::{self, DIRECTORY};
use crate::map::Map;
use crate::{Disk, unflip};

/// Contents of the log behind the checkpoint.
#[derive(Default)]
pub(crate) struct Log {
    pub transactions: u64,
    /// Written inodes: address, generation, and whether they have a name.
    written: BTreeMap<Ino, (Addr, u16, bool)>,
    gone: BTreeSet<Ino>,
    /// Every written inode, including versions that were rewritten later, since a mount reads them all. Each has
    /// the number of `blocks` in the log when its transaction was complete.
    pub inodes: Vec<(Ino, Addr, usize)>,
    /// Every block of the log, in order.
    pub blocks: Vec<Addr>,
    /// Those with a flipped bit: a mount takes them for the end of the log.
    pub flipped: Vec<Addr>,
}

/// A checkpoint at the end of a log without a superblock.
pub(crate) struct Unsaid {
    pub seq: Seq,
    pub epoch: Epoch,
    pub ifile: Addr,
    pub free_list: Addr,
    pub orphans: Option<Addr>,
    pub history: Option<Addr>,
    /// Where the log continues behind it.
    pub head: Option<Addr>,
}

struct Walk<'d, 'b> {
    disk: &'d Disk<'b>,
    ahead: VecDeque<Run>,
    taken: Vec<Addr>,
    flipped: Vec<Addr>,
}

impl Walk<'_, '_> {
    fn left(&self) -> u64 {
        self.ahead.iter().map(|r| u64::from(r.blocks)).sum()
    }

    fn step(&mut self) -> Option<Addr> {
        if self.taken.len() as u64 >= self.disk.blocks {
            // The path is a circle.
            return None;
        }
        let first = self.ahead.pop_front()?;
        if first.blocks > 1 {
            self.ahead.push_front(Run { start: Addr(first.start.0 + 1), blocks: first.blocks - 1 });
        }
        self.taken.push(first.start);
        Some(first.start)
    }

    /// The next block that is not a path block.
    fn next(&mut self, sb: &Superblock, seq: Seq) -> Option<(Addr, Box<Block>)> {
        while self.left() == 1 {
            let at = self.step()?;
            let block = self.disk.read(at).ok()?;
            let right = |b: &Block| {
                let own = |h: Header| (h.epoch, h.seq) == (sb.epoch, seq);
                Header::expect(b, Kind::Path).is_ok_and(own) && chain::read_runs(b, Kind::Path).is_ok()
            };
            let block = self.whole(at, block, right)?;
            let more = chain::read_runs(&block, Kind::Path).ok()?;
            if more.is_empty() {
                return None;
            }
            self.ahead.extend(more);
        }
        let at = self.step()?;
        Some((at, self.disk.read(at).ok()?))
    }

    /// A block that is valid, or was before one bit flipped. The latter is damage: a power cut leaves whole sectors
    /// right or wrong.
    fn whole(&mut self, at: Addr, block: Box<Block>, right: impl Fn(&Block) -> bool) -> Option<Box<Block>> {
        if right(&block) {
            return Some(block);
        }
        let block = unflip::of_log(&block).filter(|b| right(b))?;
        self.flipped.push(at);
        Some(block)
    }

    /// True if the blocks after an inode are valid, or were before bits of their structures flipped.
    fn follows(&mut self, inode: &raw::Inode, mut parts: Vec<(Addr, Box<Block>)>) -> bool {
        let right = |parts: &[(Addr, Box<Block>)]| {
            let all: Vec<&[u8]> = parts.iter().map(|(_, b)| &b[..]).collect();
            checksum(&all) == inode.follow_crc
        };
        if right(&parts) {
            return true;
        }
        let mut index = FxHashMap::default();
        let mut from = 0u64;
        for e in &inode.extents {
            if let (Extent::Stored { start, .. }, DIRECTORY) = (e, kind::of_mode(inode.attributes.mode)) {
                index.extend((0..e.blocks()).map(|n| (Addr(start.0 + n), from + n)));
            }
            from = from.saturating_add(e.blocks());
        }
        let mut flipped = Vec::new();
        for (at, block) in &mut parts {
            let right = match index.get(at) {
                Some(&n) => unflip::of_directory(block, inode.header.ino, n),
                None => unflip::of_log(block).filter(|b| Header::read(b).is_ok_and(|h| h.ino == inode.header.ino)),
            };
            if let Some(right) = right {
                *block = right;
                flipped.push(*at);
            }
        }
        let whole = !flipped.is_empty() && right(&parts);
        if whole {
            self.flipped.append(&mut flipped);
        }
        whole
    }
}

/// A transaction.
struct Pieces {
    attempt: u8,
    inodes: Vec<(Ino, Addr, u16, bool)>,
    gone: Vec<Ino>,
}

/// Most blocks of contents before an inode.
const AHEAD: usize = 1024;

/// Beginning of a transaction whose inode is not the first block: the inode, and the contents before it.
type Opening = (Addr, Box<Block>, Vec<(Addr, Box<Block>)>);

/// An inode behind its contents.
fn behind_contents(walk: &mut Walk<'_, '_>, sb: &Superblock, seq: Seq) -> Option<Opening> {
    let mut contents = Vec::new();
    while contents.len() <= AHEAD {
        let (at, block) = walk.next(sb, seq)?;
        let inode = |b: &Block| {
            let inode = if b.starts_with(b"SINO") { raw::Inode::read(b).ok()? } else { return None };
            let h = inode.header;
            ((h.epoch, h.seq, h.piece) == (sb.epoch, seq, 0) && inode.form == Form::Ahead).then_some(inode)
        };
        // Contents have no checksum, so they cannot be distinguished from an inode with a flipped bit.
        if inode(&block).is_some_and(|i| i.follow as usize == contents.len()) {
            return Some((at, block, contents));
        }
        contents.push((at, block));
    }
    None
}

/// A transaction whose first piece has this form; `checkpoint`: whether it is one.
fn in_form(walk: &mut Walk<'_, '_>, sb: &Superblock, seq: Seq, checkpoint: bool, form: Form) -> Option<Pieces> {
    let mut out = Pieces { attempt: 0, inodes: Vec::new(), gone: Vec::new() };
    let mut first: Option<Header> = None;
    loop {
        let form = if first.is_none() { form } else { Form::Behind };
        let (at, block, mut parts) = match form {
            Form::Ahead => behind_contents(walk, sb, seq)?,
            Form::Behind => walk.next(sb, seq).map(|(at, block)| (at, block, Vec::new()))?,
            Form::First | Form::Second => {
                let two = [walk.next(sb, seq)?, walk.next(sb, seq)?];
                let (at, block) = two.into_iter().nth(usize::from(form == Form::Second))?;
                (at, block, Vec::new())
            }
        };
        let expected = first.map_or(0, |f: Header| f.piece + 1);
        let right = |block: &Block| {
            Header::read(block).is_ok_and(|h| {
                let whole = first.is_none_or(|f| (f.attempt, f.pieces) == (h.attempt, h.pieces));
                (h.epoch, h.seq, h.piece) == (sb.epoch, seq, expected) && whole
            })
        };
        let block = walk.whole(at, block, right)?;
        let header = Header::read(&block).ok()?;
        match header.kind {
            Kind::Inode => {
                let inode = raw::Inode::read(&block).ok()?;
                let hidden = inode.header.ino < FIRST_INO && inode.header.ino != ROOT;
                if hidden != checkpoint || inode.form != form {
                    return None;
                }
                while parts.len() < inode.follow as usize {
                    parts.push(walk.next(sb, seq)?);
                }
                if !walk.follows(&inode, parts) {
                    return None;
                }
                let a = &inode.attributes;
                out.inodes.push((inode.header.ino, at, a.generation as u16, a.nlink > 0));
            }
            Kind::Gone if form == Form::Behind => out.gone.extend(chain::read_gone(&block).ok()?),
            _ => return None,
        }
        first = Some(header);
        if header.piece + 1 == header.pieces {
            out.attempt = header.attempt;
            return Some(out);
        }
    }
}

/// A transaction in any form; of several attempts the last complete one. `None`: the position is unchanged.
fn transaction(walk: &mut Walk<'_, '_>, sb: &Superblock, seq: Seq, checkpoint: bool) -> Option<Pieces> {
    let (ahead, taken, flipped) = (walk.ahead.clone(), walk.taken.len(), walk.flipped.len());
    let mut best: Option<(Pieces, VecDeque<Run>, Vec<Addr>, Vec<Addr>)> = None;
    let also: &[Form] = match sb.placement {
        Placement::Before => &[],
        Placement::After => &[Form::Ahead],
        Placement::InPlace | Placement::Delayed => &[Form::First, Form::Second],
    };
    for form in [Form::Behind].into_iter().chain(also.iter().copied()) {
        if let Some(found) = in_form(walk, sb, seq, checkpoint, form)
            && best.as_ref().is_none_or(|(b, ..)| b.attempt < found.attempt)
        {
            best = Some((found, walk.ahead.clone(), walk.taken[taken..].to_vec(), walk.flipped[flipped..].to_vec()));
        }
        walk.ahead.clone_from(&ahead);
        walk.taken.truncate(taken);
        walk.flipped.truncate(flipped);
    }
    let (found, ahead, taken, flipped) = best?;
    walk.ahead = ahead;
    walk.taken.extend(taken);
    walk.flipped.extend(flipped);
    Some(found)
}

/// Follows the log; also returns the position behind it.
fn walk<'d, 'b>(disk: &'d Disk<'b>, sb: &Superblock) -> (Log, Walk<'d, 'b>) {
    let mut log = Log::default();
    let mut walk = Walk { disk, ahead: sb.path.iter().copied().collect(), taken: Vec::new(), flipped: Vec::new() };
    let mut seq = sb.seq;
    loop {
        seq = Seq(seq.0.saturating_add(1));
        let Some(Pieces { inodes, gone, .. }) = transaction(&mut walk, sb, seq, false) else {
            log.blocks.clone_from(&walk.taken);
            log.flipped.clone_from(&walk.flipped);
            return (log, walk);
        };
        log.transactions += 1;
        for (ino, at, generation, named) in inodes {
            log.gone.remove(&ino);
            log.inodes.push((ino, at, walk.taken.len()));
            log.written.insert(ino, (at, generation, named));
        }
        for ino in gone {
            log.written.remove(&ino);
            log.gone.insert(ino);
        }
    }
}

/// Follows the log.
pub(crate) fn follow(disk: &Disk<'_>, sb: &Superblock) -> Log {
    walk(disk, sb).0
}

/// The checkpoint at the end of the log, if there is one.
pub(crate) fn unsaid(disk: &Disk<'_>, sb: &Superblock) -> Option<Unsaid> {
    let (log, mut walk) = walk(disk, sb);
    let seq = Seq(sb.seq.0.checked_add(log.transactions)?.checked_add(1)?);
    let Pieces { inodes, .. } = transaction(&mut walk, sb, seq, true)?;
    let place = |ino| inodes.iter().find(|(i, ..)| *i == ino).map(|(_, at, ..)| *at);
    Some(Unsaid {
        seq,
        epoch: sb.epoch,
        ifile: place(IFILE)?,
        free_list: place(FREE_LIST)?,
        orphans: place(ORPHANS),
        history: place(HISTORY),
        head: walk.ahead.front().map(|r| r.start),
    })
}

/// The mount that wrote the following log, if it differs from the superblock's and is not earlier than the
/// checkpoint's. No mount skips a complete transaction, so the superblock is wrong, or a newer one was lost.
/// Remains of an earlier mount behind a transaction lost in a power cut are valid.
pub(crate) fn other_epoch(disk: &Disk<'_>, sb: &Superblock) -> Option<Epoch> {
    let first = sb.path.first()?;
    let header = Header::read(&*disk.read(first.start).ok()?).ok()?;
    let map = Header::expect(&*disk.read(sb.ifile).ok()?, Kind::Inode).ok()?;
    let next = header.seq.0.checked_sub(1) == Some(sb.seq.0);
    let ours = header.epoch == Epoch::new(header.epoch.count, sb.secret);
    let other = next && ours && header.epoch != sb.epoch && header.epoch >= map.epoch;
    let whole = || {
        let said = follow(disk, sb).transactions;
        said == 0 && follow(disk, &Superblock { epoch: header.epoch, ..sb.clone() }).transactions > 0
    };
    (other && whole()).then_some(header.epoch)
}

impl Log {
    /// The map after the log.
    pub fn apply(self, mut map: Map) -> Map {
        self.apply_to(&mut map.places, &mut map.orphans);
        map
    }

    /// Addresses of inodes, and inodes without names, after the log.
    pub fn apply_to(self, places: &mut BTreeMap<Ino, (Addr, u16)>, orphans: &mut BTreeSet<Ino>) {
        for ino in self.gone {
            places.remove(&ino);
            orphans.remove(&ino);
        }
        for (ino, (at, generation, named)) in self.written {
            places.insert(ino, (at, generation));
            if named {
                orphans.remove(&ino);
            } else {
                orphans.insert(ino);
            }
        }
    }
}
