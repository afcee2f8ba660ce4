//! What happens to a volume with damaged deltas: every loss is reported, and no other file is affected.

use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Tag};
use format::inode::{self, RawInode};
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, Block, BlockAddr, Ino, delta};
use fsck::{Action, FindingKind as K};
use joulefs_f2fs::mkfs::Options;
use vfs::FileSystem;

use crate::log_rig::*;

/// A volume with two files of ten blocks, the first five with deltas; and the files' contents.
fn volume() -> (Memory, [Vec<u8>; 2], [Ino; 2]) {
    let features = Options::modern().features | Features::DELTA;
    let dev = Arc::new(formatted(64, &Options { features, ..Options::default() }));
    let vol = mount(dev.clone());
    let inos = ["a", "b"].map(|name| new_file(&vol, vol.root(), name));
    let mut contents = [1, 2].map(|seed| pattern(seed, 10 * BLOCK));
    for (ino, contents) in inos.iter().zip(&contents) {
        write(&vol, *ino, 0, contents);
    }
    vol.sync().unwrap();
    for (ino, contents) in inos.iter().zip(&mut contents) {
        for page in 0..5 {
            contents[page * BLOCK + 77] ^= 0x55;
            write(&vol, *ino, (page * BLOCK + 77) as u64, &[contents[page * BLOCK + 77]]);
        }
        vol.fsync(*ino, false).unwrap();
    }
    vol.unmount().unwrap();
    (dev.fork(), contents, inos.map(|ino| Ino(ino.0 as u32)))
}

fn read(dev: &Memory, at: BlockAddr) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    dev.read(Lba(at.0.into()), &mut block[..], Tag::default()).unwrap();
    block
}

/// Changes an inode block in place, with a valid checksum.
fn forge(dev: &Memory, ino: Ino, change: impl FnOnce(&SuperBlock, &mut Block)) {
    let sb = SuperBlock::check(&read(dev, BlockAddr(0))).unwrap();
    let at = mount_copy(dev).inode_address(ino).unwrap();
    let mut block = read(dev, at);
    change(&sb, &mut block);
    inode::seal(sb.features, inode::checksum_seed(&sb.uuid), &mut block);
    dev.write(Lba(at.0.into()), &block[..], Tag::default()).unwrap();
}

/// The file after a repair that must take exactly `actions` for the one finding of that kind.
fn repaired(dev: &Memory, finds: impl Fn(&K) -> bool, actions: &[Action]) -> Vec<Vec<u8>> {
    let report = fsck::check(dev, &fsck::Options::default()).unwrap();
    assert!(report.findings.iter().any(|f| finds(&f.kind)), "{:?}", report.findings);
    let done = fsck::repair(dev, &fsck::Options::default()).unwrap();
    let ours = |a: &&Action| matches!(a, Action::DeltasGivenUp { .. });
    assert_eq!(done.actions.iter().filter(ours).cloned().collect::<Vec<_>>(), actions);
    assert_clean(dev, "repaired");
    let vol = mount_copy(dev);
    ["a", "b"].iter().map(|name| read_all(&vol, find(&vol, name).unwrap())).collect()
}

