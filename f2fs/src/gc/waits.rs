//! How long does a request wait during background cleaning?
//!
//! While a step moves blocks, or a batch writes a checkpoint, the volume cannot change. These blocking periods are
//! counted by length. A request arrives at an arbitrary time, so it meets long periods more often than short ones: a
//! period of length d with probability proportional to d, and the rest of it is uniformly distributed. Of the total
//! blocking time, the share in which an arriving request waits longer than x is therefore
//!
//! ```text
//! sum of max(0, d - x) over all periods / sum of d over all periods
//! ```
//!
//! The request waits only for the current period: the cleaner releases the volume between two periods, takes small
//! steps from then on, and ends its batch with the section. Left out on purpose: readers, which never wait; timed
//! checkpoints, which happen without cleaning, too; and the wait of a writer that is short of space (`pace`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Periods shorter than 2^10 ns are in the first bucket; above, each doubling has four buckets.
const SHORTEST: u32 = 10;
/// Number of doublings; the last bucket has all above 2^36 ns, 69 s.
const DOUBLINGS: usize = 26;
const BUCKETS: usize = 1 + 4 * DOUBLINGS;

/// The bucket of a length: integers only, so that every machine counts the same.
fn bucket(nanos: u64) -> usize {
    match nanos.checked_ilog2() {
        Some(doubling) if doubling >= SHORTEST => {
            let quarter = (nanos >> (doubling - 2)) & 3;
            (1 + 4 * (doubling - SHORTEST) as usize + quarter as usize).min(BUCKETS - 1)
        }
        _ => 0,
    }
}

/// Counts the periods in which the background blocked changes.
#[derive(Debug)]
pub struct Stretches {
    count: [AtomicU64; BUCKETS],
    nanos: [AtomicU64; BUCKETS],
    longest: AtomicU64,
}

impl Default for Stretches {
    fn default() -> Self {
        let none = || [const { AtomicU64::new(0) }; BUCKETS];
        Stretches { count: none(), nanos: none(), longest: AtomicU64::new(0) }
    }
}

