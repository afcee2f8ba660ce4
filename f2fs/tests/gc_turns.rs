//! How much does the background clean in a batch, and when?

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::Clock;
use device::{BlockDevice, Counting, Gate, Memory, Op, VirtualClock};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::gc::settings::{Pace, Settings};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::FileSystem;
use victim::{Policy, Power};

use crate::log_rig::*;

const LEN: usize = 16 << 10;

/// Small files that fill most of a volume, two thirds of them then removed.
fn worn() -> Memory {
    let image = Arc::new(formatted(256, &Options::default()));
    let clock = clock();
    let vol = Volume::mount(image.clone(), clock.clone(), MountOptions::default()).unwrap();
    let mut files = 0;
    while 100 * vol.statfs().unwrap().blocks_free > 12 * vol.statfs().unwrap().blocks {
        clock.advance(Duration::from_secs(1));
        make(&vol, files);
        files += 1;
    }
    vol.sync().unwrap();
    for n in (0..files).filter(|n| n % 3 != 0) {
        vol.unlink(vol.root(), format!("f{n}").as_bytes()).unwrap();
    }
    vol.unmount().unwrap();
    image.fork()
}

fn make(vol: &Volume, n: u64) {
    let ino = new_file(vol, vol.root(), &format!("f{n}"));
    write(vol, ino, 0, &pattern(n, LEN));
    vol.forget(ino, 1);
}

fn by(policy: Policy) -> Settings {
    Settings { policy, pace: Pace::of(policy), power: Power::Powered, ..Settings::default() }
}

fn mounted(dev: Arc<dyn BlockDevice>, gc: Settings) -> (Arc<Volume>, Arc<VirtualClock>) {
    let clock = clock();
    (Volume::mount(dev, clock.clone(), MountOptions { gc, ..MountOptions::default() }).unwrap(), clock)
}

