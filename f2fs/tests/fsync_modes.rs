//! What the modes of fsync flush, and what a power cut may take under each.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Loss, Memory, PowerCut};
use format::superblock::Features;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{FsyncMode, MountOptions, Volume};
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

/// Runs the same fsyncs, with the power cut at `write` if there is one; how many returned.
fn fsyncs(dev: &PowerCut, vol: &Volume, write: Option<u64>) -> u64 {
    let f = find(vol, "f").unwrap();
    if let Some(write) = write {
        dev.cut_after(dev.write_count() + write);
    }
    let mut returned = 0;
    for n in 1..=6 {
        let at = if n % 2 == 0 { 0 } else { n * 40_960 };
        let all =
            vol.write(f, at, &pattern(n, 60_000), vfs::WriteFlags::empty()).and_then(|_| vol.fsync(f, n % 3 == 0));
        if all.is_err() {
            break;
        }
        returned += 1;
    }
    returned
}

#[test]
fn after_any_cut_the_volume_is_sound_and_has_what_its_mode_promised() {
    for features in [Features::empty(), Features::DELTA] {
        let modern = Options::modern();
        let image = formatted(64, &Options { features: modern.features | features, ..modern });
        let (dev, vol) = mounted(&image, FsyncMode::Strict);
        write(&vol, new_file(&vol, vol.root(), "keep"), 0, &pattern(9, 70_000));
        write(&vol, new_file(&vol, vol.root(), "f"), 0, &pattern(8, 400_000));
        vol.unmount().unwrap();
        let image = dev.image(Loss::AllKept);
        for mode in MODES {
            let mounted = || mounted_with(&image, MountOptions { fsync_mode: mode, ..at_any_price() });
            let (dev, vol) = mounted();
            let begun = dev.write_count();
            assert_eq!(fsyncs(&dev, &vol, None), 6);
            let writes = dev.write_count() - begun;
            let last = find(&vol, "f").map(|f| read_all(&vol, f)).unwrap();
            let kept = |loss| recovered(&dev.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()) == last);
            // With no flush at all, a cut takes what the device had not written yet.
            assert_eq!(kept(Loss::AllLost), mode != FsyncMode::NoBarrier, "{mode:?}");
            assert!(kept(Loss::AllKept), "{mode:?}");
            for cut in 1..=writes {
                let (dev, vol) = mounted();
                fsyncs(&dev, &vol, Some(cut));
                for loss in Loss::PLAIN.into_iter().chain((0..6).map(|n| Loss::Random(cut * 8 + n))) {
                    recovered(&dev.image(loss), |vol| {
                        let keep = find(vol, "keep").unwrap();
                        assert!(read_all(vol, keep) == pattern(9, 70_000), "{mode:?}: cut {cut}, {loss}");
                        assert!(find(vol, "f").is_some());
                    });
                }
            }
        }
    }
}
