//! How many joules did a power meter measure between two times?

use std::collections::VecDeque;

/// Maximum number of readings kept.
const READINGS: usize = 1 << 20;

/// The readings of a power meter, ordered by time.
#[derive(Default)]
pub struct Power {
    pub readings: VecDeque<(u64, f64)>,
}

impl Power {
    /// Adds a reading.
    pub fn add(&mut self, time: u64, watts: f64) {
        let at = self.readings.iter().rposition(|(t, _)| *t <= time).map_or(0, |n| n + 1);
        self.readings.insert(at, (time, watts));
        if self.readings.len() > READINGS {
            self.readings.pop_front();
        }
    }

    /// Joules between two times; `None` if the readings do not cover the whole period. A reading is the mean power
    /// since the previous one.
    pub fn joules(&self, from: u64, to: u64) -> Option<f64> {
        let (first, last) = (self.readings.front()?.0, self.readings.back()?.0);
        if from < first || to > last {
            return None;
        }
        let mut sum = 0.0;
        for ((began, _), (ended, watts)) in self.readings.iter().zip(self.readings.iter().skip(1)) {
            let inside = (*ended).min(to).saturating_sub((*began).max(from));
            sum += watts * inside as f64 / 1e9;
        }
        Some(sum)
    }

    /// Discards readings that are no longer needed.
    pub fn forget(&mut self, before: u64) {
        while self.readings.get(1).is_some_and(|(time, _)| *time <= before) {
            self.readings.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn power_is_summed_over_the_time_that_it_was_measured() {
        let mut power = Power::default();
        // Out of order.
        for (time, watts) in [(10 * S, 1.0), (12 * S, 3.0), (11 * S, 2.0), (13 * S, 4.0)] {
            power.add(time, watts);
        }
        assert_eq!(power.joules(10 * S, 13 * S), Some(9.0));
        assert_eq!(power.joules(10 * S + S / 2, 12 * S + S / 4), Some(1.0 + 3.0 + 1.0));
        assert_eq!((power.joules(9 * S, 11 * S), power.joules(12 * S, 14 * S)), (None, None), "not measured");
        power.forget(11 * S);
        assert_eq!(power.joules(11 * S, 13 * S), Some(7.0));
    }
}
