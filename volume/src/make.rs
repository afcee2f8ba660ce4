//! A volume is made, of whichever file system.

use std::sync::Arc;

use device::{BlockDevice, Clock};
use f2fs::mkfs::{self, MkfsError};

use crate::Kind;

/// What is made, for each file system. The identity and whether the device reads as zeroes are asked of every one.
#[derive(Debug, Clone)]
pub struct MakeOptions {
    /// Its identity.
    pub uuid: [u8; 16],
    /// What who only uses the volume must not guess, where a file system needs that; 0: none, and what is made is the same every time.
    pub secret: u64,
    /// The device reads as zeroes wherever nothing was written.
    pub zeroed: bool,
    /// What else is asked if it is F2FS.
    pub f2fs: mkfs::Options,
    /// What else is asked if it is ScherlFS.
    pub scherlfs: scherlfs::make::Options,
}

/// Why a volume cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// It was to be F2FS.
    #[error(transparent)]
    F2fs(#[from] MkfsError),
    /// It was to be ScherlFS.
    #[error("ScherlFS: {0}")]
    ScherlFs(vfs::Error),
}

impl MakeError {
    /// True if a device of this size or these options can be no such volume, whatever the device.
    pub fn is_of_options(&self) -> bool {
        matches!(
            self,
            MakeError::F2fs(MkfsError::TooSmall { .. } | MkfsError::Impossible { .. })
                | MakeError::ScherlFs(vfs::Error::Invalid(_))
        )
    }
}

/// Makes a volume of all of a device. What was there is lost.
///
/// # Errors
/// Those of its file system.
pub fn make(kind: Kind, dev: Arc<dyn BlockDevice>, clock: &dyn Clock, options: &MakeOptions) -> Result<(), MakeError> {
    let MakeOptions { uuid, secret, zeroed, f2fs, scherlfs } = options.clone();
    match kind {
        Kind::F2fs => {
            let options = mkfs::Options { uuid: Some(uuid), assume_zeroed: zeroed, ..f2fs };
            mkfs::format(&*dev, clock, &options)?;
            Ok(())
        }
        Kind::ScherlFs => {
            let options = scherlfs::make::Options { uuid, secret, ..scherlfs };
            scherlfs::make::format(dev, clock, &options).map_err(MakeError::ScherlFs)
        }
    }
}
