//! Free space and files that are read together become contiguous, every byte is unchanged, and the second reader
//! finds no fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Memory, Rng, VirtualClock};
use joulefs_scherlfs as scherlfs;
use scherlfs::{Clean, MountOptions, Strategy, Volume, make};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, Power, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };

fn formatted(mib: u64, segment_blocks: u32) -> Arc<Memory> {
    let dev = Arc::new(Memory::new(mib * 256));
    make::format(dev.clone(), &VirtualClock::default(), &make::Options { segment_blocks, ..Default::default() })
        .unwrap();
    dev
}

fn mounted(dev: &Arc<Memory>, options: MountOptions) -> Volume {
    Volume::mount(dev.clone(), Arc::new(VirtualClock::default()), options).unwrap()
}

fn check(dev: &dyn BlockDevice) {
    let report = scherlfs_fsck::check(dev);
    assert!(report.is_clean(), "{:?}", report.findings);
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len as usize).collect()
}

/// Files with their contents.
struct Files {
    all: BTreeMap<u64, (Ino, Vec<u8>)>,
    next: u64,
}

impl Files {
    fn create(&mut self, volume: &Volume, len: u64) {
        let (n, content) = (self.next, bytes(self.next, len));
        self.next += 1;
        let Ok(entry) = volume.mknod(ME, volume.root(), format!("f{n}").as_bytes(), &FILE) else { return };
        let ino = entry.attr.ino;
        let mut at = 0;
        while at < content.len() {
            match volume.write(ino, at as u64, &content[at..], WriteFlags::empty()) {
                Ok(n) if n > 0 => at += n,
                _ => break,
            }
        }
        self.all.insert(n, (ino, content[..at].to_vec()));
    }
    fn remove(&mut self, volume: &Volume, n: u64) {
        let Some((ino, _)) = self.all.remove(&n) else { return };
        volume.unlink(volume.root(), format!("f{n}").as_bytes()).unwrap();
        volume.forget(ino, 1);
    }
    fn compare(&self, volume: &Volume) {
        for (n, (ino, content)) in &self.all {
            let mut found = vec![0; content.len() + 1];
            assert_eq!(volume.read(*ino, 0, &mut found).unwrap(), content.len(), "f{n}");
            assert!(found[..content.len()] == content[..], "f{n}");
        }
    }
}

/// Fills a volume with small files, a few at a time, and removes all but `keep` percent.
fn fragmented(volume: &Volume, keep: u64) -> Files {
    let (mut files, mut rng) = (Files { all: BTreeMap::new(), next: 0 }, Rng::new(9));
    while volume.statfs().unwrap().blocks_free > 80 {
        files.create(volume, 1000 + rng.below(40_000));
        if files.next % 8 == 0 {
            volume.sync().unwrap();
        }
    }
    let gone: Vec<u64> = files.all.keys().copied().filter(|_| rng.below(100) >= keep).collect();
    gone.into_iter().for_each(|n| files.remove(volume, n));
    volume.sync().unwrap();
    files
}

fn number(volume: &Volume, name: &str) -> u64 {
    volume.report().into_iter().find(|(n, _)| n == name).unwrap().1.parse().unwrap()
}

#[test]
fn each_strategy_makes_long_runs_of_holes_but_threading() {
    for (strategy, keep) in [
        (Strategy::Threading, 50),
        (Strategy::Copying, 50),
        (Strategy::Plugging, 50),
        (Strategy::Combined, 50),
        (Strategy::Plugging, 85),
        (Strategy::Combined, 85),
    ] {
        let dev = formatted(32, 64);
        let volume = mounted(&dev, MountOptions::default());
        let files = fragmented(&volume, keep);
        volume.unmount().unwrap();
        let volume = mounted(&dev, MountOptions { clean: Clean::Always(strategy), ..MountOptions::default() });
        let free = number(&volume, "free_blocks");
        let before = number(&volume, "free_in_long_runs");
        let done = volume.tidy().unwrap();
        let after = number(&volume, "free_in_long_runs");
        println!("{strategy:?} at {keep} %: of {free} free blocks {before}, then {after} in long runs: {done:?}");
        match strategy {
            Strategy::Threading => assert_eq!((done.moved, done.passes), (0, 0)),
            _ => {
                assert!(done.segments > 0 && done.moved > 0);
                assert!(after * 10 > free * 7, "{strategy:?}: {after} of {free}, {before} before");
            }
        }
        files.compare(&volume);
        volume.unmount().unwrap();
        check(&*dev);
        files.compare(&mounted(&dev, MountOptions { read_only: true, ..MountOptions::default() }));
    }
}

