//! A pinned file's blocks never move: users rely on their addresses.

use std::sync::Arc;

use device::{Access, BlockDevice, FileDevice, Lba, Memory, Tag};
use format::inode::{self, Inline, RawInode};
use format::superblock::SuperBlock;
use format::{BlockAddr, node};
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::damage::block;
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{Allocate, Error, FileSystem, Ino};
use victim::Policy;

use crate::log_rig::*;

const BLOCKS: u64 = 2000;

/// Addresses of the newest copies of an inode and its direct nodes.
fn nodes_of(image: &Memory, sb: &SuperBlock, ino: Ino) -> Vec<u64> {
    let main = u64::from(sb.main.0)..image.blocks();
    main.filter(|&at| u64::from(node::footer(&block(image, at)).ino.0) == ino.0).collect()
}

/// Sets the mark of Linux's `F2FS_IOC_SET_PIN_FILE` for a file of an unmounted volume.
fn pin(image: &Memory, ino: Ino) {
    let sb = SuperBlock::check(&block(image, 0)).unwrap();
    let mut marked = 0;
    for at in nodes_of(image, &sb, ino) {
        let mut bytes = block(image, at);
        let f = node::footer(&bytes);
        if f.nid != f.ino.nid() || inode::verify_checksum(sb.features, inode::checksum_seed(&sb.uuid), &bytes).is_err()
        {
            continue;
        }
        RawInode::of_mut(&mut bytes).i_inline |= Inline::PIN_FILE.bits();
        inode::seal(sb.features, inode::checksum_seed(&sb.uuid), &mut bytes);
        image.write(Lba(at), &bytes[..], Tag::default()).unwrap();
        marked += 1;
    }
    assert!(marked > 0);
}

/// Addresses of a file's blocks, found by their contents.
fn places(image: &Memory, seed: u64) -> Vec<Option<BlockAddr>> {
    let sb = SuperBlock::check(&block(image, 0)).unwrap();
    let data = pattern(seed, BLOCKS as usize * 4096);
    let mut found: std::collections::HashMap<Vec<u8>, BlockAddr> = Default::default();
    for at in u64::from(sb.main.0)..image.blocks() {
        found.entry(block(image, at).to_vec()).or_insert(BlockAddr(at as u32));
    }
    data.chunks(4096).map(|b| found.get(b).copied()).collect()
}

/// A volume whose sections have blocks of a file, `f`, between blocks of a deleted file.
fn among_holes() -> (Memory, Ino) {
    let image = Arc::new(formatted(96, &Options::default()));
    let vol = mount(image.clone());
    let (f, other) = (new_file(&vol, vol.root(), "f"), new_file(&vol, vol.root(), "other"));
    let (ours, theirs) = (pattern(1, BLOCKS as usize * 4096), pattern(2, BLOCKS as usize * 4096));
    for (n, (a, b)) in ours.chunks(50 * 4096).zip(theirs.chunks(50 * 4096)).enumerate() {
        write(&vol, f, n as u64 * 50 * 4096, a);
        vol.fsync(f, false).unwrap();
        write(&vol, other, n as u64 * 50 * 4096, b);
        vol.fsync(other, false).unwrap();
    }
    vol.unlink(vol.root(), b"other").unwrap();
    vol.forget(other, 1);
    vol.unmount().unwrap();
    (image.fork(), f)
}

fn cleaned_of_all_that_moves(vol: &Volume, policy: Policy) {
    let settings = Settings { policy, keep_free: 90, on: false, ..Settings::default() };
    let mut turns = 0;
    while vol.clean_in_background(&settings).unwrap() {
        vol.sync().unwrap();
        turns += 1;
        assert!(turns < 1000, "cleaning in the background finds no end");
    }
    while vol.clean_in_foreground().unwrap() {
        turns += 1;
        assert!(turns < 1000, "cleaning in the foreground finds no end");
    }
}

#[test]
fn cleaning_leaves_a_pinned_files_blocks_where_they_are() {
    for policy in [Policy::Greedy, Policy::CostBenefit, Policy::Atgc, Policy::Fagc, Policy::Joule] {
        let (image, f) = among_holes();
        pin(&image, f);
        let before = places(&image, 1);
        assert!(before.iter().all(Option::is_some));
        let dev = Arc::new(image);
        let gc = Settings { policy, keep_free: 90, on: false, ..Settings::default() };
        let vol = Volume::mount(dev.clone(), clock(), MountOptions { gc, ..Default::default() }).unwrap();
        cleaned_of_all_that_moves(&vol, policy);
        vol.audit_segments().unwrap();
        vol.unmount().unwrap();
        assert_eq!(places(&dev, 1), before, "{policy:?}");
        assert_clean(&*dev, "pinned and cleaned");
        assert_tools_clean(&dev);
    }
}

