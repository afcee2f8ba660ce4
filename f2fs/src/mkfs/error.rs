//! Why could a volume not be made?

use device::DeviceError;
use format::FormatError;

/// Nothing was made; the fields say what would have to be different.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The device, or the part of it asked for, is too small.
    #[error(
        "device is too small: {blocks} blocks ({mib} MiB), with these options a volume needs at least \
         {minimum} blocks ({min_mib} MiB)", mib = *.blocks >> 8, min_mib = minimum.div_ceil(256)
    )]
    TooSmall {
        /// Size asked for, in 4 KiB blocks.
        blocks: u64,
        /// Smallest size that works with the same options, in blocks.
        minimum: u64,
    },
    /// No device is large enough for these options.
    #[error("the volume has no room for {reserve}: choose another overprovisioning or smaller sections")]
    Impossible {
        /// What takes too much.
        reserve: &'static str,
    },
    /// More blocks were asked for than the device has.
    #[error("{asked} blocks requested, but the device has {available}")]
    PastEnd {
        /// Blocks asked for.
        asked: u64,
        /// Blocks there are.
        available: u64,
    },
    /// The device has zones that do not fit.
    #[error("zones: {0}")]
    Zones(&'static str),
    /// A feature needs another one.
    #[error("feature {feature} needs {needs}")]
    Needs {
        /// The feature, as `mkfs.f2fs -O` names it.
        feature: &'static str,
        /// The one missing.
        needs: &'static str,
    },
    /// A feature that is more than a bit and is not made here.
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
        /// What it was.
        value: String,
        /// What would be lawful.
        must: &'static str,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The operating system gave no randomness for identity or version.
    #[error("no randomness for the volume's identity: {0}")]
    Entropy(#[from] std::io::Error),
    /// What was planned does not pass the checks every mount makes.
    #[error("the planned volume is invalid: {0}")]
    Unlawful(#[from] FormatError),
}
