//! How many blocks did the logs place, and how many requests more did those in holes cost?
//!
//! Blocks that a writer places one behind the other go to the device in one request, unless a log fills holes and goes on
//! elsewhere: a *cut*. Left out on purpose: what a cut is worth (the `victim` crate).

use format::BlockAddr;
use format::sit::LogType;

/// Blocks in holes after which the older ones count half.
const MEMORY: u64 = 8192;

/// What the logs placed since the mount.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    placed: u64,
    /// Of late: those in holes, and cuts among them.
    in_holes: u64,
    cuts: u64,
    /// Where the next block of a log would lie behind the one before, if it is of the same request.
    next: [BlockAddr; 6],
}

impl Tally {
    /// What is placed from now on goes to the device in requests of its own.
    pub fn begin_request(&mut self) {
        self.next = Default::default();
    }

    /// A log placed a block, `threaded` if it fills holes.
    pub fn place(&mut self, log: LogType, addr: BlockAddr, threaded: bool) {
        self.placed += 1;
        let next = &mut self.next[log.index()];
        if threaded {
            self.in_holes += 1;
            self.cuts += u64::from(next.is_real() && *next != addr);
            if self.in_holes > MEMORY {
                self.in_holes /= 2;
                self.cuts /= 2;
            }
        }
        *next = addr.plus(1);
    }

    /// A block was placed that no log placed: it was set aside.
    pub fn place_aside(&mut self) {
        self.placed += 1;
    }

    /// Blocks placed since the mount.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Cuts among 1,024 blocks in holes.
    pub fn cuts(&self) -> u32 {
        // OK to cast: no more than one a block.
        (self.cuts * 1024 / self.in_holes.max(1)) as u32
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
