//! A full volume can be overwritten forever.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::Memory;
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{DeviceNumber, FileKind, FileSystem, Ino, NewNode};

use crate::log_rig::*;

fn overwritten_at_random(mib: u64, percent: u64, times: u64) -> (Arc<Memory>, Arc<Volume>) {
    let dev = Arc::new(formatted(mib, &Options::default()));
    let vol = mount(dev.clone());
    let files = fill(&vol, percent);
    let mut rng = device::Rng::new(5);
    let blocks = files.len() as u64 * 256;
    let mut last: std::collections::BTreeMap<(usize, u64), u64> = Default::default();
    for n in 0..blocks * times {
        let (file, block) = (rng.index(files.len()), rng.below(256));
        write(&vol, files[file], block * 4096, &pattern(n + 1000, 4096));
        last.insert((file, block), n + 1000);
    }
    for ((file, block), seed) in last {
        let mut found = vec![0; 4096];
        vol.read(files[file], block * 4096, &mut found).unwrap();
        assert!(found == pattern(seed, 4096), "file {file}, block {block}");
    }
    (dev, vol)
}

#[test]
fn random_overwrites_of_a_volume_95_percent_full_never_end() {
    let (dev, vol) = overwritten_at_random(192, 95, 3);
    assert!(vol.counters.foreground_gc.load(Relaxed) > 0);
    vol.sync().unwrap();
    assert_clean(&*dev, "while mounted");
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(&dev);
}

#[test]
fn random_overwrites_of_the_smallest_volume_never_end() {
    let (dev, vol) = overwritten_at_random(64, 90, 6);
    println!(
        "checkpoints {}, cleaned {}",
        vol.counters.checkpoints.load(Relaxed),
        vol.counters.foreground_gc.load(Relaxed)
    );
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(&dev);
}

#[test]
fn files_rewritten_one_after_another_never_run_out_of_space() {
    let dev = Arc::new(formatted(192, &Options::default()));
    let vol = mount(dev.clone());
    let files = fill(&vol, 95);
    for round in 0..4u64 {
        for f in &files {
            write(&vol, *f, 0, &pattern(round, CHUNK));
        }
    }
    for f in &files {
        assert!(read_all(&vol, *f) == pattern(3, CHUNK));
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(&dev);
}

#[test]
fn a_volume_that_is_full_says_so_and_takes_files_again_after_some_went() {
    let dev = Arc::new(formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let root = vol.root();
    let mut n = 0;
    for _ in 0..5 {
        let data = pattern(1, CHUNK);
        let full = |r: Result<usize, vfs::Error>| match r {
            Ok(_) => false,
            Err(vfs::Error::NoSpace) => true,
            Err(e) => panic!("{e}"),
        };
        loop {
            let name = format!("f{n}");
            n += 1;
            let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
            let made = vol.mknod(ROOT, root, name.as_bytes(), &new);
            let Ok(made) = made else {
                assert!(full(made.map(|_| 0)));
                break;
            };
            let f = made.attr.ino;
            let end = full(vol.write(f, 0, &data, vfs::WriteFlags::empty()))
                || full(vol.write(f, 2 * CHUNK as u64, &data, vfs::WriteFlags::empty()));
            vol.forget(f, 1);
            if end {
                break;
            }
        }
        vol.sync().unwrap();
        assert_clean(&*dev, "full");
        for k in (0..n).step_by(2) {
            match vol.unlink(root, format!("f{k}").as_bytes()) {
                Ok(()) | Err(vfs::Error::NotFound) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(&dev);
}

/// Small files created, grown, synced and removed on a mostly full volume.
fn churn(options: &Options, mib: u64, ops: u64) {
    let dev = Arc::new(formatted(mib, options));
    let vol = mount(dev.clone());
    let root = vol.root();
    let mut rng = device::Rng::new(mib);
    let mut files: Vec<(String, Ino, Vec<u8>)> = Vec::new();
    let mut full = 0;
    for n in 0..ops {
        match rng.below(20) {
            0..=6 => {
                let name = format!("f{n}");
                let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
                match vol.mknod(ROOT, root, name.as_bytes(), &new) {
                    Ok(e) => files.push((name, e.attr.ino, Vec::new())),
                    Err(vfs::Error::NoSpace) => full += 1,
                    Err(e) => panic!("operation {n}: {e}"),
                }
            }
            _ if files.is_empty() => {}
            7..=8 => {
                let (name, ino, _) = files.swap_remove(rng.index(files.len()));
                vol.unlink(root, name.as_bytes()).unwrap_or_else(|e| panic!("operation {n}: {e}"));
                vol.forget(ino, 1);
            }
            9..=10 => {
                let k = rng.index(files.len());
                vol.fsync(files[k].1, n % 2 == 0).unwrap_or_else(|e| panic!("operation {n}: {e}"));
            }
            _ => {
                let k = rng.index(files.len());
                let (_, ino, have) = &mut files[k];
                let at = rng.index(have.len() + 1);
                let data = pattern(n, rng.range(1..60_000) as usize);
                match vol.write(*ino, at as u64, &data, vfs::WriteFlags::empty()) {
                    Ok(w) => {
                        have.resize(have.len().max(at + w), 0);
                        have[at..at + w].copy_from_slice(&data[..w]);
                    }
                    Err(vfs::Error::NoSpace) => full += 1,
                    Err(e) => panic!("operation {n}: {e}"),
                }
            }
        }
        if full > 40 {
            full = 0;
            for _ in 0..files.len() / 20 {
                let (name, ino, _) = files.swap_remove(rng.index(files.len()));
                vol.unlink(root, name.as_bytes()).unwrap_or_else(|e| panic!("operation {n}: {e}"));
                vol.forget(ino, 1);
            }
        }
    }
    for (name, ino, have) in &files {
        assert!(read_all(&vol, *ino) == *have, "{name}");
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(&dev);
}

#[test]
fn small_files_come_and_go_on_a_full_volume() {
    churn(&Options::default(), 64, 40_000);
}

#[test]
fn small_files_come_and_go_on_a_full_volume_of_large_sections() {
    churn(&Options { segs_per_sec: 2, ..Options::modern() }, 160, 40_000);
}
