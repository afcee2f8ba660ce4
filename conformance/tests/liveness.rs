//! After any damage that a mount accepts, everything ends: reading, cleaning, writing until the volume is full,
//! changing it then, syncing, deleting, unmounting. Each within a limit of device requests, and a time limit for work
//! without requests.
//!
//! `JOULEFS_DEEP=1` forges 100,000 images of F2FS and 20,000 of ScherlFS; `JOULEFS_CASES=<n>` sets the number for each
//! volume, from `JOULEFS_FIRST_SEED=<n>` on; `JOULEFS_REPLAY=<volume>:<n>` repeats one and prints its requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag, VirtualClock};
use f2fs::mkfs;
use format::superblock::Features;
use judges::bounded::Bounded;
use judges::entangle::Entangler;
use judges::forge::Forger;
use judges::misplace::Misplacer;
use parking_lot::Mutex;
use trials::subject::{F2fs, Judged, ScherlFs, Subject};
use vfs::{Allocate, Caller, FileKind, FileSystem, Flow, Ino, NewNode, SetAttr, WriteFlags, XattrFlags};

use crate::endure::case;
use crate::rig::clock;

/// A case that takes longer makes hardly any requests: it is endless.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of requests per purpose, in multiples of the device's blocks. On undamaged volumes none needs one.
const GRANTED: u64 = 4;
/// Maximum number of names read and deleted: more than a volume has, fewer than directories in a cycle have.
const NAMES: usize = 2000;
/// Consecutive failures of a purpose after which the next begins.
const FAILURES: u32 = 8;

const ME: Caller = Caller { uid: 0, gid: 0 };
const NEW: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber { major: 0, minor: 0 } };

/// Every block begins with its owner, in words that are not node numbers.
fn contents(n: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0xa5; bytes];
    let word = (0xa500_0000 | n as u32 & 0x00ff_ffff).to_be_bytes();
    data.chunks_mut(BLOCK).filter_map(|block| block.first_chunk_mut()).for_each(|head| *head = word);
    data
}

fn file<V: FileSystem>(vol: &V, dir: Ino, name: &str, n: u64, bytes: usize) -> vfs::Result<Ino> {
    let ino = vol.mknod(ME, dir, name.as_bytes(), &NEW)?.attr.ino;
    let wrote = vol.write(ino, 0, &contents(n, bytes), WriteFlags::empty());
    vol.forget(ino, 1);
    wrote.map(|_| ino)
}

/// A volume that is almost full, with holes everywhere and files of every shape.
fn aged<S: Subject>(subject: &S, blocks: u64, unmount: bool, seed: u64) -> Memory {
    let dev = Arc::new(Memory::new(blocks));
    let clock = clock();
    subject.format(dev.clone(), &*clock).unwrap();
    let vol = subject.mount(dev.clone(), clock.clone()).unwrap();
    let root = vol.root();
    let mut rng = Rng::new(seed);
    let mut dirs = vec![root];
    for n in 0..4 {
        let parent = dirs[rng.index(dirs.len())];
        dirs.push(vol.mkdir(ME, parent, format!("entry_dir_{n}").as_bytes(), 0o755, 0).unwrap().attr.ino);
    }
    let sparse = file(&*vol, root, "entry_sparse", 1, BLOCK).unwrap();
    for at in [1000, 1500, 4000, 2_500_000] {
        // ScherlFS does not support files that long.
        let _ = vol.write(sparse, at * BLOCK as u64, &contents(at, BLOCK), WriteFlags::empty());
    }
    let many = vol.mkdir(ME, root, b"entry_many", 0o755, 0).unwrap().attr.ino;
    for n in 0..300 {
        vol.link(sparse, many, format!("entry_number_{n}").as_bytes()).unwrap();
    }
    vol.setxattr(sparse, b"user.large", &[7; 2000], XattrFlags::empty()).unwrap();
    vol.symlink(ME, root, b"entry_long_symlink", &[b'x'; 3900]).unwrap();
    let stat = vol.statfs().unwrap();
    let keep = stat.blocks / 10;
    let mut n = 2;
    let mut made: Vec<(Ino, String)> = Vec::new();
    while vol.statfs().unwrap().blocks_free > keep {
        let dir = dirs[rng.index(dirs.len())];
        let name = format!("entry_file_{n}");
        let size = if rng.chance(1, 3) { rng.index(3000) } else { BLOCK * (1 + rng.index(60)) };
        if file(&*vol, dir, &name, n, size).is_err() {
            break;
        }
        made.push((dir, name));
        n += 1;
        clock.advance(Duration::from_secs(3));
        let _ = vol.tick();
    }
    // Creates holes: deletes files and writes others in their place.
    for _ in 0..4 {
        for _ in 0..made.len() / 8 {
            let (dir, name) = made.swap_remove(rng.index(made.len()));
            vol.unlink(dir, name.as_bytes()).unwrap();
        }
        vol.sync().unwrap();
        while vol.statfs().unwrap().blocks_free > keep {
            let dir = dirs[rng.index(dirs.len())];
            let name = format!("entry_file_{n}");
            if file(&*vol, dir, &name, n, BLOCK * (1 + rng.index(30))).is_err() {
                break;
            }
            made.push((dir, name));
            n += 1;
        }
    }
    vol.sync().unwrap();
    if unmount {
        vol.unmount().unwrap();
        return dev.fork();
    }
    let orphan = file(&*vol, root, "entry_orphan", n, 5 * BLOCK).unwrap();
    vol.open(orphan, false).unwrap();
    vol.unlink(root, b"entry_orphan").unwrap();
    vol.sync().unwrap();
    for k in 0..3 {
        let synced = file(&*vol, dirs[1], &format!("entry_synced_{k}"), n + k, 6 * BLOCK).unwrap();
        vol.fsync(synced, false).unwrap();
    }
    dev.fork()
}

