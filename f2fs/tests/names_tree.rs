//! Names are created, linked, moved and removed; both checkers check the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Memory;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::zoo::{Size, in_process, plan};
use vfs::{DirEntry, Error, FileKind, FileSystem, Flow, Ino, RenameFlags, SetAttr, XattrFlags};

use crate::log_rig::mkdir;
use crate::log_rig::*;

fn volume(mib: u64) -> (Arc<Memory>, Arc<Volume>) {
    let dev = Arc::new(formatted(mib, &Options::default()));
    let vol = mount(dev.clone());
    (dev, vol)
}

fn rename(vol: &Volume, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> vfs::Result<()> {
    vol.rename(ROOT, (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), flags)
}

fn raw_names(vol: &Volume, dir: Ino) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    vol.readdir(dir, 0, &mut |e: DirEntry<'_>| {
        out.push(e.name.to_vec());
        Flow::Continue
    })
    .unwrap();
    out.retain(|n| n != b"." && n != b"..");
    out
}

fn names(vol: &Volume, dir: Ino) -> Vec<String> {
    raw_names(vol, dir).into_iter().map(|n| String::from_utf8(n).unwrap()).collect()
}

fn links(vol: &Volume, ino: Ino) -> u32 {
    vol.getattr(ino).unwrap().nlink
}

/// The whole contents of `vol`: paths, attributes, contents, extended attributes.
fn everything(vol: &Volume) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut todo = vec![(String::new(), vol.root())];
    while let Some((path, ino)) = todo.pop() {
        let a = vol.getattr(ino).unwrap();
        let mut xattrs: Vec<_> = vol.listxattr(ino).unwrap();
        xattrs.sort();
        let values: Vec<_> = xattrs.iter().map(|n| vol.getxattr(ino, n).unwrap()).collect();
        let contents = match a.kind {
            FileKind::Symlink => vol.readlink(ino).unwrap(),
            FileKind::Regular if a.size < 1 << 20 => read_all(vol, ino),
            _ => Vec::new(),
        };
        let sum = contents.iter().fold(0u64, |h, &b| h.wrapping_mul(31).wrapping_add(b.into()));
        if a.kind == FileKind::Directory {
            for name in raw_names(vol, ino) {
                let e = vol.lookup(ino, &name).unwrap();
                vol.forget(e.attr.ino, 1);
                todo.push((format!("{path}/{}", name.escape_ascii()), e.attr.ino));
            }
        }
        out.insert(path, format!("{a:?} {xattrs:?} {values:?} {sum}"));
    }
    out
}

fn ended(dev: &Memory, vol: &Volume) {
    vol.unmount().unwrap();
    assert_clean(dev, "after unmount");
    assert_tools_clean(dev);
}

#[test]
fn the_zoo_reads_the_same_after_a_remount() {
    for options in [Options::modern(), Options::default()] {
        let dev = Arc::new(formatted(512, &options));
        let vol = mount(dev.clone());
        in_process::perform(&*vol, &plan(3, Size::Small)).unwrap();
        let before = everything(&vol);
        ended(&dev, &vol);
        let again = mount(dev.clone());
        assert_eq!(everything(&again), before);
    }
}

