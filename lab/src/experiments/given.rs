//! On which volume does the work run, and how was it aged?
//!
//! The parameters that kinds of work on a volume share, and the test bench they define. Left out on purpose: the work.

use std::borrow::Cow;
use std::collections::BTreeMap;

use device::energy::profile::Profile;
use f2fs::mkfs;
use format::superblock::Features;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};
use volume::{Kind, MountOptions};

use super::Measured;
use crate::error::LabError;
use crate::plan::Job;
use sim::bench::{Bench, blocks_of_mib};
use sim::progress::Progress;

/// The volume.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    /// MiB of the volume.
    volume_mib: u64,
    /// The recipe that ages the volume; by default it is new.
    #[serde(default)]
    state: Option<String>,
    /// Which discards the device gets.
    #[serde(default)]
    discards: Discards,
    /// The file system: `f2fs` or `scherlfs`.
    #[serde(default)]
    #[schemars(with = "String")]
    fs: Kind,
    /// Mount options in addition to those of the work: options of `joulefs mount` by name.
    #[serde(default)]
    options: Named,
}

/// Options of `joulefs mount` by name.
#[derive(Deserialize, Default, JsonSchema)]
pub(super) struct Named(#[schemars(with = "BTreeMap<String, String>")] BTreeMap<String, Value>);

impl Named {
    /// The mount options of a file system if the work would mount F2FS with `options`.
    pub fn beside(&self, fs: Kind, options: f2fs::MountOptions) -> Result<MountOptions, LabError> {
        let mut all = MountOptions::of_f2fs(options);
        for (name, value) in &self.0 {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Boolean(on) => if *on { "on" } else { "off" }.to_owned(),
                other => other.to_string(),
            };
            all.set(name, Some(&value))?;
        }
        match all.foreign(fs) {
            Some(option) => Err(LabError::parameters(format!("options: {fs} has no option {option}"))),
            None => Ok(all),
        }
    }
}

/// Which discards the device gets for freed blocks.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Discards {
    /// None.
    None,
    /// At each checkpoint, the segments it freed.
    #[default]
    Segments,
    /// The same, plus every free block after aging, like Linux on a volume that is over 80 % full.
    Blocks,
}

/// The names of the fields of [`Given`] in plans.
const FIELDS: [&str; 5] = ["volume_mib", "state", "discards", "fs", "options"];

impl Given {
    /// Whether the volume is aged first, which is part of the run.
    pub fn is_aged(&self) -> bool {
        self.state.is_some()
    }

    fn mounted(&self, options: f2fs::MountOptions) -> Result<MountOptions, LabError> {
        self.options.beside(self.fs, options)
    }

    /// Checks that such a volume can be mounted; `only_f2fs` names a feature of the work that only F2FS has.
    pub fn check(&self, only_f2fs: Option<&str>) -> Result<(), LabError> {
        if let (Some(what), other @ Kind::ScherlFs) = (only_f2fs, self.fs) {
            return Err(LabError::parameters(format!("a volume of {other}: {what} is for F2FS alone")));
        }
        if self.discards == Discards::Blocks && self.fs != Kind::F2fs {
            return Err(LabError::parameters(format!(
                "a volume of {}: discards = \"blocks\" is for F2FS alone",
                self.fs
            )));
        }
        self.mounted(f2fs::MountOptions::default()).map(drop)
    }

    /// A bench with the aged volume on it, and the phases of aging. `progress` covers these.
    pub fn bench(
        &self,
        profile: &Profile,
        job: &Job,
        options: f2fs::MountOptions,
        progress: &Progress<'_>,
    ) -> Result<(Bench, Measured), LabError> {
        self.bench_with(profile, job, mkfs::Options::default().features, options, progress)
    }

    /// Like `bench`, but runs `something` on the new volume, or when the first recipe is executed.
    pub fn bench_around(
        &self,
        profile: &Profile,
        job: &Job,
        options: f2fs::MountOptions,
        progress: &Progress<'_>,
        something: &mut dyn FnMut(&Bench) -> Result<(), LabError>,
    ) -> Result<(Bench, Measured), LabError> {
        let mut bench = Bench::with_kind(self.fs, profile, blocks_of_mib(self.volume_mib))?;
        bench.format(job.seed, self.mounted(options)?)?;
        let Some(recipe) = &self.state else {
            something(&bench)?;
            return Ok((bench, Measured::default()));
        };
        let (phase, histogram) = bench.age_around(recipe, job.seed, progress, &mut |bench| Ok(something(bench)?))?;
        Ok((bench, (vec![phase], vec![histogram])))
    }

    /// Like `bench`, for a volume with these features.
    pub fn bench_with(
        &self,
        profile: &Profile,
        job: &Job,
        features: Features,
        mut options: f2fs::MountOptions,
        progress: &Progress<'_>,
    ) -> Result<(Bench, Measured), LabError> {
        options.discard &= self.discards != Discards::None;
        let mut bench = Bench::with_kind(self.fs, profile, blocks_of_mib(self.volume_mib))?;
        bench.format_with(job.seed, features, self.mounted(options)?)?;
        let (mut phases, mut histograms) = (Vec::new(), Vec::new());
        if let Some(recipe) = &self.state {
            let (phase, histogram) = bench.age(recipe, job.seed, progress)?;
            phases.push(phase);
            histograms.push(histogram);
        }
        if self.discards == Discards::Blocks {
            bench.f2fs()?.trim(1)?;
        }
        Ok((bench, (phases, histograms)))
    }
}

/// Parameters of work on a volume: one table in a plan, two structs here.
pub(super) struct OnVolume<P> {
    /// Those of the volume.
    pub given: Given,
    /// Those of the work.
    pub work: P,
}

/// The key in a parameter's schema that names the file that reads it, if it is not that of the kind of work.
pub(super) const READ_IN: &str = "x-read-in";

impl<P: JsonSchema> JsonSchema for OnVolume<P> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}OnVolume", P::schema_name()).into()
    }
    fn json_schema(from: &mut SchemaGenerator) -> Schema {
        use serde_json::{Map, Value};
        let (given, mut both) = (Given::json_schema(from).to_value(), P::json_schema(from));
        let map = both.ensure_object();
        let properties = map.entry("properties").or_insert_with(|| Map::new().into());
        for (name, property) in given["properties"].as_object().into_iter().flatten() {
            let mut property = property.clone();
            property[READ_IN] = file!().into();
            properties[name] = property;
        }
        let required = map.entry("required").or_insert_with(|| Vec::<Value>::new().into());
        if let (Some(all), Some(more)) = (required.as_array_mut(), given["required"].as_array()) {
            all.extend(more.iter().cloned());
        }
        both
    }
}

impl<'de, P: DeserializeOwned> Deserialize<'de> for OnVolume<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut work = Table::deserialize(from)?;
        let given: Table = FIELDS.into_iter().filter_map(|field| work.remove_entry(field)).collect();
        Ok(OnVolume {
            given: given.try_into().map_err(D::Error::custom)?,
            // The message must also list the fields of [`Given`].
            work: work.try_into().map_err(|e: toml::de::Error| match e.message().starts_with("unknown field") {
                true => D::Error::custom(format!("{}, {}", e.message(), FIELDS.map(|f| format!("`{f}`")).join(", "))),
                false => D::Error::custom(e),
            })?,
        })
    }
}
