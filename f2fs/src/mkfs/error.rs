//! Why did mkfs fail?

use device::DeviceError;
use format::FormatError;

/// Nothing was created; the fields show what must change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The device, or the requested part of it, is too small.
    #[error(
        "device is too small: {blocks} blocks ({mib} MiB), with these options a volume needs at least \
         {minimum} blocks ({min_mib} MiB)", mib = *.blocks >> 8, min_mib = minimum.div_ceil(256)
    )]
    TooSmall {
        /// Requested size, in 4 KiB blocks.
        blocks: u64,
        /// Smallest size that works with the same options, in blocks.
        minimum: u64,
    },
    /// No device is large enough for these options.
    #[error("the volume has no room for {reserve}: choose another overprovisioning or smaller sections")]
    Impossible {
        /// What needs too much.
        reserve: &'static str,
    },
    /// The request has more blocks than the device.
    #[error("{asked} blocks requested, but the device has {available}")]
    PastEnd {
        /// Requested blocks.
        asked: u64,
        /// Blocks of the device.
        available: u64,
    },
    /// The device's zones do not fit.
    #[error("zones: {0}")]
    Zones(&'static str),
    /// A feature needs another one.
    #[error("feature {feature} needs {needs}")]
    Needs {
        /// The feature, as `mkfs.f2fs -O` names it.
        feature: &'static str,
        /// The missing feature.
        needs: &'static str,
    },
    /// A feature that needs more than a bit and is not supported here.
    #[error("feature {feature} cannot be made: {reason}")]
    Unsupported {
        /// The feature.
        feature: String,
        /// What is missing.
        reason: &'static str,
    },
    /// An option is outside its range.
    #[error("{option} is {value} (must be {must})")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        must: &'static str,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The operating system returned no random bytes for identity or version.
    #[error("no randomness for the volume's identity: {0}")]
    Entropy(#[from] std::io::Error),
    /// The planned volume fails the checks of every mount.
    #[error("the planned volume is invalid: {0}")]
    Unlawful(#[from] FormatError),
}
