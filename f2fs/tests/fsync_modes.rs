//! What the modes of fsync flush, and what a power cut may take under each.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Loss, Memory, PowerCut};
use format::superblock::Features;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{FsyncMode, InPlace, MountOptions, Volume};
use vfs::FileSystem;

use crate::log_rig::*;

const MODES: [FsyncMode; 3] = [FsyncMode::Strict, FsyncMode::Posix, FsyncMode::NoBarrier];

fn mounted(image: &Memory, fsync_mode: FsyncMode) -> (Arc<PowerCut>, Arc<Volume>) {
    mounted_with(image, MountOptions { fsync_mode, ..MountOptions::default() })
}

fn mounted_with(image: &Memory, options: MountOptions) -> (Arc<PowerCut>, Arc<Volume>) {
    let dev = power_cut(image);
    let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
    (dev, vol)
}

#[test]
fn without_flushes_no_deltas_are_made() {
    let modern = Options::modern();
    let image = formatted(64, &Options { features: modern.features | Features::DELTA, ..modern });
    for mode in MODES {
        let (_, vol) = mounted(&image, mode);
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &pattern(1, 400_000));
        vol.fsync(f, false).unwrap();
        for n in 0..4 {
            (0..4).for_each(|page| write(&vol, f, page * 81_920 + n * 16, b"small"));
            vol.fsync(f, true).unwrap();
        }
        assert_eq!(vol.counters.deltas.load(Relaxed) > 0, mode != FsyncMode::NoBarrier, "{mode:?}");
    }
}

#[test]
fn an_fsync_flushes_as_often_as_its_mode_says_and_an_atomic_commit_always_does() {
    let image = formatted(64, &Options::modern());
    for (mode, [new, same, directory]) in MODES.into_iter().zip([[2, 1, 1], [1, 1, 1], [0, 0, 0]]) {
        let (dev, vol) = mounted(&image, mode);
        let flushes = |of: &dyn Fn()| {
            let before = dev.flush_count();
            of();
            dev.flush_count() - before
        };
        let f = new_file(&vol, vol.root(), "f");
        vol.sync().unwrap();
        write(&vol, f, 0, &pattern(1, 80_000));
        assert_eq!(flushes(&|| vol.fsync(f, false).unwrap()), new, "{mode:?}");
        write(&vol, f, 4096, &pattern(2, 4096));
        assert_eq!(flushes(&|| vol.fsync(f, true).unwrap()), same, "{mode:?}");
        new_file(&vol, vol.root(), "named");
        assert_eq!(flushes(&|| vol.fsyncdir(vol.root(), false).unwrap()), directory, "{mode:?}");
        vol.start_atomic(f, 1).unwrap();
        write(&vol, f, 8192, &pattern(3, 8192));
        assert!(flushes(&|| vol.commit_atomic(f, 1).unwrap()) > 0, "{mode:?}");
        assert!(flushes(&|| vol.sync().unwrap()) > 0, "{mode:?}");
    }
}

#[test]
fn by_price_pages_that_lie_together_are_overwritten_and_scattered_ones_are_not() {
    let image = formatted(64, &Options::modern());
    for (in_place, together, scattered) in [(InPlace::Few(8), 0, 6), (InPlace::Price, 20, 0), (InPlace::Few(0), 0, 0)] {
        let options = MountOptions { in_place, fsync_mode: FsyncMode::Posix, ..MountOptions::default() };
        let (_, vol) = mounted_with(&image, options);
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &pattern(1, 400_000));
        vol.sync().unwrap();
        let overwritten = |pages: &[u64]| {
            let before = vol.counters.in_place.load(Relaxed);
            pages.iter().for_each(|page| write(&vol, f, page * 4096, &pattern(*page, 4096)));
            vol.fsync(f, true).unwrap();
            vol.counters.in_place.load(Relaxed) - before
        };
        let adjacent: Vec<u64> = (10..30).collect();
        assert_eq!(overwritten(&adjacent), together, "{in_place:?}");
        assert_eq!(overwritten(&[1, 33, 41, 52, 67, 80]), scattered, "{in_place:?}");
        // A page without a place needs its file's node anyway.
        assert_eq!(overwritten(&[97, 98]), u64::from(in_place == InPlace::Few(8)), "{in_place:?}");
    }
}

const SIZE: usize = 400_000;