#[test]
fn a_directory_gives_blocks_back_that_lost_their_last_entry_and_takes_new_ones() {
    let (dev, vol) = volume(128);
    let dir = mkdir(&vol, vol.root(), "d");
    let blocks = |vol: &Volume| vol.getattr(dir).unwrap().blocks512 / 8;
    let free = |vol: &Volume| vol.statfs().unwrap().blocks_free;
    let make = || (0..3000).for_each(|i| vol.forget(new_file(&vol, dir, &i.to_string()), 1));
    vol.sync().unwrap();
    let at_first = free(&vol);
    let mut full = 0;
    // Blocks that were never written, and blocks that were.
    for synced in [false, true] {
        make();
        full = blocks(&vol);
        assert!(full > 14, "{full} blocks");
        if synced {
            vol.sync().unwrap();
        }
        (0..3000).for_each(|i| vol.unlink(dir, i.to_string().as_bytes()).unwrap());
        assert_eq!(blocks(&vol), 1, "`.` and `..` keep theirs");
        assert_eq!(free(&vol), at_first - 1, "the directory left its inode");
        assert_eq!(names(&vol, dir), [""; 0]);
        vol.sync().unwrap();
        assert_clean(&*dev, "emptied");
    }
    make();
    assert_eq!(blocks(&vol), full);
    let mut listed = names(&vol, dir);
    listed.sort_by_key(|n| n.parse::<u32>().unwrap());
    assert!(listed.iter().map(|n| n.parse::<u32>().unwrap()).eq(0..3000));
    ended(&dev, &vol);
    let again = mount(dev.clone());
    assert_eq!((blocks(&again), names(&again, dir).len()), (full, 3000));
}

#[test]
fn every_name_of_a_large_directory_is_found_listed_once_and_removed() {
    let (dev, vol) = volume(128);
    let dir = mkdir(&vol, vol.root(), "large");
    let name = |i: u32| format!("{i}-{}", "n".repeat((i % 70) as usize));
    for i in 0..5000 {
        let ino = new_file(&vol, dir, &name(i));
        vol.forget(ino, 1);
    }
    let mut listed = names(&vol, dir);
    listed.sort();
    let mut all: Vec<_> = (0..5000).map(name).collect();
    all.sort();
    assert_eq!(listed, all);
    vol.sync().unwrap();
    assert_clean(&*dev, "full");
    for i in (0..5000).filter(|i| i % 7 != 0) {
        vol.unlink(dir, name(i).as_bytes()).unwrap();
    }
    assert!(matches!(vol.rmdir(vol.root(), b"large"), Err(Error::NotEmpty)));
    for i in (0..5000).step_by(7) {
        vol.unlink(dir, name(i).as_bytes()).unwrap();
    }
    vol.forget(dir, 1);
    vol.rmdir(vol.root(), b"large").unwrap();
    let left = vol.state();
    assert_eq!((left.inodes, left.nodes), (1, 1));
    ended(&dev, &vol);
}

#[test]
fn a_listing_misses_nothing_while_the_directory_leaves_its_inode() {
    let (_dev, vol) = volume(64);
    let dir = mkdir(&vol, vol.root(), "d");
    for i in 0..100 {
        new_file(&vol, dir, &format!("early{i:03}"));
    }
    for i in 0..30 {
        vol.unlink(dir, format!("early{i:03}").as_bytes()).unwrap();
    }
    let (mut seen, mut cookie) = (Vec::new(), 0);
    vol.readdir(dir, 0, &mut |e: DirEntry<'_>| {
        seen.push(String::from_utf8_lossy(e.name).into_owned());
        cookie = e.next;
        if seen.len() < 20 { Flow::Continue } else { Flow::Stop }
    })
    .unwrap();
    for i in 0..300 {
        new_file(&vol, dir, &format!("late{i:03}"));
    }
    vol.readdir(dir, cookie, &mut |e: DirEntry<'_>| {
        seen.push(String::from_utf8_lossy(e.name).into_owned());
        Flow::Continue
    })
    .unwrap();
    for i in 30..100 {
        let name = format!("early{i:03}");
        assert_eq!(seen.iter().filter(|s| **s == name).count(), 1, "{name}");
    }
}

