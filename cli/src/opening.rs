//! How is any kind of image opened as a device: a file, pieces of one, a disk, a zoned disk?

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use device::{Access, BlockDevice, FileDevice, HostRoom, open_to_write};
use host::zoned;

use crate::pieces;

/// Memory for copies of data written since the last flush.
const MOST_COPIES: u64 = 64 << 20;
const LEAST_COPIES: u64 = 8 << 20;

/// Opens any kind of image, with zones if it is a zoned disk. If it is writable and has no zones, a failed flush can be
/// repeated.
///
/// # Errors
/// Why it cannot be opened.
pub fn open(path: &Path, access: Access) -> Result<Arc<dyn BlockDevice>, String> {
    open_as(path, access, |plain| match access {
        Access::ReadOnly => Arc::new(plain),
        Access::ReadWrite => Arc::new(plain.retained(memory_for_copies())),
    })
}

/// Like [`open`], for a volume mounted for writing; also returns the host's room for the image if it is a file.
///
/// # Errors
/// Why it cannot be opened.
pub fn open_to_mount(path: &Path) -> Result<(Arc<dyn BlockDevice>, Option<Arc<HostRoom>>), String> {
    let mut room = None;
    let device = open_as(path, Access::ReadWrite, |plain| {
        room = plain.host().ok().flatten().map(|host| Arc::new(HostRoom::new(host)));
        let retained = plain.retained(memory_for_copies());
        match &room {
            Some(room) => Arc::new(retained.with_room(room.clone())),
            None => Arc::new(retained),
        }
    })?;
    Ok((device, room))
}

fn open_as(
    path: &Path,
    access: Access,
    plain: impl FnOnce(FileDevice) -> Arc<dyn BlockDevice>,
) -> Result<Arc<dyn BlockDevice>, String> {
    let is_disk = fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    let opened = match access {
        Access::ReadOnly if !is_disk => return pieces::open(path, access),
        Access::ReadWrite if !is_disk => open_to_write(path),
        _ => FileDevice::open(path, access),
    };
    zoned::over(opened.map_err(|e| e.to_string())?, access, plain)
}

fn memory_for_copies() -> usize {
    (fuse::memory::of_machine() / 64).clamp(LEAST_COPIES, MOST_COPIES) as usize
}
