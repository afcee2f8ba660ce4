//! How many writers may bring contents at once?
//!
//! *Admission* limits the contents that writers bring together. [`Volume::begin`] makes room for what is dirty in
//! memory and lets its caller in; it does not know how much the caller brings. One writer brings at most a mebibyte,
//! which always fits the reserve. Many writers let in together would use the log up to its end. Then a checkpoint finds
//! no place either, and only a checkpoint frees segments.
//!
//! So the volume counts the blocks that admitted writers bring. If the next writer would raise the count above a
//! mebibyte, it waits, before it takes any lock but those of [`crate::inode::Steps`], until there are free sections for all of these blocks beside what is
//! dirty, and room on the host. Admission does not ask whether the volume as a whole has room: a block's room is reserved when it is first
//! written.

use super::BLOCK;
use super::write::CHUNK;
use super::writers::Admitted;
use crate::volume::Volume;

/// Blocks that may always be brought: as many as one writer brings at most.
const ALWAYS: u64 = CHUNK as u64 / BLOCK + 1;

impl Volume {
    /// Waits until `blocks` more may be brought; `blocks` is at most [`ALWAYS`]. The caller holds no lock but
    /// those of [`crate::inode::Steps`].
    pub(crate) fn admit(&self, blocks: u64) -> Admitted<'_> {
        let mut bringing = self.writers.bringing.lock();
        let fits = |all| {
            let in_log = self.seg.lock().has_sections_for(all);
            in_log && self.host_covers(all)
        };
        while *bringing + blocks > ALWAYS && !fits(*bringing + blocks) {
            self.writers.one_left.wait(&mut bringing);
        }
        *bringing += blocks;
        Admitted { writers: &self.writers, blocks }
    }
}
