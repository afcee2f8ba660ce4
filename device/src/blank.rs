//! A device that keeps no contents.

use crate::bounds::{check, check_blocks};
use crate::{BlockDevice, Lba, Result, Tag};

/// Drops writes, and reads as zeroes. For simulations in which only addresses and times matter: replays of recorded
/// requests, whose contents are unknown.
#[derive(Debug, Clone, Copy)]
pub struct Blank {
    blocks: u64,
}

impl Blank {
    /// A device of `blocks` blocks; it takes no memory.
    pub fn new(blocks: u64) -> Self {
        Blank { blocks }
    }
}

impl BlockDevice for Blank {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn read(&self, at: Lba, buf: &mut [u8], _tag: Tag) -> Result<()> {
        check("read", at, buf.len(), self.blocks)?;
        buf.fill(0);
        Ok(())
    }
    fn write(&self, at: Lba, data: &[u8], _tag: Tag) -> Result<()> {
        check("write", at, data.len(), self.blocks).map(drop)
    }
    fn flush(&self, _tag: Tag) -> Result<()> {
        Ok(())
    }
    fn discard(&self, at: Lba, blocks: u64, _tag: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks)
    }
}
