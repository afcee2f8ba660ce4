//! Power cuts at any write, also during recovery and cleaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BlockDevice, Loss, Memory, PowerCut};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, Ino, RenameFlags, WriteFlags};

use crate::log_rig::*;

/// The allowed contents of a file after a power cut.
#[derive(Clone, Default)]
struct Promise {
    /// The contents when it was last made durable.
    durable: Option<Vec<u8>>,
    /// Unchanged since then.
    settled: bool,
}

/// A workload that records promises; ends at the first error.
struct Workload<'v> {
    vol: &'v Volume,
    files: BTreeMap<String, (Ino, Vec<u8>)>,
    promises: BTreeMap<String, Promise>,
}

impl<'v> Workload<'v> {
    fn new(vol: &'v Volume) -> Self {
        Workload { vol, files: BTreeMap::new(), promises: BTreeMap::new() }
    }
    fn touched(&mut self, name: &str) {
        self.promises.entry(name.into()).or_default().settled = false;
    }
    fn create(&mut self, name: &str) -> vfs::Result<()> {
        self.touched(name);
        let new =
            vfs::NewNode { kind: vfs::FileKind::Regular, perm: 0o600, umask: 0, rdev: vfs::DeviceNumber::default() };
        let e = self.vol.mknod(ROOT, self.vol.root(), name.as_bytes(), &new)?;
        self.files.insert(name.into(), (e.attr.ino, Vec::new()));
        Ok(())
    }
    fn write(&mut self, name: &str, at: usize, data: &[u8]) -> vfs::Result<()> {
        self.touched(name);
        let (ino, have) = self.files.get_mut(name).unwrap();
        have.resize(have.len().max(at + data.len()), 0);
        have[at..at + data.len()].copy_from_slice(data);
        self.vol.write(*ino, at as u64, data, WriteFlags::empty()).map(drop)
    }
    /// Like a kernel that writes back whole pages: in runs of at most a megabyte.
    fn write_from_cache(&mut self, name: &str, page: usize, runs: impl Iterator<Item = Vec<u8>>) -> vfs::Result<()> {
        self.touched(name);
        let (ino, have) = self.files.get_mut(name).unwrap();
        let mut at = page * 4096;
        for data in runs {
            have.resize(have.len().max(at + data.len()), 0);
            have[at..at + data.len()].copy_from_slice(&data);
            self.vol.write(*ino, at as u64, &data, WriteFlags::FROM_CACHE)?;
            // The next run is not adjacent.
            at += data.len() + 4096;
        }
        Ok(())
    }
    fn fsync(&mut self, name: &str) -> vfs::Result<()> {
        let (ino, have) = &self.files[name];
        self.vol.fsync(*ino, false)?;
        let p = Promise { durable: Some(have.clone()), settled: true };
        self.promises.insert(name.into(), p);
        Ok(())
    }
    fn sync(&mut self) -> vfs::Result<()> {
        self.vol.sync()?;
        for (name, (_, have)) in &self.files {
            let p = Promise { durable: Some(have.clone()), settled: true };
            self.promises.insert(name.clone(), p);
        }
        Ok(())
    }
    fn unlink(&mut self, name: &str) -> vfs::Result<()> {
        // From here on its name may or may not exist.
        self.promises.remove(name);
        let (ino, _) = self.files.remove(name).unwrap();
        self.vol.forget(ino, 1);
        self.vol.unlink(self.vol.root(), name.as_bytes())
    }

    fn run(&mut self, seed: u64, steps: usize) -> vfs::Result<()> {
        let mut rng = device::Rng::new(seed);
        let mut made = 0;
        for _ in 0..steps {
            let names: Vec<String> = self.files.keys().cloned().collect();
            match rng.below(10) {
                0 | 1 if names.len() < 8 => {
                    self.create(&format!("f{made}"))?;
                    made += 1;
                }
                _ if names.is_empty() => {}
                2 if names.len() > 3 => self.unlink(&names[rng.index(names.len())])?,
                3 => self.sync()?,
                4..=6 => self.fsync(&names[rng.index(names.len())])?,
                7 => {
                    let name = &names[rng.index(names.len())];
                    let page = rng.index(self.files[name].1.len().min(4 << 20) / 4096 + 3);
                    let runs = rng.range(1..6);
                    let seed = rng.next_u64();
                    let pages = (0..runs).map(|_| if rng.chance(1, 3) { 256 } else { rng.range(1..120) as usize });
                    let pages: Vec<usize> = pages.collect();
                    self.write_from_cache(name, page, pages.into_iter().map(|n| pattern(seed, n * 4096)))?;
                }
                _ => {
                    let name = &names[rng.index(names.len())];
                    let len = self.files[name].1.len();
                    let at = rng.index((len + 10_000).min(6 << 20));
                    let n = if rng.chance(1, 6) { rng.range(1..4_000_000) } else { rng.range(1..12_000) };
                    self.write(name, at, &pattern(rng.next_u64(), n as usize))?;
                }
            }
        }
        Ok(())
    }
}

