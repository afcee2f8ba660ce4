//! Which blocks of an image hold data?
//!
//! The caller passes them to a simulated device before using it. On flash, reading data costs more than reading a hole,
//! and a fuller device has less room for cleaning.

use std::fs::File;
use std::path::Path;

use device::{BLOCK, BlockDevice, Lba, Tag};
use rustix::fs::SeekFrom;

use crate::Failure;

/// Blocks per read if the file system cannot report holes.
const PIECE: u64 = 256;

/// The runs of blocks with data in the image at `path`, opened as `device`: those outside the file's holes. If holes
/// cannot be queried (block devices, Android sparse images), those that are not zero.
pub fn runs(device: &dyn BlockDevice, path: &Path) -> Result<Vec<(Lba, u64)>, Failure> {
    let plain = File::open(path)
        .ok()
        .filter(|f| f.metadata().is_ok_and(|m| m.is_file() && m.len() / BLOCK as u64 == device.blocks()));
    match plain.and_then(|file| extents(&file, device.blocks())) {
        Some(runs) => Ok(runs),
        None => Ok(not_zero(device).map_err(|e| format!("{}: {e}", path.display()))?),
    }
}

/// `None` if the file system cannot report holes.
fn extents(file: &File, blocks: u64) -> Option<Vec<(Lba, u64)>> {
    let (mut runs, mut at) = (Vec::new(), 0);
    loop {
        let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(from) => from / BLOCK as u64,
            // No data left.
            Err(rustix::io::Errno::NXIO) => return Some(runs),
            Err(_) => return None,
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(at.max(from * BLOCK as u64))).ok()?;
        let to = at.div_ceil(BLOCK as u64).min(blocks);
        if from < to {
            runs.push((Lba(from), to - from));
        }
    }
}

fn not_zero(device: &dyn BlockDevice) -> device::Result<Vec<(Lba, u64)>> {
    let mut runs: Vec<(Lba, u64)> = Vec::new();
    let mut bytes = vec![0; PIECE as usize * BLOCK];
    for start in (0..device.blocks()).step_by(PIECE as usize) {
        let piece = &mut bytes[..PIECE.min(device.blocks() - start) as usize * BLOCK];
        device.read(Lba(start), piece, Tag::default())?;
        for (at, _) in (start..).zip(piece.chunks(BLOCK)).filter(|(_, b)| b.iter().any(|byte| *byte != 0)) {
            match runs.last_mut() {
                Some((first, n)) if first.0 + *n == at => *n += 1,
                _ => runs.push((Lba(at), 1)),
            }
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use device::{Access, FileDevice};

    use super::*;

    #[test]
    fn holes_hold_nothing_whichever_way_they_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        drop(FileDevice::create(&path, 64 << 20).unwrap());
        let file = File::options().write(true).open(&path).unwrap();
        // Far apart: file systems keep holes in units larger than a block.
        for block in [300, 301, 16383] {
            file.write_all_at(&[7; BLOCK], block * BLOCK as u64).unwrap();
        }
        let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
        let expected = vec![(Lba(300), 2), (Lba(16383), 1)];
        assert_eq!(not_zero(&device).unwrap(), expected);
        assert_eq!(runs(&device, &path).unwrap(), expected);
    }
}
