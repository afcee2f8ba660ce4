//! Images crafted to make a reader leave its buffer: every length and count that is read from a device and used as
//! one. A mount returns an error or continues, the check names the fault, the repair mends it.

use std::sync::Arc;

use device::{Memory, Time, VirtualClock};
use f2fs::{MountError, MountOptions};
use format::inode::{Division, Inline, RawInode};
use format::{BlockAddr, Ino, dentry};
use fsck::{FindingKind as K, XattrFault};
use judges::damage;
use trials::populated;
use vfs::{Caller, FileKind, FileSystem, Flow, NewNode, XattrFlags};

use crate::rig::Volume;

const ACL: &[u8] = b"system.posix_acl_access";

fn mount(dev: Memory, read_only: bool) -> Result<Arc<f2fs::Volume>, MountError> {
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    f2fs::Volume::mount(Arc::new(dev), clock, MountOptions { read_only, ..MountOptions::default() })
}

/// A JouleFS volume with inline directories, attributes and an access control list, all of it in the tables
/// themselves and not in their journals.
fn volume() -> Volume {
    let dev = Arc::new(populated::unmounted(&f2fs::mkfs::Options::modern()));
    let vol = f2fs::Volume::mount(dev.clone(), damage::clock(), MountOptions::default()).unwrap();
    let ino = vol.lookup(vol.root(), b"entry_inline").unwrap().attr.ino;
    // Version 2; owner, a named user, group, mask, others.
    let entries: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 4, 7), (4, 4, !0), (0x10, 4, !0), (0x20, 4, !0)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    vol.setxattr(ino, ACL, &list, XattrFlags::empty()).unwrap();
    vol.unmount().unwrap();
    drop(vol);
    let v = Volume::of(Arc::into_inner(dev).unwrap());
    // A repair leaves the journals empty.
    v.edit_cp(|cp| cp.valid_inode_count = (cp.valid_inode_count.get() + 1).into());
    v.repairs();
    Volume::of(v.dev)
}

/// Reads everything; returns the errors.
fn read_all(dev: &Memory) -> Vec<String> {
    let vol = match mount(dev.fork(), true) {
        Ok(vol) => vol,
        Err(e) => return vec![e.to_string()],
    };
    let mut errors = Vec::new();
    let mut dirs = vec![vol.root()];
    while let Some(dir) = dirs.pop() {
        let mut names = Vec::new();
        let mut keep = |e: vfs::DirEntry<'_>| {
            names.push(e.name.to_vec());
            if names.len() < 1000 { Flow::Continue } else { Flow::Stop }
        };
        errors.extend(vol.readdir(dir, 0, &mut keep).err().map(|e| e.to_string()));
        for name in names.iter().filter(|n| *n != b"." && *n != b"..") {
            let entry = match vol.lookup(dir, name) {
                Ok(entry) => entry,
                Err(e) => {
                    errors.push(e.to_string());
                    continue;
                }
            };
            let ino = entry.attr.ino;
            let mut bytes = vec![0; 9000];
            match entry.attr.kind {
                FileKind::Directory if dirs.len() < 1000 => dirs.push(ino),
                FileKind::Regular => errors.extend(vol.read(ino, 0, &mut bytes).err().map(|e| e.to_string())),
                FileKind::Symlink => errors.extend(vol.readlink(ino).err().map(|e| e.to_string())),
                _ => {}
            }
            match vol.listxattr(ino) {
                Ok(names) => {
                    for name in names {
                        errors.extend(vol.getxattr(ino, &name).err().map(|e| e.to_string()));
                    }
                }
                Err(e) => errors.push(e.to_string()),
            }
        }
    }
    errors
}

/// Inode and division of a named file.
fn inode_of(v: &Volume, name: &str) -> (Ino, Division) {
    let ino = v.ino(name);
    (ino, v.division(ino))
}

#[test]
fn the_volume_itself_is_read_without_an_error() {
    let v = volume();
    assert_eq!(read_all(&v.dev), Vec::<String>::new());
    let (dir, _) = inode_of(&v, "entry_dir_0");
    assert!(RawInode::of(&v.node(dir.nid())).inline().contains(Inline::DENTRY));
}

#[test]
fn the_length_of_a_name_in_an_inline_directory_leads_nowhere_else() {
    for len in [0xFFFFu16, 256, 255, 200, 0] {
        let v = volume();
        let (dir, division) = inode_of(&v, "entry_dir_0");
        let area = division.inline_area();
        let layout = dentry::Layout::inline(area.len());
        v.edit_node(dir.nid(), |b| {
            let bytes = &mut b[area];
            // The name after the dots is moved to the last slot of the area.
            let d = dentry::entries(&layout, bytes, 2).next().expect("a directory below");
            let (slot, name, hash, ino, kind) = (d.slot, d.name.to_vec(), d.hash, d.ino, d.kind);
            dentry::remove(&layout, bytes, slot);
            let last = layout.slots - dentry::slots_for(name.len());
            dentry::insert(&layout, bytes, last, &name, hash, ino, kind);
            let at = layout.entries_at() + 11 * last + 8;
            bytes[at..at + 2].copy_from_slice(&len.to_le_bytes());
        });
        read_all(&v.dev);
        v.finds_and_repairs(|k| matches!(k, K::DentryBad { .. }));
    }
}

