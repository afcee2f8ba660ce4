//! Sets of writes that become durable together: who may have one, what others see, and what ends it. Power cuts are in
//! `atomic_cuts`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{Loss, PowerCut};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, Error, FileFlags, FileSystem, Ino, Seek, SetAttr};

use crate::log_rig::*;

/// A mounted volume with a durable file of three pages.
fn with_file(options: &Options) -> (Arc<PowerCut>, Arc<Volume>, Ino, Vec<u8>) {
    let dev = power_cut(&formatted(64, options));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let old = pattern(1, 3 * 4096);
    write(&vol, f, 0, &old);
    vol.sync().unwrap();
    (dev, vol, f, old)
}

/// The file's contents if the power fails now.
fn after_a_cut(dev: &PowerCut, loss: Loss) -> Vec<u8> {
    recovered(&dev.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()))
}

fn busy<T>(result: vfs::Result<T>) -> bool {
    matches!(result, Err(Error::Busy(_)))
}

#[test]
fn nothing_but_the_commit_makes_a_set_durable() {
    let (dev, vol, f, old) = with_file(&Options::modern());
    vol.start_atomic(f, 1).unwrap();
    write(&vol, f, 100, &[7; 5000]);
    write(&vol, f, 20_000, b"far behind the end");
    let new = [&old[..100], &[7; 5000], &old[5100..], &vec![0; 20_000 - 3 * 4096], b"far behind the end"].concat();
    vol.fsync(f, false).unwrap();
    vol.sync().unwrap();
    vol.tick().unwrap();
    for loss in Loss::PLAIN {
        assert!(after_a_cut(&dev, loss) == old, "{loss}");
    }
    assert!(read_all(&vol, f) == new, "readers see the set");
    assert_eq!(vol.seek(f, 12_300, Seek::Data).unwrap(), 12_300);
    let checkpoints = vol.counters.checkpoints.load(Relaxed);
    vol.commit_atomic(f, 1).unwrap();
    assert_eq!(vol.counters.checkpoints.load(Relaxed), checkpoints, "nodes suffice");
    assert!(after_a_cut(&dev, Loss::AllLost) == new);
    assert!(read_all(&vol, f) == new);
}

#[test]
fn an_abort_or_an_unmount_restores_contents_and_size() {
    for inline in [false, true] {
        let dev = power_cut(&formatted(64, &Options::modern()));
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        let old = pattern(1, if inline { 100 } else { 9000 });
        write(&vol, f, 0, &old);
        let before = vol.statfs().unwrap();
        for ending in 0..2 {
            vol.start_atomic(f, 1).unwrap();
            write(&vol, f, 50, &[7; 30_000]);
            assert_eq!(vol.getattr(f).unwrap().size, 30_050);
            if ending == 0 {
                assert!(vol.abort_atomic(f, 1).unwrap() && !vol.abort_atomic(f, 1).unwrap());
                assert!(read_all(&vol, f) == old && vol.getattr(f).unwrap().size == old.len() as u64);
                assert_eq!(vol.statfs().unwrap(), before);
            }
        }
        vol.unmount().unwrap();
        assert!(after_a_cut(&dev, Loss::AllLost) == old);
    }
}

#[test]
fn only_the_owner_writes_a_set_to_its_end() {
    let (_, vol, f, old) = with_file(&Options::default());
    vol.start_atomic(f, 1).unwrap();
    write(&vol, f, 0, b"new");
    assert!(busy(vol.start_atomic(f, 2)) && busy(vol.commit_atomic(f, 2)) && busy(vol.abort_atomic(f, 2)));
    // As in Linux: a second start of the same owner does nothing.
    vol.start_atomic(f, 1).unwrap();
    assert!(busy(vol.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() })));
    assert!(busy(vol.fallocate(f, Allocate::Reserve { keep_size: false }, 0, 1 << 20)));
    vol.commit_atomic(f, 1).unwrap();
    assert!(read_all(&vol, f) == [b"new", &old[3..]].concat());
    vol.start_atomic(f, 2).unwrap();
    vol.abort_atomic(f, 2).unwrap();
    vol.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
}

#[test]
fn files_that_linux_refuses_are_refused() {
    let features = Options::modern().features | format::superblock::Features::COMPRESSION;
    let vol = mount(power_cut(&formatted(64, &Options { features, ..Options::modern() })));
    let invalid = |ino| matches!(vol.start_atomic(ino, 1), Err(Error::Invalid(_)));
    assert!(invalid(vol.root()));
    let packed = new_file(&vol, vol.root(), "packed");
    vol.set_flags(packed, FileFlags::COMPRESS, None).unwrap();
    assert!(invalid(packed));
    let sealed = new_file(&vol, vol.root(), "sealed");
    vol.set_flags(sealed, FileFlags::IMMUTABLE, None).unwrap();
    assert!(matches!(vol.start_atomic(sealed, 1), Err(Error::NotPermitted(_))));
}

