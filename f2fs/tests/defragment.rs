//! Defragmenting a file changes nothing else about it, for all kinds of files, after any interruption, and with
//! concurrent readers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Access, BlockDevice, Fault, Faulty, FileDevice, Lba, Memory, Op, Tag};
use format::inode::{self, Advise, Inline, RawInode};
use format::node;
use format::superblock::{Features, SuperBlock};
use inspect::{Progress, Volume as Seen};
use joulefs_f2fs::file::extents::torn;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::damage::block;
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::{assert_fsck_clean, locate};
use trials::crash::defragment;
use vfs::{Allocate, Error, FileFlags, FileSystem, Ino, Moving};

use crate::log_rig::pieces;
use crate::log_rig::*;

const WAYS: [Moving; 2] = [Moving::Copy, Moving::Share];

/// Two files that grow alternately, a synced block at a time.
fn grow_by_turns(vol: &Volume, blocks: u64) -> [Ino; 2] {
    let files = ["f", "g"].map(|name| new_file(vol, vol.root(), name));
    for n in 0..blocks {
        for (k, f) in files.iter().enumerate() {
            write(vol, *f, n * 4096, &pattern(n * 2 + k as u64, 4096));
            vol.fsync(*f, false).unwrap();
        }
    }
    files
}

fn contents(k: u64, blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|n| pattern(n * 2 + k, 4096)).collect()
}

/// The same according to `inspect`, from the device.
fn judged(image: &dyn BlockDevice, ino: Ino) -> (u32, u32) {
    let seen = Seen::read(image, &inspect::Options::default(), &mut Progress::new(&mut |_| true)).unwrap();
    assert!(seen.findings.is_empty(), "{:?}", seen.findings);
    let file = seen.files.iter().find(|f| u64::from(f.ino.0) == ino.0).unwrap();
    (file.layout.extents, file.layout.min_extents)
}

/// Changes a file's inode on an unmounted volume.
fn mark(image: &Memory, ino: Ino, change: impl Fn(&mut RawInode)) {
    let sb = SuperBlock::check(&block(image, 0)).unwrap();
    let seed = inode::checksum_seed(&sb.uuid);
    let mut marked = 0;
    for at in u64::from(sb.main.0)..image.blocks() {
        let mut bytes = block(image, at);
        let f = node::footer(&bytes);
        if u64::from(f.ino.0) != ino.0 || f.nid != f.ino.nid() {
            continue;
        }
        if inode::verify_checksum(sb.features, seed, &bytes).is_ok() {
            change(RawInode::of_mut(&mut bytes));
            inode::seal(sb.features, seed, &mut bytes);
            image.write(Lba(at), &bytes[..], Tag::default()).unwrap();
            marked += 1;
        }
    }
    assert!(marked > 0);
}

#[test]
fn a_torn_file_becomes_one_piece_and_stays_what_it_was() {
    for how in WAYS {
        let image = Arc::new(formatted(256, &Options::default()));
        let vol = mount(image.clone());
        // Long enough that nodes below the inode hold addresses, too.
        let [f, g] = grow_by_turns(&vol, 1300);
        let (before, times) = (vol.getattr(f).unwrap(), pieces(&vol, f));
        assert!(times > 1200, "{times} pieces");
        let moved = defragment(&*vol, f, 0, how).unwrap();
        assert_eq!((moved, vol.counters.defragmented.load(Relaxed)), (1300, 1300));
        // It fills at least three segments, which need not be adjacent.
        assert!(pieces(&vol, f) <= 4, "{how:?}: {} pieces", pieces(&vol, f));
        assert_eq!(torn(&vol.extents(f, 0, usize::MAX).unwrap()).len(), usize::from(pieces(&vol, f) > 1));
        assert!(pieces(&vol, g) > 1200);
        assert_eq!(vol.getattr(f).unwrap(), before, "times and size");
        assert!(read_all(&vol, f) == contents(0, 1300) && read_all(&vol, g) == contents(1, 1300));
        let pieces = pieces(&vol, f) as u32;
        vol.unmount().unwrap();
        assert_eq!(judged(&*image, f), (pieces, 1));
        assert_clean(&*image, "after unmount");
        assert_tools_clean(&image);
        let again = mount(image);
        assert!(read_all(&again, f) == contents(0, 1300) && read_all(&again, g) == contents(1, 1300));
    }
}

