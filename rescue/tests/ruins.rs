//! Misleading damage: results stay finite, and unproved ones are marked.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag};
use f2fs::mkfs;
use format::inode::{Inline, RawInode};
use format::superblock::Features;
use format::{BLOCK, Block, Ino, bits, dentry, node};
use joulefs_rescue::{Options, Rescue};
use vfs::FileSystem;

use crate::rig::{
    self, ROOT, change, each_version, file, held, mount_to_read, read, search, superblock, volume, wipe, write,
};

fn plain() -> mkfs::Options {
    mkfs::Options::default()
}

fn ino(vol: &f2fs::Volume, path: &str) -> Ino {
    let found = vfs::path::walk(vol, path.as_bytes()).unwrap();
    Ino(found.ino().0 as u32)
}

/// Subdirectories of one directory, and its gaps.
fn dirs(rescue: &Rescue<'_>, dir: Ino) -> (Vec<Ino>, Vec<String>) {
    let names = rescue.names(dir).unwrap();
    (names.entries.iter().filter(|e| e.kind == 2).map(|e| e.ino).collect(), names.gaps)
}

/// Makes the name `b` in each inline directory a second name of the directory `a`.
fn name_twice(dev: &Memory, dir: Ino) {
    let features = superblock(dev).features;
    each_version(dev, dir, |block| {
        let raw = RawInode::of(block);
        if !raw.inline().contains(Inline::DENTRY) {
            return;
        }
        let area = raw.divide(features).unwrap().inline_area();
        let bytes = &mut block[area];
        let layout = dentry::Layout::inline(bytes.len());
        let slot = |bytes: &[u8], name: &[u8]| {
            dentry::entries(&layout, bytes, 0).find(|d| d.name == name).map(|d| (d.slot, d.ino))
        };
        if let (Some((_, to)), Some((b, _))) = (slot(bytes, b"a"), slot(bytes, b"b")) {
            dentry::redirect(&layout, bytes, b, to, 2);
        }
    });
}

#[test]
fn forty_directories_with_two_names_each_have_one_path_each() {
    let mut inos = Vec::new();
    let dev = volume(64, &plain(), |vol| {
        // The root directory is not inline.
        let mut at = vol.mkdir(ROOT, vol.root(), b"top", 0o755, 0).unwrap().attr.ino;
        for _ in 0..40 {
            inos.push(Ino(at.0 as u32));
            let next = vol.mkdir(ROOT, at, b"a", 0o755, 0).unwrap().attr.ino;
            file(vol, at, "b", b"");
            at = next;
        }
        file(vol, at, "at the end", b"contents");
    });
    inos.iter().for_each(|dir| name_twice(&dev, *dir));
    let whole = dev.fork();
    wipe(&whole);
    let rescue = search(&whole, &Options::default());
    let mut at = dirs(&rescue, rescue.root().unwrap()).0[0];
    for k in 0..40 {
        let (below, gaps) = dirs(&rescue, at);
        assert!(below.len() == 1 && gaps.len() == 1 && gaps[0].starts_with("b is skipped"), "{k}: {below:?} {gaps:?}");
        at = below[0];
    }
    assert_eq!(rescue.names(at).unwrap().entries.len(), 1);
    // Nor do they multiply below a lost directory.
    each_version(&dev, Ino(3), |block| block.fill(0));
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    assert_eq!(rescue.root(), None);
    let mut at = rescue.loose()[0].0;
    for k in 0..40 {
        let (below, gaps) = dirs(&rescue, at);
        assert!(below.len() == 1 && gaps.len() == 1, "{k}: {below:?} {gaps:?}");
        at = below[0];
    }
}

#[test]
fn a_block_of_names_that_stands_in_a_directory_many_times_is_read_once() {
    let mut dir = Ino(0);
    let dev = volume(64, &plain(), |vol| {
        let d = vol.mkdir(ROOT, vol.root(), b"dir", 0o755, 0).unwrap().attr.ino;
        dir = Ino(d.0 as u32);
        for n in 0..300 {
            file(vol, d, &format!("a_name_of_some_length_{n}"), b"");
        }
    });
    let features = superblock(&dev).features;
    each_version(&dev, dir, |block| {
        let raw = RawInode::of_mut(block);
        if raw.inline().contains(Inline::DENTRY) {
            return;
        }
        let division = raw.divide(features).unwrap();
        let first = raw.addr(division, 0);
        raw.i_size = (800 * BLOCK as u64).into();
        (1..800).for_each(|slot| raw.set_addr(division, slot, first));
    });
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let names = rescue.names(dir).unwrap();
    assert!(names.entries.len() <= 300, "{}", names.entries.len());
    assert!(names.gaps.iter().any(|g| g.contains("799 of its blocks exist more than once")), "{:?}", names.gaps);
}