#[test]
fn the_sizes_of_an_attribute_lead_nowhere_else() {
    for (name_len, value) in [(255u8, 0xFFFFu16), (255, 0), (1, 0xFFFF), (1, 190), (0, 0xFFFF)] {
        let v = volume();
        let (ino, division) = inode_of(&v, "entry_inline");
        v.edit_node(ino.nid(), |b| {
            let list = &mut b[division.xattr_area()];
            list[25] = name_len;
            list[26..28].copy_from_slice(&value.to_le_bytes());
        });
        let errors = read_all(&v.dev);
        assert!(!errors.is_empty(), "name of {name_len} bytes, value of {value}: read as if it were right");
        let overrun = |k: &K| matches!(k, K::XattrBad { fault: XattrFault::Overrun { .. }, .. });
        v.finds_and_repairs(overrun);
    }
}

#[test]
fn a_list_of_attributes_without_an_end_ends() {
    let v = volume();
    let (ino, division) = inode_of(&v, "entry_inline");
    // Entries of one letter up to the last byte of the area, and one that extends past it.
    v.edit_node(ino.nid(), |b| {
        let list = &mut b[division.xattr_area()];
        for entry in list[24..].chunks_mut(8) {
            entry.copy_from_slice(&[1, 1, 3, 0, b'n', 1, 2, 3][..entry.len()]);
        }
    });
    read_all(&v.dev);
    v.check();
    if !v.check().is_clean() {
        v.repairs();
    }
    let v = volume();
    v.edit_node(ino.nid(), |b| {
        let list = &mut b[division.xattr_area()];
        let last = list.len() - 4;
        list[24..last].fill(1);
        list[last..].copy_from_slice(&[1, 255, 255, 255]);
    });
    read_all(&v.dev);
    v.finds_and_repairs(|k| matches!(k, K::XattrBad { .. }));
}

#[test]
fn a_size_of_inline_attributes_outside_the_inode_is_refused_and_mended() {
    for words in [0xFFFFu16, 1000, 923, 915, 904, 5, 1, 0] {
        let v = volume();
        let (ino, _) = inode_of(&v, "entry_inline");
        v.edit_inode(ino, |raw| raw.extra_mut().unwrap().i_inline_xattr_size = words.into());
        read_all(&v.dev);
        v.finds_and_repairs(|k| matches!(k, K::InodeBad { .. } | K::InlineXattrSize { .. }));
        assert_eq!(read_all(&v.dev), Vec::<String>::new(), "{words} words, repaired");
    }
}

/// Access control lists are opaque to both checkers; their reader must check them.
#[test]
fn an_access_list_cut_inside_an_entry_is_an_error_to_its_reader_alone() {
    for cut in [1usize, 2, 4, 6, 8, 10] {
        let v = volume();
        let (ino, division) = inode_of(&v, "entry_inline");
        v.edit_node(ino.nid(), |b| {
            let list = &mut b[division.xattr_area()];
            let mut at = 24;
            while list[at] != 2 {
                at += (4 + usize::from(list[at + 1]) + usize::from(list[at + 2])).next_multiple_of(4);
            }
            let value = usize::from(list[at + 2]) - cut;
            list[at + 2] = value as u8;
            let end = at + 4 + usize::from(list[at + 1]) + value;
            list[end..].fill(0);
        });
        let errors = read_all(&v.dev);
        assert!(errors.len() <= 402, "{errors:?}");
        // A cut between entries leaves a list with possibly wrong rights but valid bytes.
        assert!(cut % 4 == 0 || !errors.is_empty(), "{cut} bytes less were read as a list");
        assert!(v.check().is_clean(), "{}", v.check());
    }
}

#[test]
fn a_count_of_orphans_past_its_block_is_an_error_that_is_mended() {
    for count in [u32::MAX, 1021, 1 << 30] {
        let dev = Arc::new(Memory::new(damage::BLOCKS));
        f2fs::mkfs::format(&*dev, &*damage::clock(), &f2fs::mkfs::Options::modern()).unwrap();
        let vol = f2fs::Volume::mount(dev.clone(), damage::clock(), MountOptions::default()).unwrap();
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
        let ino = vol.mknod(Caller::default(), vol.root(), b"orphan", &new).unwrap().attr.ino;
        vol.open(ino, false).unwrap();
        vol.unlink(vol.root(), b"orphan").unwrap();
        vol.sync().unwrap();
        let v = Volume::of(dev.fork());
        let listed: BlockAddr = v.pack.plus(1 + v.sb.cp_payload);
        assert_eq!(format::orphan::parse(&v.read(listed)).unwrap().len(), 1);
        v.edit(listed, |b| b[4088..4092].copy_from_slice(&count.to_le_bytes()));
        let errors = read_all(&v.dev);
        assert!(errors.iter().any(|e| e.contains("entry_count")), "{errors:?}");
        v.finds_and_repairs(|k| matches!(k, K::OrphanBlockBad { .. }));
        assert_eq!(v.check().counts.orphans, 1, "it is an orphan still");
    }
}
