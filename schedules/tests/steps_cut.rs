//! Other threads make data durable between two steps of long work on a file, and then power fails. The file must have
//! its old state, its new state, or one of the intermediate states that the file system promises. Thread orders come
//! from a seed.

use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::{Loss, Memory, PowerCut, Rng};
use f2fs::mkfs;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use vfs::{Allocate, Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, Seek, SetAttr, WriteFlags};

use crate::steps::clock;

const ME: Caller = Caller { uid: 0, gid: 0 };
const BLOCK: u64 = 4096;
/// Blocks reserved per step: those of 64 nodes.
const RESERVED: u64 = 64 * 1018;
/// The reserved or zeroed range, in thirteen steps.
const RANGE: Range<u64> = RESERVED - 8..12 * RESERVED + 8;
/// Blocks that a shift inserts or removes, after the first.
const BY: u64 = 2;
/// First number in the other file's blocks; those of the file count from 1.
const OTHER: u64 = 1 << 40;

/// A file's contents: its size in blocks, and the number written to each block, by offset. The others are zeroes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    size: u64,
    blocks: Vec<(u64, u64)>,
}

/// Long work on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Reserve,
    Zero,
    Punch,
    Cut,
    Collapse,
    Insert,
}

/// What other threads do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durable {
    Everything,
    TheFile,
    Another,
}

impl Durable {
    /// Approximate number of its calls during a shift, which takes many locks.
    fn calls_in_a_shift(self) -> u64 {
        match self {
            Durable::Everything => 37,
            Durable::TheFile => 100,
            Durable::Another => 240,
        }
    }
}

impl Work {
    /// The initial file: a block's number is its offset plus one.
    fn before(self) -> Held {
        let far = |n: u64| (0..n).map(|i| 2000 + i * 1018);
        let places: Vec<u64> = match self {
            Work::Reserve => (0..8).collect(),
            Work::Zero => RANGE.step_by(2999).collect(),
            Work::Punch | Work::Cut => far(800).collect(),
            Work::Collapse | Work::Insert => (0..400).chain(far(150)).collect(),
        };
        Held { size: places.last().map_or(0, |p| p + 1), blocks: places.iter().map(|p| (*p, p + 1)).collect() }
    }

    fn run(self, vol: &dyn FileSystem, f: Ino) -> vfs::Result<()> {
        let allocate = |what, from: u64, to: u64| vol.fallocate(f, what, from * BLOCK, (to - from) * BLOCK);
        match self {
            Work::Reserve => allocate(Allocate::Reserve { keep_size: false }, RANGE.start, RANGE.end),
            Work::Zero => allocate(Allocate::Zero { keep_size: true }, RANGE.start, RANGE.end),
            Work::Punch => allocate(Allocate::PunchHole, 0, self.before().size),
            Work::Cut => vol.setattr(f, &SetAttr { size: Some(3 * BLOCK), ..SetAttr::default() }).map(drop),
            Work::Collapse => allocate(Allocate::Collapse, 1, 1 + BY),
            Work::Insert => allocate(Allocate::Insert, 1, 1 + BY),
        }
    }

