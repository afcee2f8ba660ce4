//! On what volume is the work done, and how did it come into its state?
//!
//! The parameters that kinds of work on a volume share, and the bench that they make. Left out on purpose: what
//! is done there.

use device::energy::profile::Profile;
use f2fs::{MountOptions, mkfs};
use format::superblock::Features;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use toml::Table;

use super::Measured;
use crate::bench::{Bench, blocks_of_mib};
use crate::error::LabError;
use crate::plan::Job;
use crate::progress::Progress;

/// The volume.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    /// Its mebibytes.
    volume_mib: u64,
    /// The recipe that brings it into its state; a new volume without.
    #[serde(default)]
    state: Option<String>,
    /// What the device is told of blocks that hold nothing any more.
    #[serde(default)]
    discards: Discards,
}

/// What a device is told of blocks that hold nothing any more.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub(super) enum Discards {
    /// Nothing.
    None,
    /// At each checkpoint the segments it freed.
    #[default]
    Segments,
    /// That, and every free block once the volume is in its state, as Linux tells a volume that is over 80 % full.
    Blocks,
}

/// What plans call the fields of [`Given`].
const FIELDS: [&str; 3] = ["volume_mib", "state", "discards"];

impl Given {
    /// True if it is brought into a state first, which is a part of the work.
    pub fn is_aged(&self) -> bool {
        self.state.is_some()
    }

    /// A bench with the volume on it, in its state, and what bringing it there took. `progress` is of that.
    pub fn bench(
        &self,
        profile: &Profile,
        job: &Job,
        options: MountOptions,
        progress: &Progress<'_>,
    ) -> Result<(Bench, Measured), LabError> {
        self.bench_with(profile, job, mkfs::Options::default().features, options, progress)
    }

    /// The same, and does `something` on the volume when it is new, or when the first of the recipes is carried out.
    pub fn bench_around(
        &self,
        profile: &Profile,
        job: &Job,
        options: MountOptions,
        progress: &Progress<'_>,
        something: &mut dyn FnMut(&Bench) -> Result<(), LabError>,
    ) -> Result<(Bench, Measured), LabError> {
        let mut bench = Bench::new(profile, blocks_of_mib(self.volume_mib))?;
        bench.format_with(job.seed, mkfs::Options::default().features, options)?;
        let Some(recipe) = &self.state else {
            something(&bench)?;
            return Ok((bench, Measured::default()));
        };
        let (phase, histogram) = bench.age_around(recipe, job.seed, progress, something)?;
        Ok((bench, (vec![phase], vec![histogram])))
    }

    /// The same with a volume of these features.
    pub fn bench_with(
        &self,
        profile: &Profile,
        job: &Job,
        features: Features,
        mut options: MountOptions,
        progress: &Progress<'_>,
    ) -> Result<(Bench, Measured), LabError> {
        options.discard &= self.discards != Discards::None;
        let mut bench = Bench::new(profile, blocks_of_mib(self.volume_mib))?;
        bench.format_with(job.seed, features, options)?;
        let (mut phases, mut histograms) = (Vec::new(), Vec::new());
        if let Some(recipe) = &self.state {
            let (phase, histogram) = bench.age(recipe, job.seed, progress)?;
            phases.push(phase);
            histograms.push(histogram);
        }
        if self.discards == Discards::Blocks {
            bench.volume()?.trim(1)?;
        }
        Ok((bench, (phases, histograms)))
    }
}

/// Parameters of some work on a volume: in a plan one table, each of the two with fields of its own.
pub(super) struct OnVolume<P> {
    /// The volume's.
    pub given: Given,
    /// Those of the work.
    pub work: P,
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for OnVolume<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut work = Table::deserialize(from)?;
        let given: Table = FIELDS.into_iter().filter_map(|field| work.remove_entry(field)).collect();
        Ok(OnVolume {
            given: given.try_into().map_err(D::Error::custom)?,
            // Its own fields are not all there are.
            work: work.try_into().map_err(|e: toml::de::Error| match e.message().starts_with("unknown field") {
                true => D::Error::custom(format!("{}, {}", e.message(), FIELDS.map(|f| format!("`{f}`")).join(", "))),
                false => D::Error::custom(e),
            })?,
        })
    }
}
