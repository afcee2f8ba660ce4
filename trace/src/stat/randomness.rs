//! Which part of reads and writes is random, by the rule of Mohan et al.?
//!
//! The rule merges requests that continue each other between two flushes; a merged request below 32 KB is random (Mohan
//! HotStorage'17, slide 24). A request continues an earlier one of the same direction and device if it begins at that
//! one's end, whatever came in between.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::block::{DeviceId, Op, SECTOR};
use crate::requests::Request;

/// Merged requests below this size are random.
pub const RANDOM_BELOW: u64 = 32 << 10;

/// Most runs kept until a flush; with more of them, all are counted as they are.
const MOST: usize = 1 << 20;

/// Sequential and random parts of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Share {
    /// Runs of at least 32 KB.
    pub sequential_runs: u64,
    /// Their bytes.
    pub sequential_bytes: u64,
    /// Shorter runs.
    pub random_runs: u64,
    /// Their bytes.
    pub random_bytes: u64,
}

impl Share {
    fn add(&mut self, bytes: u64) {
        let (runs, sum) = if bytes < RANDOM_BELOW {
            (&mut self.random_runs, &mut self.random_bytes)
        } else {
            (&mut self.sequential_runs, &mut self.sequential_bytes)
        };
        *runs += 1;
        *sum += bytes;
    }
    /// Share of random runs, from 0 to 1.
    pub fn random_of_runs(&self) -> f64 {
        self.random_runs as f64 / (self.random_runs + self.sequential_runs).max(1) as f64
    }
    /// Share of random bytes, from 0 to 1.
    pub fn random_of_bytes(&self) -> f64 {
        self.random_bytes as f64 / (self.random_bytes + self.sequential_bytes).max(1) as f64
    }
}

/// Bytes of the runs since the last flush, by their next sector. Several may end at one sector.
type Runs = FxHashMap<u64, Vec<u64>>;

/// State of a device until its next flush.
#[derive(Debug, Default)]
struct Since {
    reads: Runs,
    writes: Runs,
    open: usize,
}

/// Separates random from sequential requests.
#[derive(Debug, Default)]
pub struct Randomness {
    since: FxHashMap<DeviceId, Since>,
    read: Share,
    written: Share,
}

impl Randomness {
    /// Adds a request.
    pub fn add(&mut self, request: &Request) {
        let since = self.since.entry(request.device).or_default();
        let runs = match request.op {
            Op::Read => &mut since.reads,
            Op::Write => &mut since.writes,
            Op::Flush => return Self::count(since, &mut self.read, &mut self.written),
            _ => return,
        };
        let Request { sector, sectors, .. } = *request;
        let mut so_far = None;
        if let Entry::Occupied(mut ends) = runs.entry(sector) {
            so_far = ends.get_mut().pop();
            if ends.get().is_empty() {
                ends.remove();
            }
        }
        since.open += usize::from(so_far.is_none());
        let bytes = so_far.unwrap_or(0).saturating_add(sectors.saturating_mul(SECTOR));
        runs.entry(sector.saturating_add(sectors)).or_default().push(bytes);
        if since.open >= MOST {
            Self::count(since, &mut self.read, &mut self.written);
        }
    }

    fn count(since: &mut Since, read: &mut Share, written: &mut Share) {
        since.reads.drain().flat_map(|(_, ends)| ends).for_each(|bytes| read.add(bytes));
        since.writes.drain().flat_map(|(_, ends)| ends).for_each(|bytes| written.add(bytes));
        since.open = 0;
    }

    /// The final shares of reads and writes.
    pub fn shares(mut self) -> (Share, Share) {
        self.since.values_mut().for_each(|s| Self::count(s, &mut self.read, &mut self.written));
        (self.read, self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use crate::block::Flags;

    fn shares(list: &[(Op, u64, u64)]) -> (Share, Share) {
        let mut r = Randomness::default();
        for &(op, sector, sectors) in list {
            let device = DeviceId::default();
            r.add(&Request {
                time: 0,
                op,
                flags: Flags::empty(),
                sector,
                sectors,
                device,
                pid: 0,
                process: Process(0),
            });
        }
        r.shares()
    }

    #[test]
    fn consecutive_requests_are_one_run_unless_a_flush_comes_between() {
        let w = |n: u64| (Op::Write, n * 8, 8);
        let in_order: Vec<_> =
            (0..8).flat_map(|n| [w(n), (Op::Write, 100_000 + n * 1000, 8), (Op::Read, n, 8)]).collect();
        let (_, written) = shares(&in_order);
        assert_eq!((written.sequential_runs, written.sequential_bytes), (1, 32 << 10));
        assert_eq!((written.random_runs, written.random_bytes), (8, 32 << 10));
        assert_eq!((written.random_of_bytes(), written.random_of_runs()), (0.5, 8.0 / 9.0));
        let mut cut: Vec<_> = (0..8).map(w).collect();
        cut.insert(4, (Op::Flush, 0, 0));
        assert_eq!(shares(&cut).1, Share { random_runs: 2, random_bytes: 32 << 10, ..Share::default() });
    }

    #[test]
    fn a_read_does_not_continue_a_write_and_the_same_place_again_is_a_new_run() {
        let (read, written) = shares(&[(Op::Write, 0, 8), (Op::Read, 8, 8), (Op::Write, 0, 8), (Op::Write, 8, 56)]);
        assert_eq!((read.random_runs, read.random_bytes), (1, 4096));
        assert_eq!((written.random_runs, written.sequential_runs, written.sequential_bytes), (1, 1, 32 << 10));
    }

    #[test]
    fn just_below_the_bound_is_random() {
        assert_eq!(shares(&[(Op::Write, 0, 63)]).1.random_runs, 1);
        assert_eq!(shares(&[(Op::Write, 0, 64)]).1.sequential_runs, 1);
    }
}
