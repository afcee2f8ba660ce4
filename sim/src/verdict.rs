//! Is a difference better, worse, or not told?
//!
//! For comparisons other than those of replays: the laboratory's variants.

use device::energy::Range;

use crate::replay::judged::{Difference, Verdict};

impl Difference {
    /// The verdict on a difference of energy, given its limits at other prices within the ranges of the profile's numbers.
    pub fn verdict(&self, at_other_prices: Option<Range<f64>>) -> Verdict {
        match self.interval {
            None => Verdict::OneSeed,
            Some(_) if !self.is_seen() => Verdict::NoDifference,
            Some(_) if at_other_prices.is_some_and(|range| range.low <= 0.0 && range.high >= 0.0) => Verdict::Depends,
            Some((_, high)) if high < 0.0 => Verdict::Better,
            Some(_) => Verdict::Worse,
        }
    }
}
