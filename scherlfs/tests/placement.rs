//! Where inodes are put: what a file that is written call by call looks like under each of the four placements (Scherl 2004, Fig. 5.1).

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
    let dev = Arc::new(Memory::new(4096));
    let clock = Arc::new(VirtualClock::default());
    make::format(dev.clone(), &*clock, &make::Options::default()).unwrap();
    let options = MountOptions { placement: Some(placement), sync, ..MountOptions::default() };
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
    /// Unmounts, checks, mounts again, and reads the file.
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
fn who_syncs_each_call_is_helped_only_by_two_places_for_the_inode() {
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
