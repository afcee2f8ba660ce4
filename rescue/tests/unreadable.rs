//! What does rescue report for a device with bad blocks?

use std::sync::Arc;

use device::{BlockDevice, Fault, Faulty, Lba, Memory, Op, Tag, Time, VirtualClock};
use f2fs::{MountOptions, Volume, mkfs};
use joulefs_rescue::{Options, Progress, Rescue};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode};

/// A volume with a file whose name a later checkpoint removed, and the block of the newest root directory.
fn volume() -> (Arc<Faulty<Memory>>, u64) {
    let dev = Arc::new(Faulty::new(Memory::new(64 * 256)));
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    mkfs::format(&*dev, &*clock, &mkfs::Options::default()).unwrap();
    let vol = Volume::mount(dev.clone(), clock, MountOptions::default()).unwrap();
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    for name in [&b"kept"[..], b"removed"] {
        vol.mknod(Caller { uid: 0, gid: 0 }, vol.root(), name, &new).unwrap();
    }
    vol.sync().unwrap();
    vol.unlink(vol.root(), b"removed").unwrap();
    vol.unmount().unwrap();
    // The root directory is inline: among the blocks of inode 3 it is the one with the newest checkpoint version.
    let newest = (0..dev.blocks())
        .filter_map(|at| {
            let mut block = [0; 4096];
            dev.read(Lba(at), &mut block, Tag::default()).unwrap();
            let f = format::node::footer(&block);
            (f.nid.0 == 3 && f.ino.0 == 3).then_some((f.cp_ver & 0xFFFF_FFFF, at))
        })
        .max()
        .unwrap();
    (dev, newest.1)
}

#[test]
fn nothing_is_complete_where_a_block_cannot_be_read() {
    let (dev, newest) = volume();
    let whole = Rescue::search(&*dev, &Options::default(), &mut Progress::new(&mut |_| true)).unwrap();
    assert!(!whole.is_incomplete());
    drop(whole);
    dev.add(Fault::Place { op: Op::Read, blocks: newest..newest + 1 });
    let found = Rescue::search(&*dev, &Options::default(), &mut Progress::new(&mut |_| true)).unwrap();
    assert_eq!(found.unreadable_blocks(), 1);
    assert!(found.is_incomplete() && !found.is_cut_short());
}
