//! How are both superblock copies changed on an unmounted volume?
//!
//! One after the other, each durable before the next: one copy is always valid. Left out: superblock changes of a
//! mounted volume.

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
        // Bytes before the structure do not belong to it.
        dev.read(Lba(copy), &mut block, Cause::Superblock.tag())?;
        raw.store(&mut block);
        dev.write(Lba(copy), &block, Cause::Superblock.tag())?;
        dev.flush(Cause::Superblock.tag())?;
    }
    Ok(())
}

/// Makes a volume permanently read-only with the feature `ro`. It must have been unmounted.
///
/// # Errors
/// If it is not a volume, or the device fails.
pub fn make_read_only(dev: &dyn BlockDevice) -> std::result::Result<(), MountError> {
    let mut raw = read_superblock(dev)?.raw;
    raw.feature = (raw.feature.get() | Features::RO.bits()).into();
    Ok(store(dev, &raw)?)
}
