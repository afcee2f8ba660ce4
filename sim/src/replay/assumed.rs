//! Which inputs of a result are assumed, and which runs show how the result depends on them?
//!
//! A profile has the confidence of each number. Numbers without a source are assumed; the user may assume others
//! ([`super::given`]). To show their effect, the replay is repeated with half and with twice each number, one at a time.

use std::collections::BTreeSet;

use device::energy::profile::{Confidence, Number, Profile};
use device::energy::{Energy, Nanos};

use super::Sensitivity;
use super::given::GIVEN;
use super::variant::Variant;

/// The assumed numbers of a profile.
pub fn numbers(profile: &Profile) -> Vec<Number> {
    profile.numbers().into_iter().filter(|n| n.confidence == Confidence::Assumed).collect()
}

/// An assumed number, and the runs with half and twice its value.
pub struct Tried {
    /// The number.
    pub number: Number,
    /// Indices of the runs with half and twice the value; `None` if no such device is possible.
    pub runs: [Option<usize>; 2],
}

/// The runs that show how assumed numbers affect a result.
pub(super) fn runs(of: &Variant) -> (Vec<Tried>, Vec<Variant>) {
    let mut variants = Vec::new();
    let mut tried: Vec<Tried> = Vec::new();
    if let Some(every) = of.flush_every {
        let runs = [every.0 / 2, every.0.saturating_mul(2)].map(|every| {
            variants.push(Variant { flush_every: Some(Nanos(every)), ..of.clone() });
            Some(variants.len() - 1)
        });
        let (name, source) = ("flush".into(), GIVEN.into());
        let (value, unit) = (every.0 as f64 / 1e9, "s".into());
        tried.push(Tried {
            number: Number { name, value, unit, confidence: Confidence::Assumed, range: None, source },
            runs,
        });
    }
    tried.extend(numbers(&of.profile).into_iter().map(|number| {
        let runs = [0.5, 2.0].map(|factor| {
            if number.value == 0.0 {
                return None;
            }
            let profile = of.profile.with(&number.name, number.value * factor, None, GIVEN).ok()?;
            // A whole number may round to its original value.
            let same = profile.numbers().iter().any(|n| n.name == number.name && n.value == number.value);
            (!same).then(|| {
                variants.push(Variant { profile, ..of.clone() });
                variants.len() - 1
            })
        });
        Tried { number, runs }
    }));
    (tried, variants)
}

/// The numbers with which two runs compare the other way round. A number that only one of the devices has leaves the other
/// run as it is.
pub(super) fn turning(of: &Sensitivity, total: Energy, control: &Sensitivity, control_total: Energy) -> Vec<String> {
    let names: BTreeSet<&str> = [of, control].into_iter().flat_map(|s| &s.tried).map(|t| &*t.number.name).collect();
    let with = |s: &Sensitivity, name: &str, factor: usize, base: Energy| {
        let run = s.tried.iter().find(|t| t.number.name == name).and_then(|t| t.runs[factor]);
        run.map_or(base, |run| s.totals[run])
    };
    let mut out = Vec::new();
    for name in names {
        for (factor, word) in ["half", "twice"].into_iter().enumerate() {
            let ours = with(of, name, factor, total);
            let theirs = with(control, name, factor, control_total);
            if ours.cmp(&theirs) != total.cmp(&control_total) {
                out.push(format!("with {word} the assumed {name}: {ours} against {theirs}"));
            }
        }
    }
    out
}
