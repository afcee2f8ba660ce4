//! Each read that an operation needs fails once: the volume stays valid, and a change of names is either done or not.
//! Operations on contents may be partly done: they return an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Fault, Faulty, Memory, Op};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, FileKind, FileSystem, Flow, Ino, RenameFlags, SetAttr, WriteFlags, XattrFlags};

use crate::log_rig::*;

/// Directories in blocks, none of them in memory.
fn options() -> MountOptions {
    MountOptions { inline: false, ..MountOptions::default() }
}

fn mount_plain(dev: Arc<dyn device::BlockDevice>) -> Arc<Volume> {
    Volume::mount(dev, clock(), options()).unwrap()
}

fn dir(vol: &Volume, parent: Ino, name: &str) -> Ino {
    vol.mkdir(ROOT, parent, name.as_bytes(), 0o755, 0).unwrap().attr.ino
}

/// `a` and `b` with many files, directories in `a`, a file with holes and nodes of every level.
fn image() -> Memory {
    let dev = Arc::new(formatted(64, &Options::modern()));
    let vol = mount_plain(dev.clone());
    let (a, b) = (dir(&vol, vol.root(), "a"), dir(&vol, vol.root(), "b"));
    for d in [a, b] {
        for i in 0..400 {
            let f = new_file(&vol, d, &format!("file-{i:03}-with-a-name-of-some-length"));
            if i % 40 == 0 {
                write(&vol, f, 0, &pattern(i, 9000));
            }
        }
    }
    let moving = dir(&vol, a, "moving");
    new_file(&vol, moving, "inside");
    dir(&vol, a, "empty");
    dir(&vol, b, "empty");
    let tree = new_file(&vol, a, "tree");
    for at in [0, 900, 2000, 3000, 100_000, 2_200_000] {
        write(&vol, tree, at * 4096, &pattern(at, 6000));
    }
    let small = new_file(&vol, b, "small");
    (0..12).for_each(|i| write(&vol, small, i * 8192, &pattern(i, 4096)));
    vol.setxattr(small, b"user.large", &[1; 1500], XattrFlags::empty()).unwrap();
    vol.link(small, a, b"second").unwrap();
    vol.unmount().unwrap();
    dev.fork()
}

/// Every path, with its attributes and contents.
fn tree(vol: &Volume) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut waiting = vec![(String::new(), vol.root())];
    while let Some((path, ino)) = waiting.pop() {
        let mut names = Vec::new();
        vol.readdir(ino, 0, &mut |e| {
            names.push(String::from_utf8(e.name.to_vec()).unwrap());
            Flow::Continue
        })
        .unwrap();
        for name in names.iter().filter(|n| *n != "." && *n != "..") {
            let e = vol.lookup(ino, name.as_bytes()).unwrap().attr;
            let path = format!("{path}/{name}");
            let mut what = format!("{} {:?} {} links, {} blocks", e.ino.0, e.kind, e.nlink, e.blocks512);
            if e.kind == FileKind::Directory {
                waiting.push((path.clone(), e.ino));
            } else {
                let mut at = 0;
                while let Ok(data) = vol.seek(e.ino, at, vfs::Seek::Data) {
                    let mut bytes = vec![0; 4096];
                    let n = vol.read(e.ino, data, &mut bytes).unwrap();
                    what += &format!(" {data}:{:?}", &bytes[..n.min(8)]);
                    at = data + 4096;
                }
                let names = vol.listxattr(e.ino).unwrap();
                what += &format!(" of {} {names:?}", e.size);
            }
            vol.forget(e.ino, 1);
            out.insert(path, what);
        }
    }
    out
}

fn at(vol: &Volume, path: &str) -> vfs::Result<Ino> {
    path.split('/').try_fold(vol.root(), |d, name| vol.lookup(d, name.as_bytes()).map(|e| e.attr.ino))
}

fn rename(vol: &Volume, from: (&str, &str), to: (&str, &str), flags: RenameFlags) -> vfs::Result<()> {
    let (from, to) = ((at(vol, from.0)?, from.1.as_bytes()), (at(vol, to.0)?, to.1.as_bytes()));
    vol.rename(ROOT, from, to, flags)
}

type Change = fn(&Volume) -> vfs::Result<()>;

