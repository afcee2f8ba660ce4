//! Which of the two superblocks is current?

use device::{BlockDevice, Lba, Tag};
use scherlfs_format::BLOCK;
use scherlfs_format::superblock::Superblock;
use vfs::{Error, Result};

use crate::cause::Cause;

/// An unusable superblock: the reason, and the number of its checkpoint if its checksum matches.
struct Unusable {
    why: Error,
    number: Option<u64>,
}

fn read(dev: &dyn BlockDevice, at: u64) -> std::result::Result<Superblock, Unusable> {
    let mut block = [0; BLOCK];
    let tag = Tag { cause: Cause::Superblock as u8, owner: 0 };
    dev.read(Lba(at), &mut block, tag).map_err(|e| Unusable { why: Error::device(e), number: None })?;
    Superblock::read(&block).map_err(|e| Unusable {
        why: Error::corrupt(format_args!("block {at}: {e}")),
        number: Superblock::sealed_number(&block),
    })
}

/// The current superblock: the one with the higher number among those with valid checksums. If its fields are
/// invalid, the older one does not replace it: the next write would make the loss of newer data final.
pub fn superblock(dev: &dyn BlockDevice) -> Result<Superblock> {
    let sb = match (read(dev, 0), read(dev, 1)) {
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
        (Ok(sb), Err(bad)) | (Err(bad), Ok(sb)) if bad.number.is_some_and(|number| number > sb.checkpoint) => {
            let Unusable { why, .. } = bad;
            return Err(Error::corrupt(format_args!(
                "the newest superblock is intact but wrong, {why}: joulefs fsck --repair repairs it"
            )));
        }
        (Ok(sb), Err(bad)) | (Err(bad), Ok(sb)) => {
            // A power cut tears the copy that was being written, and then the other is the newer. Damage can hit
            // the newer one.
            log::warn!(
                "{}: using the other superblock; if this was not a power cut, check the volume before you write to it",
                bad.why
            );
            sb
        }
        (Err(bad), Err(_)) => return Err(bad.why),
    };
    if sb.blocks > dev.blocks() {
        return Err(Error::corrupt(format_args!("the volume has {} blocks, the device {}", sb.blocks, dev.blocks())));
    }
    Ok(sb)
}