#[test]
fn linux_reads_what_was_brought_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    formatted(256, &Options::default()).save(&path).unwrap();
    let vol = mount(Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap()));
    let [f, g] = grow_by_turns(&vol, 1000);
    assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 1000);
    assert_eq!(defragment(&*vol, g, 500, Moving::Copy).unwrap(), 500);
    let ours = [f, g].map(|ino| pieces(&vol, ino));
    vol.unmount().unwrap();
    drop(vol);
    let kernel = Kernel::new().program("filefrag", locate("filefrag", "e2fsprogs"));
    let run = kernel.run(&path, "cp f g $OUT/; filefrag f g >$OUT/frag").expect_ok();
    run.assert_no_f2fs_complaints();
    let frag = std::fs::read_to_string(run.out().join("frag")).unwrap();
    for ((k, name), n) in ["f", "g"].iter().enumerate().zip(ours) {
        assert!(std::fs::read(run.out().join(name)).unwrap() == contents(k as u64, 1000), "{name}");
        assert!(frag.contains(&format!("{name}: {n} extent")), "{n} here, in Linux {frag}");
    }
    assert_fsck_clean(&path);
}

#[test]
fn holes_stay_holes_what_is_in_memory_is_written_first_and_cold_files_are_not_overwritten_in_place() {
    for how in WAYS {
        let image = Arc::new(formatted(256, &Options::default()));
        let vol = mount(image.clone());
        // A media file: its blocks are always overwritten in place.
        let (f, other) = (new_file(&vol, vol.root(), "f.mp4"), new_file(&vol, vol.root(), "g.mp4"));
        for n in 0..60u64 {
            for f in [f, other] {
                write(&vol, f, n * 8192, &pattern(n, 8192));
                vol.fsync(f, false).unwrap();
            }
        }
        vol.fallocate(f, Allocate::PunchHole, 40 * 4096, 12 * 4096).unwrap();
        vol.fallocate(f, Allocate::Reserve { keep_size: true }, 130 * 4096, 5 * 4096).unwrap();
        write(&vol, f, 7 * 4096 + 5, b"changed");
        let want = read_all(&vol, f);
        assert_eq!(defragment(&*vol, f, 0, how).unwrap(), 108);
        let extents = vol.extents(f, 0, usize::MAX).unwrap();
        assert_eq!(
            extents.iter().map(|e| (e.from, e.blocks, e.begins)).collect::<Vec<_>>(),
            [(0, 40, true), (52, 68, true)]
        );
        assert!(torn(&extents).is_empty());
        assert!(read_all(&vol, f) == want);
        vol.unmount().unwrap();
        assert_eq!(judged(&*image, f), (2, 2));
        assert_tools_clean(&image);
    }
}

#[test]
fn packed_clusters_stay_packed() {
    let features = Options::modern().features | Features::COMPRESSION;
    let image = Arc::new(formatted(256, &Options { features, ..Options::modern() }));
    let mut options = MountOptions::default();
    options.compress.set("compress_extension", Some("*")).unwrap();
    let vol = Volume::mount(image.clone(), clock(), options).unwrap();
    let [f, g] = ["f", "g"].map(|name| new_file(&vol, vol.root(), name));
    let words: Vec<u8> = (0..4096 * 4).map(|i| b"the log cleans its segments, "[i % 29]).collect();
    for n in 0..90u64 {
        for f in [f, g] {
            // Every third cluster does not compress.
            let data = if n % 3 == 0 { pattern(n, words.len()) } else { words.clone() };
            write(&vol, f, n * words.len() as u64, &data);
            vol.sync().unwrap();
        }
    }
    let (want, packed, before) = (read_all(&vol, f), vol.count_compressed().unwrap(), pieces(&vol, f));
    assert!(packed.saved > 100 && before > 80);
    let stored = defragment(&*vol, f, 0, Moving::Copy).unwrap();
    assert!(stored < 90 * 4, "{stored} blocks moved: some were unpacked");
    assert!(torn(&vol.extents(f, 0, usize::MAX).unwrap()).is_empty());
    assert!(read_all(&vol, f) == want);
    assert_eq!(vol.count_compressed().unwrap(), packed);
    vol.unmount().unwrap();
    assert_eq!(judged(&*image, f), (1, 1));
    assert_clean(&*image, "after unmount");
    assert_tools_clean(&image);
}

