//! A volume with an index answers names and attributes without a disk request, and its answers always match the
//! disk.

use std::sync::Arc;
use std::time::Duration;

use device::{BLOCK, BlockDevice, Counts, Fault, Faulty, Lba, Memory, Op, Rng, Tag, VirtualClock};
use scherlfs::{MountOptions, Volume};
use scherlfs_format::archive::{self, HEADS, IndexHead, Layout};
use scherlfs_format::{Addr, Block};
use vfs::{FileSystem, SetAttr, Volume as _};

use crate::support::{
    BLOCKS, Device, all_of, counting, empty_index, formatted, mount, populate, requests, settle, with, without_index,
    write,
};

fn populated(seed: u64) -> (Device, Memory) {
    let (disk, index): (Device, Arc<Memory>) = (Arc::new(formatted()), Arc::new(empty_index()));
    let volume = mount(disk.clone(), with(index.clone()));
    populate(&volume, seed).unwrap();
    volume.unmount().unwrap();
    (disk, index.fork())
}

/// The current life of an index.
fn life_of(index: &Memory) -> u64 {
    (0..HEADS).filter_map(|at| IndexHead::read(&block_of(index, at)).ok()).map(|h| h.life).max().unwrap()
}

/// Number of valid copies.
fn copies(index: &Memory) -> usize {
    let (layout, life) = (Layout::for_volume(BLOCKS).unwrap(), life_of(index));
    let counts = |at: u64| {
        let (table, n) = layout.entry(Addr(at));
        archive::entry(&block_of(index, table), n, life).is_some()
    };
    (0..BLOCKS).filter(|at| counts(*at)).count()
}

fn block_of(dev: &dyn BlockDevice, at: u64) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    dev.read(Lba(at), &mut block[..], Tag::default()).unwrap();
    block
}

fn write_block(dev: &dyn BlockDevice, at: u64, block: &Block) {
    dev.write(Lba(at), block, Tag::default()).unwrap();
}

#[test]
fn names_and_attributes_cost_no_request_of_the_disk_after_a_remount() {
    let (disk, index) = populated(1);
    let index: Device = Arc::new(index);
    let expected = without_index(&disk);
    assert!(expected.len() > 60);

    // Without the index the same calls cost requests, so the test can fail.
    let counted = counting(&disk);
    let volume = mount(counted.clone(), MountOptions::default());
    let before = requests(&counted);
    all_of(&volume);
    assert!((requests(&counted) - before).reads > 60);
    volume.unmount().unwrap();

    let counted = counting(&disk);
    let volume = mount(counted.clone(), with(index.clone()));
    // The mount itself reads only the two superblocks from the disk.
    assert_eq!(requests(&counted), Counts { reads: 2, blocks_read: 2, ..Counts::default() });
    settle(&volume);
    let before = requests(&counted);
    assert_eq!(all_of(&volume), expected);
    assert_eq!(requests(&counted) - before, Counts::default());
    volume.unmount().unwrap();
}

#[test]
fn an_index_is_filled_for_a_volume_that_lived_without_it() {
    let disk: Device = Arc::new(formatted());
    let volume = mount(disk.clone(), MountOptions::default());
    populate(&volume, 2).unwrap();
    volume.unmount().unwrap();
    let index: Device = Arc::new(empty_index());
    for again in [false, true] {
        let counted = counting(&disk);
        let volume = mount(counted.clone(), with(index.clone()));
        settle(&volume);
        let before = requests(&counted);
        all_of(&volume);
        assert_eq!(requests(&counted) - before, Counts::default(), "again: {again}");
        volume.unmount().unwrap();
    }
}

