//! From a device to a volume of whichever file system is on it.

use std::sync::Arc;

use device::{BlockDevice, Clock};

#[cfg(doc)]
use crate::probe;
use crate::{Kind, MountOptions};

/// A mounted volume.
#[derive(Clone)]
pub enum Mounted {
    /// Of F2FS.
    F2fs(Arc<f2fs::Volume>),
    /// Of ScherlFS.
    ScherlFs(Arc<scherlfs::Volume>),
}

impl Mounted {
    /// What all have in common.
    pub fn volume(&self) -> Arc<dyn vfs::Volume> {
        match self {
            Mounted::F2fs(volume) => volume.clone(),
            Mounted::ScherlFs(volume) => volume.clone(),
        }
    }

    /// The volume, if it is of F2FS.
    pub fn f2fs(&self) -> Option<&Arc<f2fs::Volume>> {
        match self {
            Mounted::F2fs(volume) => Some(volume),
            Mounted::ScherlFs(_) => None,
        }
    }

    /// Of which it is.
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
    /// It is F2FS, or nobody's.
    #[error(transparent)]
    F2fs(#[from] f2fs::MountError),
    /// It is ScherlFS.
    #[error("ScherlFS: {0}")]
    ScherlFs(vfs::Error),
    /// An option was given that its file system has not.
    #[error("{kind} has no option {option}")]
    Foreign {
        /// Its file system.
        kind: Kind,
        /// The option as it was given.
        option: String,
    },
}

/// Mounts a volume of a file system, as [`probe`] found it below whatever counts requests: a look costs none of them. What
/// is neither's is F2FS's to refuse, which says what is wrong with its superblock.
///
/// # Errors
/// Those of its file system, and an option that this has not.
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
