//! How much may writers write at the same time?
//!
//! *Admission* limits the contents that concurrent writers add. [`Begin::begin`](crate::context::Begin::begin) makes room for what is dirty in
//! memory and admits its caller without knowing how much the caller writes. One writer adds at most a mebibyte, which
//! always fits the reserve. Many writers together could use the log up to its end. Then a checkpoint finds no space
//! either, and only a checkpoint frees segments.
//!
//! So the volume counts the blocks of admitted writers. If the next writer would raise the count above a mebibyte, it
//! waits until there are free sections for all of these blocks in addition to what is dirty, and room on the host. It
//! waits before it takes any lock except those of [`crate::inode::Steps`]. Admission does not check whether the volume
//! as a whole has room: a block is reserved when it is first written.

use super::BLOCK;
use super::write::CHUNK;
use super::writers::Admitted;
use crate::file::Files;

/// Blocks that may always be added: the most that one writer adds.
const ALWAYS: u64 = CHUNK as u64 / BLOCK + 1;

impl Files {
    /// Like [`Self::admit`] for the pages of a set, which may be more than [`ALWAYS`] and need all their room at once;
    /// `None` if that is not there now.
    pub(crate) fn admit_set(&self, blocks: u64) -> Option<Admitted<'_>> {
        if blocks <= ALWAYS {
            return Some(self.admit(blocks));
        }
        let mut bringing = self.writers.bringing.lock();
        let all = *bringing + blocks;
        let fits = self.logs.seg.lock().has_sections_for(all) && self.host_covers(all);
        fits.then(|| {
            *bringing = all;
            Admitted { writers: &self.writers, blocks }
        })
    }

    /// Waits until `blocks` more may be added; `blocks` is at most [`ALWAYS`]. The caller holds no lock except those of
    /// [`crate::inode::Steps`].
    pub(super) fn admit(&self, blocks: u64) -> Admitted<'_> {
        let mut bringing = self.writers.bringing.lock();
        let fits = |all| {
            let in_log = self.logs.seg.lock().has_sections_for(all);
            in_log && self.host_covers(all)
        };
        while *bringing + blocks > ALWAYS && !fits(*bringing + blocks) {
            self.writers.one_left.wait(&mut bringing);
        }
        *bringing += blocks;
        Admitted { writers: &self.writers, blocks }
    }
}