#[test]
fn a_set_too_large_for_memory_fails_at_its_commit_and_leaves_the_file_old() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let options = MountOptions { dirty_limit: 64, ..MountOptions::default() };
    let vol = Volume::mount(dev, clock(), options).unwrap();
    let (f, g) = (new_file(&vol, vol.root(), "f"), new_file(&vol, vol.root(), "g"));
    write(&vol, f, 0, &pattern(1, 9000));
    for ino in [f, g] {
        vol.start_atomic(ino, 1).unwrap();
    }
    write(&vol, g, 0, &pattern(2, 10 * 4096));
    write(&vol, f, 0, &pattern(3, 7 * 4096));
    assert_eq!(vol.commit_atomic(f, 1), Err(Error::TooBig), "both hold 17 pages, and may hold 16");
    assert!(read_all(&vol, f) == pattern(1, 9000));
    vol.commit_atomic(g, 1).unwrap();
    assert!(read_all(&vol, g) == pattern(2, 10 * 4096));
    // All room is given back.
    vol.start_atomic(f, 1).unwrap();
    write(&vol, f, 0, &pattern(3, 16 * 4096));
    vol.commit_atomic(f, 1).unwrap();
    assert!(read_all(&vol, f) == pattern(3, 16 * 4096));
}

#[test]
fn a_commit_that_finds_no_space_leaves_the_file_old() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let old = pattern(1, 9000);
    write(&vol, f, 0, &old);
    vol.sync().unwrap();
    vol.start_atomic(f, 1).unwrap();
    write(&vol, f, 4096, &pattern(2, 25 * 4096));
    let big = new_file(&vol, vol.root(), "big");
    let free = || vol.statfs().unwrap().blocks_free;
    vol.fallocate(big, Allocate::Reserve { keep_size: false }, 0, (free() - 25) * 4096).unwrap();
    assert!(free() < 23, "{}", free());
    assert_eq!(vol.commit_atomic(f, 1), Err(Error::NoSpace));
    assert!(read_all(&vol, f) == old);
    vol.fsync(f, false).unwrap();
    assert!(after_a_cut(&dev, Loss::AllLost) == old);
    vol.unmount().unwrap();
}

#[test]
fn a_commit_of_one_page_writes_two_blocks_and_with_deltas_one_and_the_fdatasync_behind_it_nothing() {
    for (deltas, blocks, flushes) in [(false, 2, 2), (true, 1, 1)] {
        let dev = power_cut(&if deltas { with_deltas(64) } else { formatted(64, &Options::modern()) });
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &pattern(1, 200_000));
        let one = |n: u64| {
            vol.start_atomic(f, 1).unwrap();
            write(&vol, f, 40_960 + n * 10, &n.to_le_bytes());
            vol.commit_atomic(f, 1).unwrap();
            vol.fsync(f, true).unwrap();
        };
        (0..3).for_each(one);
        let before = (dev.write_count(), dev.flush_count());
        (3..13).for_each(one);
        let each = (dev.write_count() - before.0, dev.flush_count() - before.1);
        assert_eq!(each, (10 * blocks, 10 * flushes), "deltas: {deltas}");
    }
}

#[test]
fn a_set_stays_although_memory_is_short_and_time_passes() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let clock = clock();
    let options = MountOptions {
        dirty_limit: 64,
        writeback_after: Duration::ZERO,
        checkpoint_after: Duration::ZERO,
        ..MountOptions::default()
    };
    let vol = Volume::mount(dev.clone(), clock, options).unwrap();
    let f = new_file(&vol, vol.root(), "f");
    let old = pattern(1, 40_000);
    write(&vol, f, 0, &old);
    vol.sync().unwrap();
    vol.start_atomic(f, 1).unwrap();
    write(&vol, f, 0, &pattern(2, 40_000));
    for k in 0..8 {
        let other = new_file(&vol, vol.root(), &format!("g{k}"));
        write(&vol, other, 0, &pattern(k, 1 << 20));
        vol.tick().unwrap();
    }
    vol.sync().unwrap();
    assert!(after_a_cut(&dev, Loss::AllKept) == old);
    vol.commit_atomic(f, 1).unwrap();
    assert!(after_a_cut(&dev, Loss::AllLost) == pattern(2, 40_000));
}
