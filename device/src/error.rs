//! Errors of device operations.

use rustix::io::Errno;

use crate::Lba;

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// An operation that had no effect (or, for [`DeviceError::Io`], perhaps a partial one).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The range exceeds the device.
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
    /// The device is read-only.
    #[error("{op} refused: device is read-only")]
    ReadOnly {
        /// The operation's name.
        op: &'static str,
    },
    /// The device lacks this command.
    #[error("{op} refused: the device does not support it")]
    Unsupported {
        /// The operation's name.
        op: &'static str,
    },
    /// The power is off: all operations after a simulated cut return this.
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
    /// True if the host's file system or the owner's quota is full.
    pub fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
    }
}
