//! How many blocks did the logs place, and how many extra requests did holes cost?
//!
//! Adjacent blocks of a writer go to the device in one request. If a log fills holes and jumps to another hole, that is
//! a *cut*. Cuts of the six logs and of the log of moved blocks are counted separately, because they fill different
//! holes. Left out on purpose: the cost of a cut (the `victim` crate).

use format::BlockAddr;
use format::sit::LogType;

/// Number of blocks in holes after which older ones count half.
const MEMORY: u64 = 8192;

/// Cuts among the most recent blocks in holes.
#[derive(Debug, Default)]
struct Holes {
    blocks: u64,
    cuts: u64,
}

impl Holes {
    fn place(&mut self, cut: bool) {
        self.blocks += 1;
        self.cuts += u64::from(cut);
        if self.blocks > MEMORY {
            self.blocks /= 2;
            self.cuts /= 2;
        }
    }
    /// Cuts per 1,024 blocks.
    fn cuts(&self) -> u32 {
        // OK to cast: at most a few per block.
        (self.cuts * 1024 / self.blocks.max(1)) as u32
    }
}

/// Counts of blocks placed by the logs since the mount.
#[derive(Debug)]
pub(crate) struct Tally {
    placed: u64,
    /// Requests of the six logs for users, as if each batch of blocks and each cut within it were one.
    requests: u64,
    /// Nodes written only because cleaning changed them.
    moved_nodes: u64,
    /// Segments in whose holes a log continued: their summaries are read, and written again.
    opened: u64,
    written: Holes,
    moved: Holes,
    /// For each log, the address that would continue the current request; the last entry is for the log of moved
    /// blocks.
    next: [BlockAddr; 7],
}

impl Default for Tally {
    /// Initial estimate. Of moved blocks every second one counts as a cut, because age-based policies fill the fullest
    /// segments.
    fn default() -> Self {
        let moved = Holes { blocks: 64, cuts: 32 };
        Tally {
            placed: 0,
            requests: 0,
            moved_nodes: 0,
            opened: 0,
            written: Holes::default(),
            moved,
            next: Default::default(),
        }
    }
}

/// What the six logs have placed since the mount; cleaning is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Placing {
    /// Requests.
    pub requests: u64,
    /// Nodes that were written only because cleaning changed them, which no request counts.
    pub moved_nodes: u64,
    /// Segments opened for threaded logging.
    pub opened: u64,
}

impl Tally {
    /// Starts a new request: blocks placed from now on go to the device separately.
    pub fn begin_request(&mut self) {
        self.next = Default::default();
    }

    /// Records a block placed by a log for a user; `threaded` if it fills holes.
    pub fn place(&mut self, log: LogType, addr: BlockAddr, threaded: bool) {
        self.requests += u64::from(self.next[log.index()] != addr);
        self.count(log, addr, threaded);
    }

    /// The same for a block that cleaning moved.
    pub fn place_cleaned(&mut self, log: LogType, addr: BlockAddr, threaded: bool) {
        self.moved_nodes += u64::from(log.is_node());
        self.count(log, addr, threaded);
    }

    fn count(&mut self, log: LogType, addr: BlockAddr, threaded: bool) {
        self.placed += 1;
        let next = std::mem::replace(&mut self.next[log.index()], addr.plus(1));
        if threaded {
            self.written.place(next.is_real() && next != addr);
        }
    }

    /// Records that one of the six logs continues in the holes of another segment.
    pub fn open(&mut self) {
        self.opened += 1;
    }

    /// Forgets what holes cost, as at a mount.
    pub fn forget(&mut self) {
        let new = Tally::default();
        (self.written, self.moved) = (new.written, new.moved);
    }

    /// What the six logs placed since the mount.
    pub fn placing(&self) -> Placing {
        Placing { requests: self.requests, moved_nodes: self.moved_nodes, opened: self.opened }
    }

    /// Records a block placed by the log of moved blocks.
    pub fn place_moved(&mut self, addr: BlockAddr, threaded: bool) {
        self.placed += 1;
        let next = std::mem::replace(&mut self.next[6], addr.plus(1));
        if threaded {
            self.moved.place(next.is_real() && next != addr);
        }
    }

    /// Records that the log of moved blocks continues in the holes of another segment, whose summary is read and
    /// written.
    pub fn open_moved(&mut self) {
        self.moved.cuts += 2;
    }

    /// Records a preallocated block, which no log placed.
    pub fn place_aside(&mut self) {
        self.placed += 1;
    }

    /// Blocks placed since the mount.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Cuts per 1,024 blocks that the logs put into holes.
    pub fn cuts(&self) -> u32 {
        self.written.cuts()
    }

    /// The same for moved blocks.
    pub fn moved_cuts(&self) -> u32 {
        self.moved.cuts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_cut_where_its_next_block_lies_elsewhere_and_not_where_it_begins() {
        let mut tally = Tally::default();
        for request in 0..64 {
            tally.begin_request();
            for at in [0, 1, 2, 5, 6, 9, 10, 11] {
                tally.place(LogType::WarmData, BlockAddr(1000 + 100 * request + at), true);
            }
        }
        assert_eq!((tally.placed(), tally.cuts()), (512, 256));
    }

    #[test]
    fn logs_that_fill_no_holes_cut_nothing_and_take_nothing_from_what_is_known() {
        let mut tally = Tally::default();
        for at in [10, 20, 30, 40] {
            tally.place(LogType::HotNode, BlockAddr(at), true);
        }
        assert_eq!(tally.cuts(), 768);
        for at in [100, 200, 300] {
            tally.place(LogType::HotNode, BlockAddr(at), false);
            tally.place(LogType::ColdData, BlockAddr(at + 5), true);
            tally.begin_request();
        }
        tally.place_aside();
        assert_eq!((tally.placed(), tally.cuts()), (11, 3 * 1024 / 7));
    }

    #[test]
    fn moved_blocks_are_counted_by_themselves() {
        let mut tally = Tally::default();
        assert_eq!((tally.cuts(), tally.moved_cuts()), (0, 512));
        for at in 0..20_000 {
            tally.place_moved(BlockAddr(1000 + at + at / 4), true);
        }
        assert!((250..260).contains(&tally.moved_cuts()), "{}", tally.moved_cuts());
        assert_eq!((tally.cuts(), tally.placed()), (0, 20_000));
    }

    #[test]
    fn what_was_long_ago_counts_for_less_and_less() {
        let mut tally = Tally::default();
        for at in 0..10_000 {
            tally.place(LogType::WarmData, BlockAddr(1 + 2 * at), true);
        }
        let worn = tally.cuts();
        for at in 0..40_000 {
            tally.place(LogType::WarmData, BlockAddr(100_000 + at), true);
        }
        assert!(worn > 1000 && tally.cuts() < 100, "{worn}, then {}", tally.cuts());
    }
}
