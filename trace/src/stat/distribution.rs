//! How are values distributed? Quantiles of times, size classes by powers of two.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times in nanoseconds with three significant digits; the sum and the extremes are exact.
#[derive(Debug, Clone)]
pub struct Times {
    histogram: Histogram<u64>,
    sum: u128,
    least: u64,
    most: u64,
}

/// Distribution of times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Spread {
    /// Number of times.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Minimum.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        // OK to unwrap: three digits are valid.
        let histogram = Histogram::new(3).unwrap();
        Times { histogram, sum: 0, least: u64::MAX, most: 0 }
    }
}

impl Times {
    /// Adds a time.
    pub fn add(&mut self, nanos: u64) {
        // The histogram grows up to 36 years; longer times count as that.
        if self.histogram.record(nanos.min(1 << 60)).is_err() {
            self.histogram.saturating_record(nanos);
        }
        self.sum += u128::from(nanos);
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }

    /// Adds other times.
    pub fn merge(&mut self, others: &Times) {
        // OK to drop the error: both histograms resize and have three digits.
        let _ = self.histogram.add(&others.histogram);
        self.sum += others.sum;
        self.least = self.least.min(others.least);
        self.most = self.most.max(others.most);
    }

    /// The distribution; `None` if empty.
    pub fn spread(&self) -> Option<Spread> {
        let count = self.histogram.len();
        if count == 0 {
            return None;
        }
        let at = |q| self.histogram.value_at_quantile(q).clamp(self.least, self.most);
        Some(Spread {
            count,
            mean_ns: self.sum as f64 / count as f64,
            min_ns: self.least,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.most,
        })
    }
}

/// Sizes by power of two.
#[derive(Debug, Clone, Serialize, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Number of sizes of 0 bytes, 1, 2 to 3, 4 to 7, and so on.
    #[serde(skip)]
    classes: Vec<u64>,
    /// Number of sizes.
    pub count: u64,
    /// Sum.
    pub bytes: u64,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

impl Sizes {
    /// Adds a size.
    pub fn add(&mut self, bytes: u64) {
        let class = (64 - bytes.leading_zeros()) as usize;
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] += 1;
        self.min = if self.count == 0 { bytes } else { self.min.min(bytes) };
        self.max = self.max.max(bytes);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The mean; 0 if empty.
    pub fn mean(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }

    /// Non-empty classes: least size and count; a class ends below twice its least size.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = |class: usize| if class == 0 { 0 } else { 1 << (class - 1) };
        self.classes.iter().enumerate().filter(|(_, n)| **n > 0).map(move |(class, n)| (from(class), *n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth_and_the_mean_exact() {
        let mut times = Times::default();
        assert_eq!(times.spread(), None);
        (1..=100_000).for_each(|n| times.add(n * 1000));
        let s = times.spread().unwrap();
        assert_eq!((s.count, s.min_ns, s.max_ns, s.mean_ns), (100_000, 1000, 100_000_000, 50_000_500.0));
        for (got, wanted) in [(s.p50_ns, 50e6), (s.p99_ns, 99e6), (s.p999_ns, 99.9e6)] {
            assert!((got as f64 / wanted - 1.0).abs() < 1e-3, "{got} for {wanted}");
        }
        times.add(u64::MAX);
        assert_eq!(times.spread().unwrap().max_ns, u64::MAX);
    }

    #[test]
    fn a_size_is_in_the_class_of_its_power_of_two() {
        let mut sizes = Sizes::default();
        [0, 1, 4095, 4096, 8191, 8192, u64::MAX].into_iter().for_each(|n| sizes.add(n));
        let classes: Vec<_> = sizes.classes().collect();
        assert_eq!(classes, [(0, 1), (1, 1), (2048, 1), (4096, 2), (8192, 1), (1 << 63, 1)]);
        assert_eq!((sizes.min, sizes.max, sizes.count), (0, u64::MAX, 7));
    }
}
