//! Which blocks go to the device in one request?

use device::{Lba, Tag};
use format::{Block, BlockAddr};

use crate::error::Result;
use crate::segment::Logs;

/// Blocks gathered for one request: 1 MiB.
pub(super) const BATCH: usize = 256;

/// Blocks for consecutive addresses, gathered for one request; the request carries the tag of its first block.
#[derive(Default)]
pub(super) struct Run<'p> {
    start: BlockAddr,
    tag: Tag,
    parts: Vec<&'p [u8]>,
}

impl<'p> Run<'p> {
    pub(super) fn push(&mut self, logs: &Logs, addr: BlockAddr, block: &'p Block, tag: Tag) -> Result<()> {
        let next = self.start.plus(self.parts.len() as u32);
        if self.parts.len() >= BATCH || (!self.parts.is_empty() && next != addr) {
            self.write(logs, self.tag)?;
        }
        if self.parts.is_empty() {
            (self.start, self.tag) = (addr, tag);
        }
        self.parts.push(block);
        Ok(())
    }
    /// The tag of the gathered blocks.
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }
    pub(super) fn write(&mut self, logs: &Logs, tag: Tag) -> Result<()> {
        if !self.parts.is_empty() {
            logs.place(self.start, self.parts.len() as u32, tag.cause);
            logs.ctx.dev.write_gather(Lba(self.start.0.into()), &self.parts, tag).inspect_err(|_| logs.left_a_gap())?;
            self.parts.clear();
        }
        Ok(())
    }
}
