//! One run of a replay: its device, its volume, its initial state.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use device::energy::Nanos;
use device::energy::profile::Profile;
use volume::{Kind, MountOptions, OptionError};

use super::given::Given;
use crate::Failure;
use crate::commands::mount::options::{meant_by, meant_by_name};

/// Names and values of the comparison, in the order given.
pub type Picks = Vec<(String, String)>;

/// One run.
#[derive(Clone)]
pub struct Variant {
    /// Its distinguishing name; empty for a single run.
    pub name: String,
    /// Its values in the comparison.
    pub picks: Picks,
    /// The index of its control.
    pub control: Option<usize>,
    /// Its device.
    pub profile: Profile,
    /// The name of the profile as given.
    pub chosen: String,
    /// Assumed numbers.
    pub given: Given,
    /// The file system of its volume.
    pub fs: Kind,
    /// Mount options of its volume.
    pub mount: MountOptions,
    /// The mount options given; of several with one name only the last.
    pub options: BTreeMap<String, String>,
    /// The volume may hold deltas, whether or not they are created.
    pub deltas: bool,
    /// The volume may hold compressed files, whether or not any are created.
    pub compressed: bool,
    /// Interval from the first write after a flush to an assumed flush.
    pub flush_every: Option<Nanos>,
    /// The device's size, as typed.
    pub size: Option<String>,
    /// The recipe that ages a new volume.
    pub age: Option<String>,
    /// The seed of a new volume and its recipe.
    pub seed: u64,
    /// The share of the volume in use before the calls.
    pub fill: Option<f64>,
    /// The whole device is full of data at the start.
    pub full: bool,
    /// Maximum queue depth of the device.
    pub queue: Option<NonZeroUsize>,
}

impl Variant {
    /// Sets a mount option; errors name `typed`.
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
