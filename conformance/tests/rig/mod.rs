//! Images, volumes and mounts for the system tests, and both checkers' verdict on an image.
// Each test program uses only part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::fsck::Report;
use device::{Access, BlockDevice, FileDevice, Memory, RealClock, Time, VirtualClock};
use f2fs::{MountError, MountOptions, Volume};
use fuse::Mounted;
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::{Mkfs, assert_fsck_clean, fsck, locate};
use judges::oracle::tree::{Listing, of_vfs};
use tempfile::TempDir;
use vfs::FileSystem;
use volume::Kind;

pub const MIB: u64 = 1 << 20;

/// Whether the long variants are requested.
pub fn deep() -> bool {
    std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1")
}

/// A directory for one test's images: in memory if there is space, since no test needs a real disk.
pub fn work_dir() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("joulefs-test-");
    let shm = Path::new("/dev/shm");
    let roomy = rustix::fs::statvfs(shm).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) > 4 << 30);
    if roomy { builder.tempdir_in(shm) } else { builder.tempdir() }.expect("a temporary directory")
}

/// Calls a function with each item, two at a time; returns the results in the order of the items.
pub fn two_at_a_time<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mine = || {
            let n = next.fetch_add(1, Ordering::Relaxed);
            items.get(n).map(|item| (n, work(item)))
        };
        std::iter::from_fn(mine).collect::<Vec<_>>()
    };
    let mut all = std::thread::scope(|scope| {
        let other = scope.spawn(worker);
        let mut all = worker();
        all.extend(other.join().expect("no panic"));
        all
    });
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, result)| result).collect()
}

/// The kernel, with the programs that list, fill and churn a tree.
pub fn kernel() -> Kernel {
    equipped(Kernel::new())
}

/// A kernel with these programs.
pub fn equipped(kernel: Kernel) -> Kernel {
    kernel
        .program("treelist", env!("CARGO_BIN_EXE_treelist"))
        .program("zoo", env!("CARGO_BIN_EXE_zoo"))
        .program("churn", env!("CARGO_BIN_EXE_churn"))
}

/// The listing on which two readers of one image must agree.
pub const TREELIST: &str = "treelist --directory-sizes --blocks .";

