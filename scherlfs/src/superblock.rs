//! Which of the two superblocks counts?

use device::{BlockDevice, Lba, Tag};
use scherlfs_format::BLOCK;
use scherlfs_format::superblock::Superblock;
use vfs::{Error, Result};

use crate::cause::Cause;

/// The superblock that counts: of the whole ones the one with the higher number.
pub fn superblock(dev: &dyn BlockDevice) -> Result<Superblock> {
    let read = |at: u64| -> Result<Superblock> {
        let mut block = [0; BLOCK];
        let tag = Tag { cause: Cause::Superblock as u8, owner: 0 };
        dev.read(Lba(at), &mut block, tag).map_err(Error::device)?;
        Superblock::read(&block).map_err(|e| Error::corrupt(format_args!("block {at}: {e}")))
    };
    let (first, second) = (read(0), read(1));
    let sb = match (first, second) {
        (Ok(a), Ok(b)) if a.uuid != b.uuid => {
            return Err(Error::corrupt("the two superblocks are of different volumes"));
        }
        (Ok(a), Ok(b)) => {
            if a.checkpoint >= b.checkpoint {
                a
            } else {
                b
            }
        }
        (Ok(sb), Err(e)) | (Err(e), Ok(sb)) => {
            // A power cut tears the copy that was being written, and then this one is the newer. Damage can hit the newer one.
            log::warn!(
                "{e}: the other superblock counts; if it was not a power cut, check the volume before you write to it"
            );
            sb
        }
        (Err(e), Err(_)) => return Err(e),
    };
    if sb.blocks > dev.blocks() {
        return Err(Error::corrupt(format_args!("the volume has {} blocks, the device {}", sb.blocks, dev.blocks())));
    }
    Ok(sb)
}
