//! How many bytes are moved over time? In equal intervals, for recordings of any length.

use serde::Serialize;

/// Most intervals; with more, pairs are merged.
const MOST: usize = 512;

/// Bytes read and written over time.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Activity {
    /// Nanoseconds per interval.
    pub step_ns: u64,
    /// Bytes read per interval.
    pub read: Vec<u64>,
    /// Bytes written per interval.
    pub written: Vec<u64>,
}

impl Default for Activity {
    fn default() -> Self {
        Activity { step_ns: 1_000_000, read: Vec::new(), written: Vec::new() }
    }
}

impl Activity {
    /// Adds bytes moved at `since` nanoseconds after the beginning.
    pub fn add(&mut self, since: u64, bytes: u64, write: bool) {
        while since / self.step_ns >= MOST as u64 {
            for list in [&mut self.read, &mut self.written] {
                *list = list.chunks(2).map(|two| two.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))).collect();
            }
            self.step_ns = self.step_ns.saturating_mul(2);
        }
        let at = (since / self.step_ns) as usize;
        if self.read.len() <= at {
            self.read.resize(at + 1, 0);
            self.written.resize(at + 1, 0);
        }
        let list = if write { &mut self.written } else { &mut self.read };
        list[at] = list[at].saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_stretches_become_longer() {
        let mut a = Activity::default();
        for n in 0..100_000_u64 {
            a.add(n * 3_333_333, 10, n % 2 == 0);
        }
        a.add(u64::MAX, 7, true);
        assert!(a.read.len() <= MOST && a.read.len() == a.written.len());
        assert_eq!((a.read.iter().sum::<u64>(), a.written.iter().sum::<u64>()), (500_000, 500_007));
    }
}
