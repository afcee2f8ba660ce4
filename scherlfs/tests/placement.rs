//! Placement of inodes: the layout of a file written call by call under each of the four placements (Scherl 2004,
//! Fig. 5.1).

use std::sync::Arc;

use device::{Memory, VirtualClock};
use joulefs_scherlfs as scherlfs;
use scherlfs::{MountOptions, Sync, Volume, make};
use scherlfs_format::superblock::Placement;
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };

struct Mounted {
    dev: Arc<Memory>,
    volume: Volume,
}

fn mounted(placement: Placement, sync: Sync) -> Mounted {
    mounted_in(placement, sync, MountOptions::default().inode_cache)
}

/// The same with a given number of unused inodes in memory.
fn mounted_in(placement: Placement, sync: Sync, inode_cache: usize) -> Mounted {
    let dev = Arc::new(Memory::new(4096));
    let clock = Arc::new(VirtualClock::default());
    make::format(dev.clone(), &*clock, &make::Options::default()).unwrap();
    let options = MountOptions { placement: Some(placement), sync, inode_cache, ..MountOptions::default() };
    let volume = Volume::mount(dev.clone(), clock, options).unwrap();
    Mounted { dev, volume }
}

impl Mounted {
    fn file(&self, name: &[u8]) -> Ino {
        let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };
        self.volume.mknod(ME, self.volume.root(), name, &new).unwrap().attr.ino
    }
    fn append(&self, ino: Ino, n: u64) {
        let data = [n as u8 + 1; 4096];
        assert_eq!(self.volume.write(ino, n * 4096, &data, WriteFlags::empty()).unwrap(), 4096);
    }
    fn extents(&self, ino: Ino) -> usize {
        self.volume.extents(ino, 0, 1000).unwrap().len()
    }
    /// Unmounts, checks, remounts, and reads the file.
    fn whole(self, name: &[u8], blocks: u64) {
        self.volume.unmount().unwrap();
        drop(self.volume);
        let report = scherlfs_fsck::check(&*self.dev);
        assert!(report.is_clean() && report.notes.is_empty(), "{:?}", report.findings);
        let volume = Volume::mount(self.dev, Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
        let ino = volume.lookup(volume.root(), name).unwrap().attr.ino;
        let mut bytes = vec![0; blocks as usize * 4096 + 1];
        assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), blocks as usize * 4096);
        let right: Vec<u8> = (0..blocks).flat_map(|n| [n as u8 + 1; 4096]).collect();
        let found: Vec<u8> = bytes.chunks(4096).map(|c| c[0]).collect();
        assert!(bytes[..right.len()] == right[..], "{found:?}");
    }
}

/// The file is forgotten before another is written: its inode may leave memory although its series may still
/// continue.
#[test]
fn an_unused_inode_stays_in_memory_until_its_series_ends() {
    for placement in Placement::ALL {
        let mounted = mounted_in(placement, Sync::Fsync, 0);
        for name in [b"f", b"g"] {
            let ino = mounted.file(name);
            (0..4).for_each(|n| mounted.append(ino, n));
            mounted.volume.fsync(ino, false).unwrap();
            mounted.volume.forget(ino, 1);
        }
        mounted.whole(b"f", 4);
    }
}

fn appended(placement: Placement, each: impl Fn(&Mounted, Ino, u64)) -> usize {
    let mounted = mounted(placement, Sync::Call);
    let ino = mounted.file(b"f");
    for n in 0..8 {
        mounted.append(ino, n);
        each(&mounted, ino, n);
    }
    mounted.volume.fsync(ino, false).unwrap();
    let extents = mounted.extents(ino);
    mounted.whole(b"f", 8);
    extents
}

#[test]
fn only_an_inode_before_each_piece_cuts_a_file_into_pieces() {
    let found = Placement::ALL.map(|placement| appended(placement, |_, _, _| ()));
    assert_eq!(found, [8, 1, 1, 1]);
}

#[test]
fn with_a_sync_per_call_only_two_places_for_the_inode_help() {
    let found = Placement::ALL.map(|placement| appended(placement, |m, ino, _| m.volume.fsync(ino, false).unwrap()));
    assert_eq!(found, [8, 8, 1, 1], "what was made durable is not overwritten");
}

#[test]
fn another_file_in_between_ends_it() {
    let found = Placement::ALL.map(|placement| {
        appended(placement, |m, _, n| {
            let other = m.file(format!("o{n}").as_bytes());
            m.append(other, 0);
        })
    });
    assert_eq!(found, [8, 8, 8, 8]);
}
