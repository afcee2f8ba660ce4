//! How are the contents of a simulated device saved as an image?
//!
//! Zero blocks become holes. Only the owner can read the image: it may hold the contents of a recording.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use device::{BLOCK, BlockDevice, Lba, Tag};

use crate::Failure;
use crate::half_made::HalfMade;

/// Blocks per read.
const PIECE: u64 = 256;

/// An image being written.
pub struct Saved {
    file: File,
    path: PathBuf,
    made: HalfMade,
}

impl Saved {
    /// Creates the file; fails if it exists.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|e| match e.kind() {
                std::io::ErrorKind::AlreadyExists => {
                    format!("--save {}: already exists; give the name of a new file", path.display())
                }
                _ => format!("--save {}: {e}", path.display()),
            })?;
        Ok(Saved { file, path: path.to_owned(), made: HalfMade::new(path) })
    }

    /// Writes the contents of `device`.
    pub fn finish(self, device: &dyn BlockDevice) -> Result<(), Failure> {
        let named = |e: &dyn std::fmt::Display| format!("--save {}: {e}", self.path.display());
        let blocks = device.blocks();
        self.file.set_len(blocks.saturating_mul(BLOCK as u64)).map_err(|e| named(&e))?;
        let mut buf = vec![0; PIECE as usize * BLOCK];
        for at in (0..blocks).step_by(PIECE as usize) {
            let piece = &mut buf[..PIECE.min(blocks - at) as usize * BLOCK];
            device.read(Lba(at), piece, Tag::default()).map_err(|e| named(&e))?;
            for (block, lba) in piece.chunks_exact(BLOCK).zip(at..) {
                if block.iter().any(|byte| *byte != 0) {
                    self.file.write_all_at(block, lba * BLOCK as u64).map_err(|e| named(&e))?;
                }
            }
        }
        self.made.keep();
        Ok(())
    }
}