#[test]
fn deltas_keep_their_bases() {
    let image = formatted(256, &Options::modern());
    joulefs_f2fs::settle::unsettle(&image).unwrap();
    let image = Arc::new(image);
    let vol = mount(image.clone());
    let [f, _] = grow_by_turns(&vol, 200);
    vol.sync().unwrap();
    for n in 0..60u64 {
        write(&vol, f, n * 3 * 4096 + 77, &[n as u8; 9]);
        if n % 4 == 3 {
            vol.fsync(f, false).unwrap();
        }
    }
    let (want, deltas, folded) =
        (read_all(&vol, f), vol.counters.deltas.load(Relaxed), vol.counters.folded.load(Relaxed));
    assert!(deltas > 40, "{deltas}");
    assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 200);
    assert!(pieces(&vol, f) <= 2);
    assert!(read_all(&vol, f) == want);
    assert_eq!(vol.counters.folded.load(Relaxed), folded, "a delta was written whole");
    vol.unmount().unwrap();
    assert_clean(&*image, "with deltas");
    let vol = mount(image.clone());
    assert!(read_all(&vol, f) == want);
    vol.unmount().unwrap();
    joulefs_f2fs::settle::settle(image.clone(), clock(), &mut |_, _| ()).unwrap();
    assert_tools_clean(&image);
    assert!(read_all(&mount(image), f) == want);
}

#[test]
fn ciphertext_and_sealed_contents_are_moved_without_a_key() {
    for advise in [Advise::ENCRYPT, Advise::VERITY] {
        let image = Arc::new(formatted(256, &Options::modern()));
        let vol = mount(image.clone());
        let [f, g] = grow_by_turns(&vol, 100);
        vol.unmount().unwrap();
        mark(&image, f, |r| r.i_advise |= advise.bits());
        let vol = mount(image.clone());
        assert_eq!(vol.write(g, 0, b"x", vfs::WriteFlags::empty()).unwrap(), 1);
        assert!(vol.write(f, 0, b"x", vfs::WriteFlags::empty()).is_err());
        assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 100);
        assert!(pieces(&vol, f) <= 2);
        vol.unmount().unwrap();
        // Such a volume has features that JouleFS does not write here; without them the mark is invalid.
        mark(&image, f, |r| r.i_advise &= !advise.bits());
        assert!(read_all(&mount(image), f) == contents(0, 100));
    }
}

