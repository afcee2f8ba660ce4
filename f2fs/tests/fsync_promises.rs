//! After a power cut, everything for which fsync returned exists; and the cost of fsync.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Fault, Faulty, Loss, Op};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, RenameFlags};

use crate::log_rig::*;

#[test]
fn a_synced_new_file_has_its_name_and_contents_after_a_power_cut() {
    for options in [Options::default(), Options::modern()] {
        for len in [10, 5000, 3 << 20, 9 << 20] {
            let dev = power_cut(&formatted(128, &options));
            let vol = mount(dev.clone());
            let data = pattern(1, len);
            let ino = new_file(&vol, vol.root(), "kept");
            write(&vol, ino, 0, &data);
            let before = vol.counters.checkpoints.load(Relaxed);
            vol.fsync(ino, false).unwrap();
            assert_eq!(vol.counters.fast_fsyncs.load(Relaxed), 1, "{len} bytes");
            assert_eq!(vol.counters.checkpoints.load(Relaxed), before);
            let other = new_file(&vol, vol.root(), "lost");
            write(&vol, other, 0, &data);
            for loss in Loss::PLAIN {
                recovered(&dev.image(loss), |vol| {
                    let found = find(vol, "kept").expect("the synced file");
                    assert!(read_all(vol, found) == data, "{len} bytes, {loss}");
                });
            }
            assert_tools_clean(&dev.image(Loss::AllLost));
        }
    }
}

#[test]
fn the_last_synced_state_of_a_file_is_what_comes_back() {
    let dev = power_cut(&formatted(128, &Options::default()));
    let vol = mount(dev.clone());
    let ino = new_file(&vol, vol.root(), "f");
    let mut model = pattern(2, 6 << 20);
    write(&vol, ino, 0, &model);
    vol.sync().unwrap();
    let mut rng = device::Rng::new(3);
    for round in 0..40u64 {
        for _ in 0..rng.range(1..30) {
            let at = rng.below(model.len() as u64 + 9000);
            let data = pattern(round, rng.range(1..20_000) as usize);
            write(&vol, ino, at, &data);
            let (at, end) = (at as usize, at as usize + data.len());
            model.resize(model.len().max(end), 0);
            model[at..end].copy_from_slice(&data);
        }
        if round % 7 == 3 {
            let size = rng.below(model.len() as u64);
            let set = vfs::SetAttr { size: Some(size), ..Default::default() };
            vol.setattr(ino, &set).unwrap();
            model.truncate(size as usize);
        }
        vol.fsync(ino, round % 2 == 0).unwrap();
        let image = dev.image(Loss::Random(round));
        recovered(&image, |vol| {
            assert!(read_all(vol, find(vol, "f").unwrap()) == model, "round {round}");
        });
    }
    assert!(vol.counters.fast_fsyncs.load(Relaxed) > 20);
}

#[test]
fn what_needs_a_checkpoint_gets_one() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let root = vol.root();
    let slow = || vol.counters.slow_fsyncs.load(Relaxed);
    let f = new_file(&vol, root, "f");
    vol.sync().unwrap();

    vol.link(f, root, b"g").unwrap();
    vol.fsync(f, false).unwrap();
    assert_eq!(slow(), 1, "two names");

    let d = vol.mkdir(ROOT, root, b"d", 0o755, 0).unwrap().attr.ino;
    let inside = new_file(&vol, d, "inside");
    vol.fsync(inside, false).unwrap();
    assert_eq!(slow(), 2, "a directory no checkpoint knows");

    vol.rename(ROOT, (d, b"inside"), (root, b"outside"), RenameFlags::empty()).unwrap();
    vol.fsync(inside, false).unwrap();
    assert_eq!(slow(), 3, "renamed");
    write(&vol, inside, 0, b"settled again");
    vol.fsync(inside, false).unwrap();
    assert_eq!(slow(), 3, "its name is durable now");
    recovered(&dev.image(Loss::AllLost), |vol| {
        assert_eq!(read_all(vol, find(vol, "outside").unwrap()), b"settled again");
        assert!(find(vol, "g").is_some());
    });
}

#[test]
fn a_new_file_under_the_old_name_of_a_renamed_one_costs_it_nothing() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let root = vol.root();
    for round in 0..3u8 {
        let f = new_file(&vol, root, "tmp");
        write(&vol, f, 0, &[round; 5000]);
        vol.fsync(f, false).unwrap();
        recovered(&dev.image(Loss::AllLost), |vol| {
            assert_eq!(read_all(vol, find(vol, "tmp").expect("the new one")), [round; 5000]);
            if round > 0 {
                assert_eq!(read_all(vol, find(vol, "file").expect("the renamed one")), [round - 1; 5000]);
            }
        });
        vol.rename(ROOT, (root, b"tmp"), (root, b"file"), RenameFlags::empty()).unwrap();
    }
}

