//! One field is damaged: the repair loses no other file, and not the file itself if its contents can be determined.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Loss, Memory, PowerCut, Rng, Time, VirtualClock};
use f2fs::MountOptions;
use format::inode::{Inline, RawInode};
use format::node;
use format::{BlockAddr, dentry};
use vfs::{FileKind, FileSystem, Flow};

use crate::rig::{Volume, volume};

/// Every path with its type and contents.
fn tree(dev: &Memory) -> BTreeMap<String, (FileKind, Vec<u8>)> {
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let vol = f2fs::Volume::mount(Arc::new(dev.fork()), clock, options).expect("a sound volume");
    let mut out = BTreeMap::new();
    let mut dirs = vec![(vol.root(), String::new())];
    while let Some((dir, path)) = dirs.pop() {
        let mut names = Vec::new();
        let mut keep = |e: vfs::DirEntry<'_>| {
            names.push(e.name.to_vec());
            Flow::Continue
        };
        vol.readdir(dir, 0, &mut keep).expect("readable");
        for name in names.iter().filter(|n| *n != b"." && *n != b"..") {
            let attr = vol.lookup(dir, name).expect("there").attr;
            let path = format!("{path}/{}", name.escape_ascii());
            let bytes = match attr.kind {
                FileKind::Regular => {
                    let mut bytes = vec![0; attr.size as usize];
                    vol.read(attr.ino, 0, &mut bytes).expect("readable");
                    bytes
                }
                FileKind::Symlink => vol.readlink(attr.ino).expect("readable"),
                _ => Vec::new(),
            };
            if attr.kind == FileKind::Directory {
                dirs.push((attr.ino, path.clone()));
            }
            out.insert(path, (attr.kind, bytes));
            vol.forget(attr.ino, 1);
        }
    }
    out
}

fn flag(v: &Volume, name: &str, change: fn(u8) -> u8) {
    v.edit_inode(v.ino(name), |r| r.i_inline = change(r.i_inline));
}

fn lose_block(v: &Volume, name: &str, slot: u32, to: BlockAddr) {
    let ino = v.ino(name);
    let division = v.division(ino);
    v.edit_inode(ino, |r| r.set_addr(division, slot, to));
}

fn mode(v: &Volume, name: &str, mode: u16) {
    v.edit_inode(v.ino(name), |r| r.i_mode = mode.into());
}

fn name_len(v: &Volume, dir: &str, name: &str, len: u16) {
    let (at, slot, _) = v.entry(v.ino(dir), name);
    v.edit(at, |b| b[30 + 11 * slot + 8..][..2].copy_from_slice(&len.to_le_bytes()));
}

type Damage = fn(&Volume);

const CASES: &[(&str, Damage)] = &[
    ("a file of blocks is marked as inline data", |v| flag(v, "mid", |f| f | Inline::DATA.bits())),
    ("a file of many nodes is marked as inline data", |v| flag(v, "big", |f| f | Inline::DATA.bits())),
    ("every flag of a file is set", |v| flag(v, "big", |f| f | 0x17)),
    ("inline data is not marked as such", |v| flag(v, "tiny", |f| f & !Inline::DATA.bits())),
    ("a directory of blocks is marked as inline", |v| flag(v, "many", |f| f | Inline::DENTRY.bits())),
    ("the root is marked as inline", |v| {
        v.edit_inode(v.sb.root, |r| r.i_inline |= Inline::DENTRY.bits());
    }),
    ("a block's address is lost", |v| lose_block(v, "mid", 3, BlockAddr::NULL)),
    ("a block's address is the mark of a cluster", |v| lose_block(v, "mid", 3, BlockAddr::COMPRESS)),
    ("a block's address is that of a reserved one", |v| lose_block(v, "mid", 3, BlockAddr::NEW)),
    ("a block's address is its neighbour's", |v| {
        let next = v.addr(v.ino("mid"), 4);
        lose_block(v, "mid", 3, next);
    }),
    ("the address of a directory's first block is lost", |v| lose_block(v, "many", 0, BlockAddr::NULL)),
    ("the address of a directory's second block is lost", |v| {
        let (slot, _) = v.dir_blocks(v.ino("many"))[1];
        lose_block(v, "many", slot as u32, BlockAddr::NULL);
    }),
    ("a hole of a directory leads to its first block", |v| {
        let first = v.addr(v.ino("many"), 0);
        lose_block(v, "many", 200, first);
    }),
    ("an address in a direct node is lost", |v| {
        let nid = RawInode::of(&v.node(v.ino("big").nid())).nid(1);
        v.edit_node(nid, |b| node::set_word(b, 7, 0));
    }),
    ("a file's second node is taken for its first", |v| {
        v.edit_inode(v.ino("big"), |r| r.i_nid[0] = r.i_nid[1]);
    }),
    ("the NAT has lost an inode of two names", |v| {
        v.edit_nat(v.ino("twice").nid(), |e| e.addr = BlockAddr::NULL);
    }),
    ("a name is one byte longer", |v| name_len(v, "many", "file_number_7", 14)),
    ("a name is shorter", |v| name_len(v, "many", "file_number_7", 3)),
    ("a name covers the next", |v| name_len(v, "many", "file_number_7", 20)),
    ("a name is longer than any", |v| name_len(v, "many", "file_number_7", 400)),
    ("a name has no length", |v| name_len(v, "many", "file_number_7", 0)),
    ("a directory's name has no length", |v| name_len(v, "deep", "er", 0)),
    ("a directory's hash table begins elsewhere", |v| v.edit_inode(v.ino("many"), |r| r.i_dir_level = 5)),
    ("a file is a directory", |v| mode(v, "mid", 0o040_644)),
    ("an inline file is a directory", |v| mode(v, "tiny", 0o040_644)),
    ("a file of two names is a pipe", |v| mode(v, "twice", 0o010_644)),
    ("a name leads to a directory that has another", |v| {
        let (at, slot, _) = v.entry(v.sb.root, "mid");
        let er = v.ino("deep/er");
        v.edit(at, |b| dentry::redirect(&dentry::Layout::BLOCK, b, slot, er.0, 1));
    }),
    ("a directory is a file", |v| mode(v, "many", 0o100_755)),
];