fn rest(vol: &Volume, clock: &VirtualClock, time: Duration) {
    let end = clock.monotonic() + time;
    while clock.monotonic() < end {
        clock.advance(vol.tick().unwrap().max(Duration::from_millis(1)));
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn for_a_volume_that_nobody_uses_joule_cleans_nothing_and_writes_nothing() {
    let image = worn();
    for (policy, expects) in [(Policy::CostBenefit, true), (Policy::Joule, false)] {
        let dev = Arc::new(Counting::new(image.fork()));
        let (vol, clock) = mounted(dev.clone(), by(policy));
        let before = dev.snapshot().total();
        rest(&vol, &clock, 12 * HOUR);
        let after = dev.snapshot().total();
        assert_eq!(vol.counters.sections_cleaned() > 0, expects, "{policy:?}");
        assert_eq!(after.writes > before.writes, expects, "{policy:?}: {before:?}, {after:?}");
    }
}

/// Alternates use of an aged volume with an hour of idle time; returns how many logs filled holes at the end of each
/// use.
fn filling(gc: Settings) -> Vec<usize> {
    let (vol, clock) = mounted(Arc::new(worn()), gc);
    // A prime, so that each file is removed once, and never directly before its neighbour.
    let kept = (1200..).find(|n| (2..*n).all(|d| n % d != 0)).unwrap();
    assert!(find(&vol, &format!("f{}", 3 * (kept - 1))).is_some(), "fewer files than that are left");
    // Cleaning may cost a part of what use costs, and the writes below are few.
    for n in (0..kept).cycle().take(30 * kept as usize) {
        let ino = find(&vol, &format!("f{}", 3 * n)).unwrap();
        assert_eq!(read_all(&vol, ino).len(), LEN);
        vol.forget(ino, 1);
    }
    let mut filling = Vec::new();
    for turn in 0..6 {
        for n in 0..200 {
            make(&vol, 10_000 + turn * 1000 + n);
            // As many are removed as are created.
            let nth = (turn * 200 + n) * 1009 % kept;
            vol.unlink(vol.root(), format!("f{}", 3 * nth).as_bytes()).unwrap();
        }
        vol.sync().unwrap();
        filling.push(vol.state().logs.iter().filter(|log| log.3).count());
        rest(&vol, &clock, HOUR);
    }
    assert_eq!(vol.counters.sections_cleaned() > 0, gc.on);
    for n in 0..200 {
        let ino = find(&vol, &format!("f{}", 15_000 + n)).unwrap();
        assert!(read_all(&vol, ino) == pattern(15_000 + n, LEN));
    }
    filling
}

#[test]
fn a_volume_whose_uses_fill_holes_is_cleaned_for_the_next_ones_which_fill_none() {
    let cleaned = filling(by(Policy::Joule));
    assert!(cleaned[0] > 0 && cleaned.last() == Some(&0), "{cleaned:?}");
    let control = filling(Settings { on: false, ..by(Policy::Joule) });
    assert!(control.iter().all(|logs| *logs > 0), "{control:?}");
}

#[test]
fn joule_holds_the_free_sections_that_a_user_asks_for_and_stops_there() {
    let image = worn();
    let held = |percent: u32| {
        let (vol, clock) = mounted(Arc::new(image.fork()), Settings { keep_free: percent, ..by(Policy::Joule) });
        rest(&vol, &clock, 6 * HOUR);
        vol.sync().unwrap();
        (vol.state().free_segments, vol.superblock().sections(), vol.counters.moved_blocks())
    };
    let ((none, sections, still), (some, _, moved)) = (held(0), held(60));
    let asked = sections * 60 / 100;
    assert_eq!(still, 0);
    assert!(none < asked, "{none} of {sections} are free without being asked for");
    // A batch ends with the victim that reaches the goal.
    assert!((asked..asked + 4).contains(&some), "{some} of {sections}, asked for {asked}; {moved} blocks moved");
}

#[test]
fn a_turn_ends_with_its_victim_when_somebody_asks_something() {
    let image = worn();
    let in_a_turn = |asks: bool| {
        let dev = Arc::new(Gate::new(image.fork()));
        let settings = Settings { pace: Pace::TURNS, ..by(Policy::Greedy) };
        let (vol, clock) = mounted(dev.clone(), settings);
        clock.advance(Duration::from_secs(60));
        dev.stop(Op::Write, Some(Cause::BackgroundGcData as u8));
        let mut at_the_gate = 0;
        std::thread::scope(|scope| {
            let turn = scope.spawn(|| vol.tick().unwrap());
            assert!(dev.await_one(), "nothing is cleaned");
            at_the_gate = vol.counters.background_gc.load(Relaxed);
            if asks {
                vol.getattr(vol.root()).unwrap();
            }
            dev.go_on();
            turn.join().unwrap();
        });
        vol.counters.background_gc.load(Relaxed) - at_the_gate
    };
    assert_eq!(in_a_turn(true), 1);
    assert!(in_a_turn(false) > 3);
}

#[test]
fn steps_are_large_only_while_nobody_asks_anything() {
    let image = worn();
    let longest = |quiet: bool| {
        let dev = Arc::new(Counting::new(image.fork()));
        let settings = Settings { pace: Pace::TURNS, step_blocks: 2, on: false, ..by(Policy::Greedy) };
        let (vol, _) = mounted(dev.clone(), settings);
        // The tick counts the requests so far as a use, and resets.
        vol.tick().unwrap();
        if !quiet {
            vol.getattr(vol.root()).unwrap();
        }
        let before = dev.snapshot().total().writes;
        assert!(vol.clean_in_background(&settings).unwrap());
        (dev.snapshot().total().writes - before, vol.counters.moved_blocks())
    };
    let ((few, same), (many, moved)) = (longest(true), longest(false));
    assert_eq!(same, moved);
    assert!(few * 4 < many, "{few} writes for {moved} blocks on a quiet volume, {many} on one in use");
}