#[test]
fn links_are_counted_and_the_last_one_frees() {
    let (dev, vol) = volume(64);
    let dir = mkdir(&vol, vol.root(), "d");
    assert_eq!(links(&vol, vol.root()), 3);
    let f = new_file(&vol, dir, "f");
    write(&vol, f, 0, &pattern(1, 100_000));
    vol.link(f, vol.root(), b"g").unwrap();
    assert_eq!(links(&vol, f), 2);
    assert!(matches!(vol.link(dir, vol.root(), b"h"), Err(Error::NotPermitted(_))));
    assert!(matches!(vol.link(f, vol.root(), b"g"), Err(Error::Exists)));
    vol.unlink(dir, b"f").unwrap();
    vol.unlink(vol.root(), b"g").unwrap();
    // Still held by the references from the calls above.
    assert_eq!(read_all(&vol, f), pattern(1, 100_000));
    assert_eq!(vol.state().inodes, 3);
    vol.forget(f, 2);
    assert_eq!(vol.state().inodes, 2);
    assert!(matches!(vol.getattr(f), Err(Error::NotFound)));
    vol.rmdir(vol.root(), b"d").unwrap();
    assert_eq!(links(&vol, vol.root()), 2);
    ended(&dev, &vol);
}

#[test]
fn a_nameless_file_can_be_given_a_name_or_goes() {
    let (dev, vol) = volume(64);
    let kept = vol.tmpfile(ROOT, vol.root(), 0o600, 0).unwrap().attr.ino;
    let lost = vol.tmpfile(ROOT, vol.root(), 0o600, 0).unwrap().attr.ino;
    write(&vol, kept, 0, b"kept");
    write(&vol, lost, 0, b"lost");
    vol.link(kept, vol.root(), b"kept").unwrap();
    vol.forget(lost, 1);
    assert!(matches!(vol.getattr(lost), Err(Error::NotFound)));
    ended(&dev, &vol);
    let vol = mount(dev);
    assert_eq!(read_all(&vol, find(&vol, "kept").unwrap()), b"kept");
}