fn judge(promises: &BTreeMap<String, Promise>, image: &Memory, what: &str) {
    recovered(image, |vol| {
        for (name, p) in promises {
            let found = find(vol, name).map(|ino| read_all(vol, ino));
            match (&p.durable, found) {
                (Some(want), Some(have)) if p.settled => {
                    assert!(*want == have, "{what}: {name} is not as synced ({} bytes, {})", have.len(), want.len());
                }
                (Some(_), None) => panic!("{what}: {name} was synced and is gone"),
                _ => {}
            }
        }
    });
}

#[test]
fn a_cut_at_any_write_keeps_what_was_promised() {
    for (seed, options) in [(1, Options::default()), (2, Options::modern()), (3, Options::default())] {
        let base = formatted(64, &options);
        let whole = power_cut(&base);
        Workload::new(&mount(whole.clone())).run(seed, 60).unwrap();
        let writes = whole.write_count();
        let step = (writes / 60).max(1);
        for n in (1..=writes).step_by(step as usize) {
            let dev = power_cut(&base);
            dev.cut_after(n);
            let Ok(vol) = Volume::mount(dev.clone(), clock(), MountOptions::default()) else { continue };
            let mut work = Workload::new(&vol);
            let _cut = work.run(seed, 60);
            let losses = [Loss::AllKept, Loss::AllLost, Loss::OnlyLastKept, Loss::AllButFirst, Loss::Reversed];
            for loss in losses.into_iter().chain((0..4).map(Loss::Random)) {
                judge(&work.promises, &dev.image(loss), &format!("seed {seed}, write {n}, {loss}"));
            }
        }
    }
}

/// An image with a chain to replay, and orphans.
fn unrecovered() -> Memory {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let root = vol.root();
    let open = new_file(&vol, root, "open");
    write(&vol, open, 0, &pattern(1, 700_000));
    let old = new_file(&vol, root, "old");
    write(&vol, old, 0, &pattern(2, 5 << 20));
    vol.open(open, false).unwrap();
    vol.unlink(root, b"open").unwrap();
    vol.sync().unwrap();
    write(&vol, old, 1 << 20, &pattern(3, 300_000));
    vol.fsync(old, false).unwrap();
    for k in 0..5 {
        let f = new_file(&vol, root, &format!("new{k}"));
        write(&vol, f, 0, &pattern(k, 100_000 * k as usize + 1));
        vol.fsync(f, false).unwrap();
    }
    dev.image(Loss::AllLost)
}

fn check_recovered(vol: &Volume) {
    let mut old = pattern(2, 5 << 20);
    old[1 << 20..(1 << 20) + 300_000].copy_from_slice(&pattern(3, 300_000));
    assert!(read_all(vol, find(vol, "old").unwrap()) == old);
    for k in 0..5 {
        let f = find(vol, &format!("new{k}")).expect("synced");
        assert!(read_all(vol, f) == pattern(k, 100_000 * k as usize + 1));
    }
    assert!(find(vol, "open").is_none());
}

#[test]
fn a_cut_during_recovery_leaves_as_much_to_recover() {
    let image = unrecovered();
    let whole = power_cut(&image);
    drop(mount(whole.clone()));
    let writes = whole.write_count();
    assert!(writes >= 3, "{writes} writes");
    for n in 1..=writes {
        for loss in Loss::PLAIN.into_iter().chain((0..3).map(Loss::Random)) {
            let dev = power_cut(&image);
            dev.cut_after(n);
            assert!(Volume::mount(dev.clone(), clock(), MountOptions::default()).is_err());
            recovered(&dev.image(loss), check_recovered);
        }
    }
}

#[test]
fn a_read_only_mount_shows_the_recovered_state_and_writes_nothing() {
    let image = unrecovered();
    let dev = Arc::new(image.fork());
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let vol = Volume::mount(dev.clone(), clock(), options).unwrap();
    check_recovered(&vol);
    vol.unmount().unwrap();
    assert!(dev.same_as(&image));
}

#[test]
fn recovery_frees_what_nobody_can_reach_any_more() {
    let image = unrecovered();
    let dev = Arc::new(image.fork());
    let vol = mount(dev.clone());
    vol.unmount().unwrap();
    let counts = fsck::check(&*dev, &Default::default()).unwrap().counts;
    // "old" and the five new files; "open" had lost its name.
    assert_eq!((counts.files, counts.orphans), (6, 0), "{counts:?}");
    assert_tools_clean(&dev);
}

#[test]
fn nodes_of_an_earlier_mount_are_never_replayed() {
    // A mount writes nodes, and a power cut keeps only the later ones. The next mount writes at the same places,
    // followed by another power cut.
    let base = formatted(64, &Options::default());
    for seed in 0..20 {
        let first = power_cut(&base);
        let vol = mount(first.clone());
        for k in 0..4 {
            let f = new_file(&vol, vol.root(), &format!("a{k}"));
            write(&vol, f, 0, &pattern(seed, 9000));
            first.flush(Default::default()).unwrap();
            if k == 3 {
                first.cut();
            }
            let _ = vol.fsync(f, false);
        }
        let image = first.image(Loss::Random(seed));
        let second: Arc<PowerCut> = power_cut(&image);
        let vol = mount(second.clone());
        let f = new_file(&vol, vol.root(), "b");
        write(&vol, f, 0, &pattern(seed, 100));
        vol.fsync(f, false).unwrap();
        for loss in Loss::PLAIN {
            recovered(&second.image(loss), |vol| {
                assert!(read_all(vol, find(vol, "b").unwrap()) == pattern(seed, 100));
                for k in 0..3 {
                    assert!(read_all(vol, find(vol, &format!("a{k}")).unwrap()) == pattern(seed, 9000));
                }
            });
        }
    }
}

