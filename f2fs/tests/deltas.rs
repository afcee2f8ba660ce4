//! Small updates stored in the inode: the cost of their fsync, and the state afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{BlockDevice, Counting, Fault, Faulty, Gate, Loss, Memory, Op, PowerCut, Rng};
use format::inode::RawInode;
use format::superblock::{Features, MAGIC, SuperBlock};
use joulefs_f2fs::delta::Places;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::settle::{Settled, settle, unsettle};
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, FileSystem, Ino, SetAttr};

use crate::log_rig::*;
use crate::log_rig::{new_file_or, with_deltas};

const BLOCK: usize = 4096;

/// Changes eight bytes.
fn nudge(contents: &mut [u8], at: usize, seed: u64) -> std::ops::Range<usize> {
    let range = at..contents.len().min(at + 8);
    contents[range.clone()].copy_from_slice(&seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[..range.len()]);
    range
}

fn settled(image: &Memory) -> (Memory, Settled) {
    let dev = Arc::new(image.fork());
    let done = settle(dev.clone(), clock(), &mut |_, _| ()).unwrap().expect("it held deltas");
    (dev.fork(), done)
}

#[test]
fn an_fsync_of_small_changes_writes_one_block_and_flushes_once() {
    for blocks in [6, 100, 700] {
        let dev = Arc::new(Counting::new(with_deltas(64)));
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        let mut contents = pattern(1, blocks * BLOCK);
        write(&vol, f, 0, &contents);
        vol.sync().unwrap();
        for round in 0..10 {
            let before = dev.snapshot().total();
            for page in [0, 2, 3, 5] {
                let range = nudge(&mut contents, page * BLOCK + 100 * round as usize, round);
                write(&vol, f, range.start as u64, &contents[range]);
            }
            vol.fsync(f, false).unwrap();
            let cost = dev.snapshot().total() - before;
            assert_eq!((cost.blocks_written, cost.flushes), (1, 1), "{blocks} blocks, round {round}");
        }
        assert_eq!(vol.counters.deltas.load(Relaxed), 40);
        assert!(read_all(&vol, f) == contents);
        vol.unmount().unwrap();
        let vol = mount(dev.clone());
        assert!(read_all(&vol, f) == contents, "another mount");
    }
}

#[test]
fn a_file_that_grew_where_a_delta_became_shorter_is_replayed() {
    let cut = power_cut(&with_deltas(64));
    // Each tick writes back contents, but not their nodes.
    let options = MountOptions { writeback_after: Duration::ZERO, ..MountOptions::default() };
    let vol = Volume::mount(cut.clone(), clock(), options).unwrap();
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = pattern(1, 805 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.sync().unwrap();
    let old = contents[..200].to_vec();
    contents[..200].copy_from_slice(&pattern(2, 200));
    write(&vol, f, 0, &contents[..200]);
    vol.sync().unwrap();
    let ino = format::Ino(f.0 as u32);
    assert_eq!(vol.deltas_in(ino).unwrap(), 1);
    contents[8..200].copy_from_slice(&old[8..]);
    write(&vol, f, 8, &old[8..]);
    vol.tick().unwrap();
    contents.extend(pattern(3, 45 * BLOCK));
    write(&vol, f, 805 * BLOCK as u64, &contents[805 * BLOCK..]);
    vol.fsync(f, false).unwrap();
    assert_eq!(vol.deltas_in(ino).unwrap(), 1, "there is room for the shorter one");
    for loss in [Loss::AllLost, Loss::AllKept] {
        assert!(recovered(&cut.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()) == contents));
    }
}

