//! Linux stores a file's largest extent in its inode and relies on it: it must not outlive its blocks.

use std::sync::Arc;

use device::{Access, FileDevice};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{Allocate, FileSystem, Ino, Moving, WriteFlags};

use crate::log_rig::*;

/// Written contiguously by Linux, changed by JouleFS where the inode itself holds no addresses, read by Linux.
fn judged(change: impl FnOnce(&Arc<Volume>, Ino, &mut Vec<u8>)) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    formatted(128, &Options::default()).save(&image).unwrap();
    let script = "head -c 8M /dev/urandom >f; sync; fallocate -p -o 7M -l 64K f; sync; cp f $OUT/";
    let run = Kernel::new().run(&image, script).expect_ok();
    let mut content = std::fs::read(run.out().join("f")).unwrap();
    let vol = mount(Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap()));
    change(&vol, find(&vol, "f").unwrap(), &mut content);
    vol.unmount().unwrap();
    assert_fsck_clean(&image);
    let run = Kernel::new().run(&image, "cp f $OUT/").expect_ok();
    run.assert_no_f2fs_complaints();
    assert!(std::fs::read(run.out().join("f")).unwrap() == content);
}

#[test]
fn linux_reads_what_we_wrote_into_an_extent_it_had_noted() {
    judged(|vol, f, content| {
        write(vol, f, 1500 * 4096, &pattern(1, 4096));
        content[1500 * 4096..1501 * 4096].copy_from_slice(&pattern(1, 4096));
    });
}

#[test]
fn linux_reads_a_hole_where_we_made_one_in_an_extent_it_had_noted() {
    judged(|vol, f, content| {
        vol.fallocate(f, Allocate::PunchHole, 1500 * 4096, 4096).unwrap();
        content[1500 * 4096..1501 * 4096].fill(0);
    });
}

#[test]
fn linux_finds_an_extent_it_had_noted_where_defragmentation_moved_its_blocks() {
    judged(|vol, f, _| {
        let moved = trials::crash::defragment(&**vol, f, 1300, Moving::Copy).unwrap();
        // All except the hole.
        assert_eq!(moved, 2048 - 1300 - 16);
        let other = new_file(vol, vol.root(), "new");
        vol.sync().unwrap();
        for at in 0..70 {
            let _ = vol.write(other, at << 20, &pattern(at, 1 << 20), WriteFlags::empty());
        }
    });
}

#[test]
fn linux_finds_an_extent_it_had_noted_where_cleaning_moved_its_blocks() {
    judged(|vol, _, _| {
        while vol.clean_in_foreground().unwrap() {}
        assert!(vol.counters.moved_blocks() > 0);
        // Another file is written to the former blocks.
        let other = new_file(vol, vol.root(), "new");
        for at in 0..70 {
            let _ = vol.write(other, at << 20, &pattern(at, 1 << 20), WriteFlags::empty());
        }
    });
}