    /// Every state of this size that a power cut may leave: the first is the one before the work, the last the one
    /// after it.
    fn may_leave(self, now: u64) -> Vec<Held> {
        let before = self.before();
        let Held { size, blocks } = before.clone();
        let part = |n: usize| blocks[n..].to_vec();
        let mut out = vec![before.clone()];
        match self {
            Work::Reserve => out.push(Held { size: RANGE.end, blocks }),
            // The range's blocks change from its beginning on.
            Work::Zero | Work::Punch => out.extend((0..=blocks.len()).map(|n| Held { size, blocks: part(n) })),
            // The file's blocks are removed from its end.
            Work::Cut => out.extend([now.clamp(3, size), 3].map(|size| {
                let left = blocks.partition_point(|(place, _)| *place < size);
                Held { size, blocks: blocks[..left].to_vec() }
            })),
            Work::Collapse => {
                let rest = part(1 + BY as usize);
                let moved = |n: usize| {
                    let (done, left) = rest.split_at(n);
                    let done = done.iter().map(|(place, number)| (place - BY, *number));
                    [blocks[0]].into_iter().chain(done).chain(left.iter().copied()).collect()
                };
                out.extend((0..=rest.len()).map(|n| Held { size, blocks: moved(n) }));
                // Then the gap after the last block is cut off.
                out.extend((size - BY..size).rev().map(|size| Held { size, blocks: moved(rest.len()) }));
            }
            Work::Insert => out.extend((1..=blocks.len()).rev().map(|n| {
                let moved = blocks[n..].iter().map(|(place, number)| (place + BY, *number));
                Held { size: size + BY, blocks: blocks[..n].iter().copied().chain(moved).collect() }
            })),
        }
        out
    }

    fn is_shift(self) -> bool {
        matches!(self, Work::Collapse | Work::Insert)
    }

    /// Whether it reserves most of its range, and so needs a large volume.
    fn reserves(self) -> bool {
        matches!(self, Work::Reserve | Work::Zero)
    }

    /// The visible progress of the work.
    fn progress(self, vol: &dyn FileSystem, f: Ino) -> u64 {
        match self {
            Work::Cut => u64::MAX - vol.getattr(f).expect("is there").size,
            Work::Zero | Work::Punch => match vol.seek(f, 0, Seek::Data) {
                Ok(first) => first,
                Err(vfs::Error::PastEnd) => u64::MAX,
                // Without power nothing is seen of it. An fsync then still succeeds if it has nothing to write.
                Err(_) => 0,
            },
            Work::Reserve => vol.getattr(f).expect("is there").blocks512,
            // A file whose blocks are being shifted is not visible.
            Work::Collapse | Work::Insert => 0,
        }
    }
}

/// What a power cut left of a run.
struct Left {
    dev: Arc<PowerCut>,
    /// The work's progress when it last became durable, and the number of durable blocks of the other file.
    durable: (u64, u64),
    /// Whether power failed during the work.
    amid: bool,
}

fn make(vol: &dyn FileSystem, name: &str) -> Ino {
    let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
    vol.mknod(ME, vol.root(), name.as_bytes(), &new).expect("is made").attr.ino
}

fn write(vol: &dyn FileSystem, f: Ino, place: u64, number: u64) -> vfs::Result<usize> {
    vol.write(f, place * BLOCK, &number.to_le_bytes().repeat(512), WriteFlags::empty())
}

/// A file's contents, if each of its blocks is whole.
fn look(vol: &dyn FileSystem, name: &str) -> Held {
    let attr = vol.lookup(vol.root(), name.as_bytes()).expect("was durable").attr;
    assert_eq!(attr.size % BLOCK, 0, "{name}");
    let (mut at, mut blocks) = (0, Vec::new());
    while let Ok(data) = vol.seek(attr.ino, at, Seek::Data) {
        at = vol.seek(attr.ino, data, Seek::Hole).expect("data ends");
        for place in data / BLOCK..at / BLOCK {
            let mut bytes = [0; BLOCK as usize];
            assert_eq!(vol.read(attr.ino, place * BLOCK, &mut bytes), Ok(bytes.len()));
            let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight"));
            assert!(bytes == *number.to_le_bytes().repeat(512), "{name}, block {place}: {bytes:?}");
            blocks.extend((number != 0).then_some((place, number)));
        }
    }
    vol.forget(attr.ino, 1);
    Held { size: attr.size / BLOCK, blocks }
}

