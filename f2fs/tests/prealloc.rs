//! With preallocation, databases that grow together have few fragments, and nothing else changes: not the state after a
//! power cut, not the free space, not the blocks of other files.

use std::sync::Arc;

use device::{Access, FileDevice, Loss, Memory, PowerCut};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::oracle::kernel::Kernel;
use vfs::{FileSystem, Ino, SetAttr};

use crate::log_rig::pieces;
use crate::log_rig::*;

fn options(prealloc: Option<u32>) -> MountOptions {
    MountOptions { prealloc, ..MountOptions::default() }
}

fn mounted(dev: Arc<dyn device::BlockDevice>, prealloc: Option<u32>) -> Arc<Volume> {
    Volume::mount(dev, clock(), options(prealloc)).unwrap()
}

/// Files that grow alternately, a synced block at a time; a plain file grows between them.
fn grow(vol: &Volume, names: &[&str], blocks: u64, checkpoint_every: u64) -> Vec<Ino> {
    let files: Vec<Ino> = names.iter().map(|name| new_file(vol, vol.root(), name)).collect();
    vol.sync().unwrap();
    for n in 0..blocks {
        for (k, f) in files.iter().enumerate() {
            write(vol, *f, n * 4096, &pattern(n * 10 + k as u64, 4096));
            vol.fsync(*f, false).unwrap();
        }
        if n % checkpoint_every == checkpoint_every - 1 {
            vol.sync().unwrap();
        }
    }
    files
}

const NAMES: [&str; 5] = ["a.db", "b.db", "c.sqlite", "d.db-wal", "plain"];

fn holds(vol: &Volume, files: &[Ino], blocks: u64) {
    for (k, f) in files.iter().enumerate() {
        let want: Vec<u8> = (0..blocks).flat_map(|n| pattern(n * 10 + k as u64, 4096)).collect();
        assert!(read_all(vol, *f) == want, "{}", NAMES[k]);
    }
}

#[test]
fn databases_that_grow_together_lie_in_as_many_pieces_as_windows() {
    let mut seen = Vec::new();
    for prealloc in [None, Some(25), Some(100)] {
        let image = Arc::new(formatted(256, &Options::default()));
        let vol = mounted(image.clone(), prealloc);
        let files = grow(&vol, &NAMES, 200, u64::MAX);
        holds(&vol, &files, 200);
        let found: Vec<usize> = files.iter().map(|f| pieces(&vol, *f)).collect();
        println!("{prealloc:?}: {found:?}");
        seen.push(found);
        vol.unmount().unwrap();
        assert_clean(&*image, "after unmount");
        assert_tools_clean(&image);
        let again = mounted(image, None);
        holds(&again, &files, 200);
    }
    // The control: each block is its own fragment.
    assert!(seen[0].iter().all(|n| *n > 190), "{seen:?}");
    assert!(seen[1][..4].iter().all(|n| *n <= 200 / 25 + 1), "{seen:?}");
    assert!(seen[2][..4].iter().all(|n| *n <= 200 / 100 + 2), "{seen:?}");
    // A file without preallocation has the log between two windows to itself.
    assert!(seen[1][4] < 20 && seen[2][4] < 20, "{seen:?}");
}

#[test]
fn what_is_left_of_a_window_is_free_after_a_checkpoint_and_the_log_goes_on_there() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mounted(image, Some(25));
    // One database: with a checkpoint after every third block it stays contiguous, because the log takes unused blocks
    // back.
    let files = grow(&vol, &["a.db"], 60, 3);
    assert_eq!(pieces(&vol, files[0]), 1);
    vol.unmount().unwrap();
}

#[test]
fn it_lasts_while_the_databases_are_changed_a_little_at_a_time() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mounted(image.clone(), Some(25));
    let files = grow(&vol, &NAMES[..3], 100, 40);
    let before: Vec<usize> = files.iter().map(|f| pieces(&vol, *f)).collect();
    let mut rng = device::Rng::new(3);
    for n in 0..400 {
        let f = files[rng.index(3)];
        write(&vol, f, rng.below(100) * 4096, &pattern(n, 4096));
        vol.fsync(f, true).unwrap();
    }
    assert_eq!(files.iter().map(|f| pieces(&vol, *f)).collect::<Vec<_>>(), before);
    vol.unmount().unwrap();
    assert_tools_clean(&image);
}

#[test]
fn journals_that_come_and_go_use_one_window_after_the_other() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mounted(image.clone(), Some(25));
    vol.sync().unwrap();
    let next = || {
        let log = vol.state().logs[0];
        u64::from(log.1) * 512 + u64::from(log.2)
    };
    let before = next();
    for n in 0..60 {
        let j = new_file(&vol, vol.root(), "a.db-journal");
        write(&vol, j, 0, &pattern(n, 2 * 4096));
        vol.fsync(j, false).unwrap();
        vol.unlink(vol.root(), b"a.db-journal").unwrap();
        vol.forget(j, 1);
    }
    // Two blocks each, and half of the last window: not one window per file.
    let used = next() - before;
    assert!(used <= 60 * 2 + 25, "{used} blocks of the log for 120 that were written");
    vol.unmount().unwrap();
    assert_clean(&*image, "after unmount");
    assert_tools_clean(&image);
}

