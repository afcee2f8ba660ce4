//! What can be read of an inode that may be damaged, and what it will be when it is written again.

use std::collections::BTreeMap;

use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::extent::{Extent, HOLE_MAX};
use scherlfs_format::inode::{self as raw, Attributes, Xattr};
use scherlfs_format::{Addr, BLOCK, Block, Ino, Run, Seq};

use super::action::What;
use crate::kind;
use crate::{Disk, map, unflip};

/// An inode as it is or will be.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Where it was read; `None`: it is new.
    pub at: Option<Addr>,
    /// The transaction that wrote it.
    pub seq: Seq,
    pub attributes: Attributes,
    pub xattrs: Vec<Xattr>,
    pub extents: Vec<Extent>,
    /// Its block, index blocks and continuations.
    pub own: Vec<Addr>,
    /// It is not what stands on the disk.
    pub changed: bool,
    /// Blocks of a directory that are to be written.
    pub pages: BTreeMap<u64, Box<Block>>,
}

impl File {
    /// Blocks of its contents that are stored, with their place in the file.
    pub fn stored(&self) -> impl Iterator<Item = (u64, Addr)> + '_ {
        let mut from = 0;
        self.extents.iter().flat_map(move |e| {
            let first = from;
            from += e.blocks();
            let (start, blocks) = match *e {
                Extent::Stored { start, blocks } => (start.0, u64::from(blocks)),
                _ => (0, 0),
            };
            (0..blocks).map(move |n| (first + n, Addr(start + n)))
        })
    }

    /// All blocks that it takes.
    pub fn blocks(&self) -> impl Iterator<Item = Addr> + '_ {
        self.own.iter().copied().chain(self.stored().map(|(_, at)| at))
    }

    pub fn is_dir(&self) -> bool {
        kind::of(self.attributes.mode) == kind::DIRECTORY
    }

    /// Makes a hole of every stored block that is not to be kept; says which.
    pub fn keep(&mut self, mut keep: impl FnMut(u64, Addr) -> bool) -> Vec<(u64, u64)> {
        let mut holes: Vec<(u64, u64)> = Vec::new();
        let mut out: Vec<Extent> = Vec::with_capacity(self.extents.len());
        let mut from = 0;
        for e in &self.extents {
            let Extent::Stored { start, blocks } = *e else {
                push(&mut out, *e);
                from += e.blocks();
                continue;
            };
            for n in 0..blocks {
                let at = Addr(start.0 + u64::from(n));
                if keep(from, at) {
                    push(&mut out, Extent::Stored { start: at, blocks: 1 });
                } else {
                    push(&mut out, Extent::Hole { blocks: 1 });
                    match holes.last_mut() {
                        Some((first, long)) if *first + *long == from => *long += 1,
                        _ => holes.push((from, 1)),
                    }
                }
                from += 1;
            }
        }
        if !holes.is_empty() {
            self.extents = out;
            self.changed = true;
        }
        holes
    }
}

/// Adds an extent, joined with the one before it where it goes on there.
pub(crate) fn push(out: &mut Vec<Extent>, next: Extent) {
    match (out.last_mut(), next) {
        (Some(Extent::Stored { start, blocks }), Extent::Stored { start: at, blocks: more })
            if start.0 + u64::from(*blocks) == at.0 && blocks.checked_add(more).is_some() =>
        {
            *blocks += more;
        }
        (Some(Extent::Hole { blocks }), Extent::Hole { blocks: more }) if *blocks + more <= HOLE_MAX => {
            *blocks += more;
        }
        _ => out.push(next),
    }
}

/// A block of the log that is what it should be, with a flipped bit turned back if need be.
fn part(disk: &Disk<'_>, at: Addr, done: &mut Vec<What>, right: impl Fn(&Block) -> bool) -> Option<Box<Block>> {
    let block = disk.read(at).ok()?;
    if right(&block) {
        return Some(block);
    }
    let block = unflip::of_log(&block).filter(|b| right(b))?;
    done.push(What::Bit { at });
    Some(block)
}

