//! How long does the kernel keep what is written to a file that stays open?
//!
//! With the writeback cache about 35 seconds (`vm.dirty_expire_centisecs`, `vm.dirty_writeback_centisecs`), longer than
//! `commit=` promises. So the daemon asks the kernel, once in that time, to write back what it holds of this mount:
//! `syncfs` of a directory of the mount. An ordinary open directory would make an `umount` at that moment fail as busy.
//! It is therefore opened through a detached copy of the mount, which the mount's own end does not have to wait for.
//! Making such a copy takes root; for others the kernel's own time applies.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat, syncfs};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::unmount;

/// Asks the kernel, from time to time, to write back what it holds.
pub(crate) struct Kept {
    dir: PathBuf,
    device: (u32, u32),
    every: Duration,
    asked: Instant,
    may_ask: bool,
}

impl Kept {
    /// For the mount of this device number at `dir`.
    pub(crate) fn new(dir: PathBuf, device: (u32, u32), every: Duration) -> Self {
        Kept { dir, device, every, asked: Instant::now(), may_ask: true }
    }

    /// Asks, if it is time. The threads that serve requests take what the kernel writes meanwhile, so this is no work for
    /// one of them.
    pub(crate) fn write_when_due(&mut self) {
        if !self.may_ask || self.asked.elapsed() < self.every {
            return;
        }
        self.asked = Instant::now();
        match self.write() {
            Ok(()) => {}
            Err(Errno::PERM | Errno::NOSYS) => {
                log::info!(
                    "the kernel writes back open files on its own schedule: only root can make it do so \
                    earlier"
                );
                self.may_ask = false;
            }
            Err(e) => log::debug!("cannot make the kernel write back: {e}"),
        }
    }

    fn write(&self) -> rustix::io::Result<()> {
        // Something else may be mounted over it by now.
        let mount = unmount::mounted_at(&self.dir).ok().flatten();
        if mount.is_none_or(|mount| mount.device != self.device) {
            return Ok(());
        }
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let copy = open_tree(rustix::fs::CWD, &self.dir, clone)?;
        let dir = openat(&copy, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        syncfs(&dir)
    }
}