/// A mounted volume with limits for every purpose.
struct Bound<'a, V> {
    vol: &'a V,
    dev: &'a Bounded<Memory>,
    clock: &'a VirtualClock,
    spent: BTreeMap<&'static str, u64>,
    purpose: &'static str,
}

impl<V: Judged> Bound<'_, V> {
    fn begin(&mut self, purpose: &'static str) {
        let spent = self.dev.grant(purpose, GRANTED * self.dev.blocks());
        *self.spent.entry(self.purpose).or_default() += spent;
        self.purpose = purpose;
    }

    /// Directories from the root on, each with its names, kinds and inodes.
    fn names(&self) -> Vec<(Ino, Vec<u8>, Ino, bool)> {
        let (mut out, mut at) = (Vec::new(), 0);
        let mut dirs = vec![self.vol.root()];
        while let Some(dir) = dirs.get(at).copied() {
            at += 1;
            let mut seen = 0;
            let _ = self.vol.readdir(dir, 0, &mut |e| {
                seen += 1;
                if e.name != b"." && e.name != b".." {
                    out.push((dir, e.name.to_vec(), e.ino, e.kind == FileKind::Directory));
                }
                if seen < NAMES && out.len() < NAMES { Flow::Continue } else { Flow::Stop }
            });
            if out.len() >= NAMES || dirs.len() > NAMES {
                break;
            }
            let new = out.iter().filter(|(parent, .., dir)| *parent == dirs[at - 1] && *dir);
            let new: Vec<Ino> = new.map(|(_, _, ino, _)| *ino).filter(|ino| !dirs.contains(ino)).collect();
            dirs.extend(new);
        }
        out
    }

    fn look(&mut self) {
        self.begin("looking");
        let mut buf = vec![0; 4 * BLOCK];
        for (dir, name, ..) in self.names().into_iter().take(200) {
            let Ok(entry) = self.vol.lookup(dir, &name) else { continue };
            let _ = self.vol.read(entry.attr.ino, 0, &mut buf);
            let _ = self.vol.read(entry.attr.ino, entry.attr.size.saturating_sub(100), &mut buf);
            let _ = self.vol.listxattr(entry.attr.ino);
            self.vol.forget(entry.attr.ino, 1);
        }
    }

    fn clean(&mut self, purpose: &'static str) {
        self.begin(purpose);
        for _ in 0..8 {
            self.clock.advance(Duration::from_secs(61));
            let _ = self.vol.tick();
        }
        for _ in 0..4 {
            let _ = self.vol.make_room(512);
        }
        // Requests space like a defragmenter, until there is no more.
        let (mut least, mut in_vain) = (u64::MAX, 0);
        while in_vain < 16 {
            let Ok(room) = self.vol.room(u64::from(u32::MAX), true) else { break };
            in_vain = if room.short < least { 0 } else { in_vain + 1 };
            least = least.min(room.short);
        }
    }

    /// Writes until the volume is full.
    fn fill(&mut self, purpose: &'static str, rng: &mut Rng) {
        self.begin(purpose);
        let root = self.vol.root();
        let (mut taken, mut failures) = (0, 0);
        for n in 0.. {
            let name = format!("{purpose} {n}");
            let Ok(made) = self.vol.mknod(ME, root, name.as_bytes(), &NEW) else {
                failures += 1;
                if failures > FAILURES { break } else { continue }
            };
            let ino = made.attr.ino;
            let mut at = 0;
            while at < 64 * BLOCK as u64 {
                let bytes = if rng.chance(1, 8) { 700 } else { 16 * BLOCK };
                match self.vol.write(ino, at, &contents(n, bytes), WriteFlags::empty()) {
                    Ok(some) => at += some as u64,
                    Err(_) => {
                        failures += 1;
                        break;
                    }
                }
                if rng.chance(1, 16) {
                    let _ = self.vol.fsync(ino, false);
                }
            }
            self.vol.forget(ino, 1);
            taken += at;
            let most = self.dev.blocks() * BLOCK as u64 * 2;
            assert!(taken <= most, "{purpose}: {taken} bytes were taken, more than twice the device");
            if failures > FAILURES {
                break;
            }
        }
    }

    /// Changes that a full volume must accept or refuse.
    fn change(&mut self, rng: &mut Rng) {
        self.begin("changing when full");
        let names = self.names();
        if names.is_empty() {
            return;
        }
        for n in 0..60 {
            let (dir, name, ..) = &names[rng.index(names.len())];
            let Ok(entry) = self.vol.lookup(*dir, name) else { continue };
            let (ino, size) = (entry.attr.ino, entry.attr.size);
            let at = rng.below(size.clamp(1, 1 << 42));
            let _ = match rng.index(8) {
                0..=3 => self.vol.write(ino, at, &contents(n, 3 * BLOCK), WriteFlags::empty()).map(drop),
                4 => self.vol.setattr(ino, &SetAttr { size: Some(at), ..SetAttr::default() }).map(drop),
                5 => self.vol.fallocate(ino, Allocate::PunchHole, at, 8 * BLOCK as u64),
                6 => self.vol.setxattr(ino, b"user.x", &contents(n, 300), XattrFlags::empty()),
                _ => self.vol.rename(ME, (*dir, name), (self.vol.root(), name), vfs::RenameFlags::empty()),
            };
            let _ = match rng.index(4) {
                0 => self.vol.fsync(ino, false),
                1 => self.vol.unlink(*dir, name),
                2 => self.vol.mkdir(ME, self.vol.root(), format!("new {n}").as_bytes(), 0o755, 0).map(drop),
                _ => Ok(()),
            };
            self.vol.forget(ino, 1);
        }
    }

    fn delete(&mut self) {
        self.begin("deleting");
        // Deepest entries first.
        for (dir, name, _, is_dir) in self.names().into_iter().rev() {
            let _ = if is_dir { self.vol.rmdir(dir, &name) } else { self.vol.unlink(dir, &name) };
        }
    }

    fn live(&mut self, seed: u64) {
        let rng = &mut Rng::new(seed);
        self.look();
        self.clean("cleaning");
        self.fill("filling", rng);
        self.change(rng);
        self.clean("cleaning when full");
        self.fill("filling again", rng);
        self.begin("syncing");
        let _ = self.vol.sync();
        self.delete();
        self.begin("syncing when empty");
        let _ = self.vol.sync();
        self.clean("cleaning when empty");
        self.begin("unmounting");
        let _ = self.vol.unmount();
        self.begin("");
    }
}

