//! Do deltas of this file pay?
//!
//! Pure. A delta saves a page now, and costs later: the page is no longer overwritten in place, so when it has changed
//! too much it costs a node and a flush more. Which of both weighs more depends on the file, and on what its program
//! will do next. So each file has an account in joules: at each fsync it gets what F2FS without deltas would have had to
//! write for the same pages, less what was written. A file whose account falls too low gets no deltas for its next 64
//! fsyncs, then 128, and so on. So deltas cost a file that they do not suit a few writes, and no more.
//!
//! Left out on purpose: what a flash copies inside, and writebacks without an fsync.

use victim::joule::Prices;

/// What an fsync has to make durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Changed pages.
    pub pages: u64,
    /// Runs of adjacent ones.
    pub runs: u64,
    /// Whether F2FS without deltas would overwrite them in place.
    pub stays: bool,
    /// Whether it would write the inode even then.
    pub inode: bool,
    /// Whether contents at new addresses are flushed before the inode.
    pub in_order: bool,
}

/// What an fsync wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Made {
    /// Pages written whole.
    pub pages: u64,
    /// Whether they got new addresses.
    pub moved: bool,
    /// Delta nodes, and the inode.
    pub nodes: u64,
    /// Requests for them: the last one carries the mark and is written by itself.
    pub node_requests: u64,
    /// Nodes with the addresses of pages behind the inode.
    pub below: u64,
    /// Flushes.
    pub flushes: u64,
    /// What comparing pages with their bases cost before, and reading pages that have deltas, in pJ.
    pub before: u64,
}

/// Requests to different places, and the blocks in them.
fn requests(prices: &Prices, requests: u64, blocks: u64) -> u64 {
    requests * prices.far() + blocks * prices.write_block_sequential
}

impl Asked {
    /// What it costs without deltas, in pJ.
    fn price(&self, prices: &Prices) -> u64 {
        match (self.stays, self.inode) {
            (true, false) => requests(prices, self.runs, self.pages) + prices.flush,
            (true, true) => requests(prices, self.runs + 1, self.pages + 1) + prices.flush,
            (false, _) => requests(prices, 2, self.pages + 1) + (1 + u64::from(self.in_order)) * prices.flush,
        }
    }
}

impl Asked {
    /// Whether overwriting costs less than new places and what their dead blocks cost later: each makes a flash copy
    /// about one block until it is discarded (in a simulation 0.9 to 1.2 on a volume 85 % full, docs/decisions/0041).
    pub fn pays_in_place(&self, prices: &Prices) -> bool {
        let dead = self.pages + u64::from(!self.inode);
        let moved =
            Asked { stays: false, ..*self }.price(prices).saturating_add(dead.saturating_mul(prices.copy_inside));
        Asked { stays: true, ..*self }.price(prices) <= moved
    }
}

impl Made {
    /// What it cost, in pJ. Pages overwritten in place are taken to lie as the changed ones did.
    fn price(&self, prices: &Prices, asked: &Asked) -> u64 {
        let runs = if self.moved { 1 } else { asked.runs };
        // Without deltas, pages with new addresses have these nodes written too.
        let below = if asked.stays && self.moved { self.below } else { 0 };
        requests(prices, runs.min(self.pages), self.pages)
            + requests(prices, self.node_requests + below.min(1), self.nodes + below)
            + self.flushes * prices.flush
            + self.before
    }
}

/// The account of a file.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// What deltas saved, less what they cost, in pJ.
    saved: i64,
    /// Fsyncs left without new deltas.
    barred: u32,
    /// How often the file was barred since its account was last full.
    times: u32,
}

/// An account is not more than this many leaves in credit: what a file gained long ago says little about today.
const MOST: i64 = 8;
/// An account may be overdrawn by this many leaves.
const LEAST: i64 = 2;
/// Fsyncs without new deltas, at first.
const BARRED: u32 = 64;
const MOST_DOUBLINGS: u32 = 10;

impl Balance {
    /// True if the file may get deltas.
    pub fn allows(&self) -> bool {
        self.barred == 0
    }

