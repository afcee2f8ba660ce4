//! When the device fails: an operation reports it, no promise is broken, and no operation is half done.
//!
//! Requests fail at times, or from some time on, or at some places; then the device works again. Either the volume
//! continues, and has exactly the changes made; or it refuses further changes. In the second case another sync writes
//! everything in memory, after which the volume again has exactly the changes made; a power cut in that sync leaves at
//! least what was synced before. The sync is refused only if memory and device may contradict each other; then a mount
//! finds what was synced before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use device::{BlockDevice, DeviceError, Lba, Loss, Memory, Op, PowerCut, Rng, Tag, VirtualClock};
use f2fs::mkfs::Options;
use parking_lot::Mutex;
use scherlfs::{Placement, Sync};
use trials::crash::{Course, Habits, Record};
use trials::subject::{F2fs, Judged, ScherlFs, Subject};
use vfs::{FileSystem, Power};

use crate::rig;
use crate::rig::clock;

/// The failing requests.
#[derive(Debug, Clone, Copy)]
enum Bad {
    /// One in this many of a kind, at random.
    Sometimes(Op, u64),
    /// All of a kind between these two.
    Spell(Op, u64, u64),
    /// All of a kind from this one on.
    Forever(Op, u64),
    /// Those that touch one block in this many, always the same.
    Places(Op, u64),
}

/// A device on which some requests fail without effect or partially.
struct Failing {
    inner: Arc<PowerCut>,
    bad: Bad,
    /// Suspends failures, for checks.
    quiet: AtomicBool,
    state: Mutex<(Rng, [u64; 4])>,
    failed: AtomicUsize,
}

impl Failing {
    fn new(inner: Arc<PowerCut>, bad: Bad, seed: u64) -> Self {
        let state = Mutex::new((Rng::new(seed), [0; 4]));
        // It does not fail until enabled.
        Failing { inner, bad, quiet: AtomicBool::new(true), state, failed: AtomicUsize::new(0) }
    }

    fn fails(&self, op: Op, at: Lba, blocks: u64) -> device::Result<()> {
        if self.quiet.load(Relaxed) {
            return Ok(());
        }
        let mut state = self.state.lock();
        let (rng, counts) = &mut *state;
        counts[op as usize] += 1;
        let n = counts[op as usize];
        let place = |every: u64| (at.0..at.0 + blocks).any(|b| Rng::new(b).below(every) == 0);
        let bad = match self.bad {
            Bad::Sometimes(o, every) => o == op && rng.below(every) == 0,
            Bad::Spell(o, from, to) => o == op && (from..to).contains(&n),
            Bad::Forever(o, from) => o == op && n >= from,
            Bad::Places(o, every) => o == op && place(every),
        };
        if bad {
            self.failed.fetch_add(1, Relaxed);
            return Err(DeviceError::Io { op: "request", at, source: std::io::Error::other("bad") });
        }
        Ok(())
    }
}

impl BlockDevice for Failing {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.fails(Op::Read, at, buf.len() as u64 / 4096)?;
        self.inner.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        if let Err(e) = self.fails(Op::Write, at, data.len() as u64 / 4096) {
            // Some of it may have been written.
            let some = self.state.lock().0.index(data.len() / 4096 + 1) * 4096;
            if some > 0 {
                self.inner.write(at, &data[..some], tag)?;
            }
            return Err(e);
        }
        self.inner.write(at, data, tag)
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.fails(Op::Flush, Lba(0), 0)?;
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.fails(Op::Discard, at, blocks)?;
        self.inner.discard(at, blocks, tag)
    }
}

/// F2FS with small caches, so that much is read again; directories and small files are in blocks or inline.
fn f2fs(seed: u64) -> F2fs {
    let made = Options { assume_zeroed: true, checkpoint_version: Some(7), uuid: Some([3; 16]), ..Options::modern() };
    let inline = seed.is_multiple_of(2);
    let mounted = f2fs::MountOptions {
        node_cache: 64,
        dirty_limit: 64,
        dir_cache: 8,
        inline,
        discard_holes: f2fs::Holes::AsLinux,
        ..Default::default()
    };
    F2fs { made, mounted, deltas: false }
}

/// ScherlFS with similarly small caches, on battery or on the charger, with any placement of inodes, syncing each call
/// or not.
fn scherlfs(seed: u64) -> ScherlFs {
    let made = scherlfs::make::Options { segment_blocks: 16, ..Default::default() };
    let power = if seed.is_multiple_of(2) { Power::Battery } else { Power::Powered };
    let mounted = scherlfs::MountOptions {
        dirty: 64,
        dir_cache: 8,
        ifile_cache: 1,
        inode_cache: 4,
        checkpoint_blocks: 300,
        placement: Some(Placement::ALL[seed as usize / 2 % 4]),
        sync: if seed.is_multiple_of(3) { Sync::Call } else { Sync::Fsync },
        power,
        ..Default::default()
    };
    ScherlFs { made, mounted, beside: false }
}

