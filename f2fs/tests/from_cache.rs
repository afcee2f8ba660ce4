//! Writeback from a cache above does not wait in memory a second time.

use std::sync::Arc;

use device::{BlockDevice, Counting, Fault, Faulty, Memory, Op};
use joulefs_f2fs::Volume;
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use vfs::{Error, FileSystem, Ino, WriteFlags};

use crate::log_rig::*;

const MIB: usize = 1 << 20;

fn from_cache(vol: &Volume, ino: Ino, block: usize, data: &[u8]) -> vfs::Result<usize> {
    vol.write(ino, block as u64 * 4096, data, WriteFlags::FROM_CACHE)
}

/// A volume with one synced file of two mebibytes, and its contents.
fn with_file<D: BlockDevice + 'static>(dev: Arc<D>) -> (Arc<Volume>, Ino, Vec<u8>) {
    let vol = mount(dev);
    let file = new_file(&vol, vol.root(), "file");
    let contents = pattern(1, 2 * MIB);
    write(&vol, file, 0, &contents);
    vol.sync().unwrap();
    (vol, file, contents)
}

#[test]
fn blocks_from_a_cache_go_out_once_a_mebibyte_has_gathered() {
    let dev = Arc::new(Counting::new(formatted(256, &Options::default())));
    let (vol, file, mut contents) = with_file(dev.clone());
    let before = dev.snapshot();
    let written = || (&dev.snapshot() - &before)[Cause::UserData as u8];
    // Every second block, in reverse order.
    for k in (0..256).rev() {
        assert_eq!(written().blocks_written, 0, "{k} to come");
        let data = pattern(k as u64, 4096);
        assert_eq!(from_cache(&vol, file, 2 * k, &data).unwrap(), 4096);
        contents[2 * k * 4096..][..4096].copy_from_slice(&data);
    }
    assert_eq!((written().blocks_written, written().writes), (256, 1));
    assert!(read_all(&vol, file) == contents);
    vol.unmount().unwrap();
    assert_eq!(written().blocks_written, 256, "nothing was written twice");
    assert!(read_all(&mount(dev.clone()), file) == contents);
    assert_clean(&*dev, "after unmount");
}

#[test]
fn a_mebibyte_at_once_takes_what_waits_along_but_for_what_it_replaces() {
    let dev = Arc::new(Counting::new(formatted(256, &Options::default())));
    let (vol, file, mut contents) = with_file(dev.clone());
    let before = dev.snapshot();
    for block in [3, 100, 355, 356, 500] {
        let data = pattern(block as u64, 4096);
        from_cache(&vol, file, block, &data).unwrap();
        contents[block * 4096..][..4096].copy_from_slice(&data);
    }
    let data = pattern(7, MIB);
    assert_eq!(from_cache(&vol, file, 100, &data).unwrap(), MIB);
    contents[100 * 4096..][..MIB].copy_from_slice(&data);
    let written = (&dev.snapshot() - &before)[Cause::UserData as u8];
    assert_eq!(written.blocks_written, 256 + 3, "those before, at 356 and behind it, not those at 100 and 355");
    assert!(read_all(&vol, file) == contents);
    vol.unmount().unwrap();
    assert!(read_all(&mount(dev.clone()), file) == contents);
    assert_clean(&*dev, "after unmount");
}

#[test]
fn a_file_may_leave_its_inode_and_grow_over_a_gap_by_such_a_write() {
    let dev = Arc::new(formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let file = new_file(&vol, vol.root(), "file");
    write(&vol, file, 0, b"inline");
    let data = pattern(1, MIB);
    from_cache(&vol, file, 10, &data).unwrap();
    let mut contents = vec![0; 10 * 4096 + MIB];
    contents[..6].copy_from_slice(b"inline");
    contents[10 * 4096..].copy_from_slice(&data);
    assert!(read_all(&vol, file) == contents);
    vol.unmount().unwrap();
    assert!(read_all(&mount(dev.clone()), file) == contents);
    assert_tools_clean(&dev);
}

#[test]
fn what_a_program_writes_itself_waits() {
    let dev = Arc::new(Counting::new(formatted(256, &Options::default())));
    let (vol, file, _) = with_file(dev.clone());
    let before = dev.snapshot();
    write(&vol, file, 0, &pattern(7, MIB));
    assert_eq!((&dev.snapshot() - &before)[Cause::UserData as u8].blocks_written, 0);
}

#[test]
fn what_the_device_refuses_waits_and_is_not_lost() {
    let dev = Arc::new(Faulty::new(formatted(64, &Options::default())));
    let (vol, file, mut contents) = with_file(dev.clone());
    let waiting = pattern(2, 4096);
    from_cache(&vol, file, 400, &waiting).unwrap();
    contents[400 * 4096..][..4096].copy_from_slice(&waiting);
    let next = dev.requests(Op::Write) + 1;
    dev.add(Fault::Nth { op: Op::Write, requests: next..next + 1 });
    let data = pattern(3, MIB);
    let refused = from_cache(&vol, file, 0, &data).unwrap_err();
    assert!(matches!(refused, Error::Device(_)), "{refused:?}");
    contents[..MIB].copy_from_slice(&data);
    assert!(read_all(&vol, file) == contents, "while it waits");
    vol.fsync(file, false).unwrap();
    assert!(read_all(&vol, file) == contents, "once it was taken");
    vol.unmount().unwrap();
    assert!(read_all(&mount(dev.clone()), file) == contents, "after a mount");
    assert_clean(&*dev, "after unmount");
}

#[test]
fn a_volume_that_fills_takes_what_fits() {
    let dev: Arc<Memory> = Arc::new(formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let file = new_file(&vol, vol.root(), "file");
    let mut contents = Vec::new();
    loop {
        let data = pattern(contents.len() as u64, MIB);
        match from_cache(&vol, file, contents.len() / 4096, &data) {
            Ok(n) => contents.extend_from_slice(&data[..n]),
            Err(Error::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(!contents.len().is_multiple_of(MIB), "the last write was cut short");
    assert!(read_all(&vol, file) == contents);
    vol.unmount().unwrap();
    assert!(read_all(&mount(dev.clone()), file) == contents);
    assert_tools_clean(&dev);
}
