//! The host of a sparse image fills up: accepted data is on the image, and data without room is rejected.

use std::sync::Arc;

use device::host_room::Limited;
use device::{HostRoom, Memory, Retained, Rng, VirtualClock};
use joulefs_scherlfs as scherlfs;
use scherlfs::{MountOptions, Volume, make};
use vfs::{Allocate, Caller, DeviceNumber, Error, FileKind, FileSystem, NewNode, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };
const MIB: u64 = 256;

type Files = Vec<(String, Vec<u8>)>;

struct Rig {
    memory: Arc<Memory>,
    host: Arc<Limited<Arc<Memory>>>,
    room: Arc<HostRoom>,
    volume: Volume,
}

/// A volume on a sparse image of 512 MiB, on a host with `free` free blocks after mkfs.
fn mounted(free: u64) -> Rig {
    let memory = Arc::new(Memory::new(512 * MIB));
    let host = Arc::new(Limited::new(memory.clone(), 512 * MIB));
    make::format(host.clone(), &VirtualClock::default(), &make::Options::default()).unwrap();
    host.leave_free(free);
    let room = Arc::new(HostRoom::new(host.host()));
    let dev = Arc::new(Retained::new(host.clone(), 64 << 20).with_room(room.clone()));
    let options = MountOptions { host_room: Some(room.clone()), ..MountOptions::default() };
    let volume = Volume::mount(dev, Arc::new(VirtualClock::default()), options).unwrap();
    Rig { memory, host, room, volume }
}

/// Creates a file of `blocks` blocks, as far as accepted; returns the accepted contents.
fn write_file(volume: &Volume, name: &str, blocks: usize) -> Option<Vec<u8>> {
    let contents: Vec<u8> = (0..blocks * 4096).map(|i| (i / 4096 * 7 + i % 251) as u8).collect();
    let ino = volume.mknod(ME, volume.root(), name.as_bytes(), &FILE).ok()?.attr.ino;
    let mut done = 0;
    while done < contents.len() {
        match volume.write(ino, done as u64, &contents[done..], WriteFlags::empty()) {
            Ok(n) => done += n,
            Err(e) => {
                assert_eq!(e, Error::NoSpace);
                break;
            }
        }
    }
    Some(contents[..done].to_vec())
}

/// Unmounts; the medium is a valid volume with these files.
fn judge(rig: &Rig, files: &[(String, Vec<u8>)]) {
    rig.volume.unmount().unwrap();
    let report = scherlfs_fsck::check(&*rig.memory);
    assert!(report.is_clean(), "{:?}", report.findings);
    let volume = Volume::mount(rig.memory.clone(), Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
    for (name, contents) in files {
        let attr = volume.lookup(volume.root(), name.as_bytes()).unwrap().attr;
        let mut read = vec![0; attr.size as usize];
        volume.read(attr.ino, 0, &mut read).unwrap();
        assert!(read == *contents, "{name}");
    }
}

#[test]
fn what_was_accepted_before_the_host_filled_is_there_after_an_unmount_and_more_is_refused() {
    let rig = mounted(100 * MIB);
    let mut files: Files = (0..40)
        .map(|n| {
            let name = format!("before{n}");
            let contents = write_file(&rig.volume, &name, 50).unwrap();
            (name, contents)
        })
        .collect();
    rig.host.leave_free(0);
    let mut refused = 0;
    for n in 0..400 {
        let name = format!("after{n}");
        match write_file(&rig.volume, &name, 50) {
            Some(accepted) => files.push((name, accepted)),
            None => refused += 1,
        }
    }
    assert!(refused > 100 && rig.room.is_short());
    assert_eq!(rig.volume.statfs().unwrap().blocks_available, 0);
    rig.volume.unlink(rig.volume.root(), b"before0").unwrap();
    judge(&rig, &files[1..]);
}

#[test]
fn a_volume_takes_changes_again_when_the_host_has_room_again() {
    let rig = mounted(100 * MIB);
    let mut files = vec![("a".to_owned(), write_file(&rig.volume, "a", 300).unwrap())];
    rig.host.leave_free(0);
    rig.volume.sync().unwrap();
    assert!(rig.room.is_short());
    assert_eq!(write_file(&rig.volume, "b", 1), None);
    rig.volume.tick().unwrap();
    assert_eq!(write_file(&rig.volume, "b", 1), None);
    rig.host.leave_free(100 * MIB);
    rig.volume.tick().unwrap();
    files.push(("b".to_owned(), write_file(&rig.volume, "b", 300).unwrap()));
    assert_eq!(files[1].1.len(), 300 * 4096);
    judge(&rig, &files);
}

#[test]
fn whatever_is_done_while_the_host_fills_and_empties_nothing_accepted_is_lost() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let rig = mounted(5 * MIB + rng.below(60 * MIB));
        let mut files = Files::new();
        for n in 0..300 {
            match rng.below(10) {
                0..7 => {
                    let name = format!("f{n}");
                    let most = if rng.chance(1, 8) { 2000 } else { 40 };
                    let blocks = 1 + rng.index(most);
                    files.extend(write_file(&rig.volume, &name, blocks).map(|accepted| (name, accepted)));
                }
                7 if !files.is_empty() => {
                    let n = rng.index(files.len());
                    if rig.volume.unlink(rig.volume.root(), files[n].0.as_bytes()).is_ok() {
                        files.remove(n);
                    }
                }
                8 => rig.host.leave_free(if rng.chance(1, 2) { 0 } else { rng.below(40 * MIB) }),
                _ => _ = rig.volume.tick().unwrap(),
            }
        }
        rig.host.leave_free(0);
        judge(&rig, &files);
    }
}

