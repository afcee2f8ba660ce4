//! A mounted volume in memory, and its checks.
#![allow(dead_code)] // each test uses a part of it

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Memory, PowerCut, Time, VirtualClock};
use format::superblock::Features;
use joulefs_f2fs::delta::Study;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, RenameFlags, WriteFlags};

pub const ROOT: Caller = Caller { uid: 0, gid: 0 };

pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

/// An empty volume of `mib` MiB.
pub fn formatted(mib: u64, options: &Options) -> Memory {
    let dev = Memory::new(mib * 256);
    let options = Options { checkpoint_version: Some(7), uuid: Some([9; 16]), ..options.clone() };
    joulefs_f2fs::mkfs::format(&dev, &*clock(), &options).unwrap();
    dev
}

pub fn mount(dev: Arc<dyn BlockDevice>) -> Arc<Volume> {
    Volume::mount(dev, clock(), MountOptions::default()).unwrap()
}

/// Options with which files get deltas even where that costs more than it saves.
pub fn at_any_price() -> MountOptions {
    let delta_study = Study { at_any_price: true, ..Study::default() };
    MountOptions { delta_study, ..MountOptions::default() }
}

pub fn mount_copy(image: &Memory) -> Arc<Volume> {
    mount(Arc::new(image.fork()))
}

pub fn new_file(vol: &Volume, parent: Ino, name: &str) -> Ino {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    vol.mknod(ROOT, parent, name.as_bytes(), &new).unwrap().attr.ino
}

pub fn write(vol: &Volume, ino: Ino, offset: u64, data: &[u8]) {
    let n = vol.write(ino, offset, data, WriteFlags::empty()).unwrap();
    assert_eq!(n, data.len(), "written short");
}

pub fn read_all(vol: &Volume, ino: Ino) -> Vec<u8> {
    let size = vol.getattr(ino).unwrap().size as usize;
    let mut out = vec![0; size];
    assert_eq!(vol.read(ino, 0, &mut out).unwrap(), size);
    out
}

pub fn find(vol: &Volume, name: &str) -> Option<Ino> {
    match vol.lookup(vol.root(), name.as_bytes()) {
        Ok(e) => Some(e.attr.ino),
        Err(vfs::Error::NotFound) => None,
        Err(e) => panic!("lookup of {name}: {e}"),
    }
}

/// Bytes that depend on seed and position.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    device::Rng::new(seed).fill(&mut out);
    out
}

/// JouleFS's checker finds nothing.
pub fn assert_clean(dev: &dyn BlockDevice, when: &str) {
    let report = fsck::check(dev, &fsck::Options::default()).unwrap();
    let errors: Vec<_> = report.errors().take(10).collect();
    assert!(report.is_clean(), "{when}: {errors:#?}");
}

/// `fsck.f2fs` finds nothing.
pub fn assert_tools_clean(image: &Memory) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image.save(&path).unwrap();
    judges::oracle::tools::assert_fsck_clean(&path);
}

/// Mounts and checks what a cut left, calls `look`, and checks again after a clean unmount.
pub fn recovered<T>(image: &Memory, look: impl FnOnce(&Volume) -> T) -> T {
    assert_clean(image, "before recovery");
    let dev = Arc::new(image.fork());
    let vol = mount(dev.clone());
    assert_clean(&*dev, "after recovery");
    let out = look(&vol);
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    out
}

pub fn power_cut(image: &Memory) -> Arc<PowerCut> {
    Arc::new(PowerCut::new(image.fork()))
}

/// Size of a file created by [`fill`].
pub const CHUNK: usize = 1 << 20;

/// Fills a volume to at most `percent` with files of [`CHUNK`] bytes.
pub fn fill(vol: &Volume, percent: u64) -> Vec<Ino> {
    let mut files = Vec::new();
    loop {
        let s = vol.statfs().unwrap();
        if (s.blocks - s.blocks_free + 260) * 100 >= s.blocks * percent {
            return files;
        }
        let ino = new_file(vol, vol.root(), &format!("f{}", files.len()));
        write(vol, ino, 0, &pattern(files.len() as u64, CHUNK));
        files.push(ino);
    }
}

/// Overwrites random blocks of files from [`fill`], with an fsync every sixteenth time, and reads back everything
/// written.
pub fn overwrite(vol: &Volume, files: &[Ino], writes: u64, seed: u64) {
    let mut rng = device::Rng::new(seed);
    let mut last: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for n in 0..writes {
        let (file, block) = (rng.index(files.len()), rng.below(CHUNK as u64 / 4096));
        write(vol, files[file], block * 4096, &pattern(seed + n, 4096));
        last.insert((file, block), seed + n);
        if n % 16 == 0 {
            vol.fsync(files[file], n % 32 == 0).unwrap();
        }
    }
    for ((file, block), seed) in last {
        let mut found = vec![0; 4096];
        vol.read(files[file], block * 4096, &mut found).unwrap();
        assert!(found == pattern(seed, 4096), "file {file}, block {block}");
    }
}

/// An empty volume of `mib` MiB that may hold deltas.
pub fn with_deltas(mib: u64) -> Memory {
    formatted(mib, &Options { features: Options::modern().features | Features::DELTA, ..Options::default() })
}

/// Number of extents of a file.
pub fn pieces(vol: &Volume, ino: Ino) -> usize {
    vol.extents(ino, 0, usize::MAX).unwrap().len()
}

/// Like [`new_file`] in the root directory, unless it fails.
pub fn new_file_or(vol: &Volume, name: &str) -> vfs::Result<Ino> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    Ok(vol.mknod(ROOT, vol.root(), name.as_bytes(), &new)?.attr.ino)
}

/// Renames within the root directory.
pub fn rename(vol: &Volume, from: &str, to: &str) {
    let root = vol.root();
    vol.rename(ROOT, (root, from.as_bytes()), (root, to.as_bytes()), RenameFlags::empty()).unwrap();
}

pub fn mkdir(vol: &Volume, parent: Ino, name: &str) -> Ino {
    vol.mkdir(ROOT, parent, name.as_bytes(), 0o755, 0).unwrap().attr.ino
}
