//! Power cuts during atomic writes: each file is wholly old or wholly new.
//!
//! Transactions of several pages on several files run between ordinary writes, fsyncs and checkpoints of other files.
//! The power is cut at write requests; of the requests since the last flush some are lost, reordered or torn.
//! `JOULEFS_DEEP=1`
//! cuts at every request, ten thousand times.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Loss, Memory, PowerCut, Rng};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{FileSystem, Ino, WriteFlags};

use crate::log_rig::*;

/// The files: inside the inode, small, with nodes below the inode, and with two names, so that its fsync is a
/// checkpoint. Sizes in bytes.
const FILES: [(&str, usize); 4] = [("tiny", 90), ("small", 50_000), ("large", 1100 * 4096), ("twice", 30_000)];

/// What a file may hold after a cut.
#[derive(Clone)]
struct Expected {
    old: Vec<u8>,
    /// The contents after a commit that has begun.
    new: Option<Vec<u8>>,
}

/// A workload that knows what may remain of it; ends at the first error.
struct Work<'v> {
    vol: &'v Volume,
    files: Vec<(Ino, &'static str)>,
    expected: BTreeMap<&'static str, Expected>,
    commits: usize,
}

impl<'v> Work<'v> {
    /// Finds the files of [`base`].
    fn new(vol: &'v Volume) -> Self {
        let files = FILES.map(|(name, _)| (find(vol, name).unwrap(), name)).to_vec();
        let expected = FILES.iter().map(|(name, size)| (*name, Expected { old: pattern(1, *size), new: None }));
        Work { vol, expected: expected.collect(), files, commits: 0 }
    }

    fn write(&self, ino: Ino, at: usize, data: &[u8]) -> vfs::Result<()> {
        self.vol.write(ino, at as u64, data, WriteFlags::FROM_CACHE).map(drop)
    }

    /// Writes several pieces to each of some files, and commits or drops each set.
    fn transaction(&mut self, rng: &mut Rng) -> vfs::Result<()> {
        let some: Vec<_> = self.files.iter().filter(|_| rng.chance(1, 2)).copied().collect();
        let mut sets = Vec::new();
        for (ino, name) in some {
            self.vol.start_atomic(ino, 5)?;
            let mut new = self.expected[name].old.clone();
            let grows = rng.chance(1, 3) && new.len() < 6 << 20;
            for _ in 0..rng.range(1..7) {
                let at = if name == "tiny" && rng.chance(2, 3) { rng.index(60) } else { rng.index(new.len()) };
                let most = if name == "tiny" { 30 } else { 9000 };
                let mut data = pattern(rng.next_u64(), 1 + rng.index(most));
                if !grows {
                    data.truncate(new.len() - at);
                }
                if !data.is_empty() {
                    self.write(ino, at, &data)?;
                    new.resize(new.len().max(at + data.len()), 0);
                    new[at..at + data.len()].copy_from_slice(&data);
                }
            }
            sets.push((ino, name, new));
        }
        if rng.chance(1, 3) {
            self.noise(rng)?;
        }
        for (ino, name, new) in sets {
            if rng.chance(1, 6) {
                self.vol.abort_atomic(ino, 5)?;
                continue;
            }
            self.expected.get_mut(name).unwrap().new = Some(new);
            self.vol.commit_atomic(ino, 5)?;
            let e = self.expected.get_mut(name).unwrap();
            e.old = e.new.take().unwrap();
            self.commits += 1;
        }
        Ok(())
    }

    /// Other work, which may write a checkpoint while sets are open.
    fn noise(&self, rng: &mut Rng) -> vfs::Result<()> {
        let f = match find(self.vol, "noise") {
            Some(f) => f,
            None => new_file_or(self.vol, "noise")?,
        };
        self.write(f, rng.index(1 << 20), &pattern(rng.next_u64(), 1 + rng.index(100_000)))?;
        match rng.below(3) {
            0 => self.vol.sync(),
            1 => self.vol.fsync(f, false),
            _ => self.vol.fsync(self.files[rng.index(self.files.len())].0, rng.chance(1, 2)),
        }
    }

    fn run(&mut self, seed: u64, transactions: usize) -> vfs::Result<()> {
        let mut rng = Rng::new(seed);
        for _ in 0..transactions {
            self.transaction(&mut rng)?;
        }
        Ok(())
    }
}

/// An image with the files.
fn base(empty: &Memory) -> Memory {
    let dev = Arc::new(empty.fork());
    let vol = mount(dev.clone());
    for (name, size) in FILES {
        let f = new_file(&vol, vol.root(), name);
        write(&vol, f, 0, &pattern(1, size));
    }
    vol.link(find(&vol, "twice").unwrap(), vol.root(), b"again").unwrap();
    vol.unmount().unwrap();
    drop(vol);
    dev.fork()
}