    /// Enters an fsync. True if the file may have no more deltas from now on.
    pub fn enter(&mut self, prices: &Prices, asked: &Asked, made: &Made) -> bool {
        if self.barred > 0 {
            self.barred -= 1;
            return false;
        }
        // What it costs to write a page whole again that has a delta.
        let leave = (prices.flush + requests(prices, 1, 1)).cast_signed();
        let difference = asked.price(prices).cast_signed() - made.price(prices, asked).cast_signed();
        self.saved = (self.saved + difference).min(MOST * leave);
        if self.saved == MOST * leave {
            self.times = 0;
        }
        if self.saved < -LEAST * leave {
            self.barred = BARRED << self.times.min(MOST_DOUBLINGS);
            self.times += 1;
            self.saved = -leave;
        }
        self.barred > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `of(n)` is what the n-th fsync was asked for and made while deltas were allowed; otherwise it costs what F2FS
    /// without deltas costs. Returns the excess in percent after `fsyncs`, and the share of them with deltas.
    fn follow(fsyncs: u64, of: impl Fn(u64) -> (Asked, Made)) -> (f64, f64) {
        let (prices, mut balance) = (Prices::default(), Balance::default());
        let (mut stock, mut paid, mut with) = (0, 0, 0);
        for n in 0..fsyncs {
            let (asked, made) = of(n);
            stock += asked.price(&prices);
            let allowed = balance.allows();
            with += u64::from(allowed);
            paid += if allowed { made.price(&prices, &asked) } else { asked.price(&prices) };
            balance.enter(&prices, &asked, &made);
        }
        (100.0 * (paid as f64 / stock as f64 - 1.0), with as f64 / fsyncs as f64)
    }

    const DELTAS: Made =
        Made { pages: 0, moved: false, nodes: 1, node_requests: 1, below: 0, flushes: 1, before: 26_000_000 };

    fn asked(pages: u64, runs: u64) -> Asked {
        Asked { pages, runs, stays: true, inode: false, in_order: true }
    }

    #[test]
    fn a_request_and_a_flush_weigh_more_than_pages() {
        let pays = |pages, runs, inode, in_order| {
            Asked { inode, in_order, ..asked(pages, runs) }.pays_in_place(&Prices::default())
        };
        assert!(pays(1, 1, false, true) && pays(200, 1, false, true) && pays(200, 1, false, false));
        // In place k requests of 134.6 uJ and a flush of 202.7; else two of 121.9, k + 1 blocks of 12.6 and as many
        // dead ones of 5.9, and one or two flushes.
        assert_eq!((1..9).filter(|k| pays(*k, *k, false, true)).max(), Some(4));
        assert_eq!((1..9).filter(|k| pays(*k, *k, false, false)).max(), Some(2));
        // If the inode is written anyway, new places need one request less than that.
        assert_eq!((1..9).filter(|k| pays(*k, *k, true, false)).max(), Some(1));
    }

    #[test]
    fn scattered_pages_that_change_little_keep_all_of_their_gain() {
        let (excess, with) = follow(2000, |_| (asked(3, 3), DELTAS));
        assert!(excess < -25.0 && with == 1.0, "{excess} %");
    }

    #[test]
    fn pages_that_are_soon_written_whole_again_cost_little_more_than_without_deltas() {
        let whole =
            Made { pages: 6, moved: true, nodes: 1, node_requests: 1, below: 0, flushes: 2, before: 50_000_000 };
        for good in 0..4 {
            let course = |n| (asked(6, 1), if n % (good + 1) < good { DELTAS } else { whole });
            let always = 100.0 * (course(good).1.price(&Prices::default(), &asked(6, 1)) as f64) / 1e8;
            let (excess, with) = follow(6000, course);
            assert!(excess < 1.0 && with < 0.05, "{good}: {excess} %, {with}; {always}");
        }
    }

    #[test]
    fn a_file_that_changes_its_ways_gets_deltas_again() {
        let whole =
            Made { pages: 3, moved: true, nodes: 1, node_requests: 1, below: 0, flushes: 2, before: 26_000_000 };
        let (excess, with) = follow(20_000, |n| (asked(3, 3), if n / 2000 % 2 == 0 { DELTAS } else { whole }));
        assert!(excess < -10.0 && (0.4..0.6).contains(&with), "{excess} %, {with}");
    }
}
