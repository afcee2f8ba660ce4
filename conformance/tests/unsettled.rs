//! Linux and `fsck.f2fs` refuse a volume that may have deltas, and accept it after settling, with all its contents.

use std::sync::Arc;

use device::{Memory, RealClock};
use f2fs::mkfs::Options;
use f2fs::settle::{settle, unsettle, upgrade};
use f2fs::{MountOptions, Volume};
use judges::oracle::kernel::{Ending, Kernel};
use judges::oracle::linux::Linux;
use judges::oracle::{tools, tree};
use vfs::{FileSystem, WriteFlags};

use crate::rig::*;

/// A volume on which files were changed a little in places, and the number of deltas that made.
fn changed() -> (Arc<Memory>, u64) {
    let dev = Arc::new(Memory::new(100 * MIB / 4096));
    f2fs::mkfs::format(&*dev, &RealClock::new(), &Options::modern()).unwrap();
    unsettle(&*dev).unwrap();
    let vol = Volume::mount(dev.clone(), Arc::new(RealClock::new()), MountOptions::default()).unwrap();
    let mut rng = device::Rng::new(5);
    for n in 0..40_u64 {
        let new =
            vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
        let caller = vfs::Caller { uid: 0, gid: 0 };
        let f = vol.mknod(caller, vol.root(), format!("f{n}").as_bytes(), &new).unwrap().attr.ino;
        let mut contents = vec![0; 4096 * (1 + 12 * n as usize)];
        rng.fill(&mut contents);
        vol.write(f, 0, &contents, WriteFlags::empty()).unwrap();
        vol.sync().unwrap();
        for _ in 0..10 {
            let at = rng.below(contents.len() as u64 - 8);
            vol.write(f, at, &n.to_le_bytes(), WriteFlags::empty()).unwrap();
            vol.fsync(f, n % 2 == 0).unwrap();
        }
    }
    vol.unmount().unwrap();
    let count = vol.count_deltas().unwrap();
    assert!(count.deltas > 100 && count.bytes < count.deltas * 40, "{count:?}");
    (dev, count.deltas)
}

#[test]
fn linux_refuses_a_volume_that_may_hold_deltas_and_takes_it_settled() {
    let work = work_dir();
    let (dev, deltas) = changed();
    let image = work.path().join("volume.img");
    dev.save(&image).unwrap();
    let kernel = || Kernel::of(Linux::asked()).program("treelist", env!("CARGO_BIN_EXE_treelist"));
    let refused = kernel().without_mount().run(
        &image,
        "mkdir -p /tmp/there; if mount -t f2fs /dev/$DISK /tmp/there; then echo mounted; else echo refused; fi >$OUT/said 2>&1",
    );
    assert!(printed(refused.out(), "said").contains("refused"), "{}", refused.describe());
    assert!(!tools::fsck(&image).clean());

    let ours = list_memory(dev.fork());
    let done = settle(dev.clone(), Arc::new(RealClock::new()), &mut |_, _| ()).unwrap().unwrap();
    assert_eq!(done.deltas, deltas);
    dev.save(&image).unwrap();
    tools::assert_fsck_clean(&image);
    assert_eq!(ours, list_memory(dev.fork()));
    let taken = kernel().ending(Ending::Unmount).run(&image, &format!("{TREELIST} >$OUT/tree")).expect_ok();
    taken.assert_no_f2fs_complaints();
    let linux = printed(taken.out(), "tree");
    tree::assert_same(("ours", &ours), ("Linux", &linux));
}

#[test]
fn a_volume_that_linux_filled_comes_to_hold_deltas_and_linux_goes_on_with_it() {
    let work = work_dir();
    let image = work.path().join("volume.img");
    // The root has no room for a checksum, as on Android's volumes.
    tools::Mkfs::with_features(["extra_attr"]).format(&image, 100 * MIB).unwrap();
    let kernel = || Kernel::of(Linux::asked()).program("treelist", env!("CARGO_BIN_EXE_treelist"));
    let fill =
        "mkdir -p a/b; for n in 1 2 3 4 5 6 7 8; do head -c ${n}0000 /dev/urandom >a/b/$n; ln -s $n a/$n; done; sync";
    kernel().ending(Ending::Unmount).run(&image, fill).expect_ok();
    let dev = Arc::new(Memory::load(&image).unwrap());
    let clock = || Arc::new(RealClock::new());
    let before = list_memory(dev.fork());
    // At least the root, two directories, eight files and eight links.
    assert!(upgrade(dev.clone(), clock(), &mut |_, _| ()).unwrap() >= Some(19));
    assert_eq!(before, list_memory(dev.fork()));
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).unwrap();
    let dir = vol.lookup(vol.root(), b"a").and_then(|a| vol.lookup(a.attr.ino, b"b")).unwrap().attr.ino;
    let file = vol.lookup(dir, b"8").unwrap().attr.ino;
    for n in 0..20_u64 {
        vol.write(file, n * 4000, b"changed", WriteFlags::empty()).unwrap();
        vol.fsync(file, false).unwrap();
    }
    vol.unmount().unwrap();
    assert!(vol.count_deltas().unwrap().deltas > 10);
    let ours = list_memory(dev.fork());
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
    dev.save(&image).unwrap();
    tools::assert_fsck_clean(&image);
    let more = format!("{TREELIST} >$OUT/tree; echo more >>a/b/8; rm a/b/1; mkdir a/new");
    let taken = kernel().ending(Ending::Unmount).run(&image, &more).expect_ok();
    taken.assert_no_f2fs_complaints();
    tree::assert_same(("ours", &ours), ("Linux", &printed(taken.out(), "tree")));
    tools::assert_fsck_clean(&image);
}
