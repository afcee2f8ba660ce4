//! A mount of an in-memory file system on its own directory.
// Each test program uses some of these.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use joulefs_fuse::{Caching, MountOptions, Mounted};
use judges::memfs::MemFs;
use tempfile::TempDir;
use vfs::FileSystem;

pub struct Mount {
    pub fs: Arc<MemFs>,
    pub mounted: Mounted,
    pub dir: TempDir,
}

/// False, after printing a line, if mounting is impossible here.
pub fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        testlog::missing("/dev/fuse");
    }
    there
}

pub fn options(writeback: bool) -> MountOptions {
    let caching = if writeback { Caching::Writeback } else { Caching::Through };
    MountOptions { subtype: "memfs".to_owned(), caching, suid: true, ..MountOptions::default() }
}

/// Mounts an empty file system with room for `bytes`.
pub fn mount(bytes: u64, options: &MountOptions) -> Option<Mount> {
    if !can_mount() {
        return None;
    }
    let fs = Arc::new(MemFs::new(bytes));
    let dir = TempDir::new().expect("a temporary directory");
    let mounted = mount_any(fs.clone(), dir.path(), options);
    Some(Mount { fs, mounted, dir })
}

pub fn mount_any(fs: Arc<dyn FileSystem>, dir: &Path, options: &MountOptions) -> Mounted {
    joulefs_fuse::mount(fs, dir, options).expect("mounts")
}

impl Mount {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts and checks that the file system was unmounted.
    pub fn end(self) {
        // A concurrent test that is starting a program holds copies of all descriptors for a moment.
        let mut tries = 0;
        while let Err(error) = self.mounted.unmount() {
            tries += 1;
            assert!(tries < 1000, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.mounted.wait().expect("a clean end");
        assert!(self.fs.ended());
    }
}