#[test]
fn what_was_never_unmounted_is_answered_as_the_disk_answers_it() {
    let (disk, index) = populated(3);
    let index: Device = Arc::new(index);
    {
        let volume = mount(disk.clone(), with(index.clone()));
        write(&volume, "synced", &[1; 9000]).unwrap();
        volume.sync().unwrap();
        write(&volume, "not-synced", &[1; 9000]).unwrap();
    }
    let expected = without_index(&disk);
    assert!(expected.contains_key("/synced") && !expected.contains_key("/not-synced"));
    for _ in 0..2 {
        let volume = mount(disk.clone(), with(index.clone()));
        settle(&volume);
        assert_eq!(all_of(&volume).keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        volume.unmount().unwrap();
    }
}

#[test]
fn a_volume_that_was_written_without_its_index_is_answered_as_it_is() {
    for seed in 0..6 {
        let (disk, index) = populated(seed);
        let index: Device = Arc::new(index);
        let volume = mount(disk.clone(), MountOptions::default());
        let mut rng = Rng::new(seed);
        for n in 0..30 {
            write(&volume, &format!("new-{n}"), &vec![1; rng.below(20_000) as usize]).unwrap();
        }
        match seed % 2 {
            0 => volume.unmount().unwrap(),
            _ => volume.sync().unwrap(),
        }
        drop(volume);
        let expected = without_index(&disk);
        let volume = mount(disk.clone(), with(index.clone()));
        assert!(volume.warning().is_some(), "the index was made anew, and nobody was told");
        settle(&volume);
        let mut found = all_of(&volume);
        let (mut expected, _) = (expected.clone(), found.remove("df"));
        expected.remove("df");
        assert_eq!(found, expected, "seed {seed}");
        volume.unmount().unwrap();
    }
}

#[test]
fn two_copies_of_a_volume_with_equal_histories_are_distinguished() {
    // The same calls on both give the same blocks and counts. Only an owner and times differ.
    let (disk, index) = populated(4);
    let image = Memory::new(BLOCKS);
    (0..BLOCKS).for_each(|at| write_block(&image, at, &block_of(&*disk, at)));
    let other: Device = Arc::new(image);
    let change = |disk: &Device, options: MountOptions, uid: u32, time: u64| {
        let clock = Arc::new(VirtualClock::default());
        clock.advance(Duration::from_secs(time));
        let volume = Volume::mount(disk.clone(), clock, options).unwrap();
        volume.setattr(volume.root(), &SetAttr { uid: Some(uid), ..SetAttr::default() }).unwrap();
        volume.unmount().unwrap();
    };
    let index: Device = Arc::new(index);
    change(&disk, with(index.clone()), 7, 100);
    change(&other, MountOptions::default(), 8, 200);
    let volume = mount(other.clone(), with(index));
    assert_eq!(volume.getattr(volume.root()).unwrap().uid, 8);
}

#[test]
fn no_damaged_byte_of_the_heads_makes_the_index_lie_or_the_mount_fail() {
    let (disk, index) = populated(5);
    let expected = without_index(&disk);
    // Behind the fields there are only zeroes under the checksum: a few of those suffice.
    let bytes = (0..100).chain((100..BLOCK).step_by(509)).chain([BLOCK - 1]);
    for byte in bytes {
        for head in [0, 1, 2] {
            let copy = index.fork();
            for at in (0..HEADS).filter(|at| head == 2 || *at == head) {
                let mut block = block_of(&copy, at);
                block[byte] ^= 0x5A;
                write_block(&copy, at, &block);
            }
            let volume = mount(disk.clone(), MountOptions { read_only: true, ..with(Arc::new(copy)) });
            assert_eq!(all_of(&volume), expected, "byte {byte} of head {head}");
        }
    }
}

#[test]
fn no_damaged_entry_or_copy_makes_the_index_lie() {
    let (disk, index) = populated(6);
    let expected = without_index(&disk);
    let mut used = Vec::new();
    index.each_piece(|at, bytes| used.extend((at.0..).take(bytes.len() / BLOCK)));
    used.retain(|at| *at >= HEADS);
    assert!(used.len() > 100);
    let mut rng = Rng::new(6);
    for round in 0..200 {
        let copy = index.fork();
        for _ in 0..20 {
            let at = used[rng.below(used.len() as u64) as usize];
            let mut block = block_of(&copy, at);
            match rng.below(3) {
                0 => block.fill(0),
                1 => block[rng.below(BLOCK as u64) as usize] ^= 1 << rng.below(8),
                // Contents of another place.
                _ => block = block_of(&copy, used[rng.below(used.len() as u64) as usize]),
            }
            write_block(&copy, at, &block);
        }
        let volume = mount(disk.clone(), MountOptions { read_only: true, ..with(Arc::new(copy)) });
        assert_eq!(all_of(&volume), expected, "round {round}");
    }
}

#[test]
fn an_index_of_another_volume_or_version_begins_anew() {
    let (disk, index) = populated(7);
    let expected = without_index(&disk);
    let head = (0..HEADS).find_map(|at| IndexHead::read(&block_of(&index, at)).ok()).unwrap();
    let mut version = head.write();
    version[8] = 2;
    let other = IndexHead { uuid: [9; 16], ..head.clone() }.write();
    let larger = IndexHead { blocks: head.blocks + 1, ..head }.write();
    for block in [version, other, larger] {
        let copy = index.fork();
        (0..HEADS).for_each(|at| write_block(&copy, at, &block));
        let copy: Device = Arc::new(copy);
        let volume = mount(disk.clone(), MountOptions { read_only: true, ..with(copy.clone()) });
        assert!(volume.warning().is_some());
        settle(&volume);
        assert_eq!(all_of(&volume), expected);
        drop(volume);
        assert_eq!(mount(disk.clone(), MountOptions { read_only: true, ..with(copy) }).warning(), None);
    }
}

#[test]
fn a_copy_that_was_forged_with_its_checksum_is_not_believed_where_it_contradicts_the_volume() {
    let (disk, index) = populated(8);
    let (expected, layout) = (without_index(&disk), Layout::for_volume(BLOCKS).unwrap());
    let life = life_of(&index);
    let mut forged = 0;
    for at in (2..BLOCKS).map(Addr) {
        let (table, n) = layout.entry(at);
        let mut entries = block_of(&index, table);
        if archive::entry(&entries, n, life).is_none() {
            continue;
        }
        let copy = index.fork();
        let mut block = block_of(&copy, layout.copy(at));
        // Another inode's magic or number, or a dangling entry: the structure's own check detects it.
        block[24] ^= 0xFF;
        write_block(&copy, layout.copy(at), &block);
        archive::put_entry(&mut entries, n, life, Some(archive::copy_crc(at, &block[..])));
        write_block(&copy, table, &entries);
        let volume = mount(disk.clone(), MountOptions { read_only: true, ..with(Arc::new(copy)) });
        assert_eq!(all_of(&volume), expected, "block {at}");
        forged += 1;
    }
    assert!(forged > 60, "{forged}");
}

#[test]
fn a_failing_disk_of_the_index_costs_nothing_but_requests() {
    for nth in 1..60 {
        let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][nth as usize % 4];
        let (disk, index) = (Arc::new(formatted()) as Device, Arc::new(Faulty::new(empty_index())));
        let nth = 3 + nth / 4 * [40, 40, 1, 5][nth as usize % 4];
        index.add(Fault::Nth { op, requests: nth..u64::MAX });
        let volume = mount(disk.clone(), with(index.clone()));
        populate(&volume, nth).unwrap();
        volume.sync().unwrap();
        let told = all_of(&volume);
        volume.unmount().unwrap();
        drop(volume);
        index.heal();
        let expected = without_index(&disk);
        assert_eq!(told.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{op:?} {nth}");
        for options in [with(index.clone()), with(index)] {
            let volume = mount(disk.clone(), MountOptions { read_only: true, ..options });
            settle(&volume);
            assert_eq!(all_of(&volume), expected, "{op:?} {nth}, mounted again");
        }
    }
}

#[test]
fn what_is_no_metadata_any_more_leaves_the_index() {
    let (disk, index): (Device, Arc<Memory>) = (Arc::new(formatted()), Arc::new(empty_index()));
    let volume = mount(disk, with(index.clone()));
    let mut most = 0;
    for round in 0..20 {
        for n in 0..100 {
            let ino = write(&volume, &format!("{round}-{n}"), &[1; 100]).unwrap();
            volume.forget(ino, 1);
        }
        volume.sync().unwrap();
        for n in 0..100 {
            volume.unlink(volume.root(), format!("{round}-{n}").as_bytes()).unwrap();
        }
        volume.sync().unwrap();
        most = most.max(copies(&index));
    }
    volume.unmount().unwrap();
    let kept = copies(&index);
    assert!(kept < 200 && most > 1900, "{kept} copies, at most {most}: 2,000 inodes were made and are gone");
}
