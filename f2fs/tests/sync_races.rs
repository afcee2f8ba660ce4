//! Whoever syncs while another thread's checkpoint or fsync is on its way finds his own changes durable.

mod log_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use device::{BlockDevice, DeviceError, Lba, Loss, PowerCut, Tag};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use log_rig::*;
use parking_lot::{Condvar, Mutex};
use vfs::FileSystem;

/// A device on which one write for some cause or one flush waits; the flush may then fail.
struct Slow {
    inner: Arc<PowerCut>,
    slow_write: Mutex<Option<Cause>>,
    slow_flush: AtomicBool,
    fails: AtomicBool,
    /// Somebody waits in a request; he may go on.
    gate: Mutex<(bool, bool)>,
    moved: Condvar,
}

impl Slow {
    fn new(inner: Arc<PowerCut>) -> Arc<Self> {
        let [slow_flush, fails] = Default::default();
        let (slow_write, gate) = (Mutex::default(), Mutex::default());
        Arc::new(Slow { inner, slow_write, slow_flush, fails, gate, moved: Condvar::new() })
    }
    fn wait(&self) {
        let mut gate = self.gate.lock();
        gate.0 = true;
        self.moved.notify_all();
        while !gate.1 {
            self.moved.wait(&mut gate);
        }
    }
    fn await_request(&self) {
        let mut gate = self.gate.lock();
        while !gate.0 {
            self.moved.wait(&mut gate);
        }
    }
    fn go_on(&self) {
        self.gate.lock().1 = true;
        self.moved.notify_all();
    }
}

impl BlockDevice for Slow {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        let slow = self.slow_write.lock().take_if(|cause| cause.tag().cause == tag.cause);
        if slow.is_some() {
            self.wait();
        }
        self.inner.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        if self.slow_flush.swap(false, SeqCst) {
            self.wait();
            if self.fails.load(SeqCst) {
                return Err(DeviceError::PowerCut { op: "flush" });
            }
        }
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.inner.discard(at, blocks, tag)
    }
}

/// Long enough for a thread to reach the lock it will wait for.
const A_WHILE: Duration = Duration::from_millis(200);

#[test]
fn what_waited_for_a_checkpoint_to_end_is_in_the_next_one() {
    for by_directory in [true, false] {
        let cut = power_cut(&formatted(64, &Options::default()));
        let dev = Slow::new(cut.clone());
        let vol = mount(dev.clone());
        new_file(&vol, vol.root(), "first");
        // The nodes of a checkpoint.
        *dev.slow_write.lock() = Some(Cause::Node);
        std::thread::scope(|s| {
            s.spawn(|| vol.sync().unwrap());
            dev.await_request();
            let waits = s.spawn(|| new_file(&vol, vol.root(), "second"));
            std::thread::sleep(A_WHILE);
            dev.go_on();
            waits.join().unwrap();
        });
        match by_directory {
            true => vol.fsyncdir(vol.root(), false).unwrap(),
            false => vol.sync().unwrap(),
        }
        recovered(&cut.image(Loss::AllLost), |vol| {
            assert!(find(vol, "first").is_some());
            assert!(find(vol, "second").is_some(), "synced by its directory: {by_directory}");
        });
    }
}

#[test]
fn a_flush_that_failed_for_one_is_not_made_good_by_the_next_for_another() {
    let cut = power_cut(&formatted(64, &Options::default()));
    let dev = Slow::new(cut.clone());
    let vol = mount(dev.clone());
    let files = ["one", "two"].map(|name| new_file(&vol, vol.root(), name));
    files.iter().for_each(|&f| write(&vol, f, 0, &[1; 9000]));
    vol.sync().unwrap();
    // Both overwrite in place and ask for one flush each.
    files.iter().for_each(|&f| write(&vol, f, 0, &[2; 4096]));
    dev.slow_flush.store(true, SeqCst);
    dev.fails.store(true, SeqCst);
    std::thread::scope(|s| {
        let first = s.spawn(|| vol.fsync(files[0], true));
        dev.await_request();
        let second = s.spawn(|| vol.fsync(files[1], true));
        std::thread::sleep(A_WHILE);
        dev.go_on();
        assert!(first.join().unwrap().is_err());
        // What it wrote may be among what the failed flush lost.
        assert!(second.join().unwrap().is_err());
    });
}

#[test]
fn an_fsync_that_finds_everything_taken_up_by_another_waits_until_the_device_has_it() {
    // Bytes that go to a new place, to the place they have, and none but the inode's own.
    for (before, cause) in [(0, Cause::FsyncNode), (9000, Cause::UserData), (9000, Cause::FsyncNode)] {
        let cut = power_cut(&formatted(64, &Options::default()));
        let dev = Slow::new(cut.clone());
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &vec![1; before]);
        vol.sync().unwrap();
        write(&vol, f, 0, &[2; 6000]);
        *dev.slow_write.lock() = Some(cause);
        let early = std::thread::scope(|s| {
            let first = s.spawn(|| vol.fsync(f, false));
            dev.await_request();
            let second = s.spawn(|| vol.fsync(f, false));
            std::thread::sleep(A_WHILE);
            let early = second.is_finished().then(|| cut.image(Loss::AllLost));
            dev.go_on();
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
            early
        });
        for image in early.iter().chain([&cut.image(Loss::AllLost)]) {
            recovered(image, |vol| {
                let bytes = read_all(vol, find(vol, "f").unwrap());
                assert!(bytes.starts_with(&[2; 6000]), "{before} {cause:?}, early: {}", early.is_some());
            });
        }
        vol.unmount().unwrap();
        assert_tools_clean(&cut.image(Loss::AllLost));
    }
}
