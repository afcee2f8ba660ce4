//! Mounts a device with any kind of file system.

use std::sync::Arc;

use device::{BlockDevice, Clock};

#[cfg(doc)]
use crate::probe;
use crate::{Kind, MountOptions};

/// A mounted volume.
#[derive(Clone)]
pub enum Mounted {
    /// An F2FS volume.
    F2fs(Arc<f2fs::Volume>),
    /// A ScherlFS volume.
    ScherlFs(Arc<scherlfs::Volume>),
}

impl Mounted {
    /// The common interface.
    pub fn volume(&self) -> Arc<dyn vfs::Volume> {
        match self {
            Mounted::F2fs(volume) => volume.clone(),
            Mounted::ScherlFs(volume) => volume.clone(),
        }
    }

    /// The volume, if it is F2FS.
    pub fn f2fs(&self) -> Option<&Arc<f2fs::Volume>> {
        match self {
            Mounted::F2fs(volume) => Some(volume),
            Mounted::ScherlFs(_) => None,
        }
    }

    /// The kind of file system.
    pub fn kind(&self) -> Kind {
        match self {
            Mounted::F2fs(_) => Kind::F2fs,
            Mounted::ScherlFs(_) => Kind::ScherlFs,
        }
    }
}

/// Why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// F2FS failed, or the file system is unknown.
    #[error(transparent)]
    F2fs(#[from] f2fs::MountError),
    /// ScherlFS failed.
    #[error("ScherlFS: {0}")]
    ScherlFs(vfs::Error),
    /// An option that the file system does not have.
    #[error("{kind} has no option {option}")]
    Foreign {
        /// The file system.
        kind: Kind,
        /// The given option.
        option: String,
    },
}

/// Mounts a volume of the given file system. Call [`probe`] below any layer that counts requests, so that it costs
/// none. An unknown file system is passed to F2FS, whose error explains the fault in the superblock.
///
/// # Errors
/// Those of its file system, and an option that it does not have.
pub fn mount(
    kind: Kind,
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    options: MountOptions,
) -> Result<Mounted, MountError> {
    if let Some(option) = options.foreign(kind) {
        return Err(MountError::Foreign { kind, option: option.to_owned() });
    }
    Ok(match kind {
        Kind::F2fs => Mounted::F2fs(f2fs::Volume::mount(dev, clock, options.f2fs)?),
        Kind::ScherlFs => {
            let volume = scherlfs::Volume::mount(dev, clock, options.scherlfs).map_err(MountError::ScherlFs)?;
            Mounted::ScherlFs(Arc::new(volume))
        }
    })
}
