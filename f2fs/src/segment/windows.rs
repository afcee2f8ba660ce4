//! Which blocks are preallocated for slowly growing files, and for how long?
//!
//! If several databases grow by one synced block at a time in the same log, none of them gets two adjacent blocks. A
//! *window* is a run of blocks at a log's end for only one file. The log continues behind it. (Ji HotStorage'16,
//! section 6: contiguous space for database files to grow, 100 KB for a journal.)
//!
//! Windows exist only in memory. Their blocks are *held*, like those that the last checkpoint may need, so that no log
//! fills them; the next checkpoint ends all holds and so all windows. The log takes back unused blocks at its end;
//! other unused blocks become holes, like overwritten blocks. The window of a deleted file goes to the next file,
//! because journals are created and removed with every transaction.
//!
//! Left out: which files get a window, and its size ([`crate::file::prealloc`]).

use format::sit::LogType;
use format::summary::Summary;
use format::{BlockAddr, Ino};
use rustc_hash::FxHashMap;

use super::{Placed, Segments};
use crate::error::Result;

/// A run of preallocated blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// The next block.
    next: BlockAddr,
    /// The block behind the last.
    end: BlockAddr,
    log: LogType,
}

impl Window {
    fn is_used_up(&self) -> bool {
        self.next >= self.end
    }
}

/// All windows since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_file: FxHashMap<Ino, Window>,
    /// Windows of deleted files.
    spare: Vec<Window>,
    /// Number of opened windows.
    opened: usize,
}

/// Most windows opened between two checkpoints: this bounds preallocation.
const MOST: usize = 1024;

impl Segments {
    /// Allocates the next block of a file's window, or of a new window of this many blocks; `None` if the log has no
    /// room for one, and the file gets its block like any other.
    pub(crate) fn allocate_ahead(
        &mut self,
        (ino, log): (Ino, LogType),
        blocks: u32,
        owner: Summary,
        age: u64,
    ) -> Result<Option<Placed>> {
        let known = self.windows.by_file.get(&ino).copied().filter(|w| w.log == log && !w.is_used_up());
        let window = match known {
            Some(window) => window,
            None => match self.open_window(log, blocks)? {
                Some(window) => window,
                None => return Ok(None),
            },
        };
        let addr = window.next;
        self.windows.by_file.insert(ino, Window { next: addr.plus(1), ..window });
        // As roll-forward does with a block ahead of the log.
        self.adopt(addr, log, owner, age)?;
        self.tally.place_aside();
        self.follow_place(log, (BlockAddr::NULL, addr), age);
        Ok(Some(Placed { addr, next: BlockAddr::NULL }))
    }

    fn open_window(&mut self, log: LogType, blocks: u32) -> Result<Option<Window>> {
        let fits = |w: &Window| w.log == log && !w.is_used_up();
        if let Some(at) = self.windows.spare.iter().rposition(fits) {
            return Ok(Some(self.windows.spare.swap_remove(at)));
        }
        if self.windows.opened >= MOST || self.only_appends || self.need_threading() {
            return Ok(None);
        }
        if self.logs[log.index()].is_full() {
            self.roll(log)?;
        }
        let l = &self.logs[log.index()];
        let (seg, next) = (l.seg, l.next);
        if l.threaded {
            return Ok(None);
        }
        let end = next + blocks.min(u32::from(512 - next)) as u16;
        let free = (next..end).take_while(|off| self.table.next_hole(seg, *off) == *off).count() as u16;
        if free < 2 {
            return Ok(None);
        }
        for off in next..next + free {
            self.table.hold(seg, off);
        }
        self.logs[log.index()].next = next + free;
        self.windows.opened += 1;
        let start = self.sb.seg_start(seg);
        Ok(Some(Window { next: start.plus(next.into()), end: start.plus((next + free).into()), log }))
    }

    /// Releases the window of a deleted file for another file.
    pub(crate) fn leave_window(&mut self, ino: Ino) {
        let left = self.windows.by_file.remove(&ino).filter(|w| !w.is_used_up());
        self.windows.spare.extend(left);
    }

    /// Ends all windows before a checkpoint, which ends all holds.
    pub(crate) fn close_windows(&mut self) {
        let Windows { by_file, spare, .. } = std::mem::take(&mut self.windows);
        let mut left: Vec<Window> = by_file.into_values().chain(spare).filter(|w| !w.is_used_up()).collect();
        left.sort_unstable_by_key(|w| std::cmp::Reverse(w.end));
        for w in left {
            let Some((seg, off)) = self.sb.locate(w.next) else { continue };
            let l = &mut self.logs[w.log.index()];
            if l.seg == seg && !l.threaded && self.sb.seg_start(seg).plus(l.next.into()) == w.end {
                l.next = off;
            }
        }
    }
}