#[test]
fn a_delta_that_does_not_fit_its_base_is_an_error_of_its_block_alone() {
    let (dev, contents, [a, _]) = volume();
    // Change the base without the file system.
    let addr = {
        let vol = mount_copy(&dev);
        let at = vol.inode_address(a).unwrap();
        let block = read(&dev, at);
        let raw = RawInode::of(&block);
        let sb = SuperBlock::check(&read(&dev, BlockAddr(0))).unwrap();
        raw.addr(raw.divide(sb.features).unwrap(), 3)
    };
    let mut base = read(&dev, addr);
    base[2000] ^= 1;
    dev.write(Lba(addr.0.into()), &base[..], Tag::default()).unwrap();
    let vol = mount_copy(&dev);
    let ino = find(&vol, "a").unwrap();
    let mut page = vec![0; BLOCK];
    for index in 0..10 {
        let result = vol.read(ino, (index * BLOCK) as u64, &mut page);
        match index {
            3 => assert!(result.is_err()),
            _ => assert!(result.is_ok() && page == contents[0][index * BLOCK..(index + 1) * BLOCK], "{index}"),
        }
    }
    drop(vol);
    let given_up = Action::DeltasGivenUp { ino: a, block: Some(3) };
    let after = repaired(&dev, |k| matches!(k, K::DeltaWrong { ino, block: 3 } if *ino == a), &[given_up]);
    assert!(after[1] == contents[1]);
    let mut expected = contents[0].clone();
    expected[3 * BLOCK + 77] ^= 0x55;
    expected[3 * BLOCK + 2000] ^= 1;
    assert!(after[0] == expected);
}

#[test]
fn a_zone_that_makes_no_sense_costs_its_deltas_and_no_file() {
    type Harm = fn(&SuperBlock, &mut Block);
    let harms: [(&str, Harm); 5] = [
        ("a zone without entries", |sb, b| {
            let d = RawInode::of(b).divide(sb.features).unwrap();
            let end = d.xattr_area().start;
            b[end - 4 * d.zone as usize..end].fill(0);
            b[end - 5] = 1;
        }),
        ("a trailer of another version", |sb, b| {
            let d = RawInode::of(b).divide(sb.features).unwrap();
            let end = d.xattr_area().start;
            b[end - 5] = 9;
        }),
        ("one entry too many", |sb, b| {
            let d = RawInode::of(b).divide(sb.features).unwrap();
            let end = d.xattr_area().start;
            b[end - 6] += 1;
        }),
        ("more bytes than there are", |sb, b| {
            let d = RawInode::of(b).divide(sb.features).unwrap();
            let end = d.xattr_area().start;
            b[end - 8..end - 6].copy_from_slice(&60_000_u16.to_le_bytes());
        }),
        ("an entry for a hole", |sb, b| {
            let raw = RawInode::of_mut(b);
            let d = raw.divide(sb.features).unwrap();
            let entry = delta::Entry { slot: 500, codec: delta::Codec::Runs, check: 0, payload: &[] };
            assert!(delta::insert(raw, d, &entry));
        }),
    ];
    for (what, harm) in harms {
        let (dev, contents, [a, _]) = volume();
        forge(&dev, a, harm);
        {
            // No panic, and the other file is unchanged.
            let vol = mount_copy(&dev);
            let (_, b) = (vol.lookup(vol.root(), b"a"), find(&vol, "b").unwrap());
            assert!(read_all(&vol, b) == contents[1], "{what}");
        }
        let given_up = Action::DeltasGivenUp { ino: a, block: None };
        let after = repaired(&dev, |k| matches!(k, K::ZoneBad { ino, .. } if *ino == a), &[given_up]);
        assert!(after[1] == contents[1], "{what}");
        let mut expected = contents[0].clone();
        (0..5).for_each(|page| expected[page * BLOCK + 77] ^= 0x55);
        assert!(after[0] == expected, "{what}");
    }
}

#[test]
fn a_flipped_bit_in_a_zone_is_found_by_the_inodes_checksum_and_turned_back() {
    let (dev, contents, [a, _]) = volume();
    let at = mount_copy(&dev).inode_address(a).unwrap();
    let mut block = read(&dev, at);
    let sb = SuperBlock::check(&read(&dev, BlockAddr(0))).unwrap();
    let end = RawInode::of(&block).divide(sb.features).unwrap().xattr_area().start;
    block[end - 12] ^= 4;
    dev.write(Lba(at.0.into()), &block[..], Tag::default()).unwrap();
    let after = repaired(&dev, |k| matches!(k, K::InodeChecksum { .. }), &[]);
    assert!(after[0] == contents[0] && after[1] == contents[1]);
}
