//! What does a request wait for during background cleaning? Only for the current step; then the cleaner gives way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use device::clock::Clock;
use device::{BlockDevice, Gate, Lba, Memory, Op, Tag, VirtualClock};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::gc::settings::{Pace, Settings};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, Ino};
use victim::Policy;

use crate::log_rig::*;

/// Microseconds per block.
const BLOCK_US: u64 = 100;
/// Blocks in a step while no request arrives, and while requests arrive.
const QUIET: usize = 32;
const SMALL: usize = 4;

/// A device that takes time for each written block, and records when the caller's first request arrives.
struct Timed {
    inner: Memory,
    clock: Arc<VirtualClock>,
    moved: AtomicU64,
    /// The inode of the caller.
    caller: AtomicU64,
    /// When its first request arrived, in microseconds since the mount, and the number of blocks moved by then.
    came: AtomicU64,
    moved_then: AtomicU64,
}

impl Timed {
    fn now(&self) -> u64 {
        self.clock.monotonic().as_micros() as u64
    }
}

impl BlockDevice for Timed {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        let blocks = data.len() as u64 / 4096;
        if tag.owner == self.caller.load(Relaxed) && self.came.load(Relaxed) == u64::MAX {
            self.came.store(self.now(), Relaxed);
            self.moved_then.store(self.moved.load(Relaxed), Relaxed);
        }
        if tag.cause == Cause::BackgroundGcData as u8 {
            self.moved.fetch_add(blocks, Relaxed);
        }
        self.clock.advance(Duration::from_micros(BLOCK_US * blocks));
        self.inner.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.inner.discard(at, blocks, tag)
    }
}

struct Rig {
    dev: Arc<Gate<Timed>>,
    vol: Arc<Volume>,
    caller: Ino,
}

/// Files and their blocks: few enough that their nodes fill no segment, and only data can be cleaned.
const FILES: usize = 150;
const BLOCKS: usize = 64;

/// A volume whose segments have a few hundred valid blocks, and a file with a change to sync.
fn rig() -> Rig {
    let image = formatted(128, &Options::default());
    let (clock, image) = (clock(), Arc::new(image));
    let vol = mount(image.clone());
    let files: Vec<Ino> = (0..FILES).map(|n| new_file(&vol, vol.root(), &format!("f{n}"))).collect();
    for (n, ino) in files.iter().enumerate() {
        write(&vol, *ino, 0, &pattern(n as u64, BLOCKS * 4096));
    }
    vol.sync().unwrap();
    for n in (0..FILES).filter(|n| n % 3 != 0) {
        vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
        vol.forget(files[n], 1);
    }
    vol.unmount().unwrap();
    let none = || AtomicU64::new(u64::MAX);
    let dev = Arc::new(Gate::new(Timed {
        inner: image.fork(),
        clock: clock.clone(),
        moved: AtomicU64::new(0),
        caller: none(),
        came: none(),
        moved_then: none(),
    }));
    let pace = Pace { sections: 16, quiet_step: QUIET };
    let gc = Settings { policy: Policy::Greedy, pace, step_blocks: SMALL, ..Settings::default() };
    // The only timed work is cleaning.
    let (writeback_after, checkpoint_after) = (Duration::from_secs(3600), Duration::from_secs(3600));
    let options = MountOptions { gc, writeback_after, checkpoint_after, ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock.clone(), options).unwrap();
    let caller = new_file(&vol, vol.root(), "caller");
    vol.sync().unwrap();
    // The tick counts the requests so far as a use, and resets.
    vol.tick().unwrap();
    clock.advance(Duration::from_secs(60));
    dev.inner().caller.store(caller.0, Relaxed);
    Rig { dev, vol, caller }
}

#[test]
fn a_caller_waits_for_the_step_under_way_and_the_rest_goes_in_small_steps() {
    let Rig { dev, vol, caller } = rig();
    write(&vol, caller, 0, &pattern(1, 2 * 4096));
    // That was a use, which is reset here; its writes wait in memory.
    vol.tick().unwrap();
    let (sections, before) = (vol.counters.background_gc.load(Relaxed), vol.counters.waits.so_far());
    let settings = vol.cleaning();
    let mut came = 0;
    dev.stop_done(Op::Write, Some(Cause::BackgroundGcData as u8));
    std::thread::scope(|scope| {
        let cleaning = scope.spawn(|| vol.clean_in_background(&settings).unwrap());
        assert!(dev.await_one(), "nothing is cleaned");
        came = dev.inner().now();
        let calls = scope.spawn(|| vol.fsync(caller, true).unwrap());
        // Until the caller waits for the lock.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!calls.is_finished(), "nobody waits");
        dev.go_on();
        calls.join().unwrap();
        assert!(cleaning.join().unwrap());
    });
    let device = dev.inner();
    let (waited, moved) = (device.came.load(Relaxed) - came, device.moved_then.load(Relaxed));
    let all = device.moved.load(Relaxed);
    assert!(moved <= QUIET as u64, "the caller waited for {moved} of {all} blocks, steps are of {QUIET}");
    assert!(waited <= QUIET as u64 * BLOCK_US, "the caller waited for {waited} us");
    assert!(all > 2 * QUIET as u64, "only {all} blocks were moved");
    assert_eq!(vol.counters.background_gc.load(Relaxed), sections + 1);
    // The recorded periods: one large step, then small ones.
    let waits = vol.counters.waits.so_far().since(&before);
    assert_eq!(waits.stretches(), 1 + (all - QUIET as u64).div_ceil(SMALL as u64));
    assert_eq!(vol.counters.longest_pause.load(Relaxed), QUIET as u64 * BLOCK_US);
    assert!(read_all(&vol, caller) == pattern(1, 2 * 4096));
}

#[test]
fn without_a_caller_all_steps_are_large_and_the_time_of_the_turn_is_counted_whole() {
    let Rig { dev, vol, .. } = rig();
    let from = dev.inner().now();
    let before = vol.counters.waits.so_far();
    let sections = vol.counters.background_gc.load(Relaxed);
    vol.tick().unwrap();
    let waits = vol.counters.waits.so_far().since(&before);
    let cleaned = vol.counters.background_gc.load(Relaxed) - sections;
    assert!(cleaned > 1, "{cleaned} sections");
    let moved = dev.inner().moved.load(Relaxed);
    assert!(waits.stretches() <= moved.div_ceil(QUIET as u64) + 2 * cleaned, "{} of {moved}", waits.stretches());
    // Nothing else takes time in a batch: a request that arrives then waits.
    assert_eq!(waits.time(), Duration::from_micros(dev.inner().now() - from));
}
