//! What can a program ask of an F2FS volume beyond what every file system offers?

use format::Ino;
use format::superblock::SuperBlock;
use vfs::{FileSystem, FreeFragments, Moving};

use super::Volume;
use crate::error::Result;
use crate::file::compressed::room::CompressedCount;
use crate::file::extents::torn;
use crate::gc::settings::Settings;
use crate::segment::temperature::Mode;

impl Volume {
    /// The superblock.
    pub fn superblock(&self) -> &SuperBlock {
        &self.ctx.sb
    }

    /// How many deltas an inode has.
    ///
    /// # Errors
    /// If there is no such inode, or it cannot be read.
    pub fn deltas_in(&self, ino: Ino) -> Result<usize> {
        self.deltas.deltas_in(ino)
    }

    /// The number of nodes in memory, and how many of them hold deltas.
    pub fn nodes_in_memory(&self) -> (usize, usize) {
        self.deltas.nodes_in_memory()
    }

    /// Counts the compressed files of the volume. Reads every inode.
    pub fn count_compressed(&self) -> Result<CompressedCount> {
        self.files.count_compressed()
    }

    /// Defragments a file; returns the number of moved blocks. Other operations run meanwhile.
    ///
    /// # Errors
    /// As for [`vfs::FileSystem::defragment`]; blocks already moved stay moved.
    pub fn bring_together(&self, ino: vfs::Ino, how: Moving) -> vfs::Result<u64> {
        let mut moved = 0;
        for range in torn(&self.extents(ino, 0, usize::MAX)?) {
            let mut at = range.start;
            while at < range.end {
                let (next, n) = self.defragment(ino, at..range.end, how)?;
                (at, moved) = (next, moved + n);
            }
        }
        Ok(moved)
    }

    /// Whether nothing is overwritten in place, except pinned files.
    pub fn is_append_only(&self) -> bool {
        self.ctx.options.mode == Mode::Lfs
    }

    /// The current settings of cleaning.
    pub fn cleaning(&self) -> Settings {
        self.cleaning.cleaning()
    }

    /// Replaces the settings of cleaning.
    pub fn set_cleaning(&self, settings: Settings) {
        self.cleaning.set_cleaning(settings);
    }

    /// Cleans one section in steps, between which other operations run; false if no section is worth cleaning.
    pub fn clean_in_background(&self, settings: &Settings) -> Result<bool> {
        self.cleaning.clean_in_background(settings)
    }

    /// Cleans one section as foreground cleaning does, whether space is short or not: the emptiest section (under joule
    /// the cheapest), at once, with a checkpoint that frees it (like `F2FS_IOC_GARBAGE_COLLECT` and a checkpoint in the kernel). False if no
    /// section gains anything.
    pub fn clean_in_foreground(&self) -> Result<bool> {
        self.cleaning.clean_in_foreground()
    }

    /// Resets all that cleaning has learned since the mount. ATGC only uses the age from before the mount (like the
    /// kernel's), and would treat a volume aged since then as new.
    pub fn forget_past(&self) {
        self.cleaning.forget_past();
    }

    /// True if the policy uses age and the volume is too young for it, so that in the background cost-benefit chooses
    /// instead.
    pub fn waits_for_age(&self) -> bool {
        self.cleaning.waits_for_age()
    }

    /// The current free fragments.
    pub fn free_fragments(&self) -> FreeFragments {
        self.logs.free_fragments()
    }

    /// Compares the numbers kept for every segment with its valid map. The error names the first difference.
    pub fn audit_segments(&self) -> std::result::Result<(), String> {
        self.logs.audit_segments()
    }
}
