//! Cleans victims in steps, so that callers wait only briefly for the lock.

use device::{Lba, Tag};
use scherlfs_format::{Addr, BLOCK, Ino, Run};
use vfs::{Error, Result};

use super::care::{Pass, Phase, Victims};
use super::strategy::{Limits, Strategy, Target, victims};
use crate::cause::Cause;
use crate::inode::Inode;
use crate::inode::own_blocks;
use crate::path::Path;
use crate::volume::{SPARE, State};

/// Inode map blocks examined per step.
const LOOK: usize = 2;
/// Blocks moved per step.
pub(crate) const STEP: u64 = 1024;
/// Share of the volume, in thousandths, that should be free in long runs before a write.
const LOW: u64 = 16;

/// Result of a step.
enum Step {
    /// Examined inodes.
    Looked,
    /// Moved some of their blocks.
    Moved,
    /// Moved the last of their blocks.
    Last,
}

impl State {
    /// Free blocks in runs that are too short for the log.
    fn holes(&self) -> u64 {
        self.free.count().saturating_sub(self.path.preferred())
    }

    /// True if long runs are running out and cleaning can help.
    pub(crate) fn room_is_short(&self) -> bool {
        let least = (8 * self.segment()).max(self.sb.blocks * LOW / 1000);
        self.care.strategy() != Strategy::Threading && self.path.preferred() < least && self.worth_a_pass()
    }

    /// True if holes have more free blocks than the last passes had to leave.
    pub(crate) fn worth_a_pass(&self) -> bool {
        self.holes() + self.dead.count() >= self.care.rest + self.segment()
    }

    /// True while victims are being cleaned.
    pub(crate) fn is_cleaning(&self) -> bool {
        self.care.pass.is_some()
    }

    /// Cleans immediately until `want` blocks are free, if possible.
    pub(crate) fn make_room(&mut self, want: u64) -> Result<()> {
        if self.is_cleaning() || self.begin_pass(want)? {
            while self.clean_step(STEP)? {}
        }
        Ok(())
    }

    /// Chooses victims; false if there are none.
    pub(crate) fn begin_pass(&mut self, want: u64) -> Result<bool> {
        let strategy = self.care.strategy();
        if strategy == Strategy::Threading || self.broken.is_some() || self.host_is_short() {
            return Ok(false);
        }
        self.checkpoint(false)?;
        let segment = self.segment();
        let limits = Limits {
            segment,
            head: self.path.head() / segment,
            want,
            room: self.path.preferred() / 2,
            holes: self.holes(),
            full: 1000 - self.free.count() * 1000 / self.sb.blocks,
        };
        let segments = self.segments();
        let (mut indexes, mut target) = victims(strategy, &segments, &limits);
        if indexes.is_empty() {
            // No long run is left to copy into: first make some by plugging holes.
            let some = Limits { want: want.min(8 * segment), ..limits };
            (indexes, target) = victims(Strategy::Plugging, &segments, &some);
        }
        if indexes.is_empty() {
            self.care.rest = self.holes();
            return Ok(false);
        }
        indexes.sort_unstable();
        self.care.pass = Some(Pass {
            victims: Victims { indexes, segment },
            target,
            holes: self.holes(),
            phase: Phase::Looking(0),
            found: Vec::new(),
            queue: Default::default(),
            pieces: Vec::new(),
        });
        self.go_another_way()?;
        Ok(true)
    }

    /// Right after a checkpoint: switches the log to the current order.
    pub(crate) fn go_another_way(&mut self) -> Result<()> {
        if self.logged > 0 {
            return self.checkpoint(false);
        }
        self.path = Path::through(self.order(&self.free, self.path.head()));
        if self.begun { self.write_path() } else { Ok(()) }
    }