#[test]
fn a_second_fsync_of_an_unchanged_file_writes_nothing() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &[1; 9000]);
    vol.fsync(f, false).unwrap();
    let before = dev.write_count();
    vol.fsync(f, false).unwrap();
    assert_eq!(dev.write_count(), before);
}

#[test]
fn a_deleted_file_synced_before_does_not_block_its_successor() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let root = vol.root();
    let a = new_file(&vol, root, "name");
    write(&vol, a, 0, &[1; 9000]);
    vol.fsync(a, false).unwrap();
    vol.forget(a, 1);
    vol.unlink(root, b"name").unwrap();
    let b = new_file(&vol, root, "name");
    write(&vol, b, 0, &[2; 100]);
    vol.fsync(b, false).unwrap();
    recovered(&dev.image(Loss::AllLost), |vol| {
        assert_eq!(read_all(vol, find(vol, "name").unwrap()), [2; 100]);
    });
}

#[test]
fn extended_attributes_of_a_synced_file_come_back() {
    for options in [Options::default(), Options::modern()] {
        let dev = power_cut(&formatted(64, &options));
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        vol.setxattr(f, b"user.small", b"1", vfs::XattrFlags::empty()).unwrap();
        vol.setxattr(f, b"user.large", &[7; 2000], vfs::XattrFlags::empty()).unwrap();
        vol.fsync(f, false).unwrap();
        recovered(&dev.image(Loss::AllLost), |vol| {
            let f = find(vol, "f").unwrap();
            assert_eq!(vol.getxattr(f, b"user.small").unwrap(), b"1");
            assert_eq!(vol.getxattr(f, b"user.large").unwrap(), [7; 2000]);
        });
        vol.removexattr(f, b"user.large").unwrap();
        vol.fsync(f, false).unwrap();
        recovered(&dev.image(Loss::AllLost), |vol| {
            let f = find(vol, "f").unwrap();
            assert_eq!(vol.getxattr(f, b"user.small").unwrap(), b"1");
            assert!(vol.getxattr(f, b"user.large").is_err());
        });
    }
}

#[test]
fn fdatasync_of_blocks_in_place_writes_them_and_nothing_else() {
    // Addresses in the inode, and in a node below it.
    for (size, at) in [(40_960, 8192), (8 << 20, 6 << 20)] {
        let dev = power_cut(&formatted(64, &Options::default()));
        let clock = clock();
        let vol = Volume::mount(dev.clone(), clock.clone(), MountOptions::default()).unwrap();
        let f = new_file(&vol, vol.root(), "db");
        write(&vol, f, 0, &vec![0; size]);
        vol.fsync(f, false).unwrap();
        for round in 1..20u8 {
            let (writes, flushes) = (dev.write_count(), dev.flush_count());
            write(&vol, f, at as u64, &[round; 4096]);
            vol.fsync(f, true).unwrap();
            let asked = (dev.write_count() - writes, dev.flush_count() - flushes);
            assert_eq!(asked, (1, 1), "{size} bytes, round {round}");
        }
        let (writes, flushes) = (dev.write_count(), dev.flush_count());
        write(&vol, f, at as u64, &[19; 4096]);
        vol.fsync(f, false).unwrap();
        let asked = (dev.write_count() - writes, dev.flush_count() - flushes);
        assert_eq!(asked, (1, 1), "{size} bytes: the block; the times are those that the inode on the device has");
        clock.advance(std::time::Duration::from_millis(4));
        let (writes, flushes) = (dev.write_count(), dev.flush_count());
        write(&vol, f, at as u64, &[19; 4096]);
        vol.fsync(f, false).unwrap();
        let asked = (dev.write_count() - writes, dev.flush_count() - flushes);
        assert_eq!(asked, (2, 1), "{size} bytes: the block, and the inode with its times");
        write(&vol, f, size as u64, b"longer");
        vol.fsync(f, true).unwrap();
        recovered(&dev.image(Loss::AllLost), |vol| {
            let data = read_all(vol, find(vol, "db").unwrap());
            assert!(data[at..at + 4096] == [19; 4096] && data.ends_with(b"longer"));
        });
    }
}

#[test]
fn an_fsync_that_failed_is_not_promised_later_either() {
    let base = formatted(64, &Options::default());
    for (op, later) in [(Op::Write, 0), (Op::Write, 1), (Op::Flush, 0), (Op::Flush, 1)] {
        let faulty = Arc::new(Faulty::new(base.fork()));
        let vol = mount(faulty.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &[1; 9000]);
        vol.sync().unwrap();
        write(&vol, f, 20_480, &[2; 9000]);
        let n = faulty.requests(op) + 1 + later;
        faulty.add(Fault::Nth { op, requests: n..n + 1 });
        assert!(vol.fsync(f, false).is_err(), "{op:?} {later}");
        // The device works again. The second fsync either completes what the first could not, or fails.
        let again = vol.fsync(f, false);
        let image = faulty.inner().fork();
        recovered(&image, |vol| {
            let data = read_all(vol, find(vol, "f").unwrap());
            assert!(data[..9000] == [1; 9000]);
            if again.is_ok() {
                assert!(data[20_480..] == [2; 9000], "{op:?} {later}");
            }
        });
        if op == Op::Flush {
            assert!(again.is_err(), "nobody knows what a failed flush lost");
        }
    }
}

