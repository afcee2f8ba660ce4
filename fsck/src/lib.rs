//! Is this volume what it says it is, and can it be made so again?
//!
//! An independent reading of an F2FS image straight from the device: [`check`] walks everything that
//! can be reached from the checkpoint and compares it with every table, [`repair()`] mends what can be
//! mended without losing data. This crate does not know the one of the mounted volume, and that one
//! does not know this: the compiler keeps them apart, so each is a judge of the other.
//!
//! What is checked is the state of the checkpoint. Nodes written after it by `fsync` are not part of
//! it; the report says whose they are ([`FindingKind::Synced`]).
//!
//! Left out: whether the usage that quota files record is the volume's, and hashes of encrypted names that fold case, which are keyed.
//!
//! ```
//! use joulefs_f2fs::mkfs;
//! use joulefs_fsck::device::{Memory, RealClock};
//! use joulefs_fsck::{FsckError, Options, check};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = Memory::new(16 << 10); // 64 MiB in blocks of 4 KiB
//! assert!(matches!(check(&disk, &Options::default()), Err(FsckError::NotF2fs { .. })));
//!
//! mkfs::format(&disk, &RealClock::new(), &mkfs::Options::modern())?;
//! assert!(check(&disk, &Options::default())?.is_clean());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod bases;
mod begin;
mod chain;
mod deltas;
mod dir;
mod hashes;
mod inode;
mod kind;
mod load;
mod packs;
mod quota;
mod repair;
mod report;
mod sets;
mod signs;
mod tables;
mod terms;
mod walk;
mod xattr;
mod zone;

/// The device that holds the volume.
pub use ::device;
pub use repair::{Action, RepairError, Repaired, repair};
pub use report::*;

use device::{BlockDevice, DeviceError, Tag};
use format::FormatError;

/// All I/O of a check or a repair carries this tag.
const TAG: Tag = Tag { cause: 0, owner: 0 };

/// How a check or a repair is to run.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Told now and then how many blocks of how many are checked.
    pub progress: &'a dyn Fn(u64, u64),
    /// Repair although that gives up what `fsync` wrote after the checkpoint.
    pub give_up_synced: bool,
    /// Take the older of the two checkpoints for the one that counts. A repair gives the newer one up.
    pub older_checkpoint: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { progress: &|_, _| {}, give_up_synced: false, older_checkpoint: false }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsckError {
    /// The device holds something else.
    #[error("not an F2FS volume{}", first.as_ref().map_or(String::new(), |e| format!(" ({e})")))]
    NotF2fs {
        /// What is wrong with the first superblock, if the device is large enough for one.
        first: Option<FormatError>,
    },
    /// An F2FS superblock that is damaged in both copies, or of a shape not understood.
    #[error("{0}")]
    Superblock(FormatError),
    /// An F2FS volume of a kind that is not understood.
    #[error("not supported: {what}")]
    Unsupported {
        /// Which kind.
        what: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

/// Reads the whole volume and reports what contradicts what.
///
/// # Errors
/// [`FsckError`], if there is no volume to report on. Damage is no error but a finding.
pub fn check(dev: &dyn BlockDevice, options: &Options<'_>) -> Result<Report, FsckError> {
    let mut report = Report::default();
    if let Some(image) = load::Image::load_by(dev, options.older_checkpoint, &mut report)? {
        examine(&image, &mut report, options)?;
    }
    Ok(report)
}

/// Reads what a checkpoint leads to; what was seen on the way.
fn examine(image: &load::Image<'_>, report: &mut Report, options: &Options<'_>) -> Result<walk::Walked, FsckError> {
    report.version = image.cp.version;
    report.clean_unmount = image.cp.flags.contains(format::checkpoint::CpFlags::UMOUNT);
    let walked = walk::walk(image, report, options)?;
    quota::check(image, &walked, report)?;
    tables::compare(image, &walked, report)?;
    report.counts = walked.counts;
    Ok(walked)
}

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
