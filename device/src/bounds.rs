//! Checks that a request covers whole blocks inside the device.
//!
//! Every device must make these two checks before it accesses its medium.

use crate::{BLOCK, DeviceError, Lba, Result};

/// Checks a run of `blocks` blocks from `at` on a device of `size` blocks.
pub(crate) fn check_blocks(op: &'static str, at: Lba, blocks: u64, size: u64) -> Result<()> {
    match at.0.checked_add(blocks) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { op, at, blocks, size }),
    }
}

/// Checks a buffer of `bytes` bytes at `at`; returns its length in blocks.
pub(crate) fn check(op: &'static str, at: Lba, bytes: usize, size: u64) -> Result<u64> {
    if !bytes.is_multiple_of(BLOCK) {
        return Err(DeviceError::Misaligned { op, at, bytes });
    }
    let blocks = (bytes / BLOCK) as u64;
    check_blocks(op, at, blocks, size)?;
    Ok(blocks)
}

/// Checks every part of a gathered write, each whole blocks; returns the total in blocks.
pub(crate) fn check_parts(op: &'static str, at: Lba, parts: &[&[u8]], size: u64) -> Result<u64> {
    let mut blocks = 0u64;
    for part in parts {
        let here = Lba(at.0.saturating_add(blocks));
        blocks += check(op, here, part.len(), size)?;
    }
    check_blocks(op, at, blocks, size)?;
    Ok(blocks)
}

/// Checks the two ranges of a remap.
pub(crate) fn check_remap(from: Lba, to: Lba, blocks: u64, size: u64) -> Result<()> {
    check_blocks("remap", from, blocks, size)?;
    check_blocks("remap", to, blocks, size)?;
    // Overlapping ranges cannot be exchanged.
    if from.0.abs_diff(to.0) < blocks {
        return Err(DeviceError::OutOfRange { op: "remap onto itself", at: to, blocks, size });
    }
    Ok(())
}