#[test]
fn renames_move_replace_exchange_and_leave_whiteouts() {
    let (dev, vol) = volume(64);
    let root = vol.root();
    let (a, b) = (mkdir(&vol, root, "a"), mkdir(&vol, root, "b"));
    let f = new_file(&vol, a, "f");
    let none = RenameFlags::empty();
    rename(&vol, (a, "f"), (b, "g"), none).unwrap();
    assert_eq!(names(&vol, a), [""; 0]);
    assert_eq!(vol.lookup(b, b"g").unwrap().attr.ino, f);
    // A directory moves: its `..` and both parents' link counts.
    let sub = mkdir(&vol, a, "sub");
    rename(&vol, (a, "sub"), (b, "sub"), none).unwrap();
    assert_eq!((links(&vol, a), links(&vol, b)), (2, 3));
    assert_eq!(vol.lookup(sub, b"..").unwrap().attr.ino, b);
    // Into itself, over a non-empty directory, over the other kind.
    assert!(matches!(rename(&vol, (root, "b"), (sub, "x"), none), Err(Error::Invalid(_))));
    assert!(matches!(rename(&vol, (root, "a"), (root, "b"), none), Err(Error::NotEmpty)));
    assert!(matches!(rename(&vol, (b, "g"), (b, "sub"), none), Err(Error::IsDirectory)));
    assert!(matches!(rename(&vol, (b, "sub"), (b, "g"), none), Err(Error::NotDirectory)));
    assert!(matches!(rename(&vol, (b, "g"), (b, "sub"), RenameFlags::NO_REPLACE), Err(Error::Exists)));
    // Over an empty directory.
    rename(&vol, (b, "sub"), (root, "a"), none).unwrap();
    assert_eq!((links(&vol, root), links(&vol, b)), (4, 2));
    // A file and a directory exchange places.
    rename(&vol, (b, "g"), (root, "a"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(vol.lookup(root, b"a").unwrap().attr.ino, f);
    assert_eq!(vol.lookup(b, b"g").unwrap().attr.ino, sub);
    assert_eq!((links(&vol, root), links(&vol, b)), (3, 3));
    assert_eq!(vol.lookup(sub, b"..").unwrap().attr.ino, b);
    // A whiteout is left behind, and survives its own fsync and a remount.
    rename(&vol, (root, "a"), (b, "moved"), RenameFlags::WHITEOUT).unwrap();
    let white = vol.lookup(root, b"a").unwrap().attr;
    assert_eq!((white.kind, white.rdev), (FileKind::CharDevice, Default::default()));
    vol.fsync(white.ino, false).unwrap();
    ended(&dev, &vol);
    let vol = mount(dev);
    assert_eq!(vol.lookup(vol.root(), b"a").unwrap().attr.kind, FileKind::CharDevice);
}

#[test]
fn a_directory_is_not_replaced_by_what_it_holds() {
    let (_dev, vol) = volume(64);
    let root = vol.root();
    let a = mkdir(&vol, root, "a");
    let b = mkdir(&vol, a, "b");
    mkdir(&vol, b, "c");
    let none = RenameFlags::empty();
    assert!(matches!(rename(&vol, (a, "b"), (root, "a"), none), Err(Error::NotEmpty)));
    assert!(matches!(rename(&vol, (b, "c"), (root, "a"), none), Err(Error::NotEmpty)));
    assert!(matches!(rename(&vol, (b, "c"), (root, "a"), RenameFlags::EXCHANGE), Err(Error::Invalid(_))));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let (_dev, vol) = volume(64);
    let root = vol.root();
    for name in ["", ".", "..", "a/b", "a\0b"] {
        let made = vol.mkdir(ROOT, root, name.as_bytes(), 0o755, 0);
        assert!(matches!(made, Err(Error::Invalid(_))), "{name:?}");
    }
    assert!(matches!(vol.mkdir(ROOT, root, &[b'x'; 256], 0o755, 0), Err(Error::NameTooLong)));
    vol.mkdir(ROOT, root, &[b'x'; 255], 0o755, 0).unwrap();
    assert!(matches!(vol.rmdir(root, b"."), Err(Error::Invalid(_))));
    assert!(matches!(vol.unlink(root, b"none"), Err(Error::NotFound)));
    assert!(matches!(vol.unlink(root, &[b'x'; 255]), Err(Error::IsDirectory)));
    let f = new_file(&vol, root, "f");
    assert!(matches!(vol.rmdir(root, b"f"), Err(Error::NotDirectory)));
    assert!(matches!(vol.lookup(f, b"x"), Err(Error::NotDirectory)));
}

#[test]
fn attributes_go_to_a_node_and_come_back_into_the_inode() {
    let (dev, vol) = volume(64);
    let f = new_file(&vol, vol.root(), "f");
    let set = |name: &str, v: &[u8], flags| vol.setxattr(f, name.as_bytes(), v, flags);
    let nodes = vol.state().nodes;
    set("user.small", b"1", XattrFlags::empty()).unwrap();
    assert_eq!(vol.state().nodes, nodes);
    set("user.big", &[7; 3000], XattrFlags::CREATE).unwrap();
    assert_eq!(vol.state().nodes, nodes + 1);
    assert!(matches!(set("user.big", b"2", XattrFlags::CREATE), Err(Error::Exists)));
    assert!(matches!(set("user.none", b"2", XattrFlags::REPLACE), Err(Error::NoAttribute)));
    // In addition to the other, and alone (Linux 6.12: E2BIG for both).
    assert!(matches!(set("user.more", &[1; 2000], XattrFlags::empty()), Err(Error::AttributeTooLarge)));
    assert!(matches!(set("user.more", &[1; 5000], XattrFlags::empty()), Err(Error::AttributeTooLarge)));
    vol.sync().unwrap();
    assert_clean(&*dev, "with a node");
    assert_eq!(vol.getxattr(f, b"user.big").unwrap(), [7; 3000]);
    vol.removexattr(f, b"user.big").unwrap();
    assert!(matches!(vol.removexattr(f, b"user.big"), Err(Error::NoAttribute)));
    assert_eq!(vol.state().nodes, nodes);
    assert_eq!(vol.listxattr(f).unwrap(), [b"user.small".to_vec()]);
    ended(&dev, &vol);
}

/// An access list in the users' form.
fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for &(tag, perm) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(if tag == 2 { 1000 } else { u32::MAX }.to_le_bytes());
    }
    out
}

