//! How does a volume get the state a measurement wants it in?
//!
//! A [`Recipe`] says what is written and deleted; [`Ager`] does it to a mounted volume, in virtual time, with
//! contents from `device::generate`. The same recipe, seed and volume give the same bytes.
//!
//! * [`recipe`]: recipes as data.
//! * [`amount`]: numbers as people write them.
//! * `files`: the files there are; making, changing and deleting one.
//! * `run`: carrying a recipe's steps out.
//! * `live`: days of use.
//! * [`published`]: what others counted in such a state.

pub mod amount;
mod files;
mod live;
#[cfg(test)]
mod measured;
pub mod published;
pub mod recipe;
mod run;

use std::sync::Arc;

use device::clock::{Clock, Time, VirtualClock};
use device::{BlockDevice, Rng};
use f2fs::mkfs::{self, MkfsError};
use f2fs::{MountError, MountOptions, Volume};
use format::superblock::Features;

pub use files::Done;
pub use recipe::Recipe;
pub use run::{Ager, Progress};

/// Why a volume could not be aged.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// Neither one of ours nor a file.
    #[error("no recipe {name:?}: there are {known}; or give the path of a recipe file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A recipe that cannot be carried out.
    #[error("recipe {name}: {reason}")]
    Recipe {
        /// Its name or file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A recipe file that cannot be read.
    #[error("recipe {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file system refused.
    #[error("{what}: {source}")]
    Fs {
        /// What was being done.
        what: String,
        /// Its answer.
        source: vfs::Error,
    },
    /// No volume could be made.
    #[error("mkfs: {0}")]
    Mkfs(#[from] MkfsError),
    /// The volume cannot be mounted.
    #[error("mount: {0}")]
    Mount(#[from] MountError),
}

/// When every aged volume's life begins: 2023-01-01 00:00 UTC. A fixed date, so that runs repeat.
pub const BEGINNING: Time = Time { secs: 1_672_531_200, nanos: 0 };

/// The clock of a volume whose life begins.
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(BEGINNING))
}

/// Makes a volume on `dev` whose identity is drawn from `seed`. `zeroed`: the device reads as zeroes.
pub fn format(dev: &dyn BlockDevice, clock: &dyn Clock, seed: u64, zeroed: bool) -> Result<(), MkfsError> {
    format_with(dev, clock, seed, zeroed, mkfs::Options::default().features)
}

/// The same with these features.
pub fn format_with(
    dev: &dyn BlockDevice,
    clock: &dyn Clock,
    seed: u64,
    zeroed: bool,
    features: Features,
) -> Result<(), MkfsError> {
    let mut rng = Rng::new(seed ^ 0x6d6b_6673);
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let options = mkfs::Options {
        uuid: Some(uuid),
        checkpoint_version: Some(1 + rng.below(1 << 20) as u32),
        assume_zeroed: zeroed,
        features,
        ..mkfs::Options::default()
    };
    mkfs::format(dev, clock, &options).map(drop)
}

/// Makes a volume on a zeroed device and ages it; it is left mounted. `clock` is its clock: of its own, or
/// that of a simulated device it lies on.
pub fn prepare(
    dev: Arc<dyn BlockDevice>,
    clock: Arc<VirtualClock>,
    options: MountOptions,
    chain: &[Recipe],
    seed: u64,
) -> Result<Arc<Volume>, AgeError> {
    format(&*dev, &*clock, seed, true)?;
    let volume = Volume::mount(dev, clock.clone(), options)?;
    Ager::new(&volume, &clock, seed).all(chain, &mut |_| ())?;
    Ok(volume)
}