#[test]
fn a_file_synced_while_it_was_small_comes_back_whole_when_it_was_synced_large() {
    // The blocks behind the inode's own addresses are in a node that is replayed before the inode.
    for (small, at, len) in [(10, 0, 5 << 20), (0, 4 << 20, 9000)] {
        let dev = power_cut(&formatted(64, &Options::default()));
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &pattern(1, small));
        vol.fsync(f, false).unwrap();
        write(&vol, f, at, &pattern(2, len));
        vol.fsync(f, false).unwrap();
        assert_eq!(vol.counters.fast_fsyncs.load(Relaxed), 2);
        let want = read_all(&vol, f);
        recovered(&dev.image(Loss::AllLost), |vol| {
            assert!(read_all(vol, find(vol, "f").unwrap()) == want, "{small} bytes, then {len}");
        });
    }
}

#[test]
fn an_fsync_with_nothing_written_since_the_last_one_flushes_nothing() {
    for deltas in [false, true] {
        let dev = power_cut(&if deltas { with_deltas(64) } else { formatted(64, &Options::default()) });
        let vol = mount(dev.clone());
        let ino = new_file(&vol, vol.root(), "f");
        write(&vol, ino, 0, &pattern(1, 50_000));
        vol.fsync(ino, false).unwrap();
        // In place, to a new place, and a change of the inode alone, which fdatasync may lose.
        for change in 0..3u64 {
            match change {
                0 => write(&vol, ino, 4096, &pattern(2, 4096)),
                1 => write(&vol, ino, 50_000, &pattern(3, 90_000)),
                _ => drop(vol.setattr(ino, &vfs::SetAttr { mtime: Some(vfs::SetTime::Now), ..Default::default() })),
            }
            let written = dev.write_count();
            let before = dev.flush_count();
            vol.fsync(ino, true).unwrap();
            assert_eq!(dev.flush_count() > before, dev.write_count() > written, "change {change}");
            assert!(change == 2 || dev.unflushed() == 0);
            let before = (dev.write_count(), dev.flush_count());
            for _ in 0..100 {
                vol.fsync(ino, true).unwrap();
            }
            assert_eq!((dev.write_count(), dev.flush_count()), before, "change {change}");
        }
    }
}

#[test]
fn an_fsync_after_one_that_failed_writes_and_flushes_again() {
    let base = formatted(64, &Options::default());
    for (what, op) in [("contents or nodes", Op::Write), ("a flush", Op::Flush)] {
        for skip in 0..2 {
            let inner = power_cut(&base);
            let dev = Arc::new(Faulty::new(inner.clone()));
            let vol = mount(dev.clone());
            let ino = new_file(&vol, vol.root(), "f");
            write(&vol, ino, 0, &pattern(1, 50_000));
            vol.fsync(ino, false).unwrap();
            // Some blocks stay in place, one gets a new place.
            write(&vol, ino, 4096, &pattern(2, 46_000));
            let next = dev.requests(op) + 1 + skip;
            dev.add(Fault::Nth { op, requests: next..next + 1 });
            assert!(vol.fsync(ino, true).is_err(), "{what}, {skip}");
            dev.heal();
            let again = vol.fsync(ino, true);
            if again.is_err() {
                // Only a checkpoint may follow.
                assert!(vol.fsync(ino, true).is_err(), "{what}, {skip}");
                vol.sync().unwrap();
                vol.fsync(ino, true).unwrap();
            }
            let expected = read_all(&vol, ino);
            recovered(&inner.image(Loss::AllLost), |vol| {
                assert!(read_all(vol, find(vol, "f").unwrap()) == expected, "{what}, {skip}");
            });
        }
    }
}

#[test]
fn the_first_fsync_of_a_mount_flushes_what_the_last_mount_may_have_left() {
    let base = formatted(64, &Options::default());
    let (dev, ino) = {
        let dev = power_cut(&base);
        let vol = mount(dev.clone());
        let ino = new_file(&vol, vol.root(), "f");
        write(&vol, ino, 0, &pattern(1, 5000));
        vol.unmount().unwrap();
        (dev, ino)
    };
    let vol = mount(dev.clone());
    assert_eq!(find(&vol, "f"), Some(ino));
    let before = dev.flush_count();
    vol.fsync(ino, true).unwrap();
    assert_eq!(dev.flush_count(), before + 1);
    vol.fsync(ino, true).unwrap();
    assert_eq!(dev.flush_count(), before + 1);
}
