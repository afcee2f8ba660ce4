//! Cached contents are read from the keep without a disk request, and match the disk after any writes, removals,
//! mounts without the keep, damage, or restoration of an older copy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::{BLOCK, BlockDevice, Counts, Fault, Faulty, Lba, Memory, Op, Rng, Tag, VirtualClock};
use scherlfs::{Beside, MountOptions, Volume, keep_blocks};
use scherlfs_format::archive::{HEADS, copy_crc};
use scherlfs_format::keep::{self, KeepHead, Kept};
use vfs::{FileSystem, SetAttr, Volume as _, WriteFlags};

use crate::support::{Device, counting, empty_index, formatted, mount, read_only, requests, settle, write};

const SLEEP: Duration = Duration::from_secs(600);

fn empty_keep(slots: u64) -> Memory {
    Memory::new(keep_blocks(slots).unwrap())
}

fn with(keep: Device, index: Option<Device>) -> MountOptions {
    let beside = Beside { keep: Some(keep), index, sleep: Some(SLEEP), ..Beside::default() };
    MountOptions { beside, ..MountOptions::default() }
}

/// Reads a file in pieces, like a player.
fn contents(volume: &Volume, name: &str, piece: usize) -> Vec<u8> {
    let attr = volume.lookup(volume.root(), name.as_bytes()).unwrap().attr;
    let mut bytes = vec![0; attr.size as usize];
    for (n, part) in bytes.chunks_mut(piece).enumerate() {
        assert_eq!(volume.read(attr.ino, (n * piece) as u64, part).unwrap(), part.len());
    }
    volume.forget(attr.ino, 1);
    bytes
}

