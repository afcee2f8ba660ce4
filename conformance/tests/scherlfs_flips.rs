//! No byte of ScherlFS's metadata can change without detection: by the mount, a read, or the second reader. An
//! undetected change affects nothing that is read. No change causes a panic.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag, VirtualClock};
use scherlfs::{MountOptions, Volume};
use trials::subject::{ScherlFs, Subject};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, SetAttr, WriteFlags, XattrFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };

/// Everything readable on a volume: attributes, contents, targets and extended attributes by path.
type Seen = BTreeMap<Vec<u8>, String>;

fn look(volume: &Volume, ino: Ino, path: &[u8], seen: &mut Seen) -> vfs::Result<()> {
    let attr = volume.getattr(ino)?;
    let mut text = format!("{attr:?} {:?}", volume.flags(ino)?);
    for name in volume.listxattr(ino)? {
        text += &format!(" {name:?}={:?}", volume.getxattr(ino, &name)?);
    }
    match attr.kind {
        // Its own map shows the inodes' places; they are checked by their contents.
        FileKind::Regular if path == b"/.ifile" => text = String::new(),
        FileKind::Regular => {
            let mut bytes = vec![0; attr.size.min(1 << 20) as usize];
            let n = volume.read(ino, 0, &mut bytes)?;
            text += &format!(
                " {n} {:x}",
                bytes.iter().fold(7_u64, |sum, b| sum.wrapping_mul(31).wrapping_add((*b).into()))
            );
        }
        FileKind::Symlink => text += &format!(" -> {:?}", volume.readlink(ino)?),
        FileKind::Directory => {
            let mut below = Vec::new();
            volume.readdir(ino, 0, &mut |e| {
                if ![&b"."[..], b".."].contains(&e.name) {
                    below.push((e.name.to_vec(), e.ino));
                }
                Flow::Continue
            })?;
            for (name, ino) in below {
                look(volume, ino, &[path, b"/", &name[..]].concat(), seen)?;
            }
        }
        _ => {}
    }
    seen.insert(path.to_vec(), text);
    Ok(())
}

fn all(dev: Arc<Memory>, clock: Arc<VirtualClock>) -> vfs::Result<Seen> {
    let volume = Volume::mount(dev, clock, MountOptions { read_only: true, ..MountOptions::default() })?;
    let mut seen = Seen::new();
    look(&volume, volume.root(), b"", &mut seen)?;
    Ok(seen)
}

/// A volume with every kind of structure, clean or with a log after its checkpoint; and its content blocks.
fn volume(clean: bool, clock: &Arc<VirtualClock>) -> (Arc<Memory>, BTreeSet<u64>) {
    let (dev, subject) = (Arc::new(Memory::new(1024)), ScherlFs::default());
    subject.format(dev.clone(), &**clock).unwrap();
    let volume = subject.mount(dev.clone(), clock.clone()).unwrap();
    let new = |kind| NewNode { kind, perm: 0o640, umask: 0, rdev: DeviceNumber::default() };
    let file = |dir, name: &str| volume.mknod(ME, dir, name.as_bytes(), &new(FileKind::Regular)).unwrap().attr.ino;
    let put = |ino, at, n| volume.write(ino, at, &vec![0x5a; n], WriteFlags::empty()).unwrap();
    let dir = volume.mkdir(ME, volume.root(), b"dir", 0o755, 0).unwrap().attr.ino;
    let fill = |part: &str| {
        for n in 0..40 {
            put(file(dir, &format!("{part}{n:0>60}")), 0, 100 + n * 97);
        }
        volume.symlink(ME, dir, format!("{part}link").as_bytes(), TARGET).unwrap();
        let torn = file(volume.root(), &format!("{part}torn"));
        // Every second block, so that extents need a continuation.
        for n in 0..180 {
            put(torn, n * 2 * 4096, 10);
        }
        volume.setxattr(torn, b"user.kept", &[3; 300], XattrFlags::empty()).unwrap();
        volume.sync().unwrap();
    };
    fill("a");
    if !clean {
        // The following is after a checkpoint.
        volume.unmount().unwrap();
        drop(volume);
        let volume = subject.mount(dev.clone(), clock.clone()).unwrap();
        let dir = volume.lookup(volume.root(), b"dir").unwrap().attr.ino;
        for n in 0..40 {
            let made =
                volume.mknod(ME, dir, format!("b{n:0>60}").as_bytes(), &new(FileKind::Regular)).unwrap().attr.ino;
            volume.write(made, 0, &vec![1; n * 200], WriteFlags::empty()).unwrap();
            if n % 3 == 0 {
                volume.unlink(dir, format!("a{n:0>60}").as_bytes()).unwrap();
            }
            if n % 8 == 0 {
                volume.setattr(made, &SetAttr { size: Some(5), ..SetAttr::default() }).unwrap();
                volume.sync().unwrap();
            }
        }
        volume.sync().unwrap();
        return (Arc::new(dev.fork()), contents(&volume));
    }
    volume.unmount().unwrap();
    (dev, contents(&volume))
}