#[test]
fn files_whose_addresses_matter_or_that_have_none_are_refused_by_name_of_the_reason() {
    let image = Arc::new(formatted(256, &Options::modern()));
    let vol = mount(image.clone());
    let [f, g] = grow_by_turns(&vol, 50);
    vol.unmount().unwrap();
    mark(&image, f, |r| r.i_inline |= Inline::PIN_FILE.bits());
    let vol = mount(image.clone());
    let before = vol.extents(f, 0, usize::MAX).unwrap();
    let refused = |ino| vol.defragment(ino, 0..u64::MAX, Moving::Copy).unwrap_err();
    assert!(matches!(refused(f), Error::NotPermitted(why) if why.contains("pinned")));
    assert_eq!(vol.extents(f, 0, usize::MAX).unwrap(), before);
    vol.set_flags(g, FileFlags::IMMUTABLE, None).unwrap();
    assert_eq!(refused(g), Error::NotPermitted("immutable"));
    let small = new_file(&vol, vol.root(), "small");
    write(&vol, small, 0, b"inline");
    assert!(matches!(refused(small), Error::Invalid(why) if why.contains("in its inode")));
    assert_eq!(refused(vol.root()), Error::Invalid("not a regular file"));
    assert!(vol.extents(small, 0, usize::MAX).unwrap().is_empty());
    assert!(vol.extents(vol.root(), 0, usize::MAX).unwrap().is_empty());
    // For an empty range: the same error, and nothing happens.
    assert!(vol.defragment(small, 0..0, Moving::Copy).is_err());
    vol.set_flags(g, FileFlags::empty(), None).unwrap();
    assert_eq!(vol.defragment(g, 0..0, Moving::Copy), Ok((0, 0)));
    assert_eq!(refused(Ino(9999)), Error::NotFound);
    vol.unmount().unwrap();
    assert_tools_clean(&image);
    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    let vol = Volume::mount(image, clock(), read_only).unwrap();
    assert_eq!(vol.defragment(g, 0..50, Moving::Copy), Err(Error::ReadOnly));
}

#[test]
fn a_file_without_a_name_is_refused_and_one_that_was_removed_meanwhile_is_gone() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mount(image.clone());
    let [f, g] = grow_by_turns(&vol, 300);
    vol.open(f, false).unwrap();
    assert_eq!(vol.defragment(f, 0..100, Moving::Copy).unwrap(), (100, 100));
    vol.unlink(vol.root(), b"f").unwrap();
    assert!(matches!(vol.defragment(f, 100..300, Moving::Copy), Err(Error::Invalid(_))));
    assert!(read_all(&vol, f) == contents(0, 300));
    vol.release(f);
    vol.forget(f, 1);
    assert_eq!(vol.defragment(f, 100..300, Moving::Copy), Err(Error::NotFound));
    // The file became shorter between two steps.
    assert_eq!(vol.defragment(g, 0..u64::MAX, Moving::Copy).unwrap(), (256, 256));
    vol.setattr(g, &vfs::SetAttr { size: Some(270 * 4096), ..vfs::SetAttr::default() }).unwrap();
    assert_eq!(defragment(&*vol, g, 256, Moving::Copy).unwrap(), 14);
    vol.unmount().unwrap();
    assert_clean(&*image, "after unmount");
    assert_tools_clean(&image);
}

#[test]
fn while_logs_fill_holes_nothing_is_moved() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mount(image.clone());
    let [f, _] = grow_by_turns(&vol, 60);
    let before = vol.extents(f, 0, usize::MAX).unwrap();
    vol.tune("gc_urgent", "1").unwrap();
    let out = vol.defragment(f, 0..60, Moving::Copy).unwrap_err();
    assert!(matches!(out, Error::Busy(why) if why.contains("clean first")), "{out}");
    assert_eq!(vol.extents(f, 0, usize::MAX).unwrap(), before);
    vol.tune("gc_urgent", "0").unwrap();
    assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 60);
    vol.unmount().unwrap();
    assert_tools_clean(&image);
}

#[test]
fn a_full_volume_keeps_its_files_and_a_log_that_filled_holes_is_left() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mount(image.clone());
    let [f, g] = grow_by_turns(&vol, 700);
    let filler = new_file(&vol, vol.root(), "filler");
    let mut at = 0;
    while let Ok(n @ 1..) = vol.write(filler, at, &pattern(9, 1 << 20), vfs::WriteFlags::empty()) {
        at += n as u64;
    }
    let stopped = defragment(&*vol, f, 0, Moving::Copy).unwrap();
    assert!(read_all(&vol, f) == contents(0, 700) && read_all(&vol, g) == contents(1, 700));
    // Free space again; logs may still be in segments whose holes they filled.
    vol.setattr(filler, &vfs::SetAttr { size: Some(4 << 20), ..vfs::SetAttr::default() }).unwrap();
    vol.sync().unwrap();
    assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 700);
    assert!(stopped < 700 && pieces(&vol, f) <= 3, "{stopped} moved before, {} pieces", pieces(&vol, f));
    assert!(read_all(&vol, f) == contents(0, 700));
    vol.unmount().unwrap();
    assert_clean(&*image, "after unmount");
    assert_tools_clean(&image);
}