    /// Does a part of a pass; false if it is finished. An error aborts the pass and leaves the volume intact.
    pub(crate) fn clean_step(&mut self, blocks: u64) -> Result<bool> {
        // Other writes must not count as cleaning.
        self.commit()?;
        self.end_series()?;
        let Some(mut pass) = self.care.pass.take() else { return Ok(false) };
        let step = self.pass_step(&mut pass, blocks);
        if matches!(step, Ok(Step::Looked | Step::Moved)) {
            let plugs = pass.target == Target::Holes && matches!(step, Ok(Step::Looked)) && !pass.queue.is_empty();
            self.care.pass = Some(pass);
            if plugs {
                self.go_another_way()?;
            }
            return Ok(true);
        }
        self.care.done.passes += 1;
        self.go_another_way()?;
        let won = pass.victims.indexes.iter().filter(|i| self.is_empty(**i)).count() as u64;
        self.care.done.segments += won;
        // The next pass may clean what this one left, while passes gain blocks.
        let helped = step.is_ok() && won > 0 && self.holes() + self.segment() / 2 <= pass.holes;
        self.care.rest = if helped { self.care.rest.min(self.holes()) } else { self.holes() };
        match step {
            Err(Error::NoSpace) | Ok(_) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn is_empty(&self, index: u64) -> bool {
        let segment = self.segment();
        self.free.within(index * segment, (index + 1) * segment).map(|(_, l)| l).sum::<u64>() == segment
    }

    fn pass_step(&mut self, pass: &mut Pass, blocks: u64) -> Result<Step> {
        if let Phase::Looking(from) = pass.phase {
            let rest = self.look_for_owners(from, LOOK, &pass.victims, &mut pass.found)?;
            if let Some(from) = rest {
                pass.phase = Phase::Looking(from);
            } else {
                // In the order in which a transaction writes them: directories last.
                pass.found.sort_by_key(|o| (o.is_dir, o.first));
                pass.pieces = pass.found.iter().map(|o| o.piece).collect();
                pass.queue = std::mem::take(&mut pass.found).into_iter().map(|o| o.ino).collect();
                pass.phase = Phase::Moving;
            }
            return Ok(Step::Looked);
        }
        let mut left = blocks;
        while let Some(&ino) = pass.queue.front() {
            let (moved, all) = self.move_out(ino, &pass.victims, left)?;
            self.care.done.moved += moved;
            left = left.saturating_sub(moved.max(1));
            if all {
                pass.queue.pop_front();
            }
            if left == 0 || !all {
                break;
            }
        }
        let map: Vec<u64> = match pass.queue.is_empty() {
            true => self.imap.inode.extents.stored(0).collect::<Vec<_>>(),
            false => Vec::new(),
        }
        .into_iter()
        .flat_map(|(from, at, n)| pass.victims.of_run(at, n).map(move |(s, l)| from + s - at.0..from + s - at.0 + l))
        .flatten()
        .collect();
        let dev = self.dev.clone();
        map.into_iter().try_for_each(|index| self.imap.touch(&*dev, index))?;
        self.commit_for(Cause::Cleaning)?;
        Ok(if pass.queue.is_empty() { Step::Last } else { Step::Moved })
    }

    /// Writes waiting blocks under a cause.
    pub(crate) fn commit_for(&mut self, cause: Cause) -> Result<()> {
        self.care.cause = cause;
        let done = self.commit();
        self.care.cause = Cause::Log;
        done.map(drop)
    }

    /// Loads an inode's blocks in victims into memory, at most `most`, to be written elsewhere; returns their
    /// number, and true if those were all.
    fn move_out(&mut self, ino: Ino, victims: &Victims, most: u64) -> Result<(u64, bool)> {
        let gone = |e: &Error| matches!(e, Error::NotFound);
        let parts = match self.inode(ino) {
            Err(e) if gone(&e) => return Ok((0, true)),
            Err(e) => return Err(e),
            Ok(inode) => {
                let parts: Vec<(u64, u64)> = inode
                    .extents
                    .stored(0)
                    .flat_map(|(from, at, n)| victims.of_run(at, n).map(move |(s, l)| (from + s - at.0, l)))
                    .collect();
                if parts.is_empty() && !own_blocks(inode).any(|run| victims.touch(run)) {
                    return Ok((0, true));
                }
                parts
            }
        };
        let (mut some, mut moved) = (Vec::new(), 0);
        for &(from, n) in &parts {
            let n = n.min(most.max(1) - moved);
            if n > 0 {
                some.push((from, n));
                moved += n;
            }
        }
        let all = parts.iter().map(|(_, n)| n).sum::<u64>() == moved;
        self.inode(ino)?.extents.loosen(|at| victims.touch(Run { start: at, blocks: 1 }));
        self.bring(ino, &some, Cause::Cleaning)?;
        Ok((moved + u64::from(parts.is_empty()), all))
    }

    /// Loads blocks of an inode into memory as if they had been written, together with the inode.
    pub(crate) fn bring(&mut self, ino: Ino, parts: &[(u64, u64)], cause: Cause) -> Result<()> {
        let blocks: u64 = parts.iter().map(|(_, n)| n).sum();
        let own = self.inode(ino)?.extents.cost_of_all(blocks);
        let need = blocks + 2 * own + 8;
        if self.unclaimed() < need + 2 * SPARE {
            return Err(Error::NoSpace);
        }
        self.with(ino, |st, inode| {
            for &(from, n) in parts {
                if inode.is_dir() {
                    (from..from + n).try_for_each(|index| st.change_block(inode, index))?;
                } else {
                    st.bring_contents(inode, from, n, cause)?;
                }
            }
            st.keep(inode);
            st.forget_names(inode);
            Ok(())
        })
    }

    fn bring_contents(&mut self, inode: &mut Inode, from: u64, n: u64, cause: Cause) -> Result<()> {
        let stored: Vec<(u64, Addr, u64)> = inode.extents.stored(from).take_while(|(at, ..)| *at < from + n).collect();
        for (at, addr, blocks) in stored {
            let blocks = blocks.min(from + n - at);
            let mut bytes = vec![0; blocks as usize * BLOCK];
            let tag = Tag { cause: cause as u8, owner: inode.ino.0.into() };
            self.dev.read(Lba(addr.0), &mut bytes, tag).map_err(Error::device)?;
            let (all, _) = bytes.as_chunks::<BLOCK>();
            for (block, bytes) in (at..).zip(all) {
                // Data written meanwhile is newer.
                inode.pages.entry(block).or_insert_with(|| (*bytes).into());
            }
        }
        Ok(())
    }
}
