//! One run of a replay: its device, its volume, its initial state.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use device::energy::Nanos;
use device::energy::profile::Profile;
use volume::{Kind, MountOptions};

use super::error::Error;
use super::given::Given;

/// Names and values of the comparison, in the order given.
pub type Picks = Vec<(String, String)>;

/// One run's configuration.
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
    pub(super) given: Given,
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
    /// It repeats an earlier run with another seed, for the comparison's interval.
    pub repeats: bool,
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
    /// True if its state before the calls is drawn at random.
    pub fn is_random(&self) -> bool {
        self.age.is_some() || self.fill.is_some()
    }

    /// Its name without the seed.
    pub fn name_but_seed(&self) -> String {
        let words: Vec<&str> = self.name.split(' ').filter(|word| !word.starts_with("seed=")).collect();
        words.join(" ")
    }

    /// True if `other` has the same configuration, apart from the seed.
    pub(super) fn differs_in_seed(&self, other: &Variant) -> bool {
        self.name_but_seed() == other.name_but_seed()
    }

    /// The same run with another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Variant {
        let name = format!("{} seed={seed}", self.name).trim_start().to_owned();
        let picks = self.picks.iter().cloned().chain([("seed".to_owned(), seed.to_string())]).collect();
        Variant { name, picks, seed, repeats: true, ..self.clone() }
    }

    /// Sets a mount option; errors name `typed`.
    pub(super) fn set(&mut self, option: &str, typed: &str) -> Result<(), Error> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        self.mount.set(name, value).map_err(|source| Error::MountOption {
            given: typed.to_owned(),
            name: name.to_owned(),
            value: value.map(str::to_owned),
            source,
        })?;
        self.options.insert(name.to_owned(), value.unwrap_or_default().to_owned());
        Ok(())
    }
}
