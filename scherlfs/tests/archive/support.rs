//! Volumes in memory, and a complete dump of their state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::{BlockDevice, Counting, Counts, Memory, Rng, VirtualClock};
use scherlfs::{Beside, MountOptions, Volume, index_blocks};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, WriteFlags, XattrFlags};

pub const ME: Caller = Caller { uid: 0, gid: 0 };
/// Blocks of a volume.
pub const BLOCKS: u64 = 16 << 8;
/// Blocks of a stage.
pub const STAGE: u64 = 1024;

pub type Device = Arc<dyn BlockDevice>;

pub fn new_file() -> NewNode {
    NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() }
}

pub fn formatted() -> Memory {
    let dev = Arc::new(Memory::new(BLOCKS));
    scherlfs::make::format(dev.clone(), &VirtualClock::default(), &scherlfs::make::Options::default()).unwrap();
    dev.fork()
}

pub fn empty_index() -> Memory {
    Memory::new(index_blocks(BLOCKS).unwrap())
}

pub fn with(index: Device) -> MountOptions {
    MountOptions { beside: Beside { index: Some(index), ..Beside::default() }, ..MountOptions::default() }
}

pub fn read_only() -> MountOptions {
    MountOptions { read_only: true, ..MountOptions::default() }
}

pub fn mount(disk: Device, options: MountOptions) -> Volume {
    Volume::mount(disk, Arc::new(VirtualClock::default()), options).unwrap()
}

/// Ticks until no work is due soon.
pub fn settle(volume: &Volume) {
    while volume.tick().unwrap() < Duration::from_secs(1) {}
}

/// Creates a file with contents.
pub fn write(volume: &Volume, name: &str, bytes: &[u8]) -> vfs::Result<Ino> {
    let ino = volume.mknod(ME, volume.root(), name.as_bytes(), &new_file())?.attr.ino;
    volume.write(ino, 0, bytes, WriteFlags::empty())?;
    Ok(ino)
}

/// Files in directories, of every kind, with attributes and holes, so that some inodes have continuations.
pub fn populate(volume: &Volume, seed: u64) -> vfs::Result<()> {
    let mut rng = Rng::new(seed);
    let mut dirs = vec![volume.root()];
    for n in 0..60_u64 {
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let name = format!("{n}-{}", "x".repeat(rng.below(120) as usize));
        match n % 5 {
            0 => dirs.push(volume.mkdir(ME, dir, name.as_bytes(), 0o755, 0)?.attr.ino),
            1 => _ = volume.symlink(ME, dir, name.as_bytes(), b"../somewhere/else")?,
            _ => {
                let ino = volume.mknod(ME, dir, name.as_bytes(), &new_file())?.attr.ino;
                let pieces = if n == 2 { 700 } else { 1 + rng.below(3) };
                for at in 0..pieces {
                    volume.write(ino, at * 2 * 4096, &vec![n as u8; 1000], WriteFlags::empty())?;
                }
                volume.setxattr(ino, b"user.n", name.as_bytes(), XattrFlags::empty())?;
            }
        }
    }
    Ok(())
}

/// The results of `ls -lR`, `find`, `stat`, `readlink`, `getfattr` and `df`.
pub fn all_of(volume: &Volume) -> BTreeMap<String, String> {
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

/// The state of a volume from a read-only mount without an index.
pub fn without_index(disk: &Device) -> BTreeMap<String, String> {
    all_of(&mount(disk.clone(), read_only()))
}

pub fn counting(disk: &Device) -> Arc<Counting<Device>> {
    Arc::new(Counting::new(disk.clone()))
}

pub fn requests(disk: &Counting<Device>) -> Counts {
    disk.snapshot().total()
}
