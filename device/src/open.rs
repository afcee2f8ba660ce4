//! Selects the backing for a named image.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::claim::check_kind;
use crate::sparse_image::MAGIC;
use crate::{Access, BlockDevice, FileDevice, OpenError, SparseImage};

/// An open image.
#[derive(Debug)]
pub enum Opened {
    /// A plain file or a block device.
    File(FileDevice),
    /// An Android sparse image, which may lack needed blocks.
    Sparse(SparseImage),
}

/// Opens any kind of image: a plain file, a block device, or an Android sparse image (which is read-only:
/// read-write access is [`OpenError::SparseReadOnly`]).
pub fn open_any(path: impl AsRef<Path>, access: Access) -> Result<Opened, OpenError> {
    let path = path.as_ref();
    match access {
        Access::ReadWrite => Ok(Opened::File(open_to_write(path)?)),
        Access::ReadOnly if is_sparse(path, access)? => Ok(Opened::Sparse(SparseImage::open(path)?)),
        Access::ReadOnly => Ok(Opened::File(FileDevice::open(path, access)?)),
    }
}

/// Opens an image for writing: a plain file or a block device.
pub fn open_to_write(path: impl AsRef<Path>) -> Result<FileDevice, OpenError> {
    let path = path.as_ref();
    match is_sparse(path, Access::ReadWrite)? {
        true => Err(OpenError::SparseReadOnly { path: path.to_owned() }),
        false => FileDevice::open(path, Access::ReadWrite),
    }
}

/// The same for a caller that knows a sparse image to be complete: absent blocks read as zeroes.
pub fn open_image(path: impl AsRef<Path>, access: Access) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(match open_any(path, access)? {
        Opened::File(file) => Arc::new(file),
        Opened::Sparse(sparse) => Arc::new(sparse),
    })
}

/// True if the file begins like a sparse image.
fn is_sparse(path: &Path, access: Access) -> Result<bool, OpenError> {
    let failed = |action, e| OpenError::from_io(path, access, action, e);
    let meta = fs::metadata(path).map_err(|e| failed("stat", e))?;
    check_kind(path, &meta)?;
    if !meta.is_file() || meta.len() < 4 {
        return Ok(false);
    }
    let file = File::open(path).map_err(|e| failed("open", e))?;
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).map_err(|e| failed("read the first bytes", e))?;
    Ok(u32::from_le_bytes(magic) == MAGIC)
}