impl Stretches {
    /// Counts a period. A period of zero length blocks nothing.
    pub(crate) fn count(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        if nanos > 0 {
            self.count[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
            self.nanos[bucket(nanos)].fetch_add(nanos, Ordering::Relaxed);
            self.longest.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// The longest period since the mount.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// The periods since the mount.
    pub fn so_far(&self) -> Waits {
        Waits(std::array::from_fn(|n| Bucket {
            count: self.count[n].load(Ordering::Relaxed),
            nanos: self.nanos[n].load(Ordering::Relaxed),
        }))
    }
}

/// Periods of about the same length: their number and total time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    count: u64,
    nanos: u64,
}

/// The blocking periods in some interval, and so the waits of requests that arrive during them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits([Bucket; BUCKETS]);

impl Waits {
    /// The periods between an earlier moment and this one.
    pub fn since(&self, earlier: &Waits) -> Waits {
        Waits(std::array::from_fn(|n| Bucket {
            count: self.0[n].count.saturating_sub(earlier.0[n].count),
            nanos: self.0[n].nanos.saturating_sub(earlier.0[n].nanos),
        }))
    }

    /// Number of periods.
    pub fn stretches(&self) -> u64 {
        self.0.iter().map(|b| b.count).sum()
    }

    /// Total time of the periods: a request that arrives then waits.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|b| b.nanos).sum())
    }

    /// The wait that `percent` of the requests arriving during the periods do not exceed; none if there were no
    /// periods. All periods of a bucket count as equally long.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let lengths = || self.0.iter().filter(|b| b.count > 0).map(|b| (b.count as f64, b.nanos as f64));
        let longer = lengths().map(|(_, nanos)| nanos).sum::<f64>() * (1.0 - percent / 100.0);
        let mut rest = lengths().rev().peekable();
        // All periods longer than the wait.
        let (mut count, mut nanos) = (0.0, 0.0);
        while let Some((n, time)) = rest.next() {
            (count, nanos) = (count + n, nanos + time);
            // Together they exceed this wait by `longer`.
            let wait = (nanos - longer) / count;
            let next = rest.peek().map_or(0.0, |(n, time)| time / n);
            if wait >= next {
                return Some(Duration::from_nanos(wait.round() as u64));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths: &[u64]) -> Waits {
        let stretches = Stretches::default();
        lengths.iter().for_each(|n| stretches.count(Duration::from_nanos(*n)));
        stretches.so_far()
    }

    #[test]
    fn of_stretches_of_one_length_every_wait_up_to_it_is_as_likely() {
        let waits = of(&[40_000_000; 25]);
        for percent in [0.0, 1.0, 50.0, 99.0, 100.0] {
            let exact = 400_000.0 * percent;
            let found = waits.percentile(percent).unwrap().as_nanos() as f64;
            assert!((found - exact).abs() <= 1.0, "{percent} %: {found} ns, not {exact}");
        }
    }

    #[test]
    fn who_comes_at_any_moment_meets_long_stretches_more_often() {
        // Nine short steps, and one as long as all nine.
        let waits = of(&[[1_000_000; 9].as_slice(), &[9_000_000]].concat());
        assert_eq!((waits.stretches(), waits.time()), (10, Duration::from_millis(18)));
        // The long step takes half of the time; its last millisecond is a ninth of it.
        let longer_than_1_ms: f64 = 100.0 * 8.0 / 18.0;
        let found = waits.percentile(100.0 - longer_than_1_ms).unwrap().as_nanos();
        assert!(found.abs_diff(1_000_000) <= 1, "{found}");
        assert!(waits.percentile(50.0).unwrap() < Duration::from_millis(1));
    }

    #[test]
    fn waits_are_those_of_callers_who_come_at_random() {
        let mut rng = device::Rng::new(7);
        // From 30 us to a second, evenly over all doublings.
        let lengths: Vec<u64> = (0..300).map(|_| (1 << rng.range(15..30)) + rng.below(1 << 15)).collect();
        let mut ends = lengths.clone();
        (1..ends.len()).for_each(|n| ends[n] += ends[n - 1]);
        let wait_at = |at: u64| ends[ends.partition_point(|end| *end <= at)] - at;
        let mut waited: Vec<u64> = (0..200_000).map(|_| wait_at(rng.below(ends[ends.len() - 1]))).collect();
        waited.sort_unstable();
        let waits = of(&lengths);
        for percent in [10, 50, 90, 99] {
            let (found, drawn) = (waits.percentile(percent as f64).unwrap(), waited[waited.len() * percent / 100]);
            let off = found.as_nanos() as f64 / drawn as f64;
            assert!((0.95..1.05).contains(&off), "{percent} %: {found:?}, drawn {drawn} ns");
        }
    }

    #[test]
    fn any_length_has_a_bucket_and_longer_ones_never_an_earlier_one() {
        let lengths = (0..64).flat_map(|n| [1 << n, (1 << n) + (1 << n >> 2), (1 << n) + (1 << n >> 1)]);
        let buckets: Vec<usize> = lengths.map(bucket).collect();
        assert!(buckets.is_sorted() && buckets.iter().all(|b| *b < BUCKETS), "{buckets:?}");
        assert_eq!((bucket(0), bucket(1023), bucket(1024), bucket(u64::MAX)), (0, 0, 1, BUCKETS - 1));
        // Lengths in a bucket differ by at most a quarter.
        for nanos in (1024..100_000_u64).chain((1 << 30)..(1 << 30) + 1000) {
            assert_ne!(bucket(nanos), bucket(nanos + nanos / 4 + 1), "{nanos}");
        }
    }

    #[test]
    fn what_came_before_counts_no_more_and_nothing_is_no_wait() {
        let stretches = Stretches::default();
        stretches.count(Duration::ZERO);
        assert_eq!((stretches.so_far().stretches(), stretches.so_far().percentile(99.0)), (0, None));
        stretches.count(Duration::from_millis(900));
        let before = stretches.so_far();
        (0..4).for_each(|_| stretches.count(Duration::from_micros(300)));
        let since = stretches.so_far().since(&before);
        assert_eq!((since.stretches(), since.time()), (4, Duration::from_micros(1200)));
        assert_eq!(since.percentile(50.0), Some(Duration::from_micros(150)));
        assert!(stretches.so_far().percentile(50.0) > Some(Duration::from_millis(400)));
        assert_eq!(stretches.longest(), Duration::from_millis(900));
    }
}
