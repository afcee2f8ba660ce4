//! Finds all inodes on the volume.
//!
//! A block that looks like an inode and has a valid checksum is one; other modules decide which inodes are used. A
//! piece proves its completeness by the checksum of the blocks that follow it in the log. Without the path these
//! are not known: either the adjacent blocks, or the next ones of its own blocks ([`follows`]).

use std::collections::{BTreeMap, BTreeSet};

use device::{Lba, Tag};
use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::inode::{self as raw, Form};
use scherlfs_format::{Addr, BLOCK, Block, Epoch, FIRST, FREE_LIST, IFILE, Ino, Seq, checksum};

use super::file::{File, salvage};
use crate::Disk;

/// A found inode block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub at: Addr,
    pub ino: Ino,
    pub seq: Seq,
    pub epoch: Epoch,
    pub attempt: u8,
    pub piece: u16,
    pub pieces: u16,
    pub generation: u32,
}

/// All inode blocks, the newest first for each inode.
#[derive(Default)]
pub(crate) struct Scan {
    pub hits: BTreeMap<Ino, Vec<Hit>>,
    /// Lists of deleted inodes.
    pub lists: Vec<(Addr, Header)>,
    /// For each inode in these lists, the newest such transaction.
    pub gone: BTreeMap<Ino, Seq>,
}

/// Marks of the volume's epochs.
struct Marks {
    secret: Option<u64>,
    known: BTreeMap<u32, Epoch>,
}

impl Marks {
    /// True if an epoch has this volume's mark, or if the secret is unknown.
    fn have(&mut self, epoch: Epoch) -> bool {
        let Some(secret) = self.secret else { return true };
        *self.known.entry(epoch.count).or_insert_with(|| Epoch::new(epoch.count, secret)) == epoch
    }
}

/// Blocks per request.
const STEP: u64 = 256;

impl Scan {
    /// Scans every block of the volume; `progress` receives the number done. Blocks without a valid mark belong to
    /// users.
    pub fn run(disk: &Disk<'_>, secret: Option<u64>, progress: &dyn Fn(u64, u64)) -> Scan {
        let mut scan = Scan::default();
        let mut marks = Marks { secret, known: BTreeMap::new() };
        let mut bytes = vec![0; STEP as usize * BLOCK];
        let mut at = FIRST;
        while at < disk.blocks {
            let n = STEP.min(disk.blocks - at);
            let some = &mut bytes[..n as usize * BLOCK];
            if disk.dev.read(Lba(at), some, Tag::default()).is_ok() {
                let (blocks, _) = some.as_chunks::<BLOCK>();
                (at..).zip(blocks).for_each(|(at, block)| scan.look(Addr(at), block, &mut marks));
            } else {
                // An unreadable block does not hide its neighbours.
                for at in (at..at + n).map(Addr) {
                    if let Ok(block) = disk.read(at) {
                        scan.look(at, &block, &mut marks);
                    }
                }
            }
            at += n;
            progress(at, disk.blocks);
        }
        for hits in scan.hits.values_mut() {
            hits.sort_by_key(|h| std::cmp::Reverse((h.seq, h.epoch, h.attempt, h.at)));
        }
        scan
    }

    fn look(&mut self, at: Addr, block: &Block, marks: &mut Marks) {
        if !block.starts_with(b"SINO") && !block.starts_with(b"SDEL") {
            return;
        }
        let Ok(header) = Header::read(block) else { return };
        if !marks.have(header.epoch) {
            return;
        }
        if header.kind == Kind::Gone {
            let Ok(gone) = chain::read_gone(block) else { return };
            self.lists.push((at, header));
            for ino in gone {
                let last = self.gone.entry(ino).or_default();
                *last = header.seq.max(*last);
            }
            return;
        }
        let Ok(inode) = raw::Inode::read(block) else { return };
        self.hits.entry(header.ino).or_default().push(Hit {
            at,
            ino: header.ino,
            seq: header.seq,
            epoch: header.epoch,
            attempt: header.attempt,
            piece: header.piece,
            pieces: header.pieces,
            generation: inode.attributes.generation,
        });
    }

    /// Versions of an inode, the newest first.
    pub fn of_inode(&self, ino: Ino) -> &[Hit] {
        self.hits.get(&ino).map_or(&[], |h| h)
    }

    /// The newest transaction with remains, and its epoch.
    pub fn newest(&self) -> Option<(Seq, Epoch)> {
        self.hits.values().flatten().map(|h| (h.seq, h.epoch)).max()
    }