#[test]
fn an_inline_file_whose_size_is_beyond_its_inode_is_in_doubt_and_gives_no_zeroes() {
    let mut small = Ino(0);
    let dev = volume(64, &plain(), |vol| {
        small = Ino(file(vol, vol.root(), "small", b"inside").0 as u32);
    });
    each_version(&dev, small, |block| RawInode::of_mut(block).i_size = (1u64 << 40).into());
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let mut file = rescue.file(small).unwrap().unwrap();
    assert!(file.inline().is_some());
    let verdict = rescue.verdict(&file).unwrap();
    assert!(verdict.doubts.iter().any(|d| d.contains("its inode has room for")), "{verdict:?}");
    assert_eq!(file.next_data(0, 1 << 28).unwrap(), Some(0));
    assert_eq!(file.next_data(1, 1 << 28).unwrap(), None, "a tebibyte of zeroes would be written");
}

/// Two volumes in one image: features and checksums come from the volume at the given place.
#[test]
fn a_given_place_is_taken_with_the_seed_and_features_of_its_own_volume() {
    let fill = |many: u32| {
        move |vol: &f2fs::Volume| {
            for n in 0..many {
                file(vol, vol.root(), &format!("file_{many}_{n}"), &[n as u8; 9000]);
            }
        }
    };
    let first = volume(64, &mkfs::Options { uuid: Some([1; 16]), ..mkfs::Options::modern() }, fill(400));
    let checked = Features::EXTRA_ATTR | Features::INODE_CHECKSUM;
    let options = mkfs::Options { uuid: Some([2; 16]), features: checked, ..plain() };
    let second = volume(64, &options, fill(40));
    let whole = held(&mount_to_read(Arc::new(second.fork())));
    wipe(&first);
    wipe(&second);
    let both = Memory::new(first.blocks() + second.blocks());
    for (dev, from) in [(&first, 0), (&second, first.blocks())] {
        for at in 0..dev.blocks() {
            write(&both, from + at, &read(dev, at));
        }
    }
    let guessed = search(&both, &Options::default());
    assert_eq!(guessed.place().volume_at(), 0, "the one with more nodes");
    drop(guessed);
    let at = first.blocks() * BLOCK as u64;
    let options = Options { volume_at: Some(at as i64), ..Options::default() };
    let rescue = search(&both, &options);
    let place = rescue.place();
    assert_eq!(place.volume_at(), at as i64);
    assert_eq!(place.seed, Some(format::inode::checksum_seed(&[2; 16])));
    assert!(!place.features.contains(Features::FLEXIBLE_INLINE_XATTR));
    assert!(rig::found(&rescue) == whole);
}

/// A file holds an inode of a volume of another kind. One stray inode must not change how the others are read.
#[test]
fn one_inode_among_contents_does_not_change_how_all_others_are_read() {
    let modern = volume(64, &mkfs::Options::modern(), |vol| {
        file(vol, vol.root(), "of_another_volume", b"x");
    });
    let stray = (0..modern.blocks()).map(|at| read(&modern, at)).find(|b| {
        let raw = RawInode::of(b);
        let f = node::footer(b);
        f.nid == f.ino.nid() && f.nid.0 > 3 && raw.extra().is_some_and(|e| e.i_inline_xattr_size.get() > 0)
    });
    let features = Features::EXTRA_ATTR | Features::INODE_CHECKSUM;
    let dev = volume(64, &mkfs::Options { features, ..plain() }, |vol| {
        file(vol, vol.root(), "carrier", &[[0; BLOCK], stray.unwrap(), [0; BLOCK]].concat());
        for n in 0..50 {
            let ino = file(vol, vol.root(), &format!("file_{n}"), b"inside the inode");
            vol.setxattr(ino, b"user.x", &[7; 20], vfs::XattrFlags::empty()).unwrap();
        }
    });
    let whole = held(&mount_to_read(Arc::new(dev.fork())));
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    assert!(!rescue.place().features.contains(Features::FLEXIBLE_INLINE_XATTR));
    assert!(rig::found(&rescue) == whole);
}

