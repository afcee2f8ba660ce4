//! Mapping from block `n` of the volume to bytes of the image.
//!
//! A partition begins at a sector, which need not be block-aligned in the image. An image may also begin in the
//! middle of a volume, so that block 0 would lie before it. This module never writes.

use std::sync::atomic::{AtomicU64, Ordering};

use device::{BlockDevice, Lba, Tag};
use format::{BLOCK, Block, BlockAddr};

use crate::RescueError;

/// Bytes in a sector, the alignment of volumes.
pub const SECTOR: u64 = 512;

/// An image seen as blocks that begin `phase` bytes into it.
pub struct Window<'d> {
    dev: &'d dyn BlockDevice,
    /// Bytes before the first whole block of the volume's grid: a multiple of [`SECTOR`], less than a block.
    pub phase: u64,
    /// The volume's address of the block at `phase`; negative if the volume begins after it.
    pub first: i64,
    unreadable: AtomicU64,
}

impl<'d> Window<'d> {
    /// A window on a device; block addresses count from its first block until `first` is known.
    pub fn new(dev: &'d dyn BlockDevice, phase: u64, first: i64) -> Self {
        Window { dev, phase, first, unreadable: AtomicU64::new(0) }
    }

    /// Number of blocks that [`Self::read_run`] could not read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Number of whole blocks in the window.
    pub fn blocks(&self) -> u64 {
        self.dev.blocks().saturating_sub(u64::from(self.phase > 0))
    }

    /// The address of the window's block `index`, if it is valid.
    pub fn addr(&self, index: u64) -> Option<BlockAddr> {
        let at = i64::try_from(index).ok()?.checked_add(self.first)?;
        u32::try_from(at).ok().map(BlockAddr).filter(|a| a.is_real())
    }

    /// The window's block at an address; `None` if it is outside the image.
    pub fn index(&self, addr: BlockAddr) -> Option<u64> {
        let at = u64::try_from(i64::from(addr.0) - self.first).ok()?;
        (at < self.blocks()).then_some(at)
    }

    /// Reads blocks of the window. After an error each block is read separately; an unreadable one is zeroed and
    /// counted.
    pub fn read_run(&self, index: u64, out: &mut [u8]) -> Result<(), RescueError> {
        if self.read_exact(index, out).is_ok() {
            return Ok(());
        }
        for (n, block) in out.chunks_mut(BLOCK).enumerate() {
            if self.read_exact(index + n as u64, block).is_err() {
                block.fill(0);
                self.unreadable.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn read_exact(&self, index: u64, out: &mut [u8]) -> Result<(), RescueError> {
        if self.phase == 0 {
            return Ok(self.dev.read(Lba(index), out, Tag::default())?);
        }
        let mut wide = vec![0; out.len() + BLOCK];
        self.dev.read(Lba(index), &mut wide, Tag::default())?;
        let from = self.phase as usize;
        out.copy_from_slice(&wide[from..from + out.len()]);
        Ok(())
    }

    /// The block at an address; `None` outside the image.
    ///
    /// # Errors
    /// If the device cannot read it.
    pub fn block(&self, addr: BlockAddr) -> Result<Option<Box<Block>>, RescueError> {
        let Some(index) = self.index(addr) else { return Ok(None) };
        let mut out = Box::new([0; BLOCK]);
        self.read_exact(index, &mut out[..])?;
        Ok(Some(out))
    }
}