/// Runs the work and the other threads in `orders` thread orders.
fn runs(work: Work, durable: Durable, orders: usize) -> Vec<Left> {
    let image = {
        let mib = if work.reserves() { 4096 } else { 256 };
        let dev = Memory::new(mib * 256);
        let options = mkfs::Options { assume_zeroed: true, ..mkfs::Options::default() };
        mkfs::format(&dev, &*clock(), &options).expect("a volume");
        let dev = Arc::new(dev);
        let vol = f2fs::Volume::mount(dev.clone(), clock(), f2fs::MountOptions::default()).expect("mounts");
        let (f, other) = (make(&*vol, "f"), make(&*vol, "other"));
        for (place, number) in work.before().blocks {
            write(&*vol, f, place, number).expect("is written");
        }
        write(&*vol, other, 0, OTHER).expect("is written");
        vol.unmount().expect("unmounts");
        dev.fork()
    };
    let mut config = Config::new();
    config.stack_size = 4 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    config.silence_warnings = true;
    let left = Arc::new(Mutex::new(Vec::new()));
    let (found, order) = (left.clone(), AtomicU64::new(0));
    Runner::new(RandomScheduler::new_from_seed(11, orders), config).run(move || {
        let dev = Arc::new(PowerCut::new(image.fork()));
        let options = f2fs_scheduled::MountOptions::default();
        let vol = f2fs_scheduled::Volume::mount(dev.clone(), clock(), options).expect("mounts");
        let [f, other] = ["f", "other"].map(|n| vol.lookup(vol.root(), n.as_bytes()).expect("is there").attr.ino);
        let mut rng = Rng::new(order.fetch_add(1, Ordering::SeqCst));
        let times = 1 + rng.below(if work.is_shift() { durable.calls_in_a_shift() } else { 6 });
        let later = if rng.chance(1, 2) { rng.below(14) } else { 0 };
        let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let worker = {
            let (vol, begun, ended) = (vol.clone(), begun.clone(), ended.clone());
            shuttle::thread::spawn(move || {
                begun.store(true, Ordering::SeqCst);
                let out = work.run(&*vol, f);
                ended.store(true, Ordering::SeqCst);
                out
            })
        };
        let (mut kept, mut written, mut calls, mut amid) = ((0, 1), 1, 0, false);
        while !ended.load(Ordering::SeqCst) {
            let is_amid = begun.load(Ordering::SeqCst);
            if write(&*vol, other, written, OTHER + written).is_ok() {
                written += 1;
            }
            let progress = work.progress(&*vol, f);
            let out = match durable {
                Durable::Everything => vol.sync(),
                Durable::TheFile => vol.fsync(f, false),
                Durable::Another => vol.fsync(other, false),
            };
            if out.is_ok() {
                kept.0 = if durable == Durable::Another { kept.0 } else { progress };
                kept.1 = if durable == Durable::TheFile { kept.1 } else { written };
            }
            let still = !ended.load(Ordering::SeqCst);
            calls += u64::from(is_amid && still);
            if calls == times && !dev.is_cut() {
                // Now, or after `later` more requests.
                dev.cut_after(dev.write_count() + later);
            }
            amid |= dev.is_cut() && still;
        }
        let out = worker.join().expect("ends");
        assert!(out.is_ok() || dev.is_cut(), "{work:?}: {out:?}");
        dev.cut();
        found.lock().expect("nobody panicked").push(Left { dev, durable: kept, amid: amid || out.is_err() });
    });
    let left = std::mem::take(&mut *left.lock().expect("nobody panicked"));
    assert_eq!(left.len(), orders);
    left
}

fn judged_by_ours(image: &Memory, when: &str) {
    let report = fsck::check(image, &fsck::Options::default()).expect("is read");
    assert!(report.is_clean(), "{when}: {:?}", report.errors().take(4).collect::<Vec<_>>());
}

