//! Node numbers named in the superblock are never allocated, and a lost quota file is restored without damage to other
//! files.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Tag};
use f2fs::{MountOptions, Volume, mkfs};
use format::checkpoint::{Checkpoint, CpFlags};
use format::superblock::{Features, RawSuperBlock, SuperBlock};
use format::{Ino, nat};
use judges::damage::{block, clock};
use vfs::{Caller, FileKind, FileSystem, NewNode, Volume as _, WriteFlags};

use crate::second_judge::clean_for_f2fs_tools;

fn volume() -> Memory {
    let mem = Memory::new(16 << 10);
    let features = Features::QUOTA_INO | Features::PRJQUOTA | Features::EXTRA_ATTR | Features::LOST_FOUND;
    mkfs::format(&mem, &*clock(), &mkfs::Options { features, ..mkfs::Options::default() }).unwrap();
    mem
}

fn mount(image: &Memory) -> (Arc<Memory>, Arc<Volume>) {
    let dev = Arc::new(image.fork());
    (dev.clone(), Volume::mount(dev, clock(), MountOptions::default()).unwrap())
}

/// Creates files whose contents identify them; returns their numbers.
fn fill(vol: &Volume, count: usize) -> BTreeSet<u64> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    let make = |n: usize| {
        let ino = vol.mknod(Caller::default(), vol.root(), format!("f{n}").as_bytes(), &new).unwrap().attr.ino;
        vol.write(ino, 0, format!("contents {n}").as_bytes(), WriteFlags::empty()).unwrap();
        vol.forget(ino, 1);
        ino.0
    };
    (0..count).map(make).collect()
}

fn whole(image: &Memory, count: usize) {
    let (_, vol) = mount(image);
    for n in 0..count {
        let ino = vol.lookup(vol.root(), format!("f{n}").as_bytes()).unwrap_or_else(|e| panic!("f{n}: {e}")).attr.ino;
        let mut bytes = [0; 64];
        let read = vol.read(ino, 0, &mut bytes).unwrap();
        assert_eq!(&bytes[..read], format!("contents {n}").as_bytes());
        vol.forget(ino, 1);
    }
}

fn superblock(image: &Memory) -> SuperBlock {
    SuperBlock::check(&block(image, 0)).unwrap()
}

/// Removes an inode's entry from the NAT of a new volume, and its block if `block_too`.
fn lose(image: &Memory, ino: Ino, block_too: bool) {
    let sb = superblock(image);
    let (n, i) = nat::position(ino.nid());
    let mut addr = 0;
    // A new volume has its first nodes in the journals of both packs.
    for at in [sb.cp, sb.cp.plus(512)] {
        let head = block(image, at.0.into());
        let cp = Checkpoint::check(&sb, &head[..]).unwrap();
        assert!(cp.flags.contains(CpFlags::COMPACT_SUM));
        let at = u64::from(at.0 + cp.start_sum);
        let mut bytes = block(image, at);
        for i in 0..usize::from(bytes[0]) {
            let entry = 2 + 13 * i;
            if bytes[entry..entry + 4] == ino.0.to_le_bytes() {
                addr = addr.max(u32::from_le_bytes(*bytes[entry + 9..].first_chunk().unwrap()));
                bytes[entry + 4..entry + 13].fill(0);
            }
        }
        image.write(Lba(at), &*bytes, Tag::default()).unwrap();
    }
    for at in [false, true].map(|second| u64::from(sb.nat_block(n, second).0)) {
        let mut bytes = block(image, at);
        addr = addr.max(nat::get(&bytes, i).addr.0);
        nat::put(&mut bytes, i, nat::NatEntry::default());
        image.write(Lba(at), &*bytes, Tag::default()).unwrap();
    }
    assert!(addr > 1);
    if block_too {
        image.write(Lba(addr.into()), &[0x5A; BLOCK], Tag::default()).unwrap();
    }
}

fn repaired(image: &Memory) {
    let before = fsck::check(image, &fsck::Options::default()).unwrap();
    assert!(!before.is_clean(), "{before}");
    fsck::repair(image, &fsck::Options::default()).unwrap_or_else(|e| panic!("{e}: {before}"));
    let after = fsck::check(image, &fsck::Options::default()).unwrap();
    assert!(after.is_clean(), "{after}");
    let (dev, vol) = mount(image);
    assert!(!vol.warning().unwrap_or_default().contains("missing"), "{:?}", vol.warning());
    drop((dev, vol));
    clean_for_f2fs_tools(image, false);
}

#[test]
fn the_number_of_a_quota_file_that_is_lost_is_given_to_nobody_and_a_repair_restores_the_file() {
    let fresh = volume();
    let inos = superblock(&fresh).quota_inos;
    assert_eq!(inos.map(|ino| ino.0), [4, 5, 6]);
    for (k, ino) in inos.into_iter().enumerate() {
        for block_too in [false, true] {
            let image = fresh.fork();
            lose(&image, ino, block_too);
            let (dev, vol) = mount(&image);
            let said = vol.warning().unwrap_or_default();
            let whose = ["user", "group", "project"][k];
            for words in [format!("{whose} quota file (inode {ino}) is missing"), "joulefs fsck --repair".to_owned()] {
                assert!(said.contains(&words), "{said}");
            }
            let taken = fill(&vol, 600);
            assert!(taken.iter().all(|n| *n > 3 && inos.iter().all(|ino| u64::from(ino.0) != *n)), "{taken:?}");
            vol.unmount().unwrap();
            repaired(&dev);
            whole(&dev, 600);
        }
    }
}

/// Like volumes that were written to while such a number counted as free.
#[test]
fn a_file_that_has_taken_the_number_of_a_quota_file_keeps_it() {
    let fresh = volume();
    let (dev, vol) = mount(&fresh);
    let taken = fill(&vol, 20);
    vol.unmount().unwrap();
    for at in [0, 1] {
        let mut bytes = block(&dev, at);
        let mut raw = RawSuperBlock::of(&bytes).clone();
        raw.qf_ino[1] = (*taken.last().unwrap() as u32).into();
        raw.store(&mut bytes);
        dev.write(Lba(at), &*bytes, Tag::default()).unwrap();
    }
    repaired(&dev);
    whole(&dev, 20);
    let sb = superblock(&dev);
    assert!(!taken.contains(&sb.quota_inos[1].0.into()), "{:?}", sb.quota_inos);
}

#[test]
fn two_quota_files_of_one_number_get_two() {
    let image = volume();
    for at in [0, 1] {
        let mut bytes = block(&image, at);
        let mut raw = RawSuperBlock::of(&bytes).clone();
        raw.qf_ino[2] = raw.qf_ino[0];
        raw.store(&mut bytes);
        image.write(Lba(at), &*bytes, Tag::default()).unwrap();
    }
    repaired(&image);
    let inos = superblock(&image).quota_inos;
    assert!(inos[0] != inos[2] && inos[1] != inos[2], "{inos:?}");
}
