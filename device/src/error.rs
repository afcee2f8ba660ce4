//! What a device can fail with.

use rustix::io::Errno;

use crate::Lba;

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// A device operation that did not happen (or, for [`DeviceError::Io`], may have happened in part).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The range passes the end of the device.
    #[error("{op} of {blocks} blocks at block {at} passes the device's end ({size} blocks)", at = at.0)]
    OutOfRange {
        /// The operation's name.
        op: &'static str,
        /// Its first block.
        at: Lba,
        /// Its length.
        blocks: u64,
        /// The device's size.
        size: u64,
    },
    /// The buffer is not whole blocks.
    #[error("{op} of {bytes} bytes at block {at}: not a multiple of 4096", at = at.0)]
    Misaligned {
        /// The operation's name.
        op: &'static str,
        /// Its first block.
        at: Lba,
        /// The buffer's length.
        bytes: usize,
    },
    /// The device takes no writes.
    #[error("{op} refused: device is read-only")]
    ReadOnly {
        /// The operation's name.
        op: &'static str,
    },
    /// The device has no such command.
    #[error("{op} refused: the device does not support it")]
    Unsupported {
        /// The operation's name.
        op: &'static str,
    },
    /// The power is off: every operation after a simulated cut fails with this.
    #[error("{op} refused: power is cut")]
    PowerCut {
        /// The operation's name.
        op: &'static str,
    },
    /// The backing failed.
    #[error("{op} at block {at}: {source}", at = at.0)]
    Io {
        /// The operation's name.
        op: &'static str,
        /// Its first block.
        at: Lba,
        /// The host's error.
        source: std::io::Error,
    },
}

impl DeviceError {
    /// True if the host below has no room for what was to be written, or its owner's quota has none.
    pub fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
    }
}