fn reported(volume: &Volume, name: &str) -> u64 {
    let found = volume.report().into_iter().find(|(n, _)| n == name).map(|(_, v)| v).unwrap();
    found.split(' ').next().unwrap().parse().unwrap()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// A disk with files, mounted with an index and, if given, a keep.
fn with_files(keep: Option<Device>, files: &[(&str, usize)]) -> (Device, Device) {
    let (disk, index): (Device, Device) = (Arc::new(formatted()), Arc::new(empty_index()));
    let beside = Beside { keep, index: Some(index.clone()), ..Beside::default() };
    let volume = mount(disk.clone(), MountOptions { beside, ..MountOptions::default() });
    for (n, (name, len)) in files.iter().enumerate() {
        write(&volume, name, &bytes(n as u64, *len)).unwrap();
    }
    settle(&volume);
    volume.unmount().unwrap();
    (disk, index)
}

#[test]
fn what_was_written_is_read_without_a_request_after_a_remount() {
    let keep: Device = Arc::new(empty_keep(300));
    let files = [("letter", 20_000), ("photo", 300_000)];
    let (disk, index) = with_files(Some(keep.clone()), &files);
    for kept in [false, true] {
        let options = if kept { with(keep.clone(), Some(index.clone())) } else { MountOptions::default() };
        let counted = counting(&disk);
        let volume = mount(counted.clone(), options);
        let before = requests(&counted);
        for (n, (name, len)) in files.iter().enumerate() {
            assert!(contents(&volume, name, 1 << 20) == bytes(n as u64, *len));
        }
        let asked = requests(&counted) - before;
        assert_eq!(asked == Counts::default(), kept, "{asked:?}");
        volume.unmount().unwrap();
    }
}

#[test]
fn the_rest_of_a_begun_file_is_read_ahead_and_then_the_disk_sleeps() {
    let (disk, index) = with_files(None, &[("film", 6 << 20), ("other", 6 << 20)]);
    let (counted, clock) = (counting(&disk), Arc::new(VirtualClock::default()));
    let options = with(Arc::new(empty_keep(4000)), Some(index));
    let volume = Volume::mount(counted.clone(), clock.clone(), options).unwrap();
    settle(&volume);
    clock.advance(Duration::from_secs(3600));
    let ino = volume.lookup(volume.root(), b"film").unwrap().attr.ino;
    let mut begin = vec![0; 1 << 17];
    volume.read(ino, 0, &mut begin).unwrap();
    let before = requests(&counted);
    settle(&volume);
    let asked = requests(&counted) - before;
    assert!((1..10).contains(&asked.reads), "{asked:?}: a few requests for the rest");
    assert_eq!(asked.blocks_read as usize, (6 << 20) / BLOCK - (1 << 17) / BLOCK);
    // The rest is not read immediately, and the disk sleeps meanwhile.
    let before = (requests(&counted), reported(&volume, "disk_wakes"));
    for at in (1 << 17..6 << 20).step_by(1 << 17) {
        clock.advance(Duration::from_secs(180));
        volume.tick().unwrap();
        let mut part = vec![0; 1 << 17];
        volume.read(ino, at, &mut part).unwrap();
        assert!(part == bytes(0, 6 << 20)[at as usize..][..1 << 17]);
    }
    assert_eq!((requests(&counted), reported(&volume, "disk_wakes")), before);
    // Random reads are not a player's.
    let ino = volume.lookup(volume.root(), b"other").unwrap().attr.ino;
    for at in [3 << 20, 1 << 20, 5 << 20, 4096] {
        volume.read(ino, at, &mut begin).unwrap();
        let before = requests(&counted);
        settle(&volume);
        assert_eq!(requests(&counted) - before, Counts::default(), "{at}");
    }
    // A reader that continues from any place is one.
    volume.read(ino, 4096 + (1 << 17), &mut begin).unwrap();
    let before = requests(&counted);
    settle(&volume);
    assert_ne!(requests(&counted) - before, Counts::default());
}

#[test]
fn a_file_larger_than_the_keep_is_read_ahead_a_part_at_a_time_and_the_keep_stays_as_large_as_it_is() {
    let (disk, index) = with_files(None, &[("film", 8 << 20)]);
    let keep = Arc::new(empty_keep(1000));
    let (counted, clock) = (counting(&disk), Arc::new(VirtualClock::default()));
    let volume = Volume::mount(counted.clone(), clock.clone(), with(keep, Some(index))).unwrap();
    settle(&volume);
    let ino = volume.lookup(volume.root(), b"film").unwrap().attr.ino;
    let before = requests(&counted);
    let mut most = 0;
    for at in (0..8 << 20).step_by(1 << 17) {
        let mut part = vec![0; 1 << 17];
        volume.read(ino, at, &mut part).unwrap();
        assert!(part == bytes(0, 8 << 20)[at as usize..][..1 << 17]);
        settle(&volume);
        most = most.max(reported(&volume, "keep"));
    }
    let asked = requests(&counted) - before;
    let twice = asked.blocks_read - (8 << 20) / BLOCK as u64;
    assert!(twice < 32 * 5, "{asked:?}: each block once, but for the calls in whose midst a part ends");
    assert!(asked.reads < 16, "{asked:?}");
    assert!((400..=500).contains(&most), "{most}: half of the keep at most");
}

#[test]
fn small_files_are_put_into_a_new_keep_as_long_as_there_is_room() {
    let names: Vec<String> = (0..40).map(|n| format!("small-{n}")).collect();
    let mut files: Vec<(&str, usize)> = names.iter().map(|n| (n.as_str(), 5000)).collect();
    files.push(("large", 200_000));
    let (disk, index) = with_files(None, &files);
    let volume = mount(disk.clone(), with(Arc::new(empty_keep(1)), Some(index.clone())));
    settle(&volume);
    volume.unmount().unwrap();
    for (slots, all) in [(100, true), (31, false)] {
        let counted = counting(&disk);
        let volume = mount(counted.clone(), with(Arc::new(empty_keep(slots)), Some(index.clone())));
        let before = requests(&counted);
        settle(&volume);
        // The index has everything else, and no file was evicted for another.
        assert_eq!((requests(&counted) - before).blocks_read, if all { 80 } else { 30 });
        let before = requests(&counted);
        let mut woken = 0;
        for (n, (name, len)) in files[..40].iter().enumerate() {
            let mark = requests(&counted);
            assert!(contents(&volume, name, 4096) == bytes(n as u64, *len));
            woken += usize::from(requests(&counted) != mark);
        }
        match all {
            true => assert_eq!(requests(&counted) - before, Counts::default()),
            false => assert!((20..=40).contains(&woken), "{woken}"),
        }
        let before = requests(&counted);
        contents(&volume, "large", 1 << 20);
        assert_ne!(requests(&counted) - before, Counts::default(), "it is not small");
        volume.unmount().unwrap();
    }
}

#[test]
fn of_two_slots_that_say_they_have_the_same_block_neither_is_believed() {
    let image = Arc::new(empty_keep(100));
    let (disk, _) = with_files(Some(image.clone()), &[("letter", 20_000)]);
    let layout = keep::Layout::within(image.blocks()).unwrap();
    let block = |dev: &Memory, at: u64| {
        let mut block = [0; BLOCK];
        dev.read(Lba(at), &mut block, Tag::default()).unwrap();
        block
    };
    let life = (0..HEADS).filter_map(|at| KeepHead::read(&block(&image, at)).ok()).map(|h| h.life).max().unwrap();
    let table = block(&image, layout.table(0));
    let full: Vec<usize> = (0..100).filter(|n| keep::entry(&table, *n, life).is_some()).collect();
    let empty: Vec<usize> = (0..100).filter(|n| !full.contains(n)).collect();
    for (slot, other) in [(full[0], empty[0]), (full[1], *empty.last().unwrap())] {
        // Its old contents from before a rewrite, as a power cut may leave them; before and behind the current one.
        let (copy, mut table, old) = (image.fork(), table, [7; BLOCK]);
        let kept = keep::entry(&table, slot, life).unwrap();
        let stale = Kept { crc: copy_crc(kept.addr, &old), ..kept };
        let (stale_at, true_at) = (slot.min(other), slot.max(other));
        for (stale_at, true_at) in [(stale_at, true_at), (true_at, stale_at)] {
            keep::put_entry(&mut table, stale_at, life, Some(stale));
            keep::put_entry(&mut table, true_at, life, Some(kept));
            let own = block(&image, layout.slot(slot as u64));
            for (at, block) in
                [(layout.slot(stale_at as u64), old), (layout.slot(true_at as u64), own), (layout.table(0), table)]
            {
                copy.write(Lba(at), &block, Tag::default()).unwrap();
            }
            let volume = mount(disk.clone(), MountOptions { read_only: true, ..with(Arc::new(copy.fork()), None) });
            assert!(contents(&volume, "letter", 4096) == bytes(0, 20_000));
        }
    }
}

/// A volume and a plain model of it, so small that blocks are reused continually.
struct Course {
    disk: Device,
    keep: Arc<Memory>,
    /// Earlier copies of the keep.
    old: Vec<Memory>,
    model: BTreeMap<String, Vec<u8>>,
    rng: Rng,
    served: u64,
    moved: u64,
}

impl Course {
    fn new(seed: u64) -> Self {
        let dev = Arc::new(Memory::new(480));
        let options = scherlfs::make::Options { segment_blocks: 16, ..scherlfs::make::Options::default() };
        scherlfs::make::format(dev.clone(), &VirtualClock::default(), &options).unwrap();
        let keep = Arc::new(empty_keep(60 + 160 * (seed % 3)));
        Course { disk: dev, keep, old: Vec::new(), model: BTreeMap::new(), rng: Rng::new(seed), served: 0, moved: 0 }
    }

    fn change(&mut self, volume: &Volume) {
        let name = format!("f{}", self.rng.below(12));
        let root = volume.root();
        match (self.model.contains_key(&name), self.rng.below(8)) {
            (false, _) => {
                let new = bytes(self.rng.below(1 << 40), self.rng.below(60_000) as usize);
                let ino = write(volume, &name, &new).unwrap();
                volume.forget(ino, 1);
                self.model.insert(name, new);
            }
            (true, 0..3) => {
                volume.unlink(root, name.as_bytes()).unwrap();
                self.model.remove(&name);
            }
            (true, 3) => {
                let ino = volume.lookup(root, name.as_bytes()).unwrap().attr.ino;
                let size = self.rng.below(60_000);
                volume.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
                volume.forget(ino, 1);
                self.model.entry(name).or_default().resize(size as usize, 0);
            }
            (true, _) => {
                let ino = volume.lookup(root, name.as_bytes()).unwrap().attr.ino;
                let (at, part) =
                    (self.rng.below(50_000), bytes(self.rng.below(1 << 40), 1 + self.rng.below(9000) as usize));
                volume.write(ino, at, &part, WriteFlags::empty()).unwrap();
                volume.forget(ino, 1);
                let held = self.model.entry(name).or_default();
                held.resize(held.len().max(at as usize + part.len()), 0);
                held[at as usize..][..part.len()].copy_from_slice(&part);
            }
        }
    }

    fn check(&mut self, volume: &Volume, place: &str) {
        for (name, held) in &self.model {
            let piece = 4096 << self.rng.below(5);
            assert!(contents(volume, name, piece) == *held, "{place}: {name}");
        }
    }

    /// A mount, some calls, and one of several endings.
    fn round(&mut self, n: u64) {
        let place = format!("round {n}");
        let (kept, ends) = (self.rng.below(4) > 0, self.rng.below(3));
        let keep = Arc::new(Faulty::new(self.keep.clone()));
        if self.rng.below(3) == 0 {
            // One request fails, later ones do not.
            let nth = 3 + self.rng.below(60);
            let op = [Op::Read, Op::Write, Op::Write, Op::Flush][self.rng.below(4) as usize];
            keep.add(Fault::Nth { op, requests: nth..nth + 1 });
        }
        let options = match kept {
            true => with(keep, None),
            false => MountOptions::default(),
        };
        let options = MountOptions { dirty: 40, checkpoint_blocks: 60, ..options };
        let volume = mount(self.disk.clone(), options);
        self.check(&volume, &place);
        for _ in 0..self.rng.below(12) {
            self.change(&volume);
            match self.rng.below(12) {
                0..3 => volume.sync().unwrap(),
                // Blocks are moved without reads or writes of a file.
                3 => {
                    let done = volume.tidy().unwrap();
                    self.moved += done.moved + done.gathered;
                }
                _ => {}
            }
            if self.rng.below(3) == 0 {
                settle(&volume);
                self.check(&volume, &place);
            }
        }
        volume.sync().unwrap();
        self.check(&volume, &place);
        if kept {
            self.served += reported(&volume, "keep_blocks_answered");
        }
        // Or without saving the keep.
        if ends > 0 {
            volume.unmount().unwrap();
        }
        drop(volume);
        match self.rng.below(8) {
            0 => self.old.push(self.keep.fork()),
            1 if !self.old.is_empty() => {
                // An older copy of the file is restored.
                let old = self.old.remove(self.rng.below(self.old.len() as u64) as usize);
                self.keep = Arc::new(old);
            }
            2 => {
                for _ in 0..10 {
                    let mut block = [0; BLOCK];
                    let (from, to) = (self.rng.below(self.keep.blocks()), self.rng.below(self.keep.blocks() - HEADS));
                    self.keep.read(Lba(from), &mut block, Tag::default()).unwrap();
                    block[self.rng.below(BLOCK as u64) as usize] ^=
                        [0, 1 << self.rng.below(8)][self.rng.below(2) as usize];
                    self.keep.write(Lba(HEADS + to), &block, Tag::default()).unwrap();
                }
            }
            _ => {}
        }
    }
}

#[test]
fn with_the_keep_and_without_it_a_file_has_the_bytes_that_were_written() {
    let (mut served, mut moved) = (0, 0);
    for seed in 0..30 {
        let mut course = Course::new(seed);
        (0..25).for_each(|n| course.round(n));
        served += course.served;
        moved += course.moved;
        let alone = mount(course.disk.clone(), read_only());
        course.check(&alone, "without the keep");
    }
    assert!(served > 20_000 && moved > 1000, "{served} blocks came from the keep, {moved} were moved");
}

#[test]
fn a_keep_of_another_volume_size_or_version_begins_anew_and_says_so() {
    let keep: Device = Arc::new(empty_keep(100));
    let (disk, _) = with_files(Some(keep.clone()), &[("letter", 20_000)]);
    let options = || MountOptions { read_only: true, ..with(keep.clone(), None) };
    assert_eq!(mount(disk.clone(), options()).warning(), None);
    let (other, _) = with_files(None, &[("letter", 10_000)]);
    assert!(mount(other.clone(), options()).warning().unwrap().contains("the keep is rebuilt"));
    assert!(contents(&mount(other, options()), "letter", 4096) == bytes(0, 10_000));
    for byte in 0..100 {
        let copy = Memory::new(keep.blocks());
        for at in 0..keep.blocks() {
            let mut block = [0; BLOCK];
            keep.read(Lba(at), &mut block, Tag::default()).unwrap();
            if at < HEADS {
                block[byte] ^= 0x11;
            }
            copy.write(Lba(at), &block, Tag::default()).unwrap();
        }
        let volume = mount(disk.clone(), MountOptions { read_only: true, ..with(Arc::new(copy), None) });
        assert!(contents(&volume, "letter", 4096) == bytes(0, 20_000), "byte {byte}");
    }
}

#[test]
fn a_failing_disk_of_the_keep_costs_nothing_but_requests() {
    for nth in 0..60 {
        let op = [Op::Read, Op::Write, Op::Flush][nth as usize % 3];
        let (disk, keep) = (Arc::new(formatted()) as Device, Arc::new(Faulty::new(empty_keep(200))));
        keep.add(Fault::Nth { op, requests: 3 + nth * [4, 3, 1][nth as usize % 3] / 3..u64::MAX });
        let volume = match Volume::mount(disk.clone(), Arc::new(VirtualClock::default()), with(keep.clone(), None)) {
            Ok(volume) => volume,
            Err(e) => panic!("{op:?} {nth}: {e}"),
        };
        for n in 0..20 {
            write(&volume, &format!("f{n}"), &bytes(n, 9000)).unwrap();
            volume.sync().unwrap();
            assert!(contents(&volume, &format!("f{}", n / 2), 4096) == bytes(n / 2, 9000));
            volume.unlink(volume.root(), format!("f{n}").as_bytes()).unwrap();
            write(&volume, &format!("f{n}"), &bytes(n, 9000)).unwrap();
        }
        volume.unmount().unwrap();
        keep.heal();
        let volume = mount(disk, MountOptions { read_only: true, ..with(keep, None) });
        (0..20).for_each(|n| assert!(contents(&volume, &format!("f{n}"), 4096) == bytes(n, 9000), "{op:?} {nth}"));
    }
}