fn judged_by_theirs(image: &Memory) {
    // In memory if possible: the images are large, and fsck.f2fs flushes them.
    let memory = std::path::Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = place.join(format!("joulefs-steps-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("image");
    image.save(&path).expect("an image");
    let tools = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let out = Command::new("fsck.f2fs").arg("--dry-run").arg(&path).env("PATH", tools).output();
    let out = out.expect("fsck.f2fs of f2fs-tools");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && !text.contains("[FAIL]"), "{:?}\n{text}", out.status);
    std::fs::remove_dir_all(&dir).expect("removes");
}

/// The contents of an image after recovery: the file, its work's progress, and the number of blocks of the other file.
fn recovered(image: &Memory, work: Work) -> (Held, u64, u64) {
    judged_by_ours(image, "before recovery");
    let dev = Arc::new(image.fork());
    let vol = f2fs::Volume::mount(dev.clone(), clock(), f2fs::MountOptions::default()).expect("mounts");
    let (now, other) = (look(&*vol, "f"), look(&*vol, "other"));
    let written: Vec<_> = (0..other.size).map(|place| (place, OTHER + place)).collect();
    assert_eq!(other.blocks, written, "the other file holds what was written to it");
    let progress = work.progress(&*vol, vol.lookup(vol.root(), b"f").expect("was durable").attr.ino);
    vol.unmount().expect("unmounts");
    drop(vol);
    judged_by_ours(&dev, "after recovery");
    judged_by_theirs(&dev);
    (now, progress, other.size)
}

/// Cuts power after other threads made data durable between two steps; at least `least` of the images must be neither
/// before nor after the work.
fn between_steps(work: Work, least: u64) {
    // Checking a large volume is slow.
    let orders = if work.reserves() { 6 } else { 32 };
    let (mut amid, mut between) = (0, 0);
    for durable in [Durable::Everything, Durable::TheFile, Durable::Another] {
        for (n, left) in runs(work, durable, orders).into_iter().enumerate() {
            amid += u64::from(left.amid);
            let mut seen: Vec<Memory> = Vec::new();
            for loss in Loss::PLAIN.into_iter().chain([Loss::Random(n as u64), Loss::Random(n as u64 + 100)]) {
                let image = left.dev.image(loss);
                if seen.iter().any(|s| s.same_as(&image)) {
                    continue;
                }
                let (now, progress, other) = recovered(&image, work);
                seen.push(image);
                let what = format!("{work:?}, {durable:?}, order {n}, {loss}");
                let may = work.may_leave(now.size);
                let Some(which) = may.iter().position(|state| *state == now) else {
                    let odd: Vec<_> = now.blocks.iter().filter(|b| !may[0].blocks.contains(b)).take(3).collect();
                    panic!("{what}: {} blocks, {odd:?} among them, in a size of {}", now.blocks.len(), now.size);
                };
                assert!(progress >= left.durable.0, "{what}: {progress} of {:?}", left.durable);
                assert!(other >= left.durable.1, "{what}: {other} of {:?}", left.durable);
                between += u64::from(which > 0 && now != may[may.len() - 1]);
            }
        }
    }
    println!("{work:?}: {amid} of {} runs are cut amid the work, {between} images are of states between", 3 * orders);
    assert!(amid > orders as u64, "{work:?}: the power went amid the work in {amid} runs");
    assert!(between >= least, "{work:?}: {between} images are of states between");
}

#[test]
fn a_reservation_cut_between_two_steps_leaves_size_and_contents_as_they_were() {
    between_steps(Work::Reserve, 0);
}

#[test]
fn zeroes_cut_between_two_steps_cover_the_beginning_of_their_range() {
    between_steps(Work::Zero, 4);
}

#[test]
fn a_hole_cut_between_two_steps_is_the_beginning_of_its_range() {
    between_steps(Work::Punch, 8);
}

#[test]
fn a_truncation_cut_between_two_steps_leaves_the_beginning_of_the_file() {
    between_steps(Work::Cut, 8);
}

#[test]
fn a_collapse_cut_between_two_steps_has_its_gap_on_the_way() {
    between_steps(Work::Collapse, 8);
}

#[test]
fn an_insert_cut_between_two_steps_has_its_gap_on_the_way() {
    between_steps(Work::Insert, 8);
}
