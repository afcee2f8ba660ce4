//! Readers, writers, syncs and cleaning at the same time.

mod log_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use device::clock::{Clock, RealClock};
use joulefs_f2fs::mkfs::Options;
use log_rig::*;
use vfs::{FileSystem, WriteFlags};

const BLOCKS: u64 = 256;

/// A block that tells where it belongs and how often it was written.
fn block(file: usize, index: u64, round: u64) -> Vec<u8> {
    let mut b = vec![0; 4096];
    for (k, word) in [file as u64, index, round].iter().cycle().take(512).enumerate() {
        b[k * 8..k * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    b
}

fn check(file: usize, index: u64, b: &[u8]) {
    let word = |k: usize| u64::from_le_bytes(b[k * 8..k * 8 + 8].try_into().unwrap());
    assert_eq!((word(0), word(1)), (file as u64, index), "a block of another place");
    assert!(b == block(file, index, word(2)), "file {file}, block {index}: mixed");
}

#[test]
fn readers_never_see_blocks_of_other_files_while_cleaning_moves_them() {
    let dev = Arc::new(formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let files: Vec<_> = (0..13usize)
        .map(|k| {
            let f = new_file(&vol, vol.root(), &format!("f{k}"));
            for i in 0..BLOCKS {
                write(&vol, f, i * 4096, &block(k, i, 0));
            }
            f
        })
        .collect();
    vol.sync().unwrap();
    let stop = AtomicBool::new(false);
    let clock = RealClock::default();
    // As much cleaning as matters, however slow or busy the machine; far too long is a failure.
    let end = clock.monotonic() + Duration::from_secs(120);
    std::thread::scope(|s| {
        for t in 0..3u64 {
            let (vol, files, stop) = (&vol, &files, &stop);
            s.spawn(move || {
                let mut rng = device::Rng::new(t);
                let mut round = 0;
                while !stop.load(Relaxed) {
                    round += 1;
                    let (k, i) = (rng.index(files.len()), rng.below(BLOCKS));
                    vol.write(files[k], i * 4096, &block(k, i, round), WriteFlags::empty()).unwrap();
                    if rng.chance(1, 40) {
                        vol.fsync(files[k], rng.chance(1, 2)).unwrap();
                    }
                }
            });
            s.spawn(move || {
                let mut rng = device::Rng::new(100 + t);
                let mut buf = vec![0; 8 * 4096];
                while !stop.load(Relaxed) {
                    let (k, i) = (rng.index(files.len()), rng.below(BLOCKS - 8));
                    assert_eq!(vol.read(files[k], i * 4096, &mut buf).unwrap(), buf.len());
                    for (n, b) in buf.chunks(4096).enumerate() {
                        check(k, i + n as u64, b);
                    }
                }
            });
        }
        let (vol, stop) = (&vol, &stop);
        s.spawn(move || {
            let mut n = 0;
            while !stop.load(Relaxed) {
                n += 1;
                vol.tick().unwrap();
                if n % 20 == 0 {
                    vol.sync().unwrap();
                }
                let name = format!("t{n}");
                let f = new_file(vol, vol.root(), &name);
                write(vol, f, 0, &pattern(n, 20_000));
                vol.unlink(vol.root(), name.as_bytes()).unwrap();
                vol.forget(f, 1);
            }
        });
        while clock.monotonic() < end && vol.counters.foreground_gc.load(Relaxed) < 5 {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Relaxed);
    });
    assert!(
        vol.counters.foreground_gc.load(Relaxed) >= 5,
        "cleaned {} times",
        vol.counters.foreground_gc.load(Relaxed)
    );
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(&dev);
    let vol = mount(dev);
    for k in 0..files.len() {
        let data = read_all(&vol, find(&vol, &format!("f{k}")).unwrap());
        data.chunks(4096).enumerate().for_each(|(i, b)| check(k, i as u64, b));
    }
}