#[test]
fn a_cut_while_cleaning_loses_nothing() {
    let base = formatted(64, &Options::default());
    let fill = |vol: &Volume| {
        let mut files = Vec::new();
        for k in 0..13 {
            let f = new_file(vol, vol.root(), &format!("f{k}"));
            write(vol, f, 0, &pattern(k, 1 << 20));
            files.push(f);
        }
        vol.sync().unwrap();
        files
    };
    let overwrite = |vol: &Volume, files: &[Ino]| -> vfs::Result<u64> {
        let mut rng = device::Rng::new(1);
        let mut done = 0;
        for n in 0..12_000u64 {
            // Every block still identifies its file.
            let k = rng.index(files.len());
            let at = rng.below(256) as usize * 4096;
            let data = &pattern(k as u64, 1 << 20)[at..at + 4096];
            vol.write(files[k], at as u64, data, WriteFlags::empty())?;
            done = n;
            if n % 200 == 0 {
                vol.fsync(files[k], false)?;
            }
        }
        Ok(done)
    };
    let whole = power_cut(&base);
    let vol = mount(whole.clone());
    let files = fill(&vol);
    let start = whole.write_count();
    overwrite(&vol, &files).unwrap();
    assert!(vol.counters.foreground_gc.load(std::sync::atomic::Ordering::Relaxed) > 3);
    let writes = whole.write_count();
    let step = ((writes - start) / 3).max(1) as usize;
    for n in (start + 1..writes).step_by(step) {
        let dev = power_cut(&base);
        let vol = mount(dev.clone());
        let files = fill(&vol);
        dev.cut_after(n);
        assert!(overwrite(&vol, &files).is_err());
        for loss in [Loss::AllKept, Loss::AllLost, Loss::Random(n)] {
            recovered(&dev.image(loss), |vol| {
                for k in 0..files.len() {
                    let found = read_all(vol, find(vol, &format!("f{k}")).unwrap());
                    assert!(found == pattern(k as u64, 1 << 20), "write {n}, {loss}, file {k}");
                }
            });
        }
    }
}

#[test]
fn a_renamed_file_has_one_of_its_names() {
    let base = formatted(64, &Options::default());
    let run = |dev: Arc<PowerCut>| -> vfs::Result<()> {
        let vol = Volume::mount(dev, clock(), MountOptions::default()).map_err(|_| vfs::Error::ReadOnly)?;
        let root = vol.root();
        for k in 0..6u8 {
            let mut w = Workload::new(&vol);
            w.create("tmp")?;
            w.write("tmp", 0, &[k; 3000])?;
            w.fsync("tmp")?;
            vol.rename(ROOT, (root, b"tmp"), (root, b"file"), RenameFlags::empty())?;
        }
        Ok(())
    };
    let whole = power_cut(&base);
    run(whole.clone()).unwrap();
    for n in 1..=whole.write_count() {
        let dev = power_cut(&base);
        dev.cut_after(n);
        let _ = run(dev.clone());
        for loss in Loss::PLAIN {
            recovered(&dev.image(loss), |vol| {
                let newest = |name| find(vol, name).map(|i| read_all(vol, i)).filter(|d| !d.is_empty());
                let (file, tmp) = (newest("file"), newest("tmp"));
                for d in [&file, &tmp].into_iter().flatten() {
                    assert!(d.len() == 3000 && d.iter().all(|b| *b == d[0]), "write {n}, {loss}");
                }
            });
        }
    }
}

#[test]
fn a_torn_fsync_leaves_the_old_or_the_new_file_whole() {
    let base = formatted(64, &Options::modern());
    let (old, new) = (pattern(1, 50_000), [pattern(1, 50_000), pattern(2, 90_000)].concat());
    let run = |dev: &Arc<PowerCut>, cut: Option<u64>| -> u64 {
        let vol = mount(dev.clone());
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &old);
        vol.sync().unwrap();
        write(&vol, f, 50_000, &new[50_000..]);
        let start = dev.write_count();
        if let Some(n) = cut {
            dev.cut_after(start + n);
        }
        assert_eq!(vol.fsync(f, false).is_ok(), cut.is_none());
        dev.write_count() - start
    };
    let mut seen = [0, 0];
    for n in 1..=run(&power_cut(&base), None) {
        let dev = power_cut(&base);
        run(&dev, Some(n));
        for seed in 0..25 {
            let found = recovered(&dev.image(Loss::Random(seed)), |vol| read_all(vol, find(vol, "f").unwrap()));
            assert!(found == old || found == new, "write {n}, seed {seed}: {} bytes", found.len());
            seen[usize::from(found == new)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