fn mount<S: Subject>(
    subject: &S,
    dev: Arc<dyn BlockDevice>,
    clock: &Arc<VirtualClock>,
) -> Result<Arc<S::Volume>, String> {
    subject.mount(dev, clock.clone()).map_err(|e| format!("mount: {e}"))
}

fn clean<S: Subject>(subject: &S, dev: &dyn BlockDevice, when: &str) -> Result<(), String> {
    subject.check(dev).map_err(|e| format!("{when}: {e}"))
}

/// A volume with some changes, and their record.
fn before<S: Subject>(subject: &S, seed: u64) -> (Memory, Record) {
    let (dev, clock) = (Arc::new(Memory::new(64 * 256)), clock());
    subject.format(dev.clone(), &*clock).expect("formatted");
    let vol = mount(subject, dev.clone(), &clock).expect("mounted");
    let record = Record::new(vol.root()).without(subject.own_names());
    let mut course = Course::new(&*vol, &clock, record, seed, Habits::default());
    (0..200).try_for_each(|_| course.step()).expect("nothing fails yet");
    let mut record = course.record;
    vol.unmount().expect("unmounted");
    record.synced_all();
    (dev.fork(), record)
}

/// How a course on a failing device ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    WorksOn,
    /// It refused changes until a sync on the working device.
    WorksAgain,
    /// It refused changes, and power failed in that sync.
    CutInRetry,
    TakesNoChanges,
}

fn endure<S: Subject>(
    subject: &S,
    image: &Memory,
    record: &Record,
    bad: Bad,
    seed: u64,
) -> Result<(End, usize), String> {
    let clock = clock();
    let cut = Arc::new(PowerCut::new(image.fork()));
    let dev = Arc::new(Failing::new(cut.clone(), bad, seed));
    let vol = mount(subject, dev.clone(), &clock)?;
    let quiet = |on: bool| dev.quiet.store(on, Relaxed);
    let mut course = Course::new(&*vol, &clock, record.clone(), seed, Habits::default());
    course.quiet = Some(&quiet);
    quiet(false);
    for _ in 0..150 {
        // A failed lookup may be due to the failed volume's memory, which refers to blocks never written.
        if course.step().is_err() {
            break;
        }
    }
    quiet(true);
    let record = course.record;
    let failed = dev.failed.load(Relaxed);
    let mut rng = Rng::new(seed);
    for loss in [Loss::AllKept, Loss::AllLost, Loss::Random(rng.next_u64())] {
        recover(subject, &cut.image(loss), &record).map_err(|e| format!("{loss}: {e}"))?;
    }
    let stopped = vol.report().iter().any(|(name, value)| name == "state" && value == "failed");
    if stopped && rng.chance(1, 2) {
        // ScherlFS often needs only one write, F2FS about ten.
        let within = if rng.chance(1, 2) { 2 } else { 10 };
        cut.cut_after(cut.write_count() + rng.range(1..within));
    }
    if let Err(e) = vol.sync() {
        if !stopped {
            return Err(format!("it went on, and cannot be synced: {e}"));
        }
        for loss in [Loss::AllKept, Loss::AllLost, Loss::LastTorn(3), Loss::Random(rng.next_u64())] {
            recover(subject, &cut.image(loss), &record).map_err(|e| format!("in a retry, {loss}: {e}"))?;
        }
        return Ok((if cut.is_cut() { End::CutInRetry } else { End::TakesNoChanges }, failed));
    }
    if cut.is_cut() {
        return Err("a sync succeeded without power".into());
    }
    // The retry needed fewer writes.
    cut.cut_after(u64::MAX);
    let end = if stopped { End::WorksAgain } else { End::WorksOn };
    let mut exact = record.clone();
    exact.synced_all();
    exact.judge(&*vol).map_err(|e| format!("it goes on: {e}"))?;
    vol.audit()?;
    recover(subject, &cut.image(Loss::AllLost), &exact).map_err(|e| format!("synced after all: {e}"))?;
    vol.unmount().map_err(|e| format!("unmount: {e}"))?;
    clean(subject, &cut.image(Loss::AllLost), "after unmount")?;
    Ok((end, failed))
}

fn recover<S: Subject>(subject: &S, image: &Memory, record: &Record) -> Result<(), String> {
    clean(subject, image, "before recovery")?;
    let dev = Arc::new(image.fork());
    let vol = mount(subject, dev.clone(), &clock())?;
    clean(subject, &*dev, "after recovery")?;
    record.judge(&*vol)?;
    vol.unmount().map_err(|e| format!("unmount: {e}"))?;
    clean(subject, &*dev, "after unmount")
}

/// The number of courses by end.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    on: usize,
    again: usize,
    cut: usize,
    not: usize,
}

