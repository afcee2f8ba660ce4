//! A volume with an index answers names and attributes without a request to its disk, and never answers from the index
//! what the disk would not have answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Counting, Counts, Lba, Memory, Rng, Tag, VirtualClock};
use joulefs_scherlfs::{Beside, MountOptions, Volume, index_blocks};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, WriteFlags, XattrFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const BLOCKS: u64 = 16 << 8;

fn new_file() -> NewNode {
    NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() }
}

fn made() -> Memory {
    let dev = Arc::new(Memory::new(BLOCKS));
    joulefs_scherlfs::make::format(dev.clone(), &VirtualClock::default(), &joulefs_scherlfs::make::Options::default()).unwrap();
    dev.fork()
}

fn empty_index() -> Memory {
    Memory::new(index_blocks(BLOCKS).unwrap())
}

fn with(index: Arc<dyn BlockDevice>) -> MountOptions {
    MountOptions { beside: Beside { index: Some(index) }, ..MountOptions::default() }
}

fn mount(disk: Arc<dyn BlockDevice>, options: MountOptions) -> Volume {
    Volume::mount(disk, Arc::new(VirtualClock::default()), options).unwrap()
}

/// Ticks until nothing is left to do soon.
fn settle(volume: &Volume) {
    while volume.tick().unwrap() < std::time::Duration::from_secs(1) {}
}

/// Files in directories, of every kind, with names and attributes and holes, so that inodes have continuations, too.
fn populate(volume: &Volume, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut dirs = vec![volume.root()];
    for n in 0..60_u64 {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let name = format!("{n}-{}", "x".repeat(rng.below(120) as usize));
        match n % 5 {
            0 => dirs.push(volume.mkdir(ME, dir, name.as_bytes(), 0o755, 0).unwrap().attr.ino),
            1 => _ = volume.symlink(ME, dir, name.as_bytes(), b"../somewhere/else").unwrap(),
            _ => {
                let ino = volume.mknod(ME, dir, name.as_bytes(), &new_file()).unwrap().attr.ino;
                let pieces = if n == 2 { 700 } else { 1 + rng.below(3) };
                for at in 0..pieces {
                    volume.write(ino, at * 2 * 4096, &vec![n as u8; 1000], WriteFlags::empty()).unwrap();
                }
                volume.setxattr(ino, b"user.n", name.as_bytes(), XattrFlags::empty()).unwrap();
            }
        }
    }
}

/// All that `ls -lR`, `find`, `stat`, `readlink`, `getfattr` and `df` ask.
fn all_of(volume: &Volume) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut todo = vec![(String::new(), volume.root())];
    while let Some((path, ino)) = todo.pop() {
        let mut names = Vec::new();
        let each = &mut |e: vfs::DirEntry<'_>| {
            names.push((String::from_utf8_lossy(e.name).into_owned(), e.kind));
            Flow::Continue
        };
        volume.readdir(ino, 0, each).unwrap();
        for (name, kind) in names.into_iter().filter(|(n, _)| n != "." && n != "..") {
            let entry = volume.lookup(ino, name.as_bytes()).unwrap();
            let (at, path) = (entry.attr.ino, format!("{path}/{name}"));
            let attributes: Vec<_> = volume.listxattr(at).unwrap().iter().map(|n| volume.getxattr(at, n)).collect();
            let target = (kind == FileKind::Symlink).then(|| volume.readlink(at).unwrap());
            out.insert(path.clone(), format!("{:?} {attributes:?} {target:?}", volume.getattr(at).unwrap()));
            volume.forget(at, 1);
            if kind == FileKind::Directory {
                todo.push((path, at));
            }
        }
    }
    out.insert("df".into(), format!("{:?}", volume.statfs().unwrap()));
    out
}

fn requests(disk: &Counting<Arc<dyn BlockDevice>>) -> Counts {
    disk.snapshot().total()
}

fn counting(disk: &Arc<dyn BlockDevice>) -> Arc<Counting<Arc<dyn BlockDevice>>> {
    Arc::new(Counting::new(disk.clone()))
}

#[test]
fn names_and_attributes_cost_no_request_of_the_disk_after_a_remount() {
    let (disk, index): (Arc<dyn BlockDevice>, Arc<dyn BlockDevice>) = (Arc::new(made()), Arc::new(empty_index()));
    let volume = mount(disk.clone(), with(index.clone()));
    populate(&volume, 1);
    volume.unmount().unwrap();
    let expected = all_of(&mount(disk.clone(), MountOptions { read_only: true, ..MountOptions::default() }));
    assert!(expected.len() > 60);

    // Without the index the same calls cost requests: the test can fail.
    let counted = counting(&disk);
    let volume = mount(counted.clone(), MountOptions::default());
    let before = requests(&counted);
    all_of(&volume);
    assert!((requests(&counted) - before).reads > 60);
    volume.unmount().unwrap();

    let counted = counting(&disk);
    let volume = mount(counted.clone(), with(index.clone()));
    let after_mount = requests(&counted);
    settle(&volume);
    let before = requests(&counted);
    assert_eq!(all_of(&volume), expected);
    assert_eq!(requests(&counted) - before, Counts::default());
    // Of the mount itself the disk sees the two superblocks.
    assert_eq!((after_mount.reads, after_mount.writes), (2, 0));
    volume.unmount().unwrap();
}

#[test]
fn an_index_is_filled_for_a_volume_that_lived_without_it() {
    let disk: Arc<dyn BlockDevice> = Arc::new(made());
    let volume = mount(disk.clone(), MountOptions::default());
    populate(&volume, 2);
    volume.unmount().unwrap();
    let index: Arc<dyn BlockDevice> = Arc::new(empty_index());
    for again in [false, true] {
        let counted = counting(&disk);
        let volume = mount(counted.clone(), with(index.clone()));
        settle(&volume);
        let before = requests(&counted);
        all_of(&volume);
        assert_eq!(requests(&counted) - before, Counts::default(), "again: {again}");
        volume.unmount().unwrap();
    }
}