#[test]
fn room_is_made_before_the_log_has_to_go_through_holes() {
    for strategy in [Strategy::Copying, Strategy::Plugging, Strategy::Combined] {
        let dev = formatted(32, 64);
        let volume = mounted(&dev, MountOptions::default());
        let mut files = fragmented(&volume, 50);
        volume.unmount().unwrap();
        let volume = mounted(&dev, MountOptions { clean: Clean::Always(strategy), ..MountOptions::default() });
        let mut rng = Rng::new(77);
        for _ in 0..600 {
            let n = rng.below(files.next);
            files.remove(&volume, n);
            files.create(&volume, 1000 + rng.below(30_000));
            volume.sync().unwrap();
        }
        let done = volume.done();
        println!("{strategy:?}: {done:?}");
        assert!(done.passes > 0 && done.segments > 0, "{strategy:?}: {done:?}");
        files.compare(&volume);
        volume.unmount().unwrap();
        check(&*dev);
    }
}

/// Number of a file's extents on the disk.
fn extents(volume: &Volume, ino: Ino) -> usize {
    volume.extents(ino, 0, 10_000).unwrap().len()
}

#[test]
fn on_the_charger_a_file_of_many_pieces_becomes_one_and_files_of_a_habit_lie_in_its_order() {
    let dev = formatted(64, 256);
    let volume = mounted(&dev, MountOptions { power: Power::Powered, ..MountOptions::default() });
    let mut files = Files { all: BTreeMap::new(), next: 0 };
    files.create(&volume, 8 << 20);
    (0..40).for_each(|_| files.create(&volume, 9000));
    let (big, _) = files.all[&0].clone();
    let mut rng = Rng::new(5);
    for _ in 0..300 {
        let (at, page) = (rng.below(2048) * 4096, bytes(rng.next_u64(), 4096));
        volume.write(big, at, &page, WriteFlags::empty()).unwrap();
        files.all.get_mut(&0).unwrap().1[at as usize..at as usize + 4096].copy_from_slice(&page);
        volume.sync().unwrap();
    }
    let habit = [30, 3, 17, 25];
    for _ in 0..4 {
        for n in habit {
            volume.open(files.all[&n].0, false).unwrap();
            volume.release(files.all[&n].0);
        }
    }
    assert!(extents(&volume, big) > 200);
    let done = volume.tidy().unwrap();
    assert!(done.files >= 5, "{done:?}");
    assert_eq!(extents(&volume, big), 1);
    let place = |n: u64| volume.extents(files.all[&n].0, 0, 1).unwrap()[0].addr;
    let at: Vec<u64> = habit.iter().map(|n| place(*n)).collect();
    assert!(at.windows(2).all(|w| w[0] < w[1] && w[1] - w[0] < 8), "{at:?}");
    files.compare(&volume);
    // A second run has nothing to do.
    let again = volume.tidy().unwrap();
    assert_eq!((again.files, again.gathered), (0, 0), "{again:?}");
    volume.unmount().unwrap();
    check(&*dev);
}

#[test]
fn a_path_of_more_runs_than_the_superblock_names_is_walked_to_its_end_after_a_mount() {
    let dev = formatted(48, 64);
    let volume = mounted(&dev, MountOptions::default());
    let mut files = fragmented(&volume, 50);
    volume.unmount().unwrap();
    // All of it in one transaction, right after the mount.
    let volume = mounted(&dev, MountOptions { dirty: 1 << 20, ..MountOptions::default() });
    let runs = number(&volume, "free_runs");
    assert!(runs > 200, "{runs}");
    while volume.statfs().unwrap().blocks_free > 60 {
        files.create(&volume, 30_000);
    }
    volume.sync().unwrap();
    files.compare(&volume);
    volume.unmount().unwrap();
    check(&*dev);
    files.compare(&mounted(&dev, MountOptions::default()));
}
