//! Volumes to ruin, and a comparison of recovered files with those of the intact volume.
#![allow(dead_code)] // each test uses a part

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag, Time, VirtualClock};
use f2fs::{MountOptions, Volume, mkfs};
use format::inode::{self, RawInode};
use format::superblock::SuperBlock;
use format::{BLOCK, Block, Ino, node};
use joulefs_rescue::{Options, Progress, Rescue};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Flow, NewNode, WriteFlags};

pub const ROOT: Caller = Caller { uid: 0, gid: 0 };

pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

pub fn mount(dev: Arc<Memory>) -> Arc<Volume> {
    // Freed blocks keep their contents, as on a device without discard.
    Volume::mount(dev, clock(), MountOptions { discard: false, ..MountOptions::default() }).unwrap()
}

pub fn mount_to_read(dev: Arc<Memory>) -> Arc<Volume> {
    Volume::mount(dev, clock(), MountOptions { read_only: true, ..MountOptions::default() }).unwrap()
}

/// An unmounted volume filled by `fill`.
pub fn volume(mib: u64, options: &mkfs::Options, fill: impl FnOnce(&Volume)) -> Memory {
    let dev = Arc::new(Memory::new(mib * 256));
    mkfs::format(&*dev, &*clock(), options).unwrap();
    change(dev, fill)
}

/// Mounts a volume, changes it, and unmounts it.
pub fn change(dev: Arc<Memory>, change: impl FnOnce(&Volume)) -> Memory {
    let vol = mount(dev.clone());
    change(&vol);
    vol.unmount().unwrap();
    drop(vol);
    Arc::into_inner(dev).unwrap()
}

pub fn file(vol: &Volume, dir: vfs::Ino, name: &str, bytes: &[u8]) -> vfs::Ino {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    let ino = vol.mknod(ROOT, dir, name.as_bytes(), &new).unwrap().attr.ino;
    vol.write(ino, 0, bytes, WriteFlags::empty()).unwrap();
    ino
}

pub fn read(dev: &Memory, at: u64) -> Block {
    let mut block = [0; BLOCK];
    dev.read(Lba(at), &mut block, Tag::default()).unwrap();
    block
}

pub fn write(dev: &Memory, at: u64, block: &Block) {
    dev.write(Lba(at), block, Tag::default()).unwrap();
}

pub fn superblock(dev: &Memory) -> SuperBlock {
    SuperBlock::check(&read(dev, 0)).unwrap()
}

/// Zeroes everything before the main area.
pub fn wipe(dev: &Memory) {
    for at in 0..u64::from(superblock(dev).main.0) {
        write(dev, at, &[0; BLOCK]);
    }
}

/// Changes every block of an inode, old versions included, and updates its checksum.
pub fn each_version(dev: &Memory, ino: Ino, change: impl Fn(&mut Block)) {
    let sb = superblock(dev);
    let mut hit = 0;
    for at in u64::from(sb.main.0)..dev.blocks() {
        let mut block = read(dev, at);
        let f = node::footer(&block);
        if f.ino == ino && f.nid == ino.nid() {
            change(&mut block);
            if inode::has_checksum(sb.features, RawInode::of(&block)) {
                inode::seal(sb.features, inode::checksum_seed(&sb.uuid), &mut block);
            }
            write(dev, at, &block);
            hit += 1;
        }
    }
    assert!(hit > 0, "no block is inode {ino}");
}

pub fn search<'d>(dev: &'d dyn BlockDevice, options: &Options) -> Rescue<'d> {
    Rescue::search(dev, options, &mut Progress::new(&mut |_| true)).unwrap()
}

/// A file for comparison: kind and mode, owner, device number, target or contents.
pub type Listed = BTreeMap<String, (u16, (u32, u32), (u32, u32), Vec<u8>)>;

/// The files of a mounted volume.
pub fn held(vol: &Volume) -> Listed {
    fn below(vol: &Volume, dir: vfs::Ino, path: &str, out: &mut Listed) {
        let mut names = Vec::new();
        vol.readdir(dir, 0, &mut |e| {
            names.push(e.name.to_vec());
            Flow::Continue
        })
        .unwrap();
        for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
            let a = vol.lookup(dir, &name).unwrap().attr;
            let path = format!("{path}/{}", name.escape_ascii());
            let bytes = match a.kind {
                FileKind::Directory => {
                    below(vol, a.ino, &path, out);
                    Vec::new()
                }
                FileKind::Symlink => vol.readlink(a.ino).unwrap(),
                FileKind::Regular => {
                    let mut bytes = vec![0; a.size as usize];
                    assert_eq!(vol.read(a.ino, 0, &mut bytes).unwrap(), bytes.len());
                    bytes
                }
                _ => Vec::new(),
            };
            let mode = a.kind.mode_bits() | a.perm;
            out.insert(path, (mode, (a.uid, a.gid), (a.rdev.major, a.rdev.minor), bytes));
            vol.forget(a.ino, 1);
        }
    }
    let mut out = Listed::new();
    below(vol, vol.root(), "", &mut out);
    out
}

/// The recovered files in the tree; every file must be proved.
pub fn found(rescue: &Rescue<'_>) -> Listed {
    fn below(rescue: &Rescue<'_>, dir: Ino, path: &str, out: &mut Listed) {
        let names = rescue.names(dir).unwrap();
        assert!(names.gaps.is_empty(), "{path}: {:?}", names.gaps);
        for entry in names.entries {
            let path = format!("{path}/{}", entry.name.escape_ascii());
            let mut file = rescue.file(entry.ino).unwrap().unwrap();
            let verdict = rescue.verdict(&file).unwrap();
            assert!(verdict.is_proved(), "{path}: {verdict:?}");
            let bytes = match file.kind() {
                2 => {
                    below(rescue, entry.ino, &path, out);
                    Vec::new()
                }
                7 => file.target().unwrap(),
                1 => {
                    let size = file.raw().i_size.get() as usize;
                    let mut bytes = Vec::new();
                    let mut block = [0; BLOCK];
                    for at in 0..size.div_ceil(BLOCK) {
                        file.read_block(at as u64, &mut block).unwrap();
                        bytes.extend_from_slice(&block);
                    }
                    bytes.truncate(size);
                    bytes
                }
                _ => Vec::new(),
            };
            let rdev = if matches!(file.kind(), 3 | 4) { file.device_number() } else { (0, 0) };
            let raw = file.raw();
            let owner = (raw.i_uid.get(), raw.i_gid.get());
            out.insert(path, (raw.i_mode.get(), owner, rdev, bytes));
        }
    }
    let mut out = Listed::new();
    below(rescue, rescue.root().expect("the root directory"), "", &mut out);
    out
}