/// The inode of a living file is gone; contents of a deleted file hold a copy of it.
#[test]
fn a_node_among_contents_proves_nothing() {
    let mut lost = Ino(0);
    let dev = Arc::new(volume(64, &plain(), |vol| {
        lost = Ino(file(vol, vol.root(), "lost", b"what it held").0 as u32);
    }));
    let copy = (0..dev.blocks()).map(|at| read(&dev, at)).find(|b| node::footer(b).nid == lost.nid());
    let copy = copy.unwrap();
    let dev = Arc::new(change(dev, |vol| {
        file(vol, vol.root(), "carrier", &[[1; BLOCK], copy, [1; BLOCK]].concat());
    }));
    let dev = change(dev, |vol| vol.unlink(vol.root(), b"carrier").unwrap());
    // Nodes in segments of nodes record the following block.
    for at in 0..dev.blocks() {
        let block = read(&dev, at);
        if block == copy && read(&dev, at - 1) != [1; BLOCK] || node::footer(&block).nid == lost.nid() && block != copy
        {
            write(&dev, at, &[0; BLOCK]);
        }
    }
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let file = rescue.file(lost).unwrap().expect("the copy is taken for want of another");
    let verdict = rescue.verdict(&file).unwrap();
    assert!(verdict.doubts.is_empty() && verdict.unsure && !verdict.is_proved(), "{verdict:?}");
}

/// Two files of one checkpoint reference one block. If the summaries are left, they tell the owner.
#[test]
fn the_summary_decides_whose_a_contested_block_is() {
    let mut inos = BTreeMap::new();
    let dev = volume(64, &plain(), |vol| {
        for name in ["one", "two"] {
            file(vol, vol.root(), name, &[7; 5 * BLOCK]);
        }
        vol.sync().unwrap();
        for name in ["one", "two"] {
            inos.insert(name, ino(vol, name));
        }
    });
    let features = superblock(&dev).features;
    let newest = |of: Ino| {
        let blocks = (0..dev.blocks()).map(|at| read(&dev, at)).filter(|b| node::footer(b).nid == of.nid());
        blocks.max_by_key(|b| node::footer(b).cp_ver as u32).unwrap()
    };
    let one = newest(inos["one"]);
    let raw = RawInode::of(&one);
    let (division, target) = (raw.divide(features).unwrap(), raw.addr(raw.divide(features).unwrap(), 2));
    each_version(&dev, inos["two"], |block| RawInode::of_mut(block).set_addr(division, 2, target));
    let doubts = |dev: &Memory| {
        let rescue = search(dev, &Options::default());
        ["one", "two"].map(|name| {
            let file = rescue.file(inos[name]).unwrap().unwrap();
            rescue.verdict(&file).unwrap().doubts.len()
        })
    };
    // Superblock and summaries exist.
    let sb = superblock(&dev);
    // The pack holds the summary of an open segment; the SSA gets it when the segment is full.
    let (seg, off) = sb.locate(target).unwrap();
    let at = u64::from(sb.ssa_block(seg).0);
    let mut summary = read(&dev, at);
    let owner = format::summary::Summary { nid: inos["one"].nid(), version: 0, slot: 2 };
    format::summary::put(&mut summary, off.into(), owner);
    format::summary::set_kind(&mut summary, format::summary::SummaryKind::Data);
    write(&dev, at, &summary);
    assert_eq!(doubts(&dev), [0, 1]);
    wipe(&dev);
    assert_eq!(doubts(&dev), [1, 1]);
}

/// Blocks of a directory's names lie behind the end of the image, or are noise: remaining names are not duplicated.
#[test]
fn noise_in_place_of_names_is_a_gap_and_no_name() {
    let mut dir = Ino(0);
    let dev = volume(64, &plain(), |vol| {
        let d = vol.mkdir(ROOT, vol.root(), b"dir", 0o755, 0).unwrap().attr.ino;
        dir = Ino(d.0 as u32);
        (0..300).for_each(|n| _ = file(vol, d, &format!("a_name_of_some_length_{n}"), b""));
    });
    let mut last: Option<(u64, Block)> = None;
    for at in 0..dev.blocks() {
        let block = read(&dev, at);
        let named = dentry::entries(&dentry::Layout::BLOCK, &block, 0).any(|d| d.name.starts_with(b"a_name_of"));
        if named && bits::lsb_test(&block, 0) {
            last = Some((at, block));
        }
    }
    let (at, mut block) = last.unwrap();
    let d = dentry::entries(&dentry::Layout::BLOCK, &block, 0).find(|d| d.name.starts_with(b"a_name_of")).unwrap();
    let (slot, hash, to, name) = (d.slot, d.hash, d.ino, d.name.to_vec());
    let evil = [b"../", &name[3..]].concat();
    dentry::insert(&dentry::Layout::BLOCK, &mut block, slot, &evil, hash, to, 1);
    dev.write(Lba(at), &block, Tag::default()).unwrap();
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let names = rescue.names(dir).unwrap();
    assert!(names.entries.iter().all(|e| !e.name.contains(&b'/')));
    assert!(names.gaps.iter().any(|g| g.contains("contains '/'")), "{:?}", names.gaps);
}
