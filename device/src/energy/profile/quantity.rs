//! Numbers with their sources.

use serde::{Deserialize, Serialize};

use crate::energy::units::{Energy, Nanos, Power};

/// Confidence in a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Measured in the named source.
    Measured,
    /// A vendor's statement or data sheet.
    Vendor,
    /// Default of a simulator.
    Simulator,
    /// Computed from measured or vendor numbers.
    Derived,
    /// Fitted to measured rows.
    Fitted,
    /// Chosen here because no source gives it.
    Assumed,
}

impl Confidence {
    /// Lower and upper limit, as factors of the number, between which the true one lies in nine of ten cases, for
    /// numbers whose own range is not known.
    ///
    /// * *Measured, fitted*: one laboratory measured the same read as 2.84 and as 2.53 mJ a megabyte (FAGC TACO'23,
    ///   sections 4.1 and 4.2): two sessions 12 % apart.
    /// * *Vendor, derived* from data sheets, which give the most: a drive at its vendor's 4.4 W drew 3.09 to 4.03 W
    ///   (Computerbase, test of the Samsung 850 EVO, 2014), 8 to 30 % less.
    /// * *Simulator, assumed*: half to twice, by convention.
    pub fn factors(self) -> (f64, f64) {
        match self {
            Confidence::Measured | Confidence::Fitted => (1.0 / 1.12, 1.12),
            Confidence::Vendor | Confidence::Derived => (0.7, 1.05),
            Confidence::Simulator | Confidence::Assumed => (0.5, 2.0),
        }
    }
}

/// Energy per byte, in femtojoules, so that prices of a few hundred picojoules keep four digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct PerByte(pub u64);

impl PerByte {
    /// Energy of `bytes` bytes, rounded down to a picojoule.
    pub fn of(self, bytes: u64) -> Energy {
        Energy(u64::try_from(u128::from(self.0) * u128::from(bytes) / 1000).unwrap_or(u64::MAX))
    }
}

/// Time per byte, in femtoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TimePerByte(pub u64);

impl TimePerByte {
    /// Time of `bytes` bytes, rounded down to a nanosecond.
    pub fn of(self, bytes: u64) -> Nanos {
        Nanos(u64::try_from(u128::from(self.0) * u128::from(bytes) / 1_000_000).unwrap_or(u64::MAX))
    }
}

/// A kind of number in a profile, and the units in which it may be written.
pub trait Unit: Sized + Copy {
    /// Units, each with its value in the type's smallest unit.
    const UNITS: &'static [(&'static str, f64)];
    /// From the smallest unit.
    fn from_smallest(n: f64) -> Self;
    /// In the smallest unit.
    fn smallest(self) -> f64;
}

macro_rules! unit {
    ($t:ty, $int:ty, $($name:literal = $factor:expr),* $(,)?) => {
        impl Unit for $t {
            const UNITS: &'static [(&'static str, f64)] = &[$(($name, $factor)),*];
            fn from_smallest(n: f64) -> Self {
                Self(n.round() as $int)
            }
            fn smallest(self) -> f64 {
                self.0 as f64
            }
        }
    };
}

const MIB: f64 = 1_048_576.0;
unit!(Energy, u64, "pJ" = 1.0, "nJ" = 1e3, "uJ" = 1e6, "mJ" = 1e9, "J" = 1e12);
unit!(Power, u64, "uW" = 1.0, "mW" = 1e3, "W" = 1e6);
unit!(Nanos, u64, "ns" = 1.0, "us" = 1e3, "ms" = 1e6, "s" = 1e9);
unit!(PerByte, u64, "fJ/B" = 1.0, "pJ/B" = 1e3, "uJ/KB" = 1e9 / 1024.0, "mJ/MB" = 1e12 / MIB);
unit!(TimePerByte, u64, "fs/B" = 1.0, "ns/B" = 1e6, "ms/MB" = 1e12 / MIB);

impl Unit for u64 {
    const UNITS: &'static [(&'static str, f64)] =
        &[("", 1.0), ("B", 1.0), ("KiB", 1024.0), ("MiB", MIB), ("GiB", 1024.0 * MIB), ("rpm", 1.0)];
    fn from_smallest(n: f64) -> Self {
        n.round() as u64
    }
    fn smallest(self) -> f64 {
        self as f64
    }
}

impl Unit for f64 {
    const UNITS: &'static [(&'static str, f64)] = &[("", 1.0), ("%", 0.01)];
    fn from_smallest(n: f64) -> Self {
        n
    }
    fn smallest(self) -> f64 {
        self
    }
}

/// The form in a file: `{ value = 24.3, unit = "uJ", confidence = "fitted", source = "..." }`, and `range = [22, 27]`
/// if it is known.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub value: f64,
    #[serde(default)]
    pub unit: String,
    pub confidence: Confidence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    pub source: String,
}

/// A number with its unit, source and confidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written", bound = "")]
pub struct Quantity<T: Unit> {
    /// The number.
    pub value: T,
    /// The unit in the file.
    pub unit: String,
    /// Its confidence.
    pub confidence: Confidence,
    /// Limits between which the true one lies in nine of ten cases, in the file's unit, if its source has them.
    pub range: Option<(f64, f64)>,
    /// Its source.
    pub source: String,
}

impl<T: Unit> Quantity<T> {
    /// The number in the file's unit.
    pub fn as_written(&self) -> f64 {
        let factor = T::UNITS.iter().find(|(n, _)| *n == self.unit).map_or(1.0, |(_, f)| *f);
        self.value.smallest() / factor
    }

    /// Multiplies it, and its range, by `factor`.
    pub fn scale(&mut self, factor: f64) {
        self.value = T::from_smallest(self.value.smallest() * factor);
        self.range = self.range.map(|(low, high)| (low * factor, high * factor));
    }
}

impl<T: Unit> TryFrom<Written> for Quantity<T> {
    type Error = String;
    fn try_from(w: Written) -> Result<Self, String> {
        let Some((_, factor)) = T::UNITS.iter().find(|(n, _)| *n == w.unit) else {
            let known: Vec<_> = T::UNITS.iter().map(|(n, _)| format!("{n:?}")).collect();
            return Err(format!("unit {:?} is none of {}", w.unit, known.join(", ")));
        };
        let smallest = w.value * factor;
        if !(0.0..1.8e19).contains(&smallest) {
            return Err(format!("{} {} is negative, too large or not a number", w.value, w.unit));
        }
        if w.source.trim().is_empty() {
            return Err("source is empty: every number needs a source".into());
        }
        // The number may have been rounded since, to a whole one of the smallest unit.
        let rounding = 0.5 / factor + 1e-9 * w.value;
        let holds = |(low, high): &(f64, f64)| {
            *low >= 0.0 && high.is_finite() && *low <= w.value + rounding && *high >= w.value - rounding
        };
        if let Some((low, high)) = w.range.filter(|range| !holds(range)) {
            return Err(format!("range [{low}, {high}] does not contain {} {}", w.value, w.unit));
        }
        let (unit, confidence, range, source) = (w.unit, w.confidence, w.range, w.source);
        Ok(Quantity { value: T::from_smallest(smallest), unit, confidence, range, source })
    }
}

impl<T: Unit> From<Quantity<T>> for Written {
    fn from(q: Quantity<T>) -> Written {
        let value = q.as_written();
        Written { value, unit: q.unit, confidence: q.confidence, range: q.range, source: q.source }
    }
}
