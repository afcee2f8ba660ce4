//! How often did a device rest, and for how long each time?
//!
//! Which share of the pauses is spent asleep depends on numbers of the profile, and those may be off. So pauses are
//! counted by length, in classes of which each is at most a thirty-second wider than its shortest pause; a class keeps the
//! sum of its lengths, so pauses of equal length are known exactly. Left out: when they were.

use std::collections::BTreeMap;

use super::units::Nanos;

/// A pause, measured by the device from the end of its last work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Its length so far.
    pub length: Nanos,
    /// A request ended it, and woke the device if it slept.
    pub ended: bool,
}

/// Pauses of about one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Their mean length, in nanoseconds.
    pub length: f64,
    /// Their number. Negative for what an earlier ledger contains of a pause that goes on.
    pub count: f64,
    /// Requests ended them.
    pub ended: bool,
}

/// The pauses of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pauses {
    /// Number and sum of lengths, by whether a request ended them and by class.
    classes: BTreeMap<(bool, u64), (i64, i128)>,
    /// The pause that goes on.
    open: Option<Nanos>,
}

/// Classes per octave.
const CLASSES: u32 = 32;

/// Pauses shorter than this have a class for each length.
const EXACT: u64 = 2 * CLASSES as u64;

fn class(length: Nanos) -> u64 {
    if length.0 < EXACT {
        return length.0;
    }
    let octave = length.0.ilog2();
    // The leading digits, from CLASSES to 2 * CLASSES - 1.
    let digits = length.0 >> (octave - CLASSES.ilog2());
    u64::from(octave) * u64::from(CLASSES) + digits
}

impl Pauses {
    /// Counts a pause that the device reports: anew each time it looks, and when it ends.
    pub fn report(&mut self, pause: Pause) {
        if let Some(before) = self.open.take().filter(|before| *before > pause.length) {
            // The device worked for itself meanwhile, and rests again.
            self.count(before, false, 1);
        }
        match pause.ended {
            true => self.count(pause.length, true, 1),
            false => self.open = Some(pause.length),
        }
    }

    fn count(&mut self, length: Nanos, ended: bool, times: i64) {
        let (count, sum) = self.classes.entry((ended, class(length))).or_default();
        *count += times;
        *sum += i128::from(times) * i128::from(length.0);
    }

    /// The pauses since `earlier`, a state of the same count.
    pub fn since(&self, earlier: &Pauses) -> Pauses {
        let mut out = self.clone();
        for (class, (count, sum)) in &earlier.classes {
            let own = out.classes.entry(*class).or_default();
            *own = (own.0 - count, own.1 - sum);
        }
        out.classes.retain(|_, (count, sum)| (*count, *sum) != (0, 0));
        if let Some(begun) = earlier.open {
            out.count(begun, false, -1);
        }
        out
    }

    /// All of them.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        let open = self.open.map(|length| Class { length: length.0 as f64, count: 1.0, ended: false });
        let of = |((ended, _), (count, sum)): (&(bool, u64), &(i64, i128))| {
            // One pause less than an earlier, shorter one of its class has no mean, but a difference.
            let (count, sum) = (*count as f64, *sum as f64);
            let length = if count == 0.0 { 0.0 } else { sum / count };
            Class { length, count, ended: *ended }
        };
        self.classes.iter().map(of).filter(|class| class.count != 0.0).chain(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(length: u64) -> Pause {
        Pause { length: Nanos(length), ended: true }
    }

    #[test]
    fn a_class_is_at_most_a_thirty_second_wide_and_every_length_has_one() {
        let lengths = (0..4000).chain((12..64).flat_map(|n| [(1_u64 << n) - 1, 1 << n, (1 << n) + (1 << (n - 6))]));
        let mut lengths: Vec<u64> = lengths.collect();
        lengths.sort_unstable();
        for pair in lengths.windows(2) {
            let (a, b) = (class(Nanos(pair[0])), class(Nanos(pair[1])));
            assert!(a <= b, "{pair:?}");
            assert!(a != b || (pair[1] - pair[0]) * u64::from(CLASSES) <= pair[0], "{pair:?}");
        }
    }

    #[test]
    fn a_pause_that_is_looked_at_is_one_pause() {
        let mut pauses = Pauses::default();
        for length in [10, 20, 30] {
            pauses.report(Pause { length: Nanos(length), ended: false });
        }
        let earlier = pauses.clone();
        pauses.report(ended(35));
        assert_eq!(pauses.classes().collect::<Vec<_>>(), [Class { length: 35.0, count: 1.0, ended: true }]);
        let since: Vec<Class> = pauses.since(&earlier).classes().collect();
        let begun = Class { length: 30.0, count: -1.0, ended: false };
        assert_eq!(since, [begun, Class { length: 35.0, count: 1.0, ended: true }]);
        // The device works for itself and rests again.
        pauses.report(Pause { length: Nanos(9), ended: false });
        pauses.report(Pause { length: Nanos(3), ended: false });
        assert_eq!(pauses.classes().map(|class| class.count).sum::<f64>(), 3.0);
    }
}
