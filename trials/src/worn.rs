//! Aged volumes: segments whose ages differ by weeks.
//!
//! Created in virtual time by this project's F2FS, as input for the kernel's choice of segments. Left out: the choices.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::clock::{Time, VirtualClock};
use device::{Memory, Rng};
use f2fs::mkfs::{self, Options};
use f2fs::{MountOptions, Volume};
use vfs::FileSystem;

use judges::churn;
use judges::zoo::{ZooOp, in_process};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The history of an image.
#[derive(Debug, Clone, Copy)]
pub enum Life {
    /// Rounds of creating, changing and deleting files, hours to days apart: ages and valid counts of all kinds.
    Worn {
        /// Number of rounds.
        rounds: u64,
    },
    /// A few days with many files written on each and a fraction deleted: many segments of one age.
    Batches {
        /// Number of days.
        days: u64,
    },
}

/// An image: 2 MiB segments on a volume of `mib`, `percent` of its user blocks in use.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    /// Size in MiB.
    pub mib: u64,
    /// Segments in a section.
    pub per_section: u32,
    /// User blocks in use, in percent.
    pub percent: u64,
    /// The random seed.
    pub seed: u64,
    /// Its history.
    pub life: Life,
}

/// A year of ages, two thirds full.
pub const LARGE: Image = Image { mib: 1024, per_section: 1, percent: 62, seed: 1, life: Life::Worn { rounds: 36 } };
/// The same, smaller.
pub const SMALL: Image = Image { mib: 512, per_section: 1, percent: 55, seed: 2, life: Life::Worn { rounds: 24 } };
/// With sections of four segments.
pub const SECTIONS: Image = Image { mib: 768, per_section: 4, percent: 45, seed: 3, life: Life::Worn { rounds: 24 } };
/// Many segments of one age.
pub const BATCHES: Image = Image { mib: 512, per_section: 1, percent: 60, seed: 4, life: Life::Batches { days: 6 } };

impl Image {
    /// Formats and ages a volume and saves it.
    ///
    /// # Errors
    /// Those of the volume or the host.
    pub fn build(&self, path: &Path) -> Outcome<()> {
        build(*self, path)
    }
}

fn build(image: Image, path: &Path) -> Outcome<()> {
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    let dev = Arc::new(Memory::new((image.mib << 20) / 4096));
    let mut rng = Rng::new(image.seed);
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let options = Options {
        uuid: Some(uuid),
        checkpoint_version: Some(1),
        segs_per_sec: image.per_section,
        assume_zeroed: true,
        ..Options::default()
    };
    let made = mkfs::format(&*dev, &*clock, &options)?;
    let volume = Volume::mount(dev.clone(), clock.clone(), MountOptions { inline: false, ..MountOptions::default() })?;
    let budget = made.user_blocks * 4096 / 100 * image.percent;
    match image.life {
        Life::Worn { rounds } => worn(&volume, &clock, &mut rng, budget, rounds, image.seed)?,
        Life::Batches { days } => batches(&volume, &clock, budget, days)?,
    }
    volume.unmount()?;
    dev.save(path)?;
    Ok(())
}

fn perform(volume: &Volume, ops: &[ZooOp]) -> Outcome<()> {
    in_process::perform(volume, ops)?;
    Ok(volume.sync()?)
}

fn worn(volume: &Volume, clock: &VirtualClock, rng: &mut Rng, budget: u64, rounds: u64, seed: u64) -> Outcome<()> {
    // A file this large has indirect nodes, the only ones in the cold node log.
    const BIG: usize = 6 << 20;
    const DIRECTORIES: u64 = 120;
    for number in 0..rounds {
        let mut ops = churn::round(seed, budget - 8 * BIG as u64, number);
        let path = |n: u64| format!("big{n}").into_bytes();
        if number % 3 == 0 {
            ops.push(ZooOp::Create { path: path(number), perm: 0o644 });
            ops.push(ZooOp::Write { path: path(number), offset: 0, len: BIG, stream: number });
        }
        if number >= 18 && number % 3 == 0 {
            ops.push(ZooOp::Unlink { path: path(number - 18) });
        }
        // Separate directories: the hot node log gets little else.
        let directory = |n: u64, k: u64| format!("dir{n}-{k}").into_bytes();
        ops.extend((0..DIRECTORIES).map(|k| ZooOp::Mkdir { path: directory(number, k), perm: 0o755 }));
        if let Some(old) = number.checked_sub(2) {
            let gone = (0..DIRECTORIES).filter(|k| (k + old) % 3 != 0);
            ops.extend(gone.map(|k| ZooOp::Rmdir { path: directory(old, k) }));
        }
        perform(volume, &ops)?;
        clock.advance(Duration::from_secs(3600 * rng.range(2..80)));
    }
    Ok(())
}

fn batches(volume: &Volume, clock: &VirtualClock, budget: u64, days: u64) -> Outcome<()> {
    const BYTES: u64 = 16 << 10;
    // Each file has a node and four data blocks.
    let each = budget / days / (BYTES + 4096);
    for day in 0..days {
        let suffix = ["", ".db", ".jpg"][(day % 3) as usize];
        let path = |n: u64| format!("{day}-{n:05}{suffix}").into_bytes();
        let mut ops = Vec::new();
        for n in 0..each {
            ops.push(ZooOp::Create { path: path(n), perm: 0o644 });
            ops.push(ZooOp::Write { path: path(n), offset: 0, len: BYTES as usize, stream: n });
        }
        perform(volume, &ops)?;
        // On the same day, so that deleting does not change a segment's age.
        let gone = (0..each).filter(|n| n % (day + 2) == 0).map(|n| ZooOp::Unlink { path: path(n) });
        perform(volume, &gone.collect::<Vec<_>>())?;
        clock.advance(Duration::from_secs(86_400 * (day + 1)));
    }
    Ok(())
}