#[test]
fn an_fsync_of_one_small_change_costs_what_a_block_in_place_costs_or_less() {
    let dev = Arc::new(Counting::new(with_deltas(64)));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = pattern(1, 20 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.fsync(f, false).unwrap();
    for (round, data_only) in [true, false, true, true, false].into_iter().enumerate() {
        let before = dev.snapshot().total();
        let range = nudge(&mut contents, round * BLOCK, round as u64);
        write(&vol, f, range.start as u64, &contents[range]);
        vol.fsync(f, data_only).unwrap();
        let cost = dev.snapshot().total() - before;
        assert_eq!((cost.blocks_written, cost.flushes), (1, 1), "round {round}");
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
    assert_eq!((count(&vol.counters.deltas), count(&vol.counters.in_place)), (2, 3));
    assert!(read_all(&vol, f) == contents);
}

#[test]
fn without_the_option_pages_are_written_whole_and_old_deltas_are_read() {
    let dev = Arc::new(with_deltas(64));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = pattern(1, 20 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.sync().unwrap();
    for page in 0..12 {
        let range = nudge(&mut contents, page * BLOCK + 5, 1);
        write(&vol, f, range.start as u64, &contents[range]);
    }
    vol.fsync(f, false).unwrap();
    vol.unmount().unwrap();
    let off = MountOptions { delta: false, ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock(), off).unwrap();
    assert!(read_all(&vol, f) == contents);
    // Overwriting in place would lose the base in a power cut before the inode is written.
    for page in 0..3 {
        let range = nudge(&mut contents, page * BLOCK + 50, 2);
        write(&vol, f, range.start as u64, &contents[range]);
    }
    vol.fsync(f, true).unwrap();
    assert_eq!((vol.counters.deltas.load(Relaxed), vol.counters.in_place.load(Relaxed)), (0, 0));
    assert!(read_all(&vol, f) == contents);
    vol.unmount().unwrap();
    let (plain, done) = settled(&dev.fork());
    assert_eq!(done, Settled { inodes: 1, deltas: 9 });
    assert_tools_clean(&plain);
    let vol = mount_copy(&plain);
    assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents);
}

#[test]
fn a_file_that_grew_into_its_zone_is_replayed() {
    for places in [Places::Inode, Places::Both] {
        let cut = power_cut(&with_deltas(64));
        let dev = Arc::new(Counting::new(cut.clone()));
        let options = MountOptions { delta_places: places, ..MountOptions::default() };
        let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
        let f = new_file(&vol, vol.root(), "f");
        let mut contents = pattern(1, 830 * BLOCK);
        write(&vol, f, 0, &contents);
        vol.sync().unwrap();
        for page in 0..6 {
            let range = nudge(&mut contents, page * BLOCK, 1);
            write(&vol, f, range.start as u64, &contents[range]);
        }
        vol.sync().unwrap();
        let ino = format::Ino(f.0 as u32);
        assert_eq!(vol.deltas_in(ino).unwrap(), 6);
        // Up to the last slot of the inode.
        contents.extend(pattern(2, 34 * BLOCK));
        let before = dev.snapshot().total();
        write(&vol, f, 830 * BLOCK as u64, &contents[830 * BLOCK..]);
        let cost = dev.snapshot().total() - before;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let (folded, moved) = (count(&vol.counters.folded), count(&vol.counters.deltas_moved));
        let expected = if places == Places::Inode { (6, 0) } else { (0, 6) };
        assert_eq!((folded, moved), expected);
        if places == Places::Both {
            assert_eq!(cost.reads + cost.writes, 0, "a writer waited for the device");
        }
        let range = nudge(&mut contents, 100 * BLOCK, 2);
        write(&vol, f, range.start as u64, &contents[range]);
        assert!(read_all(&vol, f) == contents);
        vol.fsync(f, false).unwrap();
        assert_eq!(vol.deltas_in(ino).unwrap() > 5, places == Places::Both);
        for loss in [Loss::AllLost, Loss::AllKept] {
            assert!(recovered(&cut.image(loss), |vol| read_all(vol, find(vol, "f").unwrap()) == contents));
        }
        vol.unmount().unwrap();
        let image = cut.image(Loss::AllKept);
        assert_clean(&image, "unmounted");
        let (plain, _) = settled(&image);
        assert_tools_clean(&plain);
        let vol = mount_copy(&plain);
        assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents);
    }
}

/// A file under test: its present contents and the last promised ones.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) ino: Ino,
    pub(crate) now: Vec<u8>,
    pub(crate) durable: Option<Vec<u8>>,
    /// Changed since the promise.
    pub(crate) touched: bool,
}

