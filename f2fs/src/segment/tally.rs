//! How many blocks did the logs place, and how many requests more did those in holes cost?
//!
//! Blocks that a writer places one behind the other go to the device in one request, unless a log fills holes and goes on
//! elsewhere: a *cut*. The six logs and the log of moved blocks fill other holes, and are told apart. Left out on purpose:
//! what a cut is worth (the `victim` crate).

use format::BlockAddr;
use format::sit::LogType;

/// Blocks in holes after which the older ones count half.
const MEMORY: u64 = 8192;

/// Cuts among the last blocks in holes.
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
    /// Among 1,024.
    fn cuts(&self) -> u32 {
        // OK to cast: no more than a few a block.
        (self.cuts * 1024 / self.blocks.max(1)) as u32
    }
}

/// What the logs placed since the mount.
#[derive(Debug)]
pub(crate) struct Tally {
    placed: u64,
    written: Holes,
    moved: Holes,
    /// Where the next block of a log would lie behind the one before, if it is of the same request; at last that of the log
    /// of moved blocks.
    next: [BlockAddr; 7],
}

impl Default for Tally {
    /// Nothing is known. Of moved blocks every second one is taken to be a cut, as policies by age fill the fullest segments.
    fn default() -> Self {
        let moved = Holes { blocks: 64, cuts: 32 };
        Tally { placed: 0, written: Holes::default(), moved, next: Default::default() }
    }
}

impl Tally {
    /// What is placed from now on goes to the device in requests of its own.
    pub fn begin_request(&mut self) {
        self.next = Default::default();
    }

    /// A log placed a block, `threaded` if it fills holes.
    pub fn place(&mut self, log: LogType, addr: BlockAddr, threaded: bool) {
        self.placed += 1;
        let next = std::mem::replace(&mut self.next[log.index()], addr.plus(1));
        if threaded {
            self.written.place(next.is_real() && next != addr);
        }
    }

    /// The log of moved blocks did.
    pub fn place_moved(&mut self, addr: BlockAddr, threaded: bool) {
        self.placed += 1;
        let next = std::mem::replace(&mut self.next[6], addr.plus(1));
        if threaded {
            self.moved.place(next.is_real() && next != addr);
        }
    }

    /// The log of moved blocks goes on in the holes of another segment, whose summary is read and written.
    pub fn open_moved(&mut self) {
        self.moved.cuts += 2;
    }

    /// A block was placed that no log placed: it was set aside.
    pub fn place_aside(&mut self) {
        self.placed += 1;
    }

    /// Blocks placed since the mount.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Cuts among 1,024 blocks that the logs put into holes.
    pub fn cuts(&self) -> u32 {
        self.written.cuts()
    }

    /// The same of moved blocks.
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
