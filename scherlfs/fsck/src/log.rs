//! What follows the checkpoint in the log: read once more, by other code than the writer's.
//!
//! First all blocks along the path are listed, path blocks told from others by where they stand; then transactions are
//! cut out of the list, each whole or none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, Block, FIRST_INO, Ino, ROOT, Run, Seq, checksum, inode as raw};

use crate::Disk;
use crate::map::Map;

/// What was found behind the checkpoint.
#[derive(Default)]
pub(crate) struct Log {
    pub transactions: u64,
    /// Inodes that were written: where, which life, whether they have a name.
    written: BTreeMap<Ino, (Addr, u16, bool)>,
    gone: BTreeSet<Ino>,
}

struct Walk<'d, 'b> {
    disk: &'d Disk<'b>,
    ahead: VecDeque<Run>,
}

impl Walk<'_, '_> {
    fn left(&self) -> u64 {
        self.ahead.iter().map(|r| u64::from(r.blocks)).sum()
    }

    fn step(&mut self) -> Option<Addr> {
        let first = self.ahead.pop_front()?;
        if first.blocks > 1 {
            self.ahead.push_front(Run { start: Addr(first.start.0 + 1), blocks: first.blocks - 1 });
        }
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

fn transaction(walk: &mut Walk<'_, '_>, sb: &Superblock, seq: Seq) -> Option<Pieces> {
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
                if hidden {
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

/// Follows the log.
pub(crate) fn follow(disk: &Disk<'_>, sb: &Superblock) -> Log {
    let mut log = Log::default();
    let mut walk = Walk { disk, ahead: sb.path.iter().copied().collect() };
    let mut seq = sb.seq;
    loop {
        seq = Seq(seq.0 + 1);
        let Some((inodes, gone)) = transaction(&mut walk, sb, seq) else { return log };
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

impl Log {
    /// The map as the log leaves it.
    pub fn apply(self, mut map: Map) -> Map {
        for ino in self.gone {
            map.places.remove(&ino);
            map.orphans.remove(&ino);
        }
        for (ino, (at, generation, named)) in self.written {
            map.places.insert(ino, (at, generation));
            if named {
                map.orphans.remove(&ino);
            } else {
                map.orphans.insert(ino);
            }
        }
        map
    }
}
