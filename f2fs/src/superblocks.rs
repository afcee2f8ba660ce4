//! How are both copies of the superblock changed on a volume that is not mounted?
//!
//! One after the other, each durable before the next: one of them always counts. Left out: when a mounted volume changes its own.

use device::{BlockDevice, Lba};
use format::BLOCK;
use format::superblock::{Features, RawSuperBlock};

use crate::cause::Cause;
use crate::error::Result;
use crate::mount::{MountError, read_superblock};

/// Stores a superblock in both copies.
pub(crate) fn store(dev: &dyn BlockDevice, raw: &RawSuperBlock) -> Result<()> {
    for copy in [1, 0] {
        let mut block = [0; BLOCK];
        // What lies before the structure is not ours.
        dev.read(Lba(copy), &mut block, Cause::Superblock.tag())?;
        raw.store(&mut block);
        dev.write(Lba(copy), &block, Cause::Superblock.tag())?;
        dev.flush(Cause::Superblock.tag())?;
    }
    Ok(())
}

/// Makes a volume one that nobody writes to, by its feature `ro`. It must have been unmounted.
///
/// # Errors
/// If it is no volume, or the device fails.
pub fn make_read_only(dev: &dyn BlockDevice) -> std::result::Result<(), MountError> {
    let mut raw = read_superblock(dev)?.raw;
    raw.feature = (raw.feature.get() | Features::RO.bits()).into();
    Ok(store(dev, &raw)?)
}
