//! Blocks that cleaning has just moved, before a checkpoint: a power cut, an fsync, a failing device, an unmount.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::{BlockDevice, Counting, Fault, Faulty, Lba, Loss, Memory, Op, PowerCut, Tag};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, Ino};
use victim::Policy;

use crate::log_rig::*;

const FILES: u64 = 700;
const LEN: usize = 3 * 4096;
const POLICIES: [Policy; 4] = [Policy::Greedy, Policy::CostBenefit, Policy::Atgc, Policy::Fagc];

fn settings(policy: Policy) -> Settings {
    Settings { policy, on: false, ..Settings::default() }
}

fn mounted(dev: Arc<dyn BlockDevice>, policy: Policy) -> Arc<Volume> {
    let options = MountOptions { gc: settings(policy), ..MountOptions::default() };
    let vol = Volume::mount(dev, clock(), options).unwrap();
    vol.tune("atgc_age_threshold", "0").unwrap();
    vol
}

/// Small files with addresses in their inodes, every second one removed, all durable.
fn aged() -> Memory {
    let image = Arc::new(formatted(96, &Options::default()));
    let clock = clock();
    let vol = Volume::mount(image.clone(), clock.clone(), MountOptions::default()).unwrap();
    for n in 0..FILES {
        // Age-based policies need blocks of different age.
        clock.advance(std::time::Duration::from_secs(1));
        let f = new_file(&vol, vol.root(), &format!("f{n}"));
        write(&vol, f, 0, &pattern(n, LEN));
        vol.forget(f, 1);
    }
    vol.sync().unwrap();
    for n in (0..FILES).filter(|n| n % 2 == 0) {
        vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
    }
    vol.unmount().unwrap();
    image.fork()
}

fn all_there(vol: &Volume, when: &str) {
    for n in (0..FILES).filter(|n| n % 2 == 1) {
        let ino = find(vol, &format!("f{n}")).unwrap_or_else(|| panic!("{when}: f{n} is gone"));
        assert!(read_all(vol, ino) == pattern(n, LEN), "{when}: f{n}");
        vol.forget(ino, 1);
    }
}

/// Records the inode whose data cleaning moved last.
struct Moves<D> {
    inner: Arc<D>,
    last: AtomicU64,
}

impl<D: BlockDevice> BlockDevice for Moves<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        if tag.cause == Cause::BackgroundGcData.tag().cause {
            self.last.store(tag.owner, Relaxed);
        }
        self.inner.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.inner.discard(at, blocks, tag)
    }
}

#[test]
fn an_fsync_of_a_file_whose_blocks_just_moved_loses_nothing_whatever_reaches_the_medium() {
    let image = aged();
    for policy in POLICIES {
        for (write_first, after) in
            [(false, 1), (false, 2), (true, 1), (true, 2), (true, 3), (false, 1000), (true, 1000)]
        {
            let power = Arc::new(PowerCut::new(image.fork()));
            let dev = Arc::new(Moves { inner: power.clone(), last: AtomicU64::new(0) });
            let vol = mounted(dev.clone(), policy);
            // Leaves the unmounted state: later cuts find a checkpoint of this mount.
            let other = new_file(&vol, vol.root(), "other");
            vol.sync().unwrap();
            while dev.last.load(Relaxed) == 0 {
                assert!(vol.clean_in_background(&settings(policy)).unwrap(), "{policy:?}");
            }
            let moved = Ino(dev.last.load(Relaxed));
            let n = (0..FILES).find(|n| n % 2 == 1 && find(&vol, &format!("f{n}")) == Some(moved)).unwrap();
            power.cut_after(power.write_count() + after);
            if write_first {
                write(&vol, moved, 4096, &pattern(n, LEN)[4096..8192]);
            } else {
                write(&vol, other, 0, b"something else");
            }
            let synced = vol.fsync(moved, write_first);
            assert!(after < 1000 || synced.is_ok());
            for loss in Loss::PLAIN.into_iter().chain((0..4).map(Loss::Random)) {
                let left = power.image(loss);
                let when = format!("{policy:?}, write {after} of the fsync, {loss}");
                recovered(&left, |vol| all_there(vol, &when));
            }
        }
    }
}