#[test]
fn no_file_is_lost_by_one_damaged_field() {
    let whole = tree(&volume(&[]).dev);
    let mut failures = Vec::new();
    for (what, damage) in CASES {
        let v = volume(&[]);
        damage(&v);
        assert!(!v.check().is_clean(), "{what}: not found");
        let repaired = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| v.repairs()));
        if repaired.is_err() {
            failures.push(format!("{what}: not repaired"));
            continue;
        }
        let left = tree(&v.dev);
        let differ: Vec<_> =
            whole.iter().filter(|(path, file)| left.get(*path) != Some(file)).map(|(p, _)| p).collect();
        let more = left.keys().filter(|p| !whole.contains_key(*p)).count();
        if !differ.is_empty() || more > 0 {
            let some = &differ[..differ.len().min(3)];
            failures.push(format!("{what}: {} paths are gone or changed, as {some:?}, {more} are new", differ.len()));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), CASES.len(), failures.join("\n"));
}

/// Whatever subset of a repair's writes a power cut leaves, the next repair reaches the same result.
#[test]
fn a_repair_that_loses_power_loses_no_file_either() {
    let whole = tree(&volume(&[]).dev);
    let mut failures = Vec::new();
    for (k, (what, damage)) in CASES.iter().enumerate() {
        let v = volume(&[]);
        damage(&v);
        let counting = PowerCut::new(v.dev.fork());
        fsck::repair(&counting, &fsck::Options::default()).expect("repaired");
        let writes = counting.write_count();
        assert!(writes > 3, "{what}");
        let mut rng = Rng::new(k as u64);
        for i in 0..4 {
            let write = 1 + (i * writes + rng.below(writes)) / 4;
            let dev = PowerCut::new(v.dev.fork());
            dev.cut_after(write);
            let _ = fsck::repair(&dev, &fsck::Options::default());
            for loss in [Loss::AllLost, Loss::Random(rng.next_u64() % 1000)] {
                let left = dev.image(loss);
                let again = fsck::repair(&left, &fsck::Options::default());
                let clean = again.as_ref().is_ok_and(|done| done.after.is_clean());
                if !clean || tree(&left) != whole {
                    let why = again.err().map_or("files are gone or changed".to_owned(), |e| e.to_string());
                    failures.push(format!("{what}, cut at write {write} of {writes}, {loss}: {why}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_name_whose_length_and_hash_are_lost_comes_back_from_its_inode() {
    let whole = tree(&volume(&[]).dev);
    let v = volume(&[]);
    let (at, slot, _) = v.entry(v.ino("many"), "file_number_7");
    v.edit(at, |b| {
        b[30 + 11 * slot..][..4].fill(0x5A);
        b[30 + 11 * slot + 8..][..2].fill(0);
    });
    v.repairs();
    assert!(tree(&v.dev) == whole);
}

/// Otherwise a power cut could leave a current but incomplete pack.
#[test]
fn the_end_of_a_pack_is_written_after_all_else_has_reached_the_medium() {
    let damaged = volume(&[]);
    mode(&damaged, "mid", 0o040_644);
    let counting = PowerCut::new(damaged.dev.fork());
    fsck::repair(&counting, &fsck::Options::default()).expect("repaired");
    let dev = PowerCut::new(damaged.dev.fork());
    dev.cut_after(counting.write_count());
    assert!(fsck::repair(&dev, &fsck::Options::default()).is_err());
    assert_eq!(dev.unflushed(), 1, "the last write, and what came with it");
}

#[test]
fn a_name_no_directory_may_hold_is_taken_out() {
    for bad in [b"file/number_7", b"file\0number_7"] {
        let v = volume(&[]);
        let (at, slot, ino) = v.entry(v.ino("many"), "file_number_7");
        // Hash and inode agree on the wrong name: the right one is unknown.
        let hash = format::hash::name_hash(bad);
        v.edit(at, |b| dentry::insert(&dentry::Layout::BLOCK, b, slot, bad, hash, ino.0, 1));
        v.edit_inode(ino, |r| r.i_name[..13].copy_from_slice(bad));
        assert!(!v.check().is_clean());
        v.repairs();
        let left = tree(&v.dev);
        assert!(left.values().any(|(_, bytes)| bytes == b"number 7"), "the file is kept");
    }
}