/// Target of the volume's symbolic link. Such a block has no checksum either, and its place is not listed.
const TARGET: &[u8] = b"../dir";

/// Content blocks of files, which have no checksum.
fn contents(volume: &Volume) -> BTreeSet<u64> {
    let mut out = BTreeSet::new();
    let mut waiting = vec![volume.root()];
    while let Some(dir) = waiting.pop() {
        volume
            .readdir(dir, 0, &mut |e| {
                if ![&b"."[..], b"..", b".ifile"].contains(&e.name) {
                    waiting.push(e.ino);
                }
                Flow::Continue
            })
            .unwrap_or(());
        if let Ok(runs) = volume.extents(dir, 0, usize::MAX) {
            out.extend(runs.iter().flat_map(|run| run.addr..run.addr + run.blocks));
        }
    }
    out
}

fn flips(clean: bool) {
    let clock = Arc::new(VirtualClock::default());
    let (dev, contents) = volume(clean, &clock);
    let right = all(dev.clone(), clock.clone()).unwrap();
    assert!(right.len() > 40, "{} paths", right.len());
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let (mut rng, mut noticed, mut harmless, mut silent) = (Rng::new(5), 0, 0, Vec::new());
    let mut block = [0; BLOCK];
    for at in (0..dev.blocks()).filter(|at| !contents.contains(at)) {
        dev.read(Lba(at), &mut block, Tag::default()).unwrap();
        if block.iter().all(|b| *b == 0) || block.starts_with(TARGET) {
            continue;
        }
        let tries: Vec<usize> = if deep { (0..BLOCK).collect() } else { (0..40).map(|_| rng.index(BLOCK)).collect() };
        for byte in tries.into_iter().chain(0..24) {
            let bit = 1 << rng.index(8);
            block[byte] ^= bit;
            dev.write(Lba(at), &block, Tag::default()).unwrap();
            let told = catch_unwind(AssertUnwindSafe(|| {
                let report = scherlfs_fsck::check(&*dev);
                (report.is_clean() && report.notes.is_empty(), all(dev.clone(), clock.clone()))
            }));
            block[byte] ^= bit;
            dev.write(Lba(at), &block, Tag::default()).unwrap();
            match told {
                Err(_) => panic!("block {at}, byte {byte}, bit {bit:#x}: panic"),
                Ok((true, Ok(seen))) if seen != right => silent.push((at, byte)),
                Ok((true, Ok(_))) => harmless += 1,
                Ok(_) => noticed += 1,
            }
        }
    }
    assert!(noticed > 500, "{noticed} noticed, {harmless} harmless");
    assert!(
        silent.is_empty(),
        "{} changed something and nobody noticed: {:?}",
        silent.len(),
        &silent[..silent.len().min(20)]
    );
}

#[test]
fn no_byte_of_a_clean_volumes_metadata_changes_unnoticed() {
    flips(true);
}

/// A flipped bit in the log after the checkpoint ends the log: the rest counts as not written, which no reader can
/// distinguish from a power cut. A mixture would be wrong; see `scherlfs_cut`. This test only looks for panics.
#[test]
fn no_flip_behind_the_checkpoint_makes_a_reader_panic() {
    let clock = Arc::new(VirtualClock::default());
    let (dev, contents) = volume(false, &clock);
    let mut rng = Rng::new(6);
    let mut block = [0; BLOCK];
    let (mut read, mut refused) = (0, 0);
    for at in (0..dev.blocks()).filter(|at| !contents.contains(at)) {
        dev.read(Lba(at), &mut block, Tag::default()).unwrap();
        if block.iter().all(|b| *b == 0) {
            continue;
        }
        for _ in 0..20 {
            let (byte, bit) = (rng.index(BLOCK), 1 << rng.index(8));
            block[byte] ^= bit;
            dev.write(Lba(at), &block, Tag::default()).unwrap();
            let told = catch_unwind(AssertUnwindSafe(|| {
                scherlfs_fsck::check(&*dev);
                all(dev.clone(), clock.clone()).is_ok()
            }));
            block[byte] ^= bit;
            dev.write(Lba(at), &block, Tag::default()).unwrap();
            match told {
                Err(_) => panic!("block {at}, byte {byte}, bit {bit:#x}: panic"),
                Ok(true) => read += 1,
                Ok(false) => refused += 1,
            }
        }
    }
    assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
}