#[test]
fn a_promise_takes_room_of_the_volume_and_none_of_the_host_before_it_is_written() {
    // The most ballast is 256 MiB, of which a change may use five eighths.
    let rig = mounted(400 * MIB);
    let ino = rig.volume.mknod(ME, rig.volume.root(), b"promised", &FILE).unwrap().attr.ino;
    let reserve = |mib: u64| rig.volume.fallocate(ino, Allocate::Reserve { keep_size: false }, 0, mib << 20);
    reserve(20).unwrap();
    reserve(300).unwrap();
    // What is promised already needs no room again.
    reserve(320).unwrap();
    assert_eq!(reserve(600), Err(Error::NoSpace));
    rig.host.leave_free(0);
    reserve(321).unwrap();
    judge(&rig, &[("promised".to_owned(), vec![0; 321 << 20])]);
}

#[test]
fn what_was_promised_is_written_though_others_filled_the_volume() {
    let memory = Arc::new(Memory::new(64 * MIB));
    make::format(memory.clone(), &VirtualClock::default(), &make::Options::default()).unwrap();
    let options = MountOptions::default();
    let volume = Volume::mount(memory.clone(), Arc::new(VirtualClock::default()), options).unwrap();
    let ino = volume.mknod(ME, volume.root(), b"promised", &FILE).unwrap().attr.ino;
    volume.fallocate(ino, Allocate::Reserve { keep_size: false }, 0, 20 << 20).unwrap();
    let mut n = 0;
    while write_file(&volume, &format!("other{n}"), if n < 8 { 1000 } else { 1 })
        .is_some_and(|stored| !stored.is_empty())
    {
        n += 1;
    }
    let contents: Vec<u8> = (0..20 << 20).map(|i: u32| (i / 4096 * 3 + i % 249) as u8).collect();
    for (at, part) in (0..).step_by(300_000).zip(contents.chunks(300_000)) {
        assert_eq!(volume.write(ino, at, part, WriteFlags::empty()), Ok(part.len()), "at {at}");
    }
    assert_eq!(volume.write(ino, 20 << 20, &[1; 4096], WriteFlags::empty()), Err(Error::NoSpace));
    volume.unmount().unwrap();
    let report = scherlfs_fsck::check(&*memory);
    assert!(report.is_clean(), "{:?}", report.findings);
    let volume = Volume::mount(memory, Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
    let ino = volume.lookup(volume.root(), b"promised").unwrap().attr.ino;
    let mut read = vec![0; 20 << 20];
    volume.read(ino, 0, &mut read).unwrap();
    assert!(read == contents);
}