/// What can be read of the inode that stands at a block, and what was done to it. `None`: another stands there, or none.
pub(crate) fn salvage(disk: &Disk<'_>, ino: Ino, at: Addr) -> Option<(File, Vec<What>)> {
    let mut done = Vec::new();
    let block = part(disk, at, &mut done, |b| raw::Inode::read(b).is_ok_and(|i| i.header.ino == ino))?;
    let inode = raw::Inode::read(&block).ok()?;
    let (mut own, mut extents, mut cut) = (vec![at], inode.extents.clone(), None);
    let lists = lists(disk, ino, &inode, &mut own, &mut done);
    let size_blocks = inode.attributes.size.div_ceil(BLOCK as u64);
    let lost = lists.iter().filter(|l| l.is_none()).count();
    if lost == 0 {
        extents.extend(lists.into_iter().flatten().flatten());
    } else {
        // How long is what the lost continuation listed? That is known where it can have had no hole.
        let known = || extents.iter().chain(lists.iter().flatten().flatten());
        let length: u64 = known().map(|e| e.blocks()).fold(0, u64::saturating_add);
        let stored: u64 = known().filter(|e| !matches!(e, Extent::Hole { .. })).map(|e| e.blocks()).sum();
        let missing = inode.attributes.blocks.checked_sub(stored);
        let missing = missing.filter(|m| lost == 1 && *m > 0 && length.checked_add(*m) == Some(size_blocks));
        for list in lists {
            match (list, missing) {
                (Some(list), _) => extents.extend(list),
                (None, Some(blocks)) => {
                    cut = Some((extents.iter().map(|e| e.blocks()).sum(), blocks));
                    extents.push(Extent::Hole { blocks });
                }
                (None, None) => {
                    let from = extents.iter().map(|e| e.blocks()).sum::<u64>();
                    cut = Some((from, size_blocks.saturating_sub(from)));
                    break;
                }
            }
        }
    }
    let mut file = File {
        at: Some(at),
        seq: inode.header.seq,
        attributes: inode.attributes,
        xattrs: inode.xattrs,
        extents: Vec::new(),
        own,
        changed: !done.is_empty() || cut.is_some(),
        pages: BTreeMap::new(),
    };
    if let Some((from, blocks)) = cut {
        done.push(What::Hole { from, blocks, why: "the block that lists where they are is damaged" });
    }
    within(disk, extents, &mut file, &mut done);
    let blocks = file.extents.iter().filter(|e| !matches!(e, Extent::Hole { .. })).map(|e| e.blocks()).sum::<u64>();
    if file.extents.len() != inode.extents_in_all as usize || blocks != file.attributes.blocks {
        if done.is_empty() {
            done.push(What::Mended { field: "blocks" });
        }
        file.changed = true;
    }
    Some((file, done))
}

/// Extents that lie in the volume, and no more than a file can have.
fn within(disk: &Disk<'_>, extents: Vec<Extent>, file: &mut File, done: &mut Vec<What>) {
    let (mut from, count) = (0u64, extents.len());
    for e in extents {
        if from + e.blocks() > HOLE_MAX {
            done.push(What::Mended { field: "extents" });
            file.changed = true;
            break;
        }
        match e {
            Extent::Stored { start, blocks } if start.0 + u64::from(blocks) > disk.blocks => {
                let inside = disk.blocks.saturating_sub(start.0).min(blocks.into());
                if let Some(blocks) = u32::try_from(inside).ok().filter(|b| *b > 0) {
                    push(&mut file.extents, Extent::Stored { start, blocks });
                }
                let outside = u64::from(blocks) - inside;
                push(&mut file.extents, Extent::Hole { blocks: outside });
                done.push(What::Hole { from: from + inside, blocks: outside, why: "they lay outside of the volume" });
                file.changed = true;
            }
            _ => file.extents.push(e),
        }
        from += e.blocks();
    }
    debug_assert!(file.changed || file.extents.len() == count);
}

/// The extents of each continuation; `None`: it cannot be read.
fn lists(
    disk: &Disk<'_>,
    ino: Ino,
    inode: &raw::Inode,
    own: &mut Vec<Addr>,
    done: &mut Vec<What>,
) -> Vec<Option<Vec<Extent>>> {
    let mine = |block: &Block, kind, n: usize, of: usize| {
        Header::expect(block, kind).is_ok_and(|h| {
            (h.ino, h.seq, h.epoch) == (ino, inode.header.seq, inode.header.epoch)
                && (usize::from(h.piece), usize::from(h.pieces)) == (n, of)
        })
    };
    let indexes = raw::indexes(inode.continuations);
    let mut places: Vec<Option<Addr>> = Vec::new();
    let addrs = |runs: &[Run]| runs.iter().flat_map(|r| r.addrs()).collect::<Vec<_>>();
    if indexes == 0 {
        places.extend(addrs(&inode.runs).into_iter().map(Some));
    }
    for (n, at) in addrs(&inode.runs).into_iter().take(indexes).enumerate() {
        let right = |b: &Block| mine(b, Kind::Index, n, indexes) && chain::read_runs(b, Kind::Index).is_ok();
        let runs = part(disk, at, done, right).and_then(|b| chain::read_runs(&b, Kind::Index).ok());
        let Some(runs) = runs.filter(|r| r.iter().map(|r| u64::from(r.blocks)).sum::<u64>() <= 1 << 16) else {
            // How many continuations it named is not known, so neither is which come next.
            places.push(None);
            break;
        };
        own.push(at);
        places.extend(addrs(&runs).into_iter().map(Some));
    }
    places.resize(inode.continuations, None);
    let mut out = Vec::with_capacity(places.len());
    for (n, at) in places.into_iter().enumerate() {
        let earlier = |b: &Block| {
            Header::expect(b, Kind::Continuation).is_ok_and(|h| h.ino == ino && map::earlier(&h, &inode.header))
        };
        let right = |b: &Block| {
            (earlier(b) || mine(b, Kind::Continuation, n, inode.continuations)) && chain::read_continuation(b).is_ok()
        };
        let block = at.and_then(|at| part(disk, at, done, right));
        let list = block.and_then(|b| chain::read_continuation(&b).ok()).map(|c| c.extents);
        own.extend(at.filter(|_| list.is_some()));
        out.push(list);
    }
    out
}
