//! How long does a caller wait that comes while the background cleans?
//!
//! While a step moves blocks, or a turn writes a checkpoint, nobody changes the volume. These stretches of time are counted by
//! their length. A caller comes at a moment of its own choice, and so meets long stretches more often than short ones: a
//! stretch of length d is met in proportion to d, and of it a part drawn evenly is left. Of all the time in which the
//! background keeps changes waiting, the share whose caller waits longer than x is therefore
//!
//! ```text
//! sum of max(0, d - x) over all stretches / sum of d over all stretches
//! ```
//!
//! The caller waits for the stretch under way and no other: the cleaner hands the volume on between two of them, takes small
//! steps from then on, and ends its turn with the section. Left out on purpose: readers, who wait for none of it; checkpoints
//! by the clock, which come without cleaning, too; and what a writer waits for who is short of space (`pace`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Stretches shorter than 2^10 ns are in the first bucket; each doubling from there on has four.
const SHORTEST: u32 = 10;
/// The doublings; what is longer than 2^36 ns, 69 s, is in the last bucket.
const DOUBLINGS: usize = 26;
const BUCKETS: usize = 1 + 4 * DOUBLINGS;

/// The bucket of a length: whole numbers alone, so that every machine counts the same.
fn bucket(nanos: u64) -> usize {
    match nanos.checked_ilog2() {
        Some(doubling) if doubling >= SHORTEST => {
            let quarter = (nanos >> (doubling - 2)) & 3;
            (1 + 4 * (doubling - SHORTEST) as usize + quarter as usize).min(BUCKETS - 1)
        }
        _ => 0,
    }
}

/// Counts the stretches in which the background kept changes waiting.
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
    /// One more. Nobody waits for what takes no time.
    pub(crate) fn count(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        if nanos > 0 {
            self.count[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
            self.nanos[bucket(nanos)].fetch_add(nanos, Ordering::Relaxed);
            self.longest.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// The longest one since the mount.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Those since the mount.
    pub fn so_far(&self) -> Waits {
        Waits(std::array::from_fn(|n| Bucket {
            count: self.count[n].load(Ordering::Relaxed),
            nanos: self.nanos[n].load(Ordering::Relaxed),
        }))
    }
}

/// Stretches of about the same length: how many, and how long together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    count: u64,
    nanos: u64,
}

/// The stretches of some time, and so the waits of those who came during them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits([Bucket; BUCKETS]);

impl Waits {
    /// Those between an earlier moment and this one.
    pub fn since(&self, earlier: &Waits) -> Waits {
        Waits(std::array::from_fn(|n| Bucket {
            count: self.0[n].count.saturating_sub(earlier.0[n].count),
            nanos: self.0[n].nanos.saturating_sub(earlier.0[n].nanos),
        }))
    }

    /// How many stretches.
    pub fn stretches(&self) -> u64 {
        self.0.iter().map(|b| b.count).sum()
    }

    /// How long they took together: who comes in it waits.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|b| b.nanos).sum())
    }

    /// The wait that so many percent of those who come meanwhile do not exceed; none if there was nothing to wait for. The
    /// stretches of a bucket count as equally long.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let lengths = || self.0.iter().filter(|b| b.count > 0).map(|b| (b.count as f64, b.nanos as f64));
        let longer = lengths().map(|(_, nanos)| nanos).sum::<f64>() * (1.0 - percent / 100.0);
        let mut rest = lengths().rev().peekable();
        // All stretches that are longer than the wait.
        let (mut count, mut nanos) = (0.0, 0.0);
        while let Some((n, time)) = rest.next() {
            (count, nanos) = (count + n, nanos + time);
            // So much more than this wait is left of them.
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
        // Nine short steps, and one as long as all of them.
        let waits = of(&[[1_000_000; 9].as_slice(), &[9_000_000]].concat());
        assert_eq!((waits.stretches(), waits.time()), (10, Duration::from_millis(18)));
        // In half of the time the long one is under way; a ninth of that is its last millisecond.
        let longer_than_1_ms: f64 = 100.0 * 8.0 / 18.0;
        let found = waits.percentile(100.0 - longer_than_1_ms).unwrap().as_nanos();
        assert!(found.abs_diff(1_000_000) <= 1, "{found}");
        assert!(waits.percentile(50.0).unwrap() < Duration::from_millis(1));
    }

    #[test]
    fn waits_are_those_of_callers_who_come_at_random() {
        let mut rng = device::Rng::new(7);
        // From 30 us to a second, in all doublings alike.
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
        // A bucket's lengths differ by a quarter at most.
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