#[test]
fn a_segment_that_cleaning_filled_in_memory_alone_is_an_ordinary_one_after_a_checkpoint() {
    let image = aged();
    for policy in POLICIES {
        let power = Arc::new(PowerCut::new(image.fork()));
        let vol = mounted(power.clone(), policy);
        for round in 0..4 {
            vol.clean_in_background(&Settings { step_blocks: 37, ..settings(policy) }).unwrap();
            let name = format!("new{round}");
            let f = new_file(&vol, vol.root(), &name);
            vol.audit_segments().unwrap();
            vol.sync().unwrap();
            write(&vol, f, 0, &pattern(round, 9000));
            for loss in Loss::PLAIN {
                recovered(&power.image(loss), |vol| {
                    all_there(vol, &format!("{policy:?}, {loss}"));
                    assert!(find(vol, &name).is_some());
                });
            }
            assert_tools_clean(&power.image(Loss::AllLost));
        }
    }
}

#[test]
fn moved_blocks_that_all_lose_their_owners_leave_a_free_segment_behind() {
    for policy in POLICIES {
        let dev = Arc::new(aged());
        let vol = mounted(dev.clone(), policy);
        while vol.clean_in_background(&settings(policy)).unwrap() && vol.counters.moved_blocks() < 600 {}
        for n in (0..FILES).filter(|n| n % 2 == 1) {
            vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
        }
        vol.sync().unwrap();
        vol.audit_segments().unwrap();
        assert_clean(&*dev, "while mounted");
        let free = vol.state().free_segments;
        vol.unmount().unwrap();
        assert_clean(&*dev, "after unmount");
        assert_tools_clean(&dev);
        assert_eq!(mount_copy(&dev).state().free_segments, free, "{policy:?}");
    }
}

#[test]
fn a_device_that_fails_under_cleaning_leaves_a_volume_that_mounts_and_has_everything() {
    let image = aged();
    for policy in POLICIES {
        for op in [Op::Read, Op::Write] {
            for nth in 0..8 {
                let dev = Arc::new(Faulty::new(image.fork()));
                let vol = mounted(dev.clone(), policy);
                let f = new_file(&vol, vol.root(), "other");
                vol.sync().unwrap();
                let from = dev.requests(op) + 1 + nth;
                dev.add(Fault::Nth { op, requests: from..from + 1 });
                let cleaned = (0..3).try_for_each(|_| vol.clean_in_background(&settings(policy)).map(drop));
                dev.heal();
                // The volume may continue or fail; what it makes durable must be intact.
                let when = format!("{policy:?}, {op:?} {nth} failed: {cleaned:?}");
                let _ = vol.write(f, 0, &pattern(3, 5000), vfs::WriteFlags::empty());
                let _ = vol.sync();
                assert_clean(dev.inner(), &when);
                let _ = vol.unmount();
                recovered(dev.inner(), |vol| all_there(vol, &when));
            }
        }
    }
}

#[test]
fn a_section_that_cannot_be_read_does_not_keep_others_from_being_cleaned() {
    let dev = Arc::new(Faulty::new(aged()));
    let policy = Policy::Greedy;
    let vol = mounted(dev.clone(), policy);
    let f = new_file(&vol, vol.root(), "other");
    vol.sync().unwrap();
    let from = dev.requests(Op::Read) + 1;
    dev.add(Fault::Nth { op: Op::Read, requests: from..from + 1 });
    assert!(vol.clean_in_background(&settings(policy)).is_err());
    assert!(vol.clean_in_background(&settings(policy)).unwrap());
    write(&vol, f, 0, &pattern(3, 5000));
    vol.unmount().unwrap();
    assert_clean(dev.inner(), "after unmount");
}

#[test]
fn cleaning_ends_where_the_volume_is_unmounted() {
    for _ in 0..20 {
        let dev = Arc::new(Counting::new(aged()));
        let vol = mounted(dev.clone(), Policy::CostBenefit);
        std::thread::scope(|s| {
            let cleaning = s.spawn(|| {
                let settings = Settings { step_blocks: 1, ..settings(Policy::CostBenefit) };
                while vol.clean_in_background(&settings).is_ok_and(|found| found) {}
            });
            while vol.counters.moved_background.load(Relaxed) == 0 && !cleaning.is_finished() {}
            vol.unmount().unwrap();
            let written = dev.snapshot().total().writes;
            cleaning.join().unwrap();
            assert_eq!(dev.snapshot().total().writes, written, "written after the unmount");
        });
        assert_clean(dev.inner(), "after unmount");
    }
}
