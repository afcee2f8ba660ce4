//! Creates a volume of any kind.

use std::sync::Arc;

use device::{BlockDevice, Clock};
use f2fs::mkfs::{self, MkfsError};

use crate::Kind;

/// Options for each file system. All kinds use the identity and `zeroed`.
#[derive(Debug, Clone)]
pub struct MakeOptions {
    /// Its identity.
    pub uuid: [u8; 16],
    /// A secret that users of the volume must not guess, if the file system needs one; 0: none, and the result is
    /// reproducible.
    pub secret: u64,
    /// True if unwritten blocks of the device read as zeroes.
    pub zeroed: bool,
    /// Options of F2FS.
    pub f2fs: mkfs::Options,
    /// Options of ScherlFS.
    pub scherlfs: scherlfs::make::Options,
}

/// Why a volume cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// F2FS failed.
    #[error(transparent)]
    F2fs(#[from] MkfsError),
    /// ScherlFS failed.
    #[error("ScherlFS: {0}")]
    ScherlFs(vfs::Error),
}

impl MakeError {
    /// True if the device's size or the options are the cause, whatever the device.
    pub fn is_caused_by_options(&self) -> bool {
        matches!(
            self,
            MakeError::F2fs(MkfsError::TooSmall { .. } | MkfsError::Impossible { .. })
                | MakeError::ScherlFs(vfs::Error::Invalid(_))
        )
    }
}

/// Creates a volume on a whole device. Its old contents are lost.
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
