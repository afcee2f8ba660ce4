//! An experiment's result: its variants, each with its phases ([`sim::result`]), next to the paper's numbers.
//!
//! The same plan, profile, seed and version give the same file, byte for byte.

use device::energy::{Draws, Energy};
use serde::{Deserialize, Serialize};
use sim::replay::judged::Difference;
use sim::result::{Histogram, Phase, Stage};
use toml::Table;

use crate::claim::Comparison;

/// One run of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The experiment.
    pub experiment: String,
    /// Its title.
    pub title: String,
    /// The version of the program.
    pub version: String,
    /// Whether it was a quick run.
    pub quick: bool,
    /// The results, in the plan's order.
    pub variants: Vec<VariantResult>,
    /// Skipped variants, and which files they lack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The paper's numbers and ours.
    #[serde(default)]
    pub compared: Vec<Comparison>,
    /// The variants next to their controls, if this was read from a file of results; whoever stores a result adds them.
    #[serde(default, skip_serializing)]
    pub comparison: Vec<Stored>,
}

/// A variant's comparison, as it is stored with the results.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Stored {
    /// The variant.
    pub name: String,
    /// Its control; none for a control.
    pub against: Option<String>,
    /// The seeds of its runs.
    pub seeds: Vec<u64>,
    /// Mean energy of its runs.
    #[serde(rename = "mean_pj")]
    pub mean: Energy,
    /// Mean difference to the control in percent.
    pub difference_percent: Option<f64>,
    /// Limits of its confidence interval.
    pub interval_percent: Option<(f64, f64)>,
    /// Its limits at other prices.
    pub price_range_percent: Option<(f64, f64)>,
    /// The verdict in words.
    pub verdict: String,
    /// Reasons and reservations.
    pub why: Vec<String>,
}

impl Stored {
    /// The difference, if there is one.
    pub fn difference(&self) -> Option<Difference> {
        Some(Difference { mean: self.difference_percent?, interval: self.interval_percent })
    }
}

/// A skipped variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub variant: String,
    /// What is missing, in words.
    pub why: String,
}

/// The result of one variant with one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// The device's profile.
    pub profile: String,
    /// The random seed.
    pub seed: u64,
    /// Its parameters.
    pub parameters: Table,
    /// The measured phases, in order.
    pub phases: Vec<Phase>,
    /// Distributions: free space, extents.
    #[serde(default)]
    pub histograms: Vec<Histogram>,
    /// What cleaning cost, the free space it left, and the cost of the work after, if the plan has such work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Its energy at other prices, except preparation; none if a phase is not simulated. Not serialized.
    #[serde(skip)]
    pub draws: Option<Draws>,
}

impl VariantResult {
    /// What is compared between variants: all phases but preparation.
    pub fn judged(&self) -> impl Iterator<Item = &Phase> {
        self.phases.iter().filter(|phase| phase.stage != Stage::Preparation)
    }
}

/// What cleaning cost, the free space it left, and what the work after it cost ([`crate::cost`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// Sections cleaned during the measurement, in foreground and background.
    pub gcs: u64,
    /// Blocks moved.
    pub moved: u64,
    /// Free segments at the end of the measurement.
    pub held: u64,
    /// Energy during the measurement.
    #[serde(rename = "measured_pj", alias = "measured")]
    pub measured: Energy,
    /// Energy of the work after.
    #[serde(rename = "after_pj", alias = "after")]
    pub after: Energy,
    /// The sum of both.
    #[serde(rename = "in_all_pj", alias = "in_all")]
    pub in_all: Energy,
}

impl Outcome {
    /// A variant's unique name: includes the seed if there are several.
    pub fn name_of(&self, v: &VariantResult) -> String {
        let several = self.variants.iter().any(|w| w.name == v.name && w.seed != v.seed);
        if several { format!("{} (seed {})", v.name, v.seed) } else { v.name.clone() }
    }

    /// The variants with their first seed.
    pub fn first_of_each(&self) -> impl Iterator<Item = &VariantResult> {
        let is_first = |n: usize| self.variants[..n].iter().all(|v| v.name != self.variants[n].name);
        self.variants.iter().enumerate().filter(move |(n, _)| is_first(*n)).map(|(_, v)| v)
    }

    /// Every phase with its variant.
    pub fn phases(&self) -> impl Iterator<Item = (&VariantResult, &Phase)> {
        self.variants.iter().flat_map(|v| v.phases.iter().map(move |p| (v, p)))
    }

    /// The name of its file: from the profiles and seeds.
    pub fn file_name(&self) -> String {
        let mut profiles: Vec<_> = self.variants.iter().map(|v| file_stem(&v.profile)).collect();
        let mut seeds: Vec<_> = self.variants.iter().map(|v| v.seed).collect();
        profiles.sort();
        profiles.dedup();
        seeds.sort_unstable();
        seeds.dedup();
        let seeds: Vec<_> = seeds.iter().map(ToString::to_string).collect();
        let quick = if self.quick { ".quick" } else { "" };
        format!("{}.seed-{}{quick}.json", profiles.join("+"), seeds.join("+"))
    }
}

fn file_stem(profile: &str) -> String {
    std::path::Path::new(profile)
        .file_name()
        .map_or_else(|| profile.to_owned(), |n| n.to_string_lossy().trim_end_matches(".toml").to_owned())
}
