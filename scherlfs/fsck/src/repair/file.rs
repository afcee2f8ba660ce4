//! The readable parts of a possibly damaged inode, and its repaired form.

use std::collections::BTreeMap;

use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::extent::{Extent, HOLE_MAX};
use scherlfs_format::inode::{self as raw, Attributes, Xattr};
use scherlfs_format::{Addr, BLOCK, Block, Ino, Run, Seq};

use super::action::What;
use crate::kind;
use crate::{Disk, map, unflip};

/// An inode before or after repair.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Where it was read; `None` if it is new.
    pub at: Option<Addr>,
    /// The transaction that wrote it.
    pub seq: Seq,
    pub attributes: Attributes,
    pub xattrs: Vec<Xattr>,
    pub extents: Vec<Extent>,
    /// Its block, index blocks and continuations.
    pub own: Vec<Addr>,
    /// True if it differs from the disk.
    pub changed: bool,
    /// Directory blocks to be written.
    pub pages: BTreeMap<u64, Box<Block>>,
}

impl File {
    /// Stored blocks of its contents, with their position in the file.
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

    /// All its blocks.
    pub fn blocks(&self) -> impl Iterator<Item = Addr> + '_ {
        self.own.iter().copied().chain(self.stored().map(|(_, at)| at))
    }

    pub fn is_dir(&self) -> bool {
        kind::of_mode(self.attributes.mode) == kind::DIRECTORY
    }

    /// Turns every stored block rejected by `keep` into a hole; returns the removed ranges.
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

/// Appends an extent, joined with the previous one if contiguous.
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

/// A valid block of the log, with a flipped bit restored if necessary.
fn part(disk: &Disk<'_>, at: Addr, done: &mut Vec<What>, right: impl Fn(&Block) -> bool) -> Option<Box<Block>> {
    let block = disk.read(at).ok()?;
    if right(&block) {
        return Some(block);
    }
    let block = unflip::of_log(&block).filter(|b| right(b))?;
    done.push(What::Bit { at });
    Some(block)
}

/// The readable parts of the inode in a block, and the repairs made. `None`: it is another inode, or none.
pub(crate) fn salvage(disk: &Disk<'_>, ino: Ino, at: Addr) -> Option<(File, Vec<What>)> {
    let mut done = Vec::new();
    let block = part(disk, at, &mut done, |b| raw::Inode::read(b).is_ok_and(|i| i.header.ino == ino))?;
    let inode = raw::Inode::read(&block).ok()?;
    let mut own = vec![at];
    let lists = lists(disk, ino, &inode, &mut own, &mut done);
    let (extents, cut) = together(&inode, &lists, &mut done);
    let mut file = File {
        at: Some(at),
        seq: inode.header.seq,
        attributes: inode.attributes,
        xattrs: inode.xattrs,
        extents: Vec::new(),
        own,
        changed: !done.is_empty() || !cut.is_empty(),
        pages: BTreeMap::new(),
    };
    for (from, blocks) in cut {
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

fn length(extents: &[Extent]) -> u64 {
    extents.iter().map(|e| e.blocks()).fold(0, u64::saturating_add)
}

/// Combines all known extents at their positions in the file; also returns the unknown ranges: first block, number
/// of blocks.
fn together(inode: &raw::Inode, lists: &[Option<List>], done: &mut Vec<What>) -> (Vec<Extent>, Vec<(u64, u64)>) {
    let (mut extents, mut cut) = (inode.extents.clone(), Vec::new());
    let size_blocks = inode.attributes.size.div_ceil(BLOCK as u64);
    // The length of a single lost continuation is known if it cannot have had a hole.
    let known = || extents.iter().chain(lists.iter().flatten().flat_map(|l| &l.extents));
    let long = known().map(|e| e.blocks()).fold(0, u64::saturating_add);
    let stored = known().filter(|e| !matches!(e, Extent::Hole { .. })).map(|e| e.blocks()).sum::<u64>();
    let missing = inode.attributes.blocks.checked_sub(stored);
    let alone = lists.iter().filter(|l| l.is_none()).count() == 1;
    let missing = missing.filter(|m| alone && *m > 0 && long.checked_add(*m) == Some(size_blocks));
    let mut lost = false;
    for (n, list) in lists.iter().enumerate() {
        let from = length(&extents);
        let Some(list) = list else {
            let next = lists[n..].iter().flatten().next();
            match (missing, next) {
                (Some(blocks), _) => {
                    cut.push((from, blocks));
                    extents.push(Extent::Hole { blocks });
                }
                // The next one records where it begins.
                (None, Some(List { first: Some(_), .. })) => lost = true,
                _ => {
                    cut.push((from, size_blocks.saturating_sub(from)));
                    break;
                }
            }
            continue;
        };
        // Its recorded beginning determines the length of the preceding extents.
        let apart = list.first.map_or(0, |first| i64::from(first.wrapping_sub(from as u32).cast_signed()));
        if apart > 0 {
            let blocks = apart.unsigned_abs();
            if std::mem::take(&mut lost) {
                cut.push((from, blocks));
            } else {
                done.push(What::Mended { field: "extents" });
            }
            extents.push(Extent::Hole { blocks });
        } else if apart < 0 {
            done.push(What::Mended { field: "extents" });
            shorten(&mut extents, from.saturating_sub(apart.unsigned_abs()));
        }
        extents.extend(&list.extents);
    }
    (extents, cut)
}

/// Truncates to `to` blocks.
fn shorten(extents: &mut Vec<Extent>, to: u64) {
    let mut over = length(extents).saturating_sub(to);
    while let Some(last) = extents.pop() {
        let keep = last.blocks().saturating_sub(over);
        over = over.saturating_sub(last.blocks());
        // OK to saturate: only a hole is longer than 32 bits.
        let blocks = u32::try_from(keep).unwrap_or(u32::MAX);
        match last {
            _ if keep == 0 => {}
            Extent::Stored { start, .. } => extents.push(Extent::Stored { start, blocks }),
            Extent::Reserved { .. } => extents.push(Extent::Reserved { blocks }),
            Extent::Hole { .. } => extents.push(Extent::Hole { blocks: keep }),
        }
        if over == 0 {
            break;
        }
    }
}

/// Removes extents outside the volume, and those beyond the largest file.
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

/// Extents of a continuation.
struct List {
    /// Lower half of the number of its first file block, if recorded.
    first: Option<u32>,
    extents: Vec<Extent>,
}

/// Extents of each continuation; `None` if it is unreadable.
fn lists(
    disk: &Disk<'_>,
    ino: Ino,
    inode: &raw::Inode,
    own: &mut Vec<Addr>,
    done: &mut Vec<What>,
) -> Vec<Option<List>> {
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
            // The number of continuations that it listed is unknown, and so are the next ones' positions.
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
        let list = block.and_then(|b| {
            let says = chain::read_continuation(&b).ok()?;
            // Those written with the inode need not record it.
            let first = Some(says.first).filter(|_| earlier(&b));
            Some(List { first, extents: says.extents })
        });
        own.extend(at.filter(|_| list.is_some()));
        out.push(list);
    }
    out
}
