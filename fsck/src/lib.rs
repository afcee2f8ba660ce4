//! Checks an F2FS volume, and repairs it.
//!
//! An independent reader of an F2FS image on the device: [`check`] walks everything reachable from the checkpoint
//! and compares it with every table; [`repair()`] mends what can be mended without losing data. This crate and the
//! crate of the mounted volume do not depend on each other, which the compiler enforces, so each is a judge of the
//! other.
//!
//! The check covers the state of the checkpoint. Nodes that `fsync` wrote after it are not included; the report
//! lists their files ([`FindingKind::Synced`]).
//!
//! Left out: whether the usage in quota files matches the volume, and hashes of encrypted names that fold case,
//! which are keyed.
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

/// Tag of all I/O of a check or a repair.
const TAG: Tag = Tag { cause: 0, owner: 0 };

/// Options of a check or a repair.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Called from time to time with the number of checked blocks and the total.
    pub progress: &'a dyn Fn(u64, u64),
    /// Repair even if that discards what `fsync` wrote after the checkpoint.
    pub give_up_synced: bool,
    /// Use the older of the two checkpoints. A repair then discards the newer one.
    pub older_checkpoint: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { progress: &|_, _| {}, give_up_synced: false, older_checkpoint: false }
    }
}

/// Why a check produced no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsckError {
    /// The device holds another format.
    #[error("not an F2FS volume{}", first.as_ref().map_or(String::new(), |e| format!(" ({e})")))]
    NotF2fs {
        /// The fault in the first superblock, if the device is large enough for one.
        first: Option<FormatError>,
    },
    /// An F2FS superblock that is damaged in both copies, or of an unknown shape.
    #[error("{0}")]
    Superblock(FormatError),
    /// An unsupported kind of F2FS volume.
    #[error("not supported: {what}")]
    Unsupported {
        /// The kind.
        what: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

/// Reads the whole volume and reports contradictions.
///
/// # Errors
/// [`FsckError`], if there is no volume to report on. Damage is not an error but a finding.
pub fn check(dev: &dyn BlockDevice, options: &Options<'_>) -> Result<Report, FsckError> {
    let mut report = Report::default();
    if let Some(image) = load::Image::load_by(dev, options.older_checkpoint, &mut report)? {
        examine(&image, &mut report, options)?;
    }
    Ok(report)
}

/// Walks everything reachable from a checkpoint.
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
