//! Defragmentation on the charger: which files, and how? (Scherl 2004, sections 4.1.4 and 7.4.)
//!
//! A file whose reading costs more than one seek per MiB is rewritten contiguously. Files that are opened in
//! sequence ([`chains`]) are written in sequence. Rewritten blocks go to the log in long runs; cleaning handles the
//! holes that they leave.

pub mod chains;
pub mod work;

use scherlfs_format::{FIRST_INO, Ino, Run, ifile};
use vfs::{Error, Result};

use crate::cause::Cause;
use crate::clean::pass::STEP;
use crate::inode::Inode;
use crate::load;
use crate::volume::State;
use work::Gathering;

/// Largest gap in blocks that needs no seek.
const NEAR: u64 = 16;
/// Blocks per seek that are acceptable: 1 MiB.
const GOOD: u64 = 256;
/// Most blocks of a chain to defragment.
const CHAIN: u64 = 16_384;
/// Inode map blocks examined per step.
const LOOK: usize = 2;

/// Begin and end of a file on the disk, the seeks between, and its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    first: u64,
    end: u64,
    seeks: u64,
    blocks: u64,
}

fn near(end: u64, start: u64) -> bool {
    (end..=end + NEAR).contains(&start)
}

/// The reading order of a file: its inode, then its contents. `None`: it is not on the disk.
fn shape(inode: &Inode) -> Option<Shape> {
    let at = inode.addr?.0;
    let mut shape = Shape { first: at, end: at + 1, seeks: 0, blocks: 1 };
    let lists = crate::inode::lists(inode).map(|start| Run { start, blocks: 1 });
    for run in lists.chain(inode.extents.runs()) {
        shape.seeks += u64::from(!near(shape.end, run.start.0));
        shape.end = run.end().0;
        shape.blocks += u64::from(run.blocks);
    }
    Some(shape)
}

fn is_bad(shape: &Shape) -> bool {
    shape.seeks * GOOD > shape.blocks
}

impl State {
    /// Begins defragmentation.
    pub(crate) fn begin_gathering(&self) -> Gathering {
        Gathering { jobs: self.accesses.lock().chains().into(), ..Gathering::default() }
    }

    /// Does a part of it; false if it is finished, or there is no room.
    pub(crate) fn gather_step(&mut self, work: &mut Gathering) -> Result<bool> {
        self.commit()?;
        self.end_series()?;
        let done = self.gather_some(work);
        // Loaded blocks are written even if the rest found no room.
        self.commit_for(Cause::Reorganising)?;
        match done {
            Err(Error::NoSpace) => Ok(false),
            done => done,
        }
    }

    fn gather_some(&mut self, work: &mut Gathering) -> Result<bool> {
        if let Some((ino, from)) = work.rest.take() {
            work.rest = self.bring_file(ino, from)?;
            return Ok(true);
        }
        if let Some(job) = work.jobs.pop_front() {
            match job[..] {
                [ino] => work.rest = self.bring_file(ino, 0)?,
                _ => self.bring_chain(&job)?,
            }
            return Ok(true);
        }
        let dev = self.dev.clone();
        let (indices, rest) = self.imap.next_blocks(work.looked, LOOK);
        let mut all = Vec::new();
        for index in indices {
            let block = self.imap.load(&*dev, index)?;
            let places: Vec<_> = (0..ifile::ENTRIES).map(|at| (at, ifile::get(block, at))).collect();
            for (at, place) in places {
                let ino = Ino(u32::try_from(index * ifile::ENTRIES as u64 + at as u64).unwrap_or(u32::MAX));
                all.extend(place.addr.filter(|_| ino >= FIRST_INO).map(|addr| (addr, ino)));
            }
        }
        all.sort_unstable();
        for (addr, ino) in all {
            let found = match self.inodes.get(&ino) {
                Some(inode) => shape(inode),
                None => shape(&load::inode_at(&*dev, ino, addr, Cause::Reorganising)?),
            };
            if found.is_some_and(|s| is_bad(&s)) {
                work.jobs.push_back(vec![ino]);
            }
        }
        // OK as an end: no block of the map has this number.
        work.looked = rest.unwrap_or(u64::MAX);
        Ok(rest.is_some() || !work.jobs.is_empty())
    }