/// Random work on some files; ends at the first error, which a cut causes.
pub(crate) fn work(vol: &Volume, files: &mut BTreeMap<String, File>, seed: u64, steps: usize) -> vfs::Result<()> {
    let mut rng = Rng::new(seed);
    for step in 0..steps as u64 {
        let name = format!("f{}", rng.below(3));
        if !files.contains_key(&name) {
            let ino = new_file_or(vol, &name)?;
            files.insert(name.clone(), File { ino, now: Vec::new(), durable: None, touched: true });
        }
        let f = files.get_mut(&name).unwrap();
        let blocks = f.now.len().div_ceil(BLOCK);
        f.touched = true;
        match rng.below(25) {
            0..=9 if blocks > 0 => {
                for _ in 0..=rng.below(3) {
                    let at = rng.below(f.now.len() as u64) as usize;
                    let range = nudge(&mut f.now, at, step);
                    vol.write(f.ino, range.start as u64, &f.now[range], vfs::WriteFlags::empty())?;
                }
            }
            0..=12 => {
                let at = rng.below(1 + f.now.len().min(900 * BLOCK) as u64) as usize;
                let data = pattern(step, 1 + rng.below(6 * BLOCK as u64) as usize);
                f.now.resize(f.now.len().max(at + data.len()), 0);
                f.now[at..at + data.len()].copy_from_slice(&data);
                vol.write(f.ino, at as u64, &data, vfs::WriteFlags::empty())?;
            }
            13 => {
                // Beyond the zone of a small file.
                let at = f.now.len().max(rng.below(850) as usize * BLOCK);
                let data = pattern(step, 1 + rng.below(2 * BLOCK as u64) as usize);
                f.now.resize(at + data.len(), 0);
                f.now[at..].copy_from_slice(&data);
                vol.write(f.ino, at as u64, &data, vfs::WriteFlags::empty())?;
            }
            14 => {
                let size = rng.below(1 + f.now.len() as u64 * 5 / 4);
                f.now.resize(size as usize, 0);
                vol.setattr(f.ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
            }
            15 if blocks > 2 => {
                let (at, len) = (rng.below(f.now.len() as u64), 1 + rng.below(3 * BLOCK as u64));
                let end = f.now.len().min((at + len) as usize);
                f.now[at as usize..end].fill(0);
                vol.fallocate(f.ino, Allocate::PunchHole, at, len)?;
            }
            16 if blocks > 3 => {
                let (at, len) = (rng.below(blocks as u64 - 2) as usize * BLOCK, BLOCK);
                vol.fallocate(f.ino, Allocate::Collapse, at as u64, len as u64)?;
                f.now.drain(at..at + len);
            }
            17 if blocks > 1 => {
                let at = rng.below(blocks as u64 - 1) as usize * BLOCK;
                vol.fallocate(f.ino, Allocate::Insert, at as u64, BLOCK as u64)?;
                f.now.splice(at..at, vec![0; BLOCK]);
            }
            18..=21 => {
                let data_only = rng.below(2) == 0;
                vol.fsync(f.ino, data_only)?;
                (f.durable, f.touched) = (Some(f.now.clone()), false);
            }
            22 => {
                vol.sync()?;
                files.values_mut().for_each(|f| (f.durable, f.touched) = (Some(f.now.clone()), false));
            }
            23 => drop(vol.clean_in_foreground()?),
            _ => {
                vol.unlink(vol.root(), name.as_bytes())?;
                vol.forget(f.ino, 1);
                files.remove(&name);
                vol.sync()?;
                files.values_mut().for_each(|f| (f.durable, f.touched) = (Some(f.now.clone()), false));
            }
        }
    }
    Ok(())
}

#[test]
fn a_volume_with_deltas_holds_what_one_without_holds() {
    let (mut deltas, mut folded, mut moved) = (0, 0, 0);
    for seed in 0..14 {
        let dev = Arc::new(with_deltas(64));
        let vol = mount(dev.clone());
        let mut files = BTreeMap::new();
        for part in 0..10 {
            work(&vol, &mut files, 100 * seed + part, 120).unwrap();
            for (name, f) in &files {
                assert!(read_all(&vol, f.ino) == f.now, "seed {seed}, part {part}: {name}");
            }
        }
        deltas += vol.counters.deltas.load(Relaxed);
        folded += vol.counters.folded.load(Relaxed);
        moved += vol.counters.moved_foreground.load(Relaxed);
        vol.unmount().unwrap();
        assert_clean(&*dev, "unmounted");
        let (plain, _) = settled(&dev.fork());
        assert_tools_clean(&plain);
        for image in [&dev.fork(), &plain] {
            let vol = mount_copy(image);
            for (name, f) in &files {
                assert!(read_all(&vol, find(&vol, name).unwrap()) == f.now, "seed {seed}: {name} in another mount");
            }
        }
    }
    assert!(deltas > 2000 && folded > 100 && moved > 400, "{deltas} deltas, {folded} folded, {moved} blocks moved");
}

pub(crate) fn judge(image: &Memory, files: &BTreeMap<String, File>, when: &str) {
    let look = |vol: &Volume| {
        for (name, f) in files {
            let Some(durable) = &f.durable else { continue };
            let held = find(vol, name).map(|ino| read_all(vol, ino));
            let held = held.unwrap_or_else(|| panic!("{when}: {name} is gone"));
            if !f.touched {
                assert!(held == *durable, "{when}: {name}");
            }
        }
    };
    recovered(image, look);
    let (plain, _) = settled(image);
    look(&mount_copy(&plain));
}

#[test]
fn what_was_synced_survives_a_cut_at_any_write() {
    let mut cuts = 0;
    for seed in 0..6 {
        let base = with_deltas(56);
        let writes = {
            let cut = power_cut(&base);
            let vol = mount(cut.clone());
            work(&vol, &mut BTreeMap::new(), seed, 150).unwrap();
            assert!(vol.counters.deltas.load(Relaxed) > 10);
            cut.write_count()
        };
        for at in (seed..writes).step_by(5) {
            let cut = power_cut(&base);
            cut.cut_after(at);
            let Ok(vol) = Volume::mount(cut.clone(), clock(), MountOptions::default()) else { continue };
            let mut files = BTreeMap::new();
            if work(&vol, &mut files, seed, 150).is_ok() {
                continue;
            }
            drop(vol);
            let images = [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(at), cut.survivors(at + 1)];
            for (n, image) in images.iter().enumerate() {
                judge(image, &files, &format!("seed {seed}, write {at}, loss {n}"));
                cuts += 1;
            }
        }
    }
    assert!(cuts > 500, "{cuts}");
}

/// Number of superblock copies that another system takes for plain F2FS.
fn plain_copies(image: &Memory) -> usize {
    let copy = |at: u64| {
        let mut block = [0; BLOCK];
        image.read(device::Lba(at), &mut block, device::Tag::default()).unwrap();
        SuperBlock::check(&block).is_ok_and(|sb| sb.raw.magic.get() == MAGIC)
    };
    usize::from(copy(0)) + usize::from(copy(1))
}

/// Number of inodes marked as having a zone, whatever the superblock contains.
fn zones(image: &Memory) -> usize {
    let vol = mount_copy(image);
    let marked = |ino: &u32| {
        let at = vol.inode_address(format::Ino(*ino)).unwrap();
        let mut block = [0; BLOCK];
        at.is_real() && {
            image.read(device::Lba(at.0.into()), &mut block, device::Tag::default()).unwrap();
            RawInode::of(&block).has_zone()
        }
    };
    (3..200).filter(marked).count()
}

#[test]
fn a_delta_is_not_durable_before_a_base_that_was_overwritten_in_place() {
    let cut = power_cut(&with_deltas(64));
    let dev = Arc::new(Gate::new(cut.clone()));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = pattern(1, 20 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.fsync(f, false).unwrap();
    let mut lawful = vec![contents.clone()];
    let mut change = |at: usize| {
        let range = nudge(&mut contents, at, at as u64 + 1);
        write(&vol, f, range.start as u64, &contents[range]);
        lawful.push(contents.clone());
    };
    change(0);
    // The block is overwritten in place, and its flush is still running.
    dev.stop(Op::Flush, None);
    let images = std::thread::scope(|s| {
        s.spawn(|| vol.fsync(f, true).unwrap());
        assert!(dev.await_one());
        change(100);
        s.spawn(|| vol.fsync(f, false).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        let images = [Loss::OnlyLastKept, Loss::AllKept, Loss::AllLost].map(|loss| cut.image(loss));
        dev.go_on();
        images
    });
    for image in images {
        assert!(lawful.contains(&recovered(&image, |vol| read_all(vol, find(vol, "f").unwrap()))));
    }
    assert_eq!(vol.counters.in_place.load(Relaxed), 1);
    assert_eq!(vol.counters.deltas.load(Relaxed), 1);
}

#[test]
fn a_base_that_cannot_be_read_costs_no_other_page_and_no_checkpoint() {
    let dev = Arc::new(Faulty::new(with_deltas(64)));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    let mut contents = pattern(1, 60 * BLOCK);
    write(&vol, f, 0, &contents);
    vol.sync().unwrap();
    let mut change = |vol: &Volume, page: usize, bytes: usize, seed: u64| {
        let at = page * BLOCK + 10;
        contents[at..at + bytes].copy_from_slice(&pattern(seed, bytes));
        write(vol, f, at as u64, &contents[at..at + bytes]);
        contents.clone()
    };
    // The zone is full, and the first page's delta is the largest.
    change(&vol, 0, 240, 7);
    (1..15).for_each(|page| drop(change(&vol, page, 190, page as u64)));
    vol.sync().unwrap();
    let ino = format::Ino(f.0 as u32);
    let before = vol.deltas_in(ino).unwrap();
    assert_eq!(before, 15);
    let base = {
        let mut block = [0; BLOCK];
        let at = vol.inode_address(ino).unwrap();
        dev.read(device::Lba(at.0.into()), &mut block, device::Tag::default()).unwrap();
        let raw = RawInode::of(&block);
        u64::from(raw.addr(raw.divide(vol.superblock().features).unwrap(), 0).0)
    };
    // Another mount has no bases in memory.
    vol.unmount().unwrap();
    let vol = mount(dev.clone());
    dev.add(Fault::Place { op: Op::Read, blocks: base..base + 1 });
    let expected = (20..30).map(|page| change(&vol, page, 100, page as u64)).last().unwrap();
    vol.fsync(f, false).unwrap();
    vol.sync().unwrap();
    let g = new_file(&vol, vol.root(), "g");
    write(&vol, g, 0, b"others go on");
    vol.sync().unwrap();
    let mut page = vec![0; BLOCK];
    assert!(vol.read(f, 0, &mut page).is_err());
    dev.heal();
    assert!(read_all(&vol, f) == expected);
    vol.unmount().unwrap();
    assert_clean(&*dev, "unmounted");
}

#[test]
fn a_superblock_copy_that_cannot_be_read_lets_no_delta_be_made() {
    let dev = Arc::new(Faulty::new(with_deltas(64)));
    dev.add(Fault::Place { op: Op::Read, blocks: 1..2 });
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &pattern(1, 20 * BLOCK));
    vol.sync().unwrap();
    (0..12).for_each(|page| write(&vol, f, page * BLOCK as u64, b"changed"));
    vol.fsync(f, false).unwrap();
    assert_eq!(vol.counters.deltas.load(Relaxed), 0);
}

#[test]
fn the_number_that_stands_for_deltas_in_memory_is_no_feature_on_the_device() {
    for image in [formatted(64, &Options::modern()), with_deltas(64)] {
        for copy in [0, 1] {
            let mut block = [0; BLOCK];
            image.read(device::Lba(copy), &mut block, device::Tag::default()).unwrap();
            let mut raw = SuperBlock::check(&block).unwrap().raw;
            raw.feature = (raw.feature.get() | Features::DELTA.bits()).into();
            raw.store(&mut block);
            image.write(device::Lba(copy), &block, device::Tag::default()).unwrap();
        }
        assert!(Volume::mount(Arc::new(image), clock(), MountOptions::default()).is_err());
    }
}

#[test]
fn no_delta_is_made_while_one_copy_of_the_superblock_is_plain() {
    for plain in [0, 1] {
        let dev = Arc::new(with_deltas(64));
        let stock = formatted(64, &Options::modern());
        let mut block = [0; BLOCK];
        stock.read(device::Lba(plain), &mut block, device::Tag::default()).unwrap();
        dev.write(device::Lba(plain), &block, device::Tag::default()).unwrap();
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &pattern(1, 20 * BLOCK));
        vol.sync().unwrap();
        (0..12).for_each(|page| write(&vol, f, page * BLOCK as u64, b"changed"));
        vol.fsync(f, false).unwrap();
        vol.unmount().unwrap();
        assert_eq!(vol.counters.deltas.load(Relaxed), 0, "copy {plain}");
        assert_eq!(settle(dev.clone(), clock(), &mut |_, _| ()).unwrap(), None);
        assert_eq!(plain_copies(&dev.fork()), 2, "the other copy is mended");
        assert_tools_clean(&dev.fork());
    }
}

#[test]
fn at_any_cut_of_settling_a_volume_that_linux_mounts_holds_no_delta() {
    let mut contents = pattern(1, 30 * BLOCK);
    let image = {
        let dev = Arc::new(formatted(56, &Options::modern()));
        assert!(unsettle(&*dev).unwrap() && !unsettle(&*dev).unwrap());
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &contents);
        vol.sync().unwrap();
        for page in 0..20 {
            let range = nudge(&mut contents, page * BLOCK + 9, 3);
            write(&vol, f, range.start as u64, &contents[range]);
        }
        vol.fsync(f, false).unwrap();
        // Power cut.
        dev.fork()
    };
    assert_eq!(plain_copies(&image), 0);
    let writes = {
        let cut = power_cut(&image);
        let done = settle(cut.clone(), clock(), &mut |_, _| ()).unwrap().unwrap();
        assert_eq!(done.deltas, 20);
        cut.write_count()
    };
    let (mut refused, mut taken) = (0, 0);
    for at in 0..=writes {
        let cut = Arc::new(PowerCut::new(image.fork()));
        cut.cut_after(at);
        let _ = settle(cut.clone(), clock(), &mut |_, _| ());
        let images = [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(at), cut.survivors(at + 1)];
        for (loss, left) in images.into_iter().enumerate() {
            if plain_copies(&left) > 0 {
                assert_eq!(zones(&left), 0, "write {at}, loss {loss}");
                assert_tools_clean_copy(&left);
                taken += 1;
            } else {
                refused += 1;
            }
            // It can be settled again.
            let dev = Arc::new(left.fork());
            settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
            assert_eq!(plain_copies(&dev.fork()), 2);
            let vol = mount(dev);
            assert!(read_all(&vol, find(&vol, "f").unwrap()) == contents, "write {at}, loss {loss}");
        }
    }
    assert!(refused > 10 && taken > 3, "{refused}, {taken}");
}

/// Ignores a differing superblock copy.
fn assert_tools_clean_copy(image: &Memory) {
    let dev = Arc::new(image.fork());
    settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
    assert_tools_clean(&dev.fork());
}
