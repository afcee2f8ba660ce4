//! With `mode=lfs`, a volume is written only at the ends of its logs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, DeviceError, Lba, Memory, Result, Tag};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{Mode, MountOptions, Volume};
use judges::oracle::kernel::Kernel;
use parking_lot::Mutex;
use vfs::FileSystem;

use crate::log_rig::*;

/// A device that accepts a block of the main area only if it is the first of its section or follows the last one
/// written there: a volume that fills a hole or overwrites in place gets an error. It accepts any write to the area of
/// the tables.
struct AppendOnly {
    below: Arc<Memory>,
    main: u64,
    section: u64,
    /// The next block of each section; `u64::MAX` if any is allowed.
    next: Mutex<Vec<u64>>,
    broken: Mutex<BTreeSet<u64>>,
}

impl AppendOnly {
    /// Writes of mkfs do not count.
    fn over(below: Arc<Memory>) -> Arc<Self> {
        let sb = joulefs_f2fs::mount::read_superblock(&*below).unwrap();
        let (main, section) = (u64::from(sb.main.0), u64::from(sb.segs_per_sec) * 512);
        let next = vec![u64::MAX; sb.sections() as usize];
        Arc::new(AppendOnly { below, main, section, next: Mutex::new(next), broken: Mutex::default() })
    }

    fn check(&self, at: Lba, blocks: u64) -> Result<()> {
        let mut next = self.next.lock();
        for n in at.0..at.0 + blocks {
            let Some(offset) = n.checked_sub(self.main) else { continue };
            let place = &mut next[(offset / self.section) as usize];
            let begins = offset % self.section == 0;
            if *place != n && !begins && *place != u64::MAX {
                self.broken.lock().insert(n);
                return Err(DeviceError::Unsupported { op: "write that does not append" });
            }
            *place = n + 1;
        }
        Ok(())
    }
}

impl BlockDevice for AppendOnly {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        self.below.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.check(at, (data.len() / 4096) as u64)?;
        self.below.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.below.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.below.discard(at, blocks, tag)
    }
}

fn lfs() -> MountOptions {
    MountOptions { mode: Mode::Lfs, ..MountOptions::default() }
}

fn mount_lfs(dev: Arc<dyn BlockDevice>) -> Arc<Volume> {
    Volume::mount(dev, clock(), lfs()).unwrap()
}

fn never_ends(mib: u64, options: &Options, percent: u64, times: u64) {
    let below = Arc::new(formatted(mib, options));
    let dev = AppendOnly::over(below.clone());
    let vol = mount_lfs(dev.clone());
    let files = fill(&vol, percent);
    overwrite(&vol, &files, files.len() as u64 * 256 * times, 1000);
    assert!(vol.counters.foreground_gc.load(Relaxed) > 0);
    assert_eq!(vol.counters.in_place.load(Relaxed), 0);
    vol.unmount().unwrap();
    assert_eq!(*dev.broken.lock(), BTreeSet::new());
    assert_clean(&*below, "after unmount");
    assert_tools_clean(&below);
}

#[test]
fn random_overwrites_of_a_volume_95_percent_full_append_for_ever() {
    never_ends(192, &Options::default(), 95, 3);
}

#[test]
fn random_overwrites_of_the_smallest_volume_append_for_ever() {
    never_ends(64, &Options::default(), 90, 6);
}

#[test]
fn random_overwrites_in_sections_of_several_segments_append_for_ever() {
    never_ends(256, &Options { segs_per_sec: 2, ..Options::modern() }, 90, 2);
}

#[test]
fn without_the_mode_the_same_volume_does_not_append() {
    let below = Arc::new(formatted(64, &Options::default()));
    let dev = AppendOnly::over(below.clone());
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &pattern(1, CHUNK));
    vol.fsync(f, false).unwrap();
    write(&vol, f, 4096, &pattern(2, 4096));
    assert!(vol.fsync(f, false).is_err(), "in place");
    assert_ne!(*dev.broken.lock(), BTreeSet::new());
}

#[test]
fn linux_goes_on_with_a_volume_written_so_in_either_mode() {
    let below = Arc::new(formatted(64, &Options::default()));
    let vol = mount_lfs(below.clone());
    let files = fill(&vol, 80);
    overwrite(&vol, &files, 5000, 1000);
    vol.unmount().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    below.save(&image).unwrap();
    let script = "for m in lfs adaptive; do
            mount -t f2fs -o mode=$m /dev/$DISK $MNT; cd $MNT; cat f* >/dev/null
            for f in f1 f2 f3; do dd if=/dev/urandom of=$f bs=4k count=64 conv=notrunc,fsync 2>/dev/null; done
            cd /; umount $MNT
        done";
    Kernel::new().without_mount().run(&image, script).expect_ok().assert_no_f2fs_complaints();
    judges::oracle::tools::assert_fsck_clean(&image);
}
