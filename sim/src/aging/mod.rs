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
use f2fs::mkfs;
use format::superblock::Features;
use volume::{Kind, MakeError, MakeOptions, MountError, MountOptions, Mounted};

pub use files::Done;
pub use recipe::Recipe;
pub use run::{Ager, Progress};

/// Why a volume could not be aged.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// Neither one of ours nor a file.
    #[error("no recipe {name:?}: choose {known}, or give the path of a recipe file")]
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
    Mkfs(#[from] MakeError),
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
pub fn format(
    kind: Kind,
    dev: Arc<dyn BlockDevice>,
    clock: &dyn Clock,
    seed: u64,
    zeroed: bool,
) -> Result<(), MakeError> {
    format_with(kind, dev, clock, seed, zeroed, mkfs::Options::default().features)
}

/// The same with these features, if it is F2FS.
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

/// Makes a volume on a zeroed device and ages it; it is left mounted. `clock` is its clock: of its own, or
/// that of a simulated device it lies on.
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