    /// The layout of a file; `None`: it is deleted, or needs no defragmentation.
    fn shape_of(&mut self, ino: Ino) -> Result<Option<Shape>> {
        match self.inode(ino) {
            Ok(inode) if inode.is_dir() || inode.waits.is_some() => Ok(None),
            Ok(inode) => Ok(shape(inode)),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Checks that the log has this number of blocks in long runs, and the same number for other writes.
    fn check_long_runs(&self, blocks: u64) -> Result<()> {
        if self.path.preferred() < 2 * blocks + self.segment() { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Rewrites a file contiguously, or its next blocks if it is large; returns where to continue.
    fn bring_file(&mut self, ino: Ino, from: u64) -> Result<Option<(Ino, u64)>> {
        let Some(shape) = self.shape_of(ino)?.filter(|s| from > 0 || is_bad(s)) else { return Ok(None) };
        if from == 0 {
            self.check_long_runs(shape.blocks)?;
            self.care.done.files += 1;
        }
        let (mut parts, mut blocks, mut to) = (Vec::new(), 0, None);
        for (at, _, n) in self.inode(ino)?.extents.stored(from) {
            if blocks == 8 * STEP {
                to = Some((ino, at));
                break;
            }
            let some = n.min(8 * STEP - blocks);
            parts.push((at, some));
            blocks += some;
            if some < n {
                to = Some((ino, at + some));
                break;
            }
        }
        self.care.done.gathered += blocks;
        self.inode(ino)?.extents.loosen(|_| true);
        self.bring(ino, &parts, Cause::Reorganising)?;
        Ok(to)
    }

    /// Writes files one behind the other, if reading them costs seeks.
    fn bring_chain(&mut self, chain: &[Ino]) -> Result<()> {
        let (mut shapes, mut blocks) = (Vec::new(), 0);
        for &ino in chain {
            let Some(shape) = self.shape_of(ino)? else { continue };
            blocks += shape.blocks;
            if blocks > CHAIN {
                break;
            }
            shapes.push((ino, shape));
        }
        let within: u64 = shapes.iter().map(|(_, s)| s.seeks).sum();
        let between = shapes.windows(2).filter(|w| !near(w[0].1.end, w[1].1.first)).count() as u64;
        if within + between == 0 {
            return Ok(());
        }
        self.check_long_runs(shapes.iter().map(|(_, s)| s.blocks).sum())?;
        for (ino, shape) in shapes {
            let parts: Vec<(u64, u64)> = self.inode(ino)?.extents.stored(0).map(|(at, _, n)| (at, n)).collect();
            self.inode(ino)?.extents.loosen(|_| true);
            self.bring(ino, &parts, Cause::Reorganising)?;
            self.care.done.files += 1;
            self.care.done.gathered += shape.blocks;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use scherlfs_format::Addr;

    use super::*;
    use crate::extents::Place;

    #[test]
    fn a_gap_of_an_inode_is_no_seek_and_a_file_of_small_pieces_is_bad() {
        let mut inode = Inode { addr: Some(Addr(100)), ..Inode::default() };
        inode.extents.set(0, 10, Place::At(Addr(101)));
        inode.extents.set(10, 10, Place::At(Addr(112)));
        assert_eq!(shape(&inode), Some(Shape { first: 100, end: 122, seeks: 0, blocks: 21 }));
        inode.extents.set(20, 10, Place::At(Addr(500)));
        let found = shape(&inode).unwrap();
        assert_eq!((found.seeks, found.blocks, is_bad(&found)), (1, 31, true));
        inode.extents.set(30, 400, Place::At(Addr(510)));
        assert!(!is_bad(&shape(&inode).unwrap()), "a seek in 1.7 MB");
        assert_eq!(shape(&Inode::default()), None);
    }
}