    /// Checkpoints with a readable inode map and free list: the inodes of both, the newest first.
    pub fn checkpoints(&self) -> Vec<(Hit, Hit)> {
        let same = |a: &Hit, b: &Hit| (a.seq, a.epoch, a.attempt, a.pieces) == (b.seq, b.epoch, b.attempt, b.pieces);
        let lists = self.of_inode(FREE_LIST);
        self.of_inode(IFILE).iter().filter_map(|m| lists.iter().find(|l| same(m, l)).map(|l| (*m, *l))).collect()
    }

    /// Beginning of the log behind a checkpoint: the first piece of the next transaction, of the newest mount.
    pub fn next_first(&self, after: Seq) -> Option<(Addr, Epoch)> {
        let first = |seq: Seq, piece: u16| seq.0 == after.0.wrapping_add(1) && piece == 0;
        let inodes = self.hits.values().flatten().filter(|h| first(h.seq, h.piece)).map(|h| (h.epoch, h.attempt, h.at));
        let lists = self.lists.iter().filter(|(_, h)| first(h.seq, h.piece)).map(|(at, h)| (h.epoch, h.attempt, *at));
        inodes.chain(lists).max().map(|(epoch, _, at)| (at, epoch))
    }

    /// Removes the newest transaction if it is incomplete or unproved: it was being written when the power failed.
    pub fn drop_torn(&mut self, disk: &Disk<'_>, settled: Seq) {
        let Some(newest) = self.hits.values().flatten().map(|h| (h.seq, h.epoch, h.attempt)).max() else { return };
        if newest.0 <= settled {
            return;
        }
        let of = |h: &Hit| (h.seq, h.epoch, h.attempt) == newest;
        let all: Vec<Hit> = self.hits.values().flatten().filter(|h| of(h)).copied().collect();
        let lists = self.lists.iter().map(|(_, h)| h).filter(|h| (h.seq, h.epoch, h.attempt) == newest);
        let there: BTreeSet<u16> = all.iter().map(|h| h.piece).chain(lists.map(|h| h.piece)).collect();
        let whole = all.iter().all(|h| follows(disk, h).is_some());
        let complete = all.first().is_none_or(|h| (0..h.pieces).all(|n| there.contains(&n)));
        if whole && complete {
            return;
        }
        self.hits.values_mut().for_each(|hits| hits.retain(|h| !of(h)));
        self.hits.retain(|_, hits| !hits.is_empty());
    }
}

/// The blocks that follow a piece in the log, if their checksum matches.
pub(crate) fn follows(disk: &Disk<'_>, hit: &Hit) -> Option<Vec<Addr>> {
    let block = disk.read(hit.at).ok()?;
    let inode = raw::Inode::read(&block).ok()?;
    let wanted = u64::from(inode.follow);
    if wanted == 0 {
        return (inode.follow_crc == checksum(&[])).then(Vec::new);
    }
    if wanted > disk.blocks {
        return None;
    }
    let proves = |all: &[Addr]| {
        let mut bytes = Vec::with_capacity(all.len() * BLOCK);
        for at in all {
            match disk.read(*at) {
                Ok(block) => bytes.extend_from_slice(&block[..]),
                Err(_) => return false,
            }
        }
        all.len() as u64 == wanted && checksum(&[&bytes]) == inode.follow_crc
    };
    let from = match inode.form {
        Form::Behind | Form::Second => hit.at.0 + 1,
        Form::First => hit.at.0 + 2,
        Form::Ahead => hit.at.0.saturating_sub(wanted),
    };
    let behind: Vec<Addr> = (from..disk.blocks).take(wanted as usize).map(Addr).collect();
    if proves(&behind) {
        return Some(behind);
    }
    let (file, _) = salvage(disk, hit.ino, hit.at)?;
    let mut own: Vec<Addr> = own_in_order(&file, hit.at);
    match inode.form {
        // The last of them, in log order.
        Form::Ahead => drop(own.drain(..own.len().saturating_sub(wanted as usize))),
        _ => own.truncate(wanted as usize),
    }
    proves(&own).then_some(own)
}

/// An inode's other blocks in log order, starting at its own block.
fn own_in_order(file: &File, at: Addr) -> Vec<Addr> {
    let mut all: Vec<Addr> = file.blocks().filter(|a| *a != at).collect();
    all.sort_unstable_by_key(|a| (*a < at, *a));
    all.dedup();
    all
}