/// The formats made by `mkfs.f2fs`.
pub fn their_formats() -> [(&'static str, Mkfs); 4] {
    let modern = [
        "extra_attr",
        "inode_checksum",
        "sb_checksum",
        "flexible_inline_xattr",
        "inode_crtime",
        "lost_found",
        "compression",
    ];
    [
        ("default", Mkfs::default()),
        ("modern", Mkfs::with_features(modern)),
        ("quota", Mkfs::with_features(["extra_attr", "project_quota", "quota"])),
        ("two segments per section", Mkfs { segments_per_section: Some(2), ..Mkfs::default() }),
    ]
}

/// The text that a run of the kernel left in its `$OUT`.
pub fn printed(out: &Path, name: &str) -> String {
    std::fs::read_to_string(out.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A listing without modification times of directories: recovering a name changes its directory.
pub fn without_directory_times(listing: &str) -> String {
    let strip = |line: &str| {
        let words = line.split(' ');
        let words: Vec<&str> = if line.split(' ').nth(1) == Some("dir") {
            words.filter(|word| !word.starts_with("mtime=")).collect()
        } else {
            words.collect()
        };
        words.join(" ") + "\n"
    };
    listing.lines().map(strip).collect()
}

/// Mounts a device.
#[allow(clippy::result_large_err)]
pub fn mount_device(dev: Arc<dyn BlockDevice>, read_only: bool) -> Result<Arc<Volume>, MountError> {
    let options = MountOptions { read_only, ..MountOptions::default() };
    Volume::mount(dev, Arc::new(RealClock::new()), options)
}

/// Mounts an image file for reading and writing.
#[track_caller]
pub fn mount_rw(image: &Path) -> Arc<Volume> {
    let dev = FileDevice::open(image, Access::ReadWrite).unwrap_or_else(|e| panic!("{e}"));
    mount_device(Arc::new(dev), false).unwrap_or_else(|e| panic!("{}: {e}", image.display()))
}

/// Mounts an image file read-only.
#[track_caller]
pub fn mount_ro(image: &Path) -> Arc<Volume> {
    let dev = device::open_image(image, Access::ReadOnly).unwrap_or_else(|e| panic!("{e}"));
    mount_device(dev, true).unwrap_or_else(|e| panic!("{}: {e}", image.display()))
}

/// The listing on which two readers of one image must agree.
#[track_caller]
pub fn list(volume: &Volume) -> String {
    of_vfs(volume, Listing::of_one_image()).unwrap_or_else(|e| panic!("cannot list: {e}"))
}

/// The listing of an image in memory, mounted read-only.
#[track_caller]
pub fn list_memory(memory: Memory) -> String {
    list(&mount_device(Arc::new(memory), true).unwrap_or_else(|e| panic!("{e}")))
}

/// Makes an image with our own mkfs.
#[track_caller]
pub fn format(image: &Path, bytes: u64, options: &f2fs::mkfs::Options) {
    let dev = FileDevice::create(image, bytes).unwrap_or_else(|e| panic!("{e}"));
    f2fs::mkfs::format(&dev, &RealClock::new(), options).unwrap_or_else(|e| panic!("{e}"));
    dev.flush(device::Tag::default()).expect("flushed");
}

/// Our checker's report.
#[track_caller]
pub fn our_fsck(image: &Path) -> Report {
    let dev = FileDevice::open(image, Access::ReadOnly).unwrap_or_else(|e| panic!("{e}"));
    ::fsck::check(&dev, &::fsck::Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Checks that an image has no errors, for our checker and for `fsck.f2fs`, and was unmounted.
#[track_caller]
pub fn assert_clean(image: &Path) {
    let report = our_fsck(image);
    assert!(report.is_clean(), "our fsck on {}:\n{report}", image.display());
    assert!(report.clean_unmount, "{}: not unmounted", image.display());
    let verdict = fsck(image);
    if !verdict.checkpoint_state.iter().any(|flag| flag == "quota_need_fsck") {
        assert!(assert_fsck_clean(image).unmounted());
        return;
    }
    // Usage must be recounted. `fsck.f2fs` does that even in a dry run, where it trips over its own unwritten changes.
    // So the result of a run on a writable copy counts, and what it finds afterwards.
    let other = verdict.complaints.iter().find(|line| !line.contains("quotaio_tree"));
    assert!(other.is_none() && verdict.unmounted(), "{}", verdict.output);
    let copy = image.with_extension("quota");
    std::fs::copy(image, &copy).expect("a copy");
    let mended =
        std::process::Command::new(locate("fsck.f2fs", "f2fs-tools")).arg("-f").arg(&copy).output().expect("fsck.f2fs");
    let said = String::from_utf8_lossy(&mended.stdout);
    assert!(!said.contains("[Fail"), "fsck.f2fs on {}:\n{said}", image.display());
    assert_fsck_clean(&copy);
    std::fs::remove_file(&copy).expect("removed");
}

/// Checks that an image that was not unmounted has no errors for both checkers.
#[track_caller]
pub fn assert_sound(image: &Path) {
    let report = our_fsck(image);
    assert!(report.is_clean(), "our fsck on {}:\n{report}", image.display());
    let verdict = fsck(image);
    assert!(verdict.clean(), "fsck.f2fs on {}:\n{}", image.display(), verdict.output);
}

/// Unmounts a volume without other references, so that its image is free.
#[track_caller]
pub fn unmount(volume: Arc<Volume>) {
    volume.unmount().unwrap_or_else(|e| panic!("unmount: {e}"));
    assert!(Arc::into_inner(volume).is_some(), "somebody still holds the volume");
}

/// Mounts an image of either file system.
fn either(image: &Path) -> Arc<dyn FileSystem> {
    let dev = Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap_or_else(|e| panic!("{e}")));
    let kind = volume::probe(&*dev).unwrap_or_default();
    let mounted = volume::mount(kind, dev, Arc::new(RealClock::new()), volume::MountOptions::default());
    mounted.unwrap_or_else(|e| panic!("{}: {e}", image.display())).volume()
}

/// Our volume on a real FUSE mount.
pub struct OnFuse {
    pub work: TempDir,
    pub image: PathBuf,
    pub root: PathBuf,
    mounted: Mounted,
}

impl OnFuse {
    /// Formats `mib` MiB with `options` and mounts them.
    pub fn new(mib: u64, options: &f2fs::mkfs::Options) -> Self {
        let work = work_dir();
        let image = work.path().join("volume.img");
        format(&image, mib * MIB, options);
        Self::mount(work, image)
    }

    /// The same with ScherlFS.
    pub fn scherlfs(mib: u64) -> Self {
        let work = work_dir();
        let image = work.path().join("volume.img");
        let dev = Arc::new(FileDevice::create(&image, mib * MIB).unwrap_or_else(|e| panic!("{e}")));
        scherlfs::make::format(dev.clone(), &RealClock::new(), &scherlfs::make::Options::default())
            .unwrap_or_else(|e| panic!("{e}"));
        drop(dev);
        Self::mount(work, image)
    }

    /// Mounts an image of either file system.
    pub fn mount(work: TempDir, image: PathBuf) -> Self {
        let root = work.path().join("mnt");
        if !root.is_dir() {
            std::fs::create_dir(&root).expect("a directory to mount on");
        }
        let options = fuse::MountOptions {
            fsname: image.to_str().expect("a plain path").to_owned(),
            dev: true,
            suid: true,
            ..fuse::MountOptions::default()
        };
        let mounted = fuse::mount(either(&image), &root, &options).unwrap_or_else(|e| panic!("{e}"));
        OnFuse { work, image, root, mounted }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Makes SIGTERM, SIGINT and SIGHUP to this process unmount.
    pub fn unmount_on_signals(&mut self) {
        self.mounted.unmount_on_signals().expect("signals are heard");
    }

    /// Waits for an unmount from elsewhere.
    pub fn wait(self) -> (TempDir, PathBuf) {
        self.mounted.wait().unwrap_or_else(|e| panic!("{e}"));
        (self.work, self.image)
    }

    /// Unmounts; all checkers of its file system must find no errors.
    #[track_caller]
    pub fn end(self) -> (TempDir, PathBuf) {
        // A concurrent test that is just starting a program has copies of all descriptors for a moment.
        let mut tries = 0;
        while let Err(e) = self.mounted.unmount() {
            tries += 1;
            assert!(tries < 1000, "{e}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (work, image) = self.wait();
        let dev = FileDevice::open(&image, Access::ReadOnly).unwrap_or_else(|e| panic!("{e}"));
        match volume::probe(&dev) {
            Some(Kind::ScherlFs) => {
                let report = scherlfs_fsck::check(&dev);
                assert!(report.is_clean() && report.transactions == 0, "{}: {report:?}", image.display());
            }
            _ => {
                drop(dev);
                assert_clean(&image);
            }
        }
        (work, image)
    }
}

/// A clock that moves only when it is told to.
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

/// Unmounts, and mounts again.
pub fn again(mount: OnFuse) -> OnFuse {
    let (work, image) = mount.end();
    OnFuse::mount(work, image)
}