/// True if a file is new. Fails if one is neither wholly old nor wholly new, or a checker finds fault; `fsck.f2fs` knows
/// only `plain` volumes, without deltas.
fn judge(expected: &BTreeMap<&'static str, Expected>, image: &Memory, plain: bool, what: &str) -> bool {
    let dev = Arc::new(image.fork());
    assert_clean(&*dev, what);
    let vol = mount(dev.clone());
    let mut any_new = false;
    for (name, e) in expected {
        let found = read_all(&vol, find(&vol, name).unwrap());
        let is_new = e.new.as_ref().is_some_and(|new| *new == found);
        any_new |= is_new;
        assert!(is_new || found == e.old, "{what}: {name} is neither old nor new ({} bytes)", found.len());
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, what);
    if plain {
        assert_tools_clean(&dev);
    }
    any_new
}

#[test]
fn a_cut_leaves_each_file_wholly_old_or_wholly_new() {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let (cuts, transactions, step) = if deep { (10_000, 12, 1) } else { (300, 5, 5) };
    let (mut done, mut new) = (0, 0);
    let images = [formatted(64, &Options::modern()), formatted(64, &Options::default()), with_deltas(64)];
    let images = images.map(|empty| base(&empty));
    for seed in 0.. {
        let kind = seed as usize % images.len();
        let (image, plain) = (&images[kind], kind < 2);
        let whole = power_cut(image);
        let start = {
            let vol = mount(whole.clone());
            let mut work = Work::new(&vol);
            work.run(seed, transactions).unwrap();
            whole.write_count()
        };
        for n in (1..=start).step_by(step) {
            let dev: Arc<PowerCut> = power_cut(image);
            dev.cut_after(n);
            let Ok(vol) = Volume::mount(dev.clone(), clock(), MountOptions::default()) else { continue };
            let mut work = Work::new(&vol);
            assert!(work.run(seed, transactions).is_err());
            let other = Loss::PLAIN[n as usize % Loss::PLAIN.len()];
            for loss in [Loss::AllKept, other, Loss::Random(n), Loss::Random(n + 1000), Loss::LastTorn(n % 8)] {
                let what = format!("seed {seed}, write {n}, {loss}");
                new += usize::from(judge(&work.expected, &dev.image(loss), plain, &what));
                done += 1;
            }
            if done >= cuts {
                println!("{done} cuts, {new} of them with a file that was being committed and is new");
                assert!(new > cuts / 100, "{new} of {done}");
                return;
            }
        }
    }
}

/// A commit of three pages and of growth, cut at a write; the image, and the old and new contents.
fn cut_commit(image: &Memory, cut: Option<u64>) -> (Arc<PowerCut>, u64, [Vec<u8>; 2]) {
    let dev = power_cut(image);
    let vol = mount(dev.clone());
    let f = find(&vol, "large").unwrap();
    let old = pattern(1, 1100 * 4096);
    // The commit follows an fsync in the chain.
    write(&vol, find(&vol, "small").unwrap(), 0, b"synced");
    vol.fsync(find(&vol, "small").unwrap(), false).unwrap();
    vol.start_atomic(f, 1).unwrap();
    let mut new = [&old[..], &pattern(3, 9000)].concat();
    for at in [0, 950 * 4096 + 7] {
        new[at..at + 8000].fill(9);
        write(&vol, f, at as u64, &[9; 8000]);
    }
    write(&vol, f, old.len() as u64, &pattern(3, 9000));
    let start = dev.write_count();
    if let Some(n) = cut {
        dev.cut_after(start + n);
    }
    assert_eq!(vol.commit_atomic(f, 1).is_ok(), cut.is_none());
    let writes = dev.write_count() - start;
    (dev, writes, [old, new])
}

#[test]
fn linux_too_finds_a_cut_commit_wholly_old_or_wholly_new() {
    let mut seen = [0, 0];
    let image = base(&formatted(64, &Options::modern()));
    let (whole, writes, [old, new]) = cut_commit(&image, None);
    assert!(writes >= 3, "{writes} requests: contents, a node below the inode, the inode");
    let mut cases = vec![(whole.image(Loss::AllLost), None)];
    for n in 1..=writes {
        let dev = cut_commit(&image, Some(n)).0;
        cases.extend([Loss::AllKept, Loss::Reversed].map(|loss| (dev.image(loss), Some((n, loss)))));
    }
    for (left, cut) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        left.save(&path).unwrap();
        let run = Kernel::new().run(&path, "cp large small $OUT/").expect_ok();
        run.assert_no_f2fs_complaints();
        let found = std::fs::read(run.out().join("large")).unwrap();
        assert!(found == old || found == new, "{cut:?}: {} bytes", found.len());
        assert!(cut.is_some() || found == new, "committed");
        assert!(std::fs::read(run.out().join("small")).unwrap().starts_with(b"synced"));
        seen[usize::from(found == new)] += 1;
        assert_fsck_clean(&path);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
