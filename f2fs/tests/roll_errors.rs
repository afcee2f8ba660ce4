//! A log that cannot read its next segment keeps the block it has just placed.

use std::sync::Arc;

use device::{Fault, Faulty, Memory, Op, Rng, Time, VirtualClock};
use joulefs_f2fs::{MountOptions, Volume, mkfs};
use vfs::{Allocate, Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

const ROOT: Caller = Caller { uid: 0, gid: 0 };

/// Files are created, changed and removed on a volume so small that logs fill holes, while a few reads fail; then the
/// errors end and the volume is unmounted. Returns the checker's findings.
fn after_failed_reads(seed: u64) -> Vec<String> {
    let dev = Arc::new(Faulty::new(Memory::new(64 * 256)));
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    mkfs::format(&*dev, &*clock, &mkfs::Options::default()).unwrap();
    let mut rng = Rng::new(seed);
    for _ in 0..4 {
        let options = MountOptions { node_cache: 64, ..MountOptions::default() };
        let vol = Volume::mount(dev.clone(), clock.clone(), options).unwrap();
        let root = vol.root();
        for _ in 0..6 {
            let first = dev.requests(Op::Read) + rng.below(300);
            dev.add(Fault::Nth { op: Op::Read, requests: first..first + 1 + rng.below(3) });
        }
        // A failed operation returns an error and is not repeated; the volume is checked at the end.
        for _ in 0..400 {
            let name = format!("f{}", rng.below(60));
            let found = vol.lookup(root, name.as_bytes()).ok().map(|e| e.attr.ino);
            let (at, len) = (rng.below(1 << 21), rng.below(200_000) + 1);
            let _ = match (rng.below(16), found) {
                (0..=7, None) => {
                    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
                    vol.mknod(ROOT, root, name.as_bytes(), &new).map(|e| vol.forget(e.attr.ino, 1))
                }
                (0..=9, Some(ino)) => vol.write(ino, at, &vec![7; len as usize], WriteFlags::empty()).map(drop),
                (10 | 11, Some(_)) => vol.unlink(root, name.as_bytes()),
                (12, Some(ino)) => vol.fsync(ino, false),
                (13, Some(ino)) => vol.fallocate(ino, Allocate::PunchHole, at, len),
                (14, _) => vol.sync(),
                (15, _) => vol.clean_in_foreground().map(drop).map_err(vfs::Error::from),
                _ => Ok(()),
            };
            found.into_iter().for_each(|ino| vol.forget(ino, 1));
        }
        dev.heal();
        let _ = vol.unmount();
    }
    // Recovers what the unmount could not write.
    Volume::mount(dev.clone(), clock, MountOptions::default()).unwrap().unmount().unwrap();
    let report = fsck::check(dev.inner(), &fsck::Options::default()).unwrap();
    report.errors().map(|e| format!("{e:?}")).collect()
}

#[test]
fn a_block_that_has_its_place_keeps_it_though_its_log_finds_no_next_segment() {
    for seed in 0..16 {
        let found = after_failed_reads(seed);
        assert!(found.is_empty(), "seed {seed}: {found:?}");
    }
}
