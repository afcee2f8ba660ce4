//! What is one run of a replay: on which device, on which volume, in which state?

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use device::energy::Nanos;
use device::energy::profile::Profile;
use volume::{Kind, MountOptions, OptionError};

use super::given::Given;
use crate::Failure;
use crate::commands::mount::options::{meant_by, meant_by_name};

/// Names and values of what is compared, in the order in which they were asked for.
pub type Picks = Vec<(String, String)>;

/// One run.
#[derive(Clone)]
pub struct Variant {
    /// What tells it from the others; empty if there are none.
    pub name: String,
    /// What it was given of what is compared.
    pub picks: Picks,
    /// The run that it is to be compared with, by its place among all.
    pub control: Option<usize>,
    /// Its device.
    pub profile: Profile,
    /// As its profile was asked for.
    pub chosen: String,
    /// What is assumed of it.
    pub given: Given,
    /// The file system of its volume.
    pub fs: Kind,
    /// How its volume is mounted.
    pub mount: MountOptions,
    /// The options of the mount that were asked for; none of two that have one name but the last.
    pub options: BTreeMap<String, String>,
    /// Its volume may hold deltas, whether they are made or not.
    pub deltas: bool,
    /// Its volume may hold compressed files, whether some are made or not.
    pub compressed: bool,
    /// Flushes that the recording does not tell of come so long after the first write behind the last one.
    pub flush_every: Option<Nanos>,
    /// The device's size, as it was typed.
    pub size: Option<String>,
    /// The recipe that ages a new volume.
    pub age: Option<String>,
    /// What a new volume and its recipe are drawn from.
    pub seed: u64,
    /// What part of the volume is in use when the calls begin.
    pub fill: Option<f64>,
    /// The whole device holds data at the start.
    pub full: bool,
    /// Requests the device is given at once at most.
    pub queue: Option<NonZeroUsize>,
}

impl Variant {
    /// Sets an option of its mount; `typed` is what is named if there is none.
    pub fn set(&mut self, option: &str, typed: &str) -> Result<(), Failure> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        self.mount.set(name, value).map_err(|e| match e {
            OptionError::Unknown(_) => {
                let tip = meant_by_name(name);
                Failure::usage(format!("{typed}: no option {name:?}{tip}; see joulefs trace replay --help"))
            }
            OptionError::Value(why) => Failure::usage(format!("{typed}: {why}{}", meant_by(name, value))),
        })?;
        self.options.insert(name.to_owned(), value.unwrap_or_default().to_owned());
        Ok(())
    }
}