#[test]
fn an_access_list_and_the_mode_agree() {
    let (dev, vol) = volume(64);
    let access = b"system.posix_acl_access";
    let f = new_file(&vol, vol.root(), "f");
    let mode = || vol.getattr(f).unwrap().perm;
    vol.setxattr(f, access, &acl(&[(1, 6), (2, 7), (4, 4), (16, 5), (32, 1)]), XattrFlags::empty()).unwrap();
    assert_eq!(mode(), 0o651);
    vol.setattr(f, &SetAttr { perm: Some(0o770), ..SetAttr::default() }).unwrap();
    assert_eq!(vol.getxattr(f, access).unwrap(), acl(&[(1, 7), (2, 7), (4, 4), (16, 7), (32, 0)]));
    // A list equivalent to a mode is not stored.
    vol.setxattr(f, access, &acl(&[(1, 6), (4, 4), (32, 4)]), XattrFlags::empty()).unwrap();
    assert_eq!(mode(), 0o644);
    assert!(matches!(vol.getxattr(f, access), Err(Error::NoAttribute)));
    // A list that does not fit changes nothing.
    vol.setxattr(f, b"user.big", &[1; 4000], XattrFlags::empty()).unwrap();
    let entries: Vec<_> = [(1, 7)].into_iter().chain([(2, 7); 1]).chain([(4, 7), (16, 7), (32, 7)]).collect();
    let out = vol.setxattr(f, access, &acl(&entries), XattrFlags::empty());
    if out.is_err() {
        assert_eq!(mode(), 0o644);
    }
    let default = b"system.posix_acl_default";
    assert!(vol.setxattr(f, default, &acl(&[(1, 7), (4, 5), (32, 5)]), XattrFlags::empty()).is_err());
    ended(&dev, &vol);
}

#[test]
fn what_is_made_without_room_leaves_nothing_behind() {
    let (dev, vol) = volume(64);
    let root = vol.root();
    let mut last = 0;
    for i in 0.. {
        match vol.mkdir(ROOT, root, format!("{i:0200}").as_bytes(), 0o755, 0) {
            Ok(e) => vol.forget(e.attr.ino, 1),
            Err(Error::NoSpace) => {
                last = i;
                break;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(last > 1000);
    assert_eq!(links(&vol, root), last + 2);
    assert_eq!(names(&vol, root).len() as u32, last);
    assert_eq!(vol.state().inodes, last + 1);
    vol.sync().unwrap();
    assert_clean(&*dev, "full");
    vol.rmdir(root, format!("{:0200}", 0).as_bytes()).unwrap();
    vol.mkdir(ROOT, root, b"again", 0o755, 0).unwrap();
    ended(&dev, &vol);
}

#[test]
fn directory_blocks_in_memory_stay_few_whoever_used_them() {
    let dev = Arc::new(formatted(128, &Options::default()));
    let options = MountOptions { dir_cache: 16, ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
    let dirs: Vec<_> = (0..4).map(|d| mkdir(&vol, vol.root(), &format!("d{d}"))).collect();
    for &d in &dirs {
        for i in 0..1500 {
            let ino = new_file(&vol, d, &format!("file{i}"));
            vol.forget(ino, 1);
        }
    }
    vol.sync().unwrap();
    for i in (0..1500).rev() {
        for &d in &dirs {
            vol.unlink(d, format!("file{i}").as_bytes()).unwrap();
        }
    }
    for &d in &dirs {
        assert_eq!(names(&vol, d), [""; 0]);
    }
    ended(&dev, &vol);
}
