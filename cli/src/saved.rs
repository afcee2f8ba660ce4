//! How does what a simulated device holds become an image?
//!
//! Zero blocks become holes. The image is as private as what is in it: it can hold the contents of a recording.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use device::{BLOCK, BlockDevice, Lba, Tag};

use crate::Failure;
use crate::half_made::HalfMade;

/// Blocks read at once.
const PIECE: u64 = 256;

/// An image that is being made.
pub struct Saved {
    file: File,
    path: PathBuf,
    made: HalfMade,
}

impl Saved {
    /// Makes the file. What is there already stays, and is an error.
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

    /// Writes what `device` holds.
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
