//! How long does the kernel hold writes to a file that stays open?
//!
//! With the writeback cache about 35 seconds (`vm.dirty_expire_centisecs`, `vm.dirty_writeback_centisecs`), longer than
//! `commit=` promises. So once per commit interval the daemon makes the kernel write back this mount's data, with
//! `syncfs` on a directory of the mount. An ordinary open directory would make a simultaneous `umount` fail as busy. So
//! the directory is opened through a detached copy of the mount, which does not delay the unmount. Such a copy needs
//! root; without root the kernel's own times apply.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat, syncfs};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::unmount;

/// Makes the kernel write back periodically.
pub(crate) struct Kept {
    dir: PathBuf,
    device: (u32, u32),
    every: Duration,
    asked: Instant,
    may_ask: bool,
}

impl Kept {
    /// For the mount with this device number at `dir`.
    pub(crate) fn new(dir: PathBuf, device: (u32, u32), every: Duration) -> Self {
        Kept { dir, device, every, asked: Instant::now(), may_ask: true }
    }

    /// Writes back if the interval is over. Must not run in a thread that serves requests, because these threads
    /// receive the kernel's writes.
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
        // Another file system may be mounted over it by now.
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