/// Runs many courses on devices that fail in these ways, on the file system that `of` selects by seed; returns the
/// number by end.
fn survive<S: Subject>(of: fn(u64) -> S, ways: &[fn(&mut Rng) -> Bad]) -> Ends {
    let first = std::env::var("JOULEFS_FIRST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let n = std::env::var("JOULEFS_SEEDS").ok().and_then(|n| n.parse().ok());
    let seeds = first..first + n.unwrap_or(if rig::deep() { 2000 } else { 12 });
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let work = || {
        let (mut failures, mut ends, mut hit) = (Vec::new(), Ends::default(), 0);
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return (failures, ends, hit);
            }
            let subject = of(seed);
            let (image, record) = before(&of(seed % 7), seed % 7);
            for (i, way) in ways.iter().enumerate() {
                let bad = way(&mut Rng::new(seed * 10 + i as u64));
                match endure(&subject, &image, &record, bad, seed) {
                    Ok((end, failed)) => {
                        *match end {
                            End::WorksOn => &mut ends.on,
                            End::WorksAgain => &mut ends.again,
                            End::CutInRetry => &mut ends.cut,
                            End::TakesNoChanges => &mut ends.not,
                        } += 1;
                        hit += failed;
                    }
                    Err(e) => failures.push(format!("seed {seed}, {bad:?}: {e}")),
                }
            }
        }
    };
    let all = std::thread::scope(|s| [s.spawn(work), s.spawn(work)].map(|t| t.join().expect("no panic")));
    let mut failures: Vec<String> = all.iter().flat_map(|a| a.0.clone()).collect();
    let ends = all.iter().map(|a| a.1).fold(Ends::default(), |sum, one| Ends {
        on: sum.on + one.on,
        again: sum.again + one.again,
        cut: sum.cut + one.cut,
        not: sum.not + one.not,
    });
    println!("{ends:?}, {} requests failed", all.iter().map(|a| a.2).sum::<usize>());
    let n = failures.len();
    failures.truncate(30);
    assert!(failures.is_empty(), "{n} broken promises:\n{}", failures.join("\n"));
    ends
}

const BAD_READS: &[fn(&mut Rng) -> Bad] = &[
    |r| Bad::Sometimes(Op::Read, 3 + r.below(30)),
    |r| Bad::Places(Op::Read, 5 + r.below(200)),
    |r| {
        let from = 1 + r.below(60);
        Bad::Spell(Op::Read, from, from + 1 + r.below(5))
    },
];

const BAD_WRITES: &[fn(&mut Rng) -> Bad] = &[
    |r| Bad::Sometimes(Op::Write, 4 + r.below(200)),
    |r| Bad::Places(Op::Write, 20 + r.below(2000)),
    |r| {
        let from = 1 + r.below(100);
        Bad::Spell(Op::Write, from, from + 1 + r.below(3))
    },
    |r| Bad::Forever(Op::Write, 1 + r.below(100)),
];

const BAD_FLUSHES: &[fn(&mut Rng) -> Bad] = &[
    |r| Bad::Sometimes(Op::Flush, 2 + r.below(40)),
    |r| {
        let from = 1 + r.below(40);
        Bad::Spell(Op::Flush, from, from + 1)
    },
];

const BAD_DISCARDS: &[fn(&mut Rng) -> Bad] = &[|r| Bad::Sometimes(Op::Discard, 1 + r.below(4))];

#[test]
fn reads_that_fail_leave_nothing_half_done() {
    let ends = survive(f2fs, BAD_READS);
    assert!(ends.on > 0, "{ends:?}");
}

#[test]
fn so_it_is_with_reads_of_scherlfs() {
    let ends = survive(scherlfs, BAD_READS);
    assert!(ends.on > 0, "{ends:?}");
}

#[test]
fn writes_that_fail_lose_nothing_that_was_promised() {
    let ends = survive(f2fs, BAD_WRITES);
    assert!(ends.on > 0 && ends.again > 0 && ends.cut > 0, "{ends:?}");
}

#[test]
fn so_it_is_with_writes_of_scherlfs() {
    let ends = survive(scherlfs, BAD_WRITES);
    assert!(ends.on > 0 && ends.again > 0 && ends.cut > 0, "{ends:?}");
}

#[test]
fn flushes_that_fail_end_all_promises_until_another_sync() {
    let ends = survive(f2fs, BAD_FLUSHES);
    assert!(ends.again > 0 && ends.cut > 0, "{ends:?}");
}

#[test]
fn so_do_flushes_of_scherlfs() {
    let ends = survive(scherlfs, BAD_FLUSHES);
    assert!(ends.again > 0, "{ends:?}");
}

/// A discard is only a hint. ScherlFS sends none.
#[test]
fn discards_that_fail_change_nothing() {
    let ends = survive(f2fs, BAD_DISCARDS);
    assert_eq!(ends.again + ends.cut + ends.not, 0, "{ends:?}");
}
