//! How many may bring contents at once?
//!
//! [`Volume::begin`] makes room for what is dirty in memory and lets its caller in; it does not know what the
//! caller brings. A mebibyte, as much as one writer brings, always fits the reserve. Many that were let in
//! together would use the log up to its end, and then there is no place for a checkpoint either, without which
//! nothing is freed.
//!
//! So what is being brought is counted, and who would make it more than that waits, before taking any lock, until
//! there are free sections for all of it beside what is dirty. Whether there is room on the
//! volume at all is not asked here: a block's room is reserved when it is written to.

use super::BLOCK;
use super::write::CHUNK;
use super::writers::Admitted;
use crate::volume::Volume;

/// Blocks that are brought at a time wherever there is room at all: what one writer brings at most.
const ALWAYS: u64 = CHUNK as u64 / BLOCK + 1;

impl Volume {
    /// Waits until `blocks` more may be brought, no more than [`ALWAYS`]. The caller holds no lock.
    pub(crate) fn admit(&self, blocks: u64) -> Admitted<'_> {
        let mut bringing = self.writers.bringing.lock();
        while *bringing + blocks > ALWAYS && !self.seg.lock().has_sections_for(*bringing + blocks) {
            self.writers.one_left.wait(&mut bringing);
        }
        *bringing += blocks;
        Admitted { writers: &self.writers, blocks }
    }
}