/// Work up to a power cut: databases grow, are truncated, removed and recreated, with occasional checkpoints. Records
/// each file's lower bound of synced bytes.
fn worked(vol: &Volume, floors: &mut [u64; 3]) -> vfs::Result<()> {
    let names = ["a.db", "b.db", "c-journal"];
    for n in 0..45u64 {
        for (k, name) in names.iter().enumerate() {
            let ino = match find(vol, name) {
                Some(ino) => ino,
                None if vol.statfs().is_ok() => {
                    let new = vfs::NewNode {
                        kind: vfs::FileKind::Regular,
                        perm: 0o644,
                        umask: 0,
                        rdev: vfs::DeviceNumber::default(),
                    };
                    vol.mknod(ROOT, vol.root(), name.as_bytes(), &new)?.attr.ino
                }
                None => return Ok(()),
            };
            let at = vol.getattr(ino)?.size / 4096;
            let data = pattern(at * 10 + k as u64, 4096);
            vol.write(ino, at * 4096, &data, vfs::WriteFlags::empty())?;
            vol.fsync(ino, false)?;
            floors[k] = floors[k].max(at + 1);
            if k == 1 && n == 20 {
                floors[1] = 3;
                vol.setattr(ino, &SetAttr { size: Some(3 * 4096), ..SetAttr::default() })?;
                vol.fsync(ino, false)?;
            }
            if k == 2 && n % 9 == 8 {
                floors[2] = 0;
                vol.unlink(vol.root(), name.as_bytes())?;
                vol.forget(ino, 2);
            } else {
                vol.forget(ino, 1);
            }
        }
        if n % 13 == 12 {
            vol.sync()?;
        }
    }
    Ok(())
}

fn cut_at(image: &Memory, write: u64) -> (Arc<PowerCut>, [u64; 3]) {
    let dev = power_cut(image);
    let mut floors = [0; 3];
    dev.cut_after(write);
    // The first calls may read files lost in the cut.
    let vol = mounted(dev.clone(), Some(8));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worked(&vol, &mut floors)));
    drop(done);
    (dev, floors)
}

/// Every block of every file has the bytes written there, and no synced block is missing.
fn judge(image: &Memory, floors: [u64; 3], what: &str) {
    recovered(image, |vol| {
        for (k, name) in ["a.db", "b.db", "c-journal"].iter().enumerate() {
            let Some(ino) = find(vol, name) else {
                assert_eq!(floors[k], 0, "{what}: {name} is gone");
                continue;
            };
            let have = read_all(vol, ino);
            assert!(
                have.len() as u64 >= floors[k] * 4096,
                "{what}: {name} has {} bytes of {} blocks",
                have.len(),
                floors[k]
            );
            for (n, block) in have.chunks(4096).enumerate().take(floors[k] as usize) {
                assert!(block == pattern(n as u64 * 10 + k as u64, 4096), "{what}: {name}, block {n}");
            }
        }
    });
}

#[test]
fn every_power_cut_keeps_what_was_synced() {
    let image = formatted(256, &Options::modern());
    let whole = power_cut(&image);
    let vol = mounted(whole.clone(), Some(8));
    worked(&vol, &mut [0; 3]).unwrap();
    let a = find(&vol, "a.db").unwrap();
    assert!(pieces(&vol, a) <= 45 / 8 + 5, "{} pieces: no window was used", pieces(&vol, a));
    let writes = whole.write_count();
    assert!(writes > 200, "{writes} writes");
    for write in 1..=writes {
        let (dev, floors) = cut_at(&image, write);
        for loss in [Loss::AllKept, Loss::AllLost, Loss::AllButFirst, Loss::Reversed, Loss::Random(write)] {
            judge(&dev.image(loss), floors, &format!("{write}, {loss}"));
        }
    }
}

#[test]
fn linux_recovers_what_a_cut_left_and_its_checker_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let image = formatted(256, &Options::modern());
    for write in [60, 140, 200] {
        let (dev, floors) = cut_at(&image, write);
        let left = dev.image(Loss::AllKept);
        left.save(&path).unwrap();
        let run = Kernel::new().run(&path, "cp a.db b.db $OUT/").expect_ok();
        run.assert_no_f2fs_complaints();
        for (k, name) in ["a.db", "b.db"].iter().enumerate() {
            let have = std::fs::read(run.out().join(name)).unwrap();
            assert!(have.len() as u64 >= floors[k] * 4096, "{write}: {name}");
            for (n, block) in have.chunks(4096).enumerate() {
                assert!(block == pattern(n as u64 * 10 + k as u64, 4096), "{write}: {name}, block {n}");
            }
        }
        judges::oracle::tools::assert_fsck_clean(&path);
        let vol = mounted(Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap()), Some(8));
        assert!(find(&vol, "a.db").is_some());
        vol.unmount().unwrap();
    }
}