#[test]
fn a_section_is_cleaned_again_once_its_pinned_file_is_gone() {
    let (image, f) = among_holes();
    pin(&image, f);
    let dev = Arc::new(image);
    let vol = mount(dev.clone());
    // Movable blocks next to the pinned ones.
    let g = new_file(&vol, vol.root(), "g");
    write(&vol, g, 0, &pattern(3, 3 << 20));
    vol.sync().unwrap();
    cleaned_of_all_that_moves(&vol, Policy::Greedy);
    let stuck = vol.state();
    vol.unlink(vol.root(), b"f").unwrap();
    vol.sync().unwrap();
    cleaned_of_all_that_moves(&vol, Policy::Greedy);
    assert!(vol.state().free_segments > stuck.free_segments + 3, "{stuck:?} {:?}", vol.state());
    vol.unmount().unwrap();
    assert_clean(&*dev, "after all");
    assert_tools_clean(&dev);
    assert_eq!(f.0, find(&mount_copy(&dev.fork()), "g").map_or(0, |_| f.0));
}

#[test]
fn a_pinned_file_is_overwritten_in_place_by_whatever_writes_it_out() {
    let (image, f) = among_holes();
    pin(&image, f);
    let before = places(&image, 1);
    let dev = Arc::new(image);
    let vol = mount(dev.clone());
    let new = pattern(7, BLOCKS as usize * 4096);
    // A checkpoint, an fsync of many blocks, and a cache above that writes back a mebibyte at once.
    write(&vol, f, 0, &new[..600 * 4096]);
    vol.sync().unwrap();
    write(&vol, f, 600 * 4096, &new[600 * 4096..1200 * 4096]);
    vol.fsync(f, false).unwrap();
    for at in (1200 * 4096..new.len()).step_by(400 * 4096) {
        let n = vol.write(f, at as u64, &new[at..at + 400 * 4096], vfs::WriteFlags::FROM_CACHE).unwrap();
        assert_eq!(n, 400 * 4096);
    }
    vol.unmount().unwrap();
    assert_eq!(places(&dev, 7), before);
    assert_clean(&*dev, "overwritten");
    assert_tools_clean(&dev);
}

#[test]
fn holes_are_not_made_in_a_pinned_file_nor_its_blocks_shifted() {
    let (image, f) = among_holes();
    pin(&image, f);
    let vol = mount(Arc::new(image));
    let before = read_all(&vol, f);
    for what in [Allocate::PunchHole, Allocate::Zero { keep_size: false }, Allocate::Collapse, Allocate::Insert] {
        let out = vol.fallocate(f, what, 4096, 8192);
        assert!(matches!(out, Err(Error::Unsupported(_))), "{what:?}: {out:?}");
    }
    assert!(read_all(&vol, f) == before);
    vol.fallocate(f, Allocate::Reserve { keep_size: false }, 0, 9 << 20).unwrap();
    vol.unmount().unwrap();
}

#[test]
fn extents_of_a_file_linux_pinned_are_the_same_after_we_cleaned_and_overwrote() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    formatted(256, &Options::default()).save(&image).unwrap();
    let extents = "for f in swap late; do echo $f; filefrag -e $f | grep -E '^ +[0-9]+:'; done";
    // Blocks with sections of their own; and, if the kernel can pin a non-empty file (before 6.12), blocks between
    // those of deleted files.
    let script = format!(
        "touch swap; f2fs_io pinfile set swap; fallocate -l 6M swap
         i=0
         while [ $i -lt 40 ]; do
           head -c 200000 /dev/urandom >>late; head -c 200000 /dev/urandom >>gone; sync
           i=$((i + 1))
         done
         head -c 6M /dev/urandom | dd of=swap conv=notrunc,fsync bs=1M 2>/dev/null
         if f2fs_io pinfile set late; then touch $OUT/both; fi
         rm gone; sync; f2fs_io pinfile get swap
         {extents} >$OUT/extents; cp late swap $OUT/"
    );
    let run = Kernel::new().run(&image, &script).expect_ok();
    let before = std::fs::read_to_string(run.out().join("extents")).unwrap();
    let both = run.out().join("both").exists();
    assert!(before.lines().count() > if both { 10 } else { 2 }, "{before}");
    // If `late` may move, it does, and only `swap` is checked.
    let judged = |extents: &str| match both {
        true => extents.to_owned(),
        false => extents.split_once("late").unwrap().0.to_owned(),
    };
    let dev = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let vol = mount(dev);
    for name in ["swap", "late"] {
        let f = find(&vol, name).unwrap();
        let was = std::fs::read(run.out().join(name)).unwrap();
        assert!(read_all(&vol, f) == was, "{name}");
        write(&vol, f, 0, &was.iter().map(|b| !b).collect::<Vec<_>>());
    }
    vol.sync().unwrap();
    cleaned_of_all_that_moves(&vol, Policy::Greedy);
    let moved = vol.counters.moved_blocks();
    vol.unmount().unwrap();
    assert_fsck_clean(&image);
    let after = Kernel::new().run(&image, &format!("{extents} >$OUT/extents; cp late swap $OUT/")).expect_ok();
    after.assert_no_f2fs_complaints();
    let now = std::fs::read_to_string(after.out().join("extents")).unwrap();
    assert_eq!(judged(&now), judged(&before), "{moved} blocks were moved");
    for name in ["swap", "late"] {
        let (was, is) = (std::fs::read(run.out().join(name)).unwrap(), std::fs::read(after.out().join(name)).unwrap());
        assert!(was.iter().zip(&is).all(|(a, b)| *a == !*b), "{name}");
    }
}
