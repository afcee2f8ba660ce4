//! How does a volume get into the state that a measurement needs?
//!
//! A [`Recipe`] lists what is written and deleted; [`Ager`] carries it out on a mounted volume, in virtual time, with
//! contents from `device::generate`. The same recipe, seed and volume give the same bytes.
//!
//! * [`recipe`]: recipes as data.
//! * [`amount`]: amounts in recipes.
//! * `files`: creating, changing and deleting files.
//! * `run`: carrying out a recipe's steps.
//! * `live`: days of use.
//! * [`published`]: published counts for such states.

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
use f2fs::mkfs;
use format::superblock::Features;
use volume::{Kind, MakeError, MakeOptions, MountError, MountOptions, Mounted};

pub use files::Done;
pub use recipe::Recipe;
pub use run::{Ager, Progress};

/// Why aging failed.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// Neither a built-in recipe nor a file.
    #[error("no recipe {name:?}: choose {known}, or give the path of a recipe file")]
    Unknown {
        /// The name given.
        name: String,
        /// The built-in recipes.
        known: String,
    },
    /// The recipe is invalid.
    #[error("recipe {name}: {reason}")]
    Recipe {
        /// Its name or file.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The recipe file cannot be read.
    #[error("recipe {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The file system returned an error.
    #[error("{what}: {source}")]
    Fs {
        /// The operation.
        what: String,
        /// The error.
        source: vfs::Error,
    },
    /// The volume cannot be created.
    #[error("mkfs: {0}")]
    Mkfs(#[from] MakeError),
    /// The volume cannot be mounted.
    #[error("mount: {0}")]
    Mount(#[from] MountError),
}

/// Start of every aged volume's clock: 2023-01-01 00:00 UTC. A fixed date, so that runs are reproducible.
pub const BEGINNING: Time = Time { secs: 1_672_531_200, nanos: 0 };

/// A clock at [`BEGINNING`].
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(BEGINNING))
}

/// Creates a volume on `dev` with an identity drawn from `seed`. `zeroed`: the device reads as zeroes.
pub fn format(
    kind: Kind,
    dev: Arc<dyn BlockDevice>,
    clock: &dyn Clock,
    seed: u64,
    zeroed: bool,
) -> Result<(), MakeError> {
    format_with(kind, dev, clock, seed, zeroed, mkfs::Options::default().features)
}

/// The same with these features (F2FS only).
pub fn format_with(
    kind: Kind,
    dev: Arc<dyn BlockDevice>,
    clock: &dyn Clock,
    seed: u64,
    zeroed: bool,
    features: Features,
) -> Result<(), MakeError> {
    let mut rng = Rng::new(seed ^ 0x6d6b_6673);
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let f2fs =
        mkfs::Options { checkpoint_version: Some(1 + rng.below(1 << 20) as u32), features, ..mkfs::Options::default() };
    volume::make(kind, dev, clock, &MakeOptions { uuid, secret: 0, zeroed, f2fs, scherlfs: Default::default() })
}

/// Creates a volume on a zeroed device, ages it and leaves it mounted. `clock` is the volume's clock: its own, or that
/// of the simulated device underneath.
pub fn prepare(
    kind: Kind,
    dev: Arc<dyn BlockDevice>,
    clock: Arc<VirtualClock>,
    options: MountOptions,
    chain: &[Recipe],
    seed: u64,
) -> Result<Mounted, AgeError> {
    format(kind, dev.clone(), &*clock, seed, true)?;
    let mounted = volume::mount(kind, dev, clock.clone(), options)?;
    Ager::new(&*mounted.volume(), &clock, seed).all(chain, &mut |_| ())?;
    Ok(mounted)
}
