//! Which summaries of closed segments have not reached the device yet?

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Lba};
use format::superblock::SuperBlock;
use format::{Block, SegNo};

use crate::cause::Cause;
use crate::error::Result;

/// Summaries that wait before all are written: 2 MiB.
const MOST: usize = 512;

/// Changed summary blocks by segment.
#[derive(Default)]
pub struct PendingSummaries {
    blocks: BTreeMap<SegNo, Box<Block>>,
}

impl PendingSummaries {
    /// The summary of `seg`: the pending one, else the device's.
    pub fn load(&self, dev: &dyn BlockDevice, sb: &SuperBlock, seg: SegNo) -> Result<Box<Block>> {
        if let Some(b) = self.blocks.get(&seg) {
            return Ok(b.clone());
        }
        let mut block = Box::new([0; 4096]);
        dev.read(Lba(sb.ssa_block(seg).0.into()), &mut *block, Cause::Ssa.tag())?;
        Ok(block)
    }

    /// The summary of `seg`, for changes.
    pub fn edit(&mut self, dev: &dyn BlockDevice, sb: &SuperBlock, seg: SegNo) -> Result<&mut Block> {
        if !self.blocks.contains_key(&seg) {
            let block = self.load(dev, sb, seg)?;
            self.blocks.insert(seg, block);
        }
        // OK to unwrap: inserted above if it was missing.
        Ok(self.blocks.get_mut(&seg).unwrap())
    }

    /// Replaces the summary of `seg`; writes all of them if many are pending.
    pub fn store(&mut self, dev: &Arc<dyn BlockDevice>, sb: &SuperBlock, seg: SegNo, block: Box<Block>) -> Result<()> {
        self.blocks.insert(seg, block);
        if self.blocks.len() > MOST {
            self.write_all(&**dev, sb, Cause::Ssa)?;
        }
        Ok(())
    }

    /// Writes every pending summary; adjacent ones in one request.
    pub fn write_all(&mut self, dev: &dyn BlockDevice, sb: &SuperBlock, cause: Cause) -> Result<()> {
        let mut run: Vec<&[u8]> = Vec::new();
        let mut start = SegNo(0);
        for (&seg, block) in &self.blocks {
            if !run.is_empty() && seg.0 != start.0 + run.len() as u32 {
                dev.write_gather(Lba(sb.ssa_block(start).0.into()), &run, cause.tag())?;
                run.clear();
            }
            if run.is_empty() {
                start = seg;
            }
            run.push(&block[..]);
        }
        if !run.is_empty() {
            dev.write_gather(Lba(sb.ssa_block(start).0.into()), &run, cause.tag())?;
        }
        self.blocks.clear();
        Ok(())
    }
}