/// Uses a damaged image; returns the requests of each purpose, if it could be mounted.
fn live<S: Subject>(subject: &S, image: &Memory, seed: u64) -> Option<BTreeMap<&'static str, u64>> {
    let dev = Arc::new(Bounded::new(image.fork()));
    let clock = clock();
    dev.grant("mounting", GRANTED * dev.blocks());
    let vol = subject.mount(dev.clone(), clock.clone()).ok()?;
    let mut bound = Bound { vol: &*vol, dev: &dev, clock: &clock, spent: BTreeMap::new(), purpose: "mounting" };
    bound.live(seed);
    let spent = bound.spent;
    drop(vol);
    dev.grant("mounting again", GRANTED * dev.blocks());
    let _ = subject.mount(dev.clone(), clock);
    Some(spent)
}

/// The number of images mounted, and the maximum requests of each purpose.
type Lived = (usize, BTreeMap<&'static str, u64>);

/// Runs every case with a watchdog; panics with all that did not end.
fn all_live<S, F>(subject: S, cases: Vec<u64>, make: F) -> Lived
where
    S: Subject + Send + Sync + 'static,
    F: Fn(u64) -> (Memory, String) + Send + Sync + 'static,
{
    let make = Arc::new(make);
    let lived = Arc::new(Mutex::new(Lived::default()));
    let (mut next, mut failed) = (0, Vec::new());
    let cases = Arc::new(cases);
    // One worker at a time; if it hangs, a new one continues with the next case.
    'workers: while next < cases.len() && failed.len() < 20 {
        let (tell, told) = mpsc::channel();
        let (from, subject, make, cases, lived) = (next, subject.clone(), make.clone(), cases.clone(), lived.clone());
        std::thread::spawn(move || {
            for n in &cases[from..] {
                let (image, name) = make(*n);
                if tell.send((name, None)).is_err() {
                    return;
                }
                let took = case(&image, |image| live(&subject, image, *n));
                let said = match took {
                    Ok(Some(took)) => {
                        let mut lived = lived.lock();
                        lived.0 += 1;
                        for (what, requests) in took {
                            let most = lived.1.entry(what).or_default();
                            *most = requests.max(*most);
                        }
                        Ok(())
                    }
                    Ok(None) => Ok(()),
                    Err(e) => Err(e),
                };
                if tell.send((String::new(), Some(said))).is_err() {
                    return;
                }
            }
        });
        let mut name = String::new();
        loop {
            match told.recv_timeout(PATIENCE) {
                Ok((begun, None)) => name = begun,
                Ok((_, Some(said))) => {
                    next += 1;
                    if let Err(what) = said {
                        println!("{name}: {what}");
                        failed.push(format!("{name}: {what}"));
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    println!("{name}: no end after {PATIENCE:?}");
                    failed.push(format!("{name}: no end after {PATIENCE:?}"));
                    next += 1;
                    continue 'workers;
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
    lived.lock().clone()
}

/// Cases that previously did not end, by volume and number. 5:6113: the inode map of ScherlFS has an absurd size, and
/// all of its hole was scanned.
const PINNED: [(u64, u64); 1] = [(5, 6113)];

/// The cases of a volume: few, or its share of a hundred thousand.
fn cases(volume: u64, deep: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")));
    if let Ok(replay) = std::env::var("JOULEFS_REPLAY") {
        let (of, n) = replay.split_once(':').expect("JOULEFS_REPLAY=<volume>:<n>");
        return if of == volume.to_string() { vec![n.parse().expect("a number")] } else { Vec::new() };
    }
    let first = number("JOULEFS_FIRST_SEED").unwrap_or(0);
    let usual = if std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1") { deep } else { 400 };
    let all = first..first + number("JOULEFS_CASES").unwrap_or(usual);
    let pinned = PINNED.into_iter().filter(|(of, n)| *of == volume && !all.contains(n)).map(|(_, n)| n);
    pinned.chain(all.clone()).collect()
}

fn every_forged_f2fs_comes_to_an_end(volume: u64, features: Features, unmounted: bool) {
    let cases = cases(volume, 25_000);
    let made = mkfs::Options { features, ..mkfs::Options::default() };
    let subject = F2fs { made, mounted: f2fs::MountOptions::default(), deltas: false };
    let base = aged(&subject, 14_336, unmounted, volume);
    let (forger, misplacer, entangler) = (Forger::of(&base), Misplacer::of(&base), Entangler::of(&base));
    let damaged = move |n| {
        let image = base.fork();
        let mut rng = Rng::new(volume << 32 | n);
        let times = if rng.chance(1, 3) { 2 + rng.below(6) } else { 1 };
        let one = |_| match rng.index(8) {
            0..=2 => forger.forge(&image, &mut rng),
            3 => misplacer.misplace(&image, &mut rng),
            _ => entangler.entangle(&image, &mut rng),
        };
        let places: Vec<String> = (0..times).map(one).collect();
        (image, format!("liveness:{volume}:{n} ({})", places.join("; ")))
    };
    judge(volume, subject, cases, damaged);
}

fn judge<S, F>(volume: u64, subject: S, cases: Vec<u64>, damaged: F)
where
    S: Subject + Send + Sync + 'static,
    F: Fn(u64) -> (Memory, String) + Send + Sync + 'static,
{
    let all = cases.len();
    let (mounted, took) = all_live(subject, cases, damaged);
    println!("volume {volume}: {mounted} of {all} images were accepted; most requests for {took:?}");
    assert!(all < 100 || mounted > all / 2, "only {mounted} of {all} were accepted");
}

const MODERN: Features = Features::EXTRA_ATTR
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::SB_CHKSUM);

#[test]
fn every_use_of_a_forged_plain_volume_comes_to_an_end() {
    every_forged_f2fs_comes_to_an_end(1, Features::empty(), true);
}

#[test]
fn every_use_of_a_forged_volume_that_was_not_unmounted_comes_to_an_end() {
    every_forged_f2fs_comes_to_an_end(2, Features::empty(), false);
}

#[test]
fn every_use_of_a_forged_volume_with_modern_features_comes_to_an_end() {
    every_forged_f2fs_comes_to_an_end(3, MODERN, true);
}

#[test]
fn every_use_of_a_forged_volume_with_deltas_comes_to_an_end() {
    every_forged_f2fs_comes_to_an_end(4, MODERN.union(Features::DELTA), false);
}

#[test]
fn every_use_of_a_forged_scherlfs_comes_to_an_end() {
    let volume = 5;
    let subject = ScherlFs::default();
    let bases = [true, false].map(|unmounted| aged(&subject, 2048, unmounted, volume));
    let damaged = move |n: u64| {
        let base = &bases[(n % 2) as usize];
        let image = base.fork();
        let mut rng = Rng::new(volume << 32 | n);
        let times = if rng.chance(1, 3) { 2 + rng.below(6) } else { 1 };
        let places: Vec<String> = (0..times).map(|_| lie(&image, &mut rng)).collect();
        (image, format!("liveness:{volume}:{n} ({})", places.join("; ")))
    };
    judge(volume, subject, cases(volume, 20_000), damaged);
}

/// Offset of the checksum in a ScherlFS block, if its structure has one.
fn seal_of(bytes: &format::Block) -> Option<usize> {
    match &bytes[..4] {
        b"Sche" => Some(BLOCK - 4),
        b"SINO" | b"SEXT" | b"SIDX" | b"SPTH" | b"SDEL" => Some(4),
        _ => None,
    }
}

/// Forges a structure of a ScherlFS volume under a valid checksum; returns which.
fn lie(image: &Memory, rng: &mut Rng) -> String {
    let block = |at: u64| {
        let mut bytes = Box::new([0; BLOCK]);
        image.read(Lba(at), &mut bytes[..], Tag::default()).expect("a block of the image");
        bytes
    };
    let blocks = image.blocks();
    let at = (0..).map(|_| rng.below(blocks)).take(4000).find(|at| *at < 2 || seal_of(&block(*at)).is_some());
    let Some(at) = at else { return "nothing".to_owned() };
    let mut bytes = block(at);
    let width = [1, 2, 4, 6, 8][rng.index(5)];
    let byte = if rng.chance(3, 4) { rng.index(280) } else { rng.index(BLOCK - 8) };
    let value = match rng.index(6) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::from(bytes[byte]).wrapping_add(1),
        3 => 1 << rng.below(63),
        _ => rng.below(blocks),
    };
    bytes[byte..byte + width].copy_from_slice(&value.to_le_bytes()[..width]);
    if let Some(crc) = seal_of(&bytes) {
        bytes[crc..crc + 4].fill(0);
        let sum = scherlfs_format::checksum(&[&bytes[..]]);
        bytes[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
    }
    image.write(Lba(at), &bytes[..], Tag::default()).expect("a block of the image");
    format!("block {at}, {width} bytes at {byte}: {value:#x}")
}
