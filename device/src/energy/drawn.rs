//! What may the numbers of a profile be instead?
//!
//! Draws of a number from its limits. They depend only on what the number says: value, limits, unit and source. Left out:
//! what is made from them ([`super::range`]).

use std::collections::HashMap;

use super::profile::{Number, Profile, Unit};
use super::units::{Energy, Nanos, Power};
use crate::Rng;

/// Number of draws. The standard error of a limit of nine in ten is then 1.4 % of the distance between both.
pub const DRAWS: usize = 2000;

/// A standard normal number exceeds this in one of twenty cases.
const Z95: f64 = 1.645;

/// An amount in picojoules, and the numbers of which it is a product with something exact. Negative amounts belong to a
/// time that is spent otherwise if another one is longer.
pub type Term = (f64, Vec<String>);

/// The numbers of a profile, and draws of those that are needed.
pub struct Numbers {
    numbers: HashMap<String, Number>,
    factors: HashMap<String, Vec<f64>>,
}

impl Numbers {
    /// All numbers of a profile.
    pub fn new(profile: &Profile) -> Self {
        let numbers = profile.numbers().into_iter().map(|number| (number.name.clone(), number)).collect();
        Numbers { numbers, factors: HashMap::new() }
    }

    /// Multiplies amounts by the draws of a number, as factors of it.
    pub fn multiply(&mut self, name: String, amounts: &mut [f64]) {
        let Some(number) = self.numbers.get(&name) else { return };
        let factors = self.factors.entry(name).or_insert_with(|| factors(number));
        amounts.iter_mut().zip(factors).for_each(|(amount, factor)| *amount *= *factor);
    }

    /// A time, power or energy in nanoseconds, microwatts or picojoules; 0 if the profile lacks it.
    pub fn value(&self, name: &str) -> f64 {
        self.numbers.get(name).map_or(0.0, |number| number.value * smallest(number))
    }

    /// Its draws. A number that is taken to be 0 and may be more is 0 in half of them.
    pub fn drawn(&self, name: &str) -> Vec<f64> {
        match self.numbers.get(name) {
            None => vec![0.0; DRAWS],
            Some(number) if number.value <= 0.0 => {
                let high = number.limits().1 * smallest(number);
                normal(number).map(|z| high * (z / Z95).max(0.0)).collect()
            }
            Some(number) => {
                let value = number.value * smallest(number);
                factors(number).into_iter().map(|factor| value * factor).collect()
            }
        }
    }
}

/// What the unit of a time, power or energy is in nanoseconds, microwatts or picojoules.
fn smallest(number: &Number) -> f64 {
    let units = Nanos::UNITS.iter().chain(Power::UNITS).chain(Energy::UNITS);
    units.into_iter().find(|(name, _)| *name == number.unit).map_or(1.0, |(_, factor)| *factor)
}

/// Draws of a standard normal distribution: sums of twelve uniform numbers, so that they are equal on all machines.
fn normal(number: &Number) -> impl Iterator<Item = f64> + use<> {
    let what = format!("{} {:?} {} {}", number.value, number.limits(), number.unit, number.source);
    // FNV-1a; a seed needs no better hash.
    let seed = what.bytes();
    let seed =
        seed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut rng = Rng::new(seed);
    let mut uniform = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    std::iter::repeat_with(move || (0..12).map(|_| uniform()).sum::<f64>() - 6.0).take(DRAWS)
}

/// Draws of a number, as factors of it.
fn factors(number: &Number) -> Vec<f64> {
    let (low, high) = number.limits();
    let at = |z: f64| match (low, high, number.value) {
        (.., value) if value <= 0.0 => 1.0,
        (_, high, value) if z >= 0.0 && high > 2.0 * value => 1.0 + z / Z95 * (high / value - 1.0),
        (low, _, value) if z < 0.0 && low <= 0.0 => (1.0 + z / Z95 * (1.0 - low / value)).max(0.0),
        (low, _, value) if z < 0.0 => (low / value).powf(-z / Z95),
        (_, high, value) => (high / value).powf(z / Z95),
    };
    normal(number).map(at).collect()
}