#[test]
fn a_device_that_fails_leaves_the_file_as_it_was_and_the_volume_in_use() {
    for (op, how) in [(Op::Read, Moving::Copy), (Op::Write, Moving::Copy), (Op::Write, Moving::Share)] {
        let dev = Arc::new(Faulty::new(formatted(256, &Options::default())));
        let vol = mount(dev.clone());
        let [f, _] = grow_by_turns(&vol, 300);
        vol.sync().unwrap();
        assert_eq!(vol.defragment(f, 0..100, Moving::Copy).unwrap(), (100, 100));
        let before = vol.extents(f, 0, usize::MAX).unwrap();
        dev.add(Fault::Place { op, blocks: 0..u64::MAX });
        let out = vol.defragment(f, 100..300, how).unwrap_err();
        let unsupported = matches!(how, Moving::Share) && matches!(out, Error::Device(_) | Error::Unsupported(_));
        assert!(matches!(out, Error::Device(_)) || unsupported, "{out}");
        assert_eq!(vol.extents(f, 0, usize::MAX).unwrap(), before);
        dev.heal();
        assert_eq!(vol.defragment(f, 100..300, Moving::Copy).unwrap(), (300, 200));
        assert!(read_all(&vol, f) == contents(0, 300));
        vol.unmount().unwrap();
        assert_clean(&*dev, "after unmount");
    }
}

#[test]
fn cleaning_makes_the_room_that_is_missing_and_says_how_much() {
    let image = Arc::new(formatted(256, &Options::default()));
    let vol = mount(image.clone());
    let [f, g] = grow_by_turns(&vol, 700);
    // Two alternating fillers; removing one leaves every segment half empty.
    let fillers = ["stays", "goes"].map(|name| new_file(&vol, vol.root(), name));
    let mut at = 0;
    while vol.statfs().unwrap().blocks_free > 4000 {
        for (k, filler) in fillers.iter().enumerate() {
            write(&vol, *filler, at, &pattern(at + k as u64, 64 * 4096));
            vol.fsync(*filler, false).unwrap();
        }
        at += 64 * 4096;
    }
    vol.unlink(vol.root(), b"goes").unwrap();
    vol.forget(fillers[1], 1);
    vol.sync().unwrap();
    assert!(matches!(vol.defragment(f, 0..700, Moving::Copy), Err(Error::Busy(_))));
    let estimate = vol.room(700, false).unwrap();
    assert!(estimate.short > 0 && estimate.moves > 0 && estimate.moved == 0, "{estimate:?}");
    let (mut sections, mut moved) = (0, 0);
    while vol.room(700, false).unwrap().short > 0 {
        moved += vol.room(700, true).unwrap().moved;
        sections += 1;
        assert!(sections < 200, "{:?}", vol.room(700, false));
    }
    println!("{estimate:?}: {moved} blocks moved, {sections} times");
    assert!(moved > 0 && moved <= estimate.moves * 3 + 512, "{estimate:?}: {moved} moved");
    // There is enough space: nothing is cleaned.
    let before = vol.counters.moved_blocks();
    assert_eq!(vol.room(700, true).unwrap().moved, 0);
    assert_eq!(vol.counters.moved_blocks(), before);
    assert_eq!(defragment(&*vol, f, 0, Moving::Copy).unwrap(), 700);
    assert!(pieces(&vol, f) <= 4, "{}", pieces(&vol, f));
    assert!(read_all(&vol, f) == contents(0, 700) && read_all(&vol, g) == contents(1, 700));
    vol.unmount().unwrap();
    assert_clean(&*image, "after unmount");
    assert_tools_clean(&image);
}