/// What the n-th fsync changes, from 1: many pages, which get new places, or single ones, which are overwritten.
fn change(n: u64) -> Vec<(u64, Vec<u8>)> {
    match n % 2 {
        0 => (0..3).map(|k| (k * 122_880 + 4096, pattern(n * 8 + k, 4096))).collect(),
        _ => vec![(n * 40_960, pattern(n, 60_000))],
    }
}

/// The file after each number of fsyncs.
fn states() -> Vec<Vec<u8>> {
    let mut all = vec![pattern(8, SIZE)];
    for n in 1..=6 {
        let mut next = all.last().unwrap().clone();
        for (at, bytes) in change(n) {
            next[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        all.push(next);
    }
    all
}

/// Runs the fsyncs, with the power cut at `write` if there is one; how many returned.
fn fsyncs(dev: &PowerCut, vol: &Volume, write: Option<u64>) -> usize {
    let f = find(vol, "f").unwrap();
    if let Some(write) = write {
        dev.cut_after(dev.write_count() + write);
    }
    let written = |(at, bytes): (u64, Vec<u8>)| vol.write(f, at, &bytes, vfs::WriteFlags::empty()).is_ok();
    let done = |n: u64| change(n).into_iter().all(written) && vol.fsync(f, n.is_multiple_of(3)).is_ok();
    (1..=6).take_while(|n| done(*n)).count()
}

/// Whether each sector of a file is that of the state that was promised. In what the interrupted fsync changed it may be
/// the new one, too, and with `foreign` anything.
fn keeps_its_promise(found: &[u8], states: &[Vec<u8>], returned: usize, foreign: bool) -> bool {
    let (old, new) = (&states[returned], states.get(returned + 1).unwrap_or(&states[returned]));
    let sectors = found.chunks(512).zip(old.chunks(512).zip(new.chunks(512))).enumerate();
    let changes = |at: usize| {
        change(returned as u64 + 1).iter().any(|(from, bytes)| {
            let pages = *from as usize / 4096..(*from as usize + bytes.len()).div_ceil(4096);
            pages.contains(&(at / 8))
        })
    };
    let mut sectors = sectors.map(|(at, (found, (old, new)))| found == old || changes(at) && (foreign || found == new));
    found.len() == SIZE && sectors.all(|kept| kept)
}

#[test]
fn after_any_cut_the_volume_is_sound_and_has_what_its_mode_promised() {
    let states = states();
    for features in [Features::empty(), Features::DELTA] {
        let modern = Options::modern();
        let image = formatted(64, &Options { features: modern.features | features, ..modern });
        let (dev, vol) = mounted(&image, FsyncMode::Strict);
        write(&vol, new_file(&vol, vol.root(), "keep"), 0, &pattern(9, 70_000));
        write(&vol, new_file(&vol, vol.root(), "f"), 0, &states[0]);
        vol.unmount().unwrap();
        let image = dev.image(Loss::AllKept);
        let places = [MountOptions::default().in_place, InPlace::Price];
        for (fsync_mode, in_place) in MODES.into_iter().flat_map(|mode| places.map(|place| (mode, place))) {
            let mounted = || mounted_with(&image, MountOptions { fsync_mode, in_place, ..MountOptions::default() });
            let (dev, vol) = mounted();
            let begun = dev.write_count();
            assert_eq!(fsyncs(&dev, &vol, None), 6);
            let writes = dev.write_count() - begun;
            let kept = |loss| recovered(&dev.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()) == states[6]);
            // With no flush at all, a cut takes what the device had not written yet.
            assert_eq!(kept(Loss::AllLost), fsync_mode != FsyncMode::NoBarrier, "{fsync_mode:?}");
            assert!(kept(Loss::AllKept), "{fsync_mode:?}");
            for cut in 1..=writes {
                let (dev, vol) = mounted();
                let returned = fsyncs(&dev, &vol, Some(cut));
                for loss in Loss::PLAIN.into_iter().chain((0..6).map(|n| Loss::Random(cut * 8 + n))) {
                    let what = format!(
                        "{fsync_mode:?}, {in_place:?}, {features:?}: cut {cut} after {returned} fsyncs, {loss}"
                    );
                    let (keep, f) = recovered(&dev.image(loss), |vol| {
                        ["keep", "f"].map(|name| read_all(vol, find(vol, name).unwrap())).into()
                    });
                    assert!(keep == pattern(9, 70_000), "{what}");
                    let foreign = fsync_mode == FsyncMode::Posix;
                    let is_kept = || keeps_its_promise(&f, &states, returned, foreign);
                    assert!(fsync_mode == FsyncMode::NoBarrier || is_kept(), "{what}");
                }
            }
        }
    }
}
