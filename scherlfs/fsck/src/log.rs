//! What follows the checkpoint in the log: read once more, by other code than the writer's.
//!
//! First all blocks along the path are listed, path blocks told from others by where they stand; then transactions are
//! cut out of the list, each whole or none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{
    Addr, Block, Epoch, FIRST_INO, FREE_LIST, IFILE, Ino, ORPHANS, ROOT, Run, Seq, checksum, inode as raw,
};

use crate::Disk;
use crate::map::Map;

/// What was found behind the checkpoint.
#[derive(Default)]
pub(crate) struct Log {
    pub transactions: u64,
    /// Inodes that were written: where, which life, whether they have a name.
    written: BTreeMap<Ino, (Addr, u16, bool)>,
    gone: BTreeSet<Ino>,
    /// Every block that it took, in order.
    pub blocks: Vec<Addr>,
}

/// A checkpoint at the end of a log, which no superblock says.
pub(crate) struct Unsaid {
    pub seq: Seq,
    pub epoch: Epoch,
    pub ifile: Addr,
    pub free_list: Addr,
    pub orphans: Option<Addr>,
    /// Where the log goes on behind it.
    pub head: Option<Addr>,
}

struct Walk<'d, 'b> {
    disk: &'d Disk<'b>,
    ahead: VecDeque<Run>,
    taken: Vec<Addr>,
}

impl Walk<'_, '_> {
    fn left(&self) -> u64 {
        self.ahead.iter().map(|r| u64::from(r.blocks)).sum()
    }

    fn step(&mut self) -> Option<Addr> {
        if self.taken.len() as u64 >= self.disk.blocks {
            // A path that leads round in a circle.
            return None;
        }
        let first = self.ahead.pop_front()?;
        if first.blocks > 1 {
            self.ahead.push_front(Run { start: Addr(first.start.0 + 1), blocks: first.blocks - 1 });
        }
        self.taken.push(first.start);
        Some(first.start)
    }

    /// The next block that is none of the path's own.
    fn next(&mut self, sb: &Superblock, seq: Seq) -> Option<(Addr, Box<Block>)> {
        while self.left() == 1 {
            let block = self.disk.read(self.step()?).ok()?;
            let header = Header::expect(&block, Kind::Path).ok()?;
            if (header.epoch, header.seq) != (sb.epoch, seq) {
                return None;
            }
            let more = chain::read_runs(&block, Kind::Path).ok()?;
            if more.is_empty() {
                return None;
            }
            self.ahead.extend(more);
        }
        let at = self.step()?;
        Some((at, self.disk.read(at).ok()?))
    }
}

/// One transaction.
type Pieces = (Vec<(Ino, Addr, u16, bool)>, Vec<Ino>);

fn transaction(walk: &mut Walk<'_, '_>, sb: &Superblock, seq: Seq, checkpoint: bool) -> Option<Pieces> {
    let (mut inodes, mut gone) = (Vec::new(), Vec::new());
    let mut first: Option<Header> = None;
    loop {
        let (at, block) = walk.next(sb, seq)?;
        let header = Header::read(&block).ok()?;
        let expected = first.map_or(0, |f: Header| f.piece + 1);
        let whole = first.is_none_or(|f| (f.attempt, f.pieces) == (header.attempt, header.pieces));
        if (header.epoch, header.seq, header.piece) != (sb.epoch, seq, expected) || !whole {
            return None;
        }
        match header.kind {
            Kind::Inode => {
                let inode = raw::Inode::read(&block).ok()?;
                let hidden = inode.header.ino < FIRST_INO && inode.header.ino != ROOT;
                if hidden != checkpoint {
                    return None;
                }
                let mut bytes = Vec::new();
                for _ in 0..inode.follow {
                    bytes.extend_from_slice(&walk.next(sb, seq)?.1[..]);
                }
                if checksum(&[&bytes]) != inode.follow_crc {
                    return None;
                }
                let a = &inode.attributes;
                inodes.push((inode.header.ino, at, a.generation as u16, a.nlink > 0));
            }
            Kind::Gone => gone.extend(chain::read_gone(&block).ok()?),
            _ => return None,
        }
        first = Some(header);
        if header.piece + 1 == header.pieces {
            return Some((inodes, gone));
        }
    }
}

/// Follows the log; says where it stands behind it.
fn walk<'d, 'b>(disk: &'d Disk<'b>, sb: &Superblock) -> (Log, Walk<'d, 'b>) {
    let mut log = Log::default();
    let mut walk = Walk { disk, ahead: sb.path.iter().copied().collect(), taken: Vec::new() };
    let mut seq = sb.seq;
    loop {
        seq = Seq(seq.0.saturating_add(1));
        let (ahead, taken) = (walk.ahead.clone(), walk.taken.len());
        let Some((inodes, gone)) = transaction(&mut walk, sb, seq, false) else {
            walk.ahead = ahead;
            walk.taken.truncate(taken);
            log.blocks.clone_from(&walk.taken);
            return (log, walk);
        };
        log.transactions += 1;
        for (ino, at, generation, named) in inodes {
            log.gone.remove(&ino);
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

/// The checkpoint that ends the log, if it ends with one.
pub(crate) fn unsaid(disk: &Disk<'_>, sb: &Superblock) -> Option<Unsaid> {
    let (log, mut walk) = walk(disk, sb);
    let seq = Seq(sb.seq.0.checked_add(log.transactions)?.checked_add(1)?);
    let (inodes, _) = transaction(&mut walk, sb, seq, true)?;
    let place = |ino| inodes.iter().find(|(i, ..)| *i == ino).map(|(_, at, ..)| *at);
    Some(Unsaid {
        seq,
        epoch: sb.epoch,
        ifile: place(IFILE)?,
        free_list: place(FREE_LIST)?,
        orphans: place(ORPHANS),
        head: walk.ahead.front().map(|r| r.start),
    })
}

/// The mount that wrote what stands where a superblock says the log goes on, if that is the next transaction.
pub(crate) fn epoch_behind(disk: &Disk<'_>, sb: &Superblock) -> Option<Epoch> {
    let first = sb.path.first()?;
    let header = Header::read(&*disk.read(first.start).ok()?).ok()?;
    (header.seq.0.checked_sub(1) == Some(sb.seq.0)).then_some(header.epoch)
}

impl Log {
    /// The map as the log leaves it.
    pub fn apply(self, mut map: Map) -> Map {
        self.apply_to(&mut map.places, &mut map.orphans);
        map
    }

    /// Places of inodes, and inodes without names, as the log leaves them.
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
