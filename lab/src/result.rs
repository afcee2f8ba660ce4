//! What came out of an experiment: its variants, each with its phases ([`sim::result`]), beside the paper's numbers.
//!
//! The same plan, profile, seed and version give the same file, byte for byte.

use device::energy::Energy;
use serde::{Deserialize, Serialize};
use sim::result::{Histogram, Phase};
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
    /// Whether it ran small.
    pub quick: bool,
    /// What came out, in the plan's order.
    pub variants: Vec<VariantResult>,
    /// Variants that did not run for want of a file, and which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The paper's numbers and ours.
    #[serde(default)]
    pub compared: Vec<Comparison>,
}

/// A variant that did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub variant: String,
    /// What is not here, in words.
    pub why: String,
}

/// What came out of one variant with one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// The device's profile.
    pub profile: String,
    /// What was random came from it.
    pub seed: u64,
    /// What it ran with.
    pub parameters: Table,
    /// What was measured, in order.
    pub phases: Vec<Phase>,
    /// Distributions: free space, extents.
    #[serde(default)]
    pub histograms: Vec<Histogram>,
    /// What cleaning cost and left, and what the work after it cost, where a plan asks for that work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
}

/// What cleaning cost and left, and what the work after it cost ([`crate::cost`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// Sections cleaned while it was measured, for whomever.
    pub gcs: u64,
    /// Blocks they moved.
    pub moved: u64,
    /// Free segments at the end of what was measured.
    pub held: u64,
    /// Spent while it was measured.
    pub measured: Energy,
    /// Spent by the work after.
    pub after: Energy,
    /// The sum of both.
    pub in_all: Energy,
}

impl Outcome {
    /// A variant as it is told from the others: its seed is named where there are several.
    pub fn name_of(&self, v: &VariantResult) -> String {
        let several = self.variants.iter().any(|w| w.name == v.name && w.seed != v.seed);
        if several { format!("{} (seed {})", v.name, v.seed) } else { v.name.clone() }
    }

    /// Every phase with its variant.
    pub fn phases(&self) -> impl Iterator<Item = (&VariantResult, &Phase)> {
        self.variants.iter().flat_map(|v| v.phases.iter().map(move |p| (v, p)))
    }

    /// What its file is called: the profiles and seeds that made it.
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