const OPERATIONS: &[(&str, Change)] = &[
    ("move a directory", |v| rename(v, ("a", "moving"), ("b", "moved"), RenameFlags::empty())),
    ("move a directory over another", |v| rename(v, ("a", "empty"), ("b", "empty"), RenameFlags::empty())),
    ("exchange directories", |v| rename(v, ("a", "moving"), ("b", "empty"), RenameFlags::EXCHANGE)),
    ("exchange a directory and a file", |v| rename(v, ("a", "moving"), ("b", "small"), RenameFlags::EXCHANGE)),
    ("move a file over another", |v| rename(v, ("b", "small"), ("a", "tree"), RenameFlags::empty())),
    ("leave a whiteout", |v| rename(v, ("b", "small"), ("a", "small"), RenameFlags::WHITEOUT)),
    ("rename in place", |v| rename(v, ("a", "tree"), ("a", "renamed"), RenameFlags::empty())),
    ("remove a file", |v| v.unlink(at(v, "a")?, b"tree")),
    ("remove a name", |v| v.unlink(at(v, "a")?, b"second")),
    ("remove a directory", |v| v.rmdir(at(v, "a")?, b"empty")),
    ("link", |v| v.link(at(v, "a/tree")?, at(v, "b")?, b"linked").map(drop)),
    ("make a directory", |v| v.mkdir(ROOT, at(v, "b")?, b"new", 0o755, 0).map(drop)),
    ("make a link", |v| v.symlink(ROOT, at(v, "b")?, b"new", b"target").map(drop)),
    ("truncate", |v| {
        let set = SetAttr { size: Some(901 * 4096 + 5), ..SetAttr::default() };
        v.setattr(at(v, "a/tree")?, &set).map(drop)
    }),
    ("punch", |v| v.fallocate(at(v, "a/tree")?, Allocate::PunchHole, 5000, 3000 * 4096)),
    ("collapse", |v| v.fallocate(at(v, "b/small")?, Allocate::Collapse, 4096, 8192)),
    ("insert", |v| v.fallocate(at(v, "b/small")?, Allocate::Insert, 4096, 8192)),
    ("write", |v| v.write(at(v, "b/small")?, 100, &[7; 20_000], WriteFlags::empty()).map(drop)),
    ("set an attribute", |v| v.setxattr(at(v, "b/small")?, b"user.other", &[1; 900], XattrFlags::empty())),
    ("remove an attribute", |v| v.removexattr(at(v, "b/small")?, b"user.large")),
];

/// Operations that change contents block by block.
const IN_PARTS: &[&str] = &["truncate", "punch", "collapse", "insert", "write"];

#[test]
fn an_operation_that_cannot_read_is_not_half_done() {
    let image = image();
    let mut failures = Vec::new();
    for (name, change) in OPERATIONS {
        let whole = mount_plain(Arc::new(image.fork()));
        let before = tree(&whole);
        change(&whole).unwrap();
        let after = tree(&whole);
        for n in 1.. {
            let dev = Arc::new(Faulty::new(image.fork()));
            let vol = mount_plain(dev.clone());
            let read = dev.requests(Op::Read) + n;
            dev.add(Fault::Nth { op: Op::Read, requests: read..read + 1 });
            let out = change(&vol);
            let failed = dev.requests(Op::Read) >= read;
            dev.heal();
            let now = tree(&vol);
            let in_parts = IN_PARTS.contains(name) && out.is_err();
            if now != before && now != after && !in_parts {
                let odd: Vec<_> = now.iter().filter(|(k, v)| before.get(*k) != Some(v)).take(3).collect();
                failures.push(format!("{name}, read {n}: {out:?}, half done: {odd:?}"));
            }
            if let Err(e) = vol.unmount() {
                failures.push(format!("{name}, read {n}: {out:?}, unmount: {e}"));
            }
            let report = fsck::check(dev.inner(), &fsck::Options::default()).unwrap();
            if !report.is_clean() {
                let found: Vec<_> = report.errors().take(3).collect();
                failures.push(format!("{name}, read {n}: {out:?}, {found:?}"));
            }
            if !failed {
                println!("{name}: {} reads", n - 1);
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// The search for free numbers meets an unreadable NAT block: one creation fails, the next ones get numbers from other
/// blocks.
#[test]
fn one_unreadable_block_of_the_nat_does_not_end_all_creation() {
    let image = formatted(64, &Options::modern());
    let mut first = [0; 4096];
    device::BlockDevice::read(&image, device::Lba(0), &mut first, device::Tag::default()).unwrap();
    let sb = format::superblock::SuperBlock::check(&first).unwrap();
    let dev = Arc::new(Faulty::new(image));
    // Both copies of the second block.
    for copy in [false, true] {
        let at = u64::from(sb.nat_block(1, copy).0);
        dev.add(Fault::Place { op: Op::Read, blocks: at..at + 1 });
    }
    let vol = mount_plain(dev);
    let new = vfs::NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
    let made = |i: u32| vol.mknod(ROOT, vol.root(), format!("{i}").as_bytes(), &new);
    let failed: Vec<u32> = (0..1000).filter(|i| made(*i).is_err()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
}
