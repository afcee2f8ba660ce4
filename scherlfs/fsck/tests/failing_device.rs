//! Every read, write and flush of a run fails once: the call reports it or copes, nothing panics, the volume has no
//! findings afterwards, and durable data exists.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use device::{Fault, Faulty, Loss, Memory, Op, PowerCut, Rng, VirtualClock};
use joulefs_scherlfs_fsck as fsck;
use scherlfs::{MountOptions, Placement, Sync, Volume};
use vfs::{Caller, DeviceNumber, Error, FileKind, FileSystem, NewNode, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };

/// A file's bytes. States share them, and the same bytes are not compared: hundreds of states are compared after each
/// call.
#[derive(Clone)]
struct Bytes(Arc<Vec<u8>>);

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        Bytes(Arc::new(bytes))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Bytes {}

type Contents = BTreeMap<Vec<u8>, Bytes>;

/// Performed calls. A failed call may have had its effect, so there may be two possible states.
struct Course {
    /// Possible present states.
    now: BTreeSet<Contents>,
    /// Possible states after a power cut: every state since the last completed sync.
    since: BTreeSet<Contents>,
    errors: usize,
}

impl Course {
    /// Records the result of a call; `change` is its effect on the contents.
    fn call<T>(&mut self, answer: vfs::Result<T>, change: impl Fn(&mut Contents)) -> Option<T> {
        let changed = |c: &Contents| {
            let mut c = c.clone();
            change(&mut c);
            c
        };
        let after: BTreeSet<Contents> = self.now.iter().map(changed).collect();
        let out = match answer {
            Ok(out) => {
                self.now = after;
                Some(out)
            }
            Err(Error::NotFound) => None,
            Err(e) => {
                assert!(lawful(&e), "{e:?}");
                self.errors += 1;
                // A volume that rejects changes did nothing.
                if !e.to_string().contains("until it is mounted again") {
                    self.now.extend(after);
                }
                None
            }
        };
        self.since.extend(self.now.iter().cloned());
        out
    }
}

fn new() -> NewNode {
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() }
}

/// True for a device error or one that follows from it: no other is permitted.
fn lawful(e: &Error) -> bool {
    matches!(e, Error::Device(_))
}

fn formatted() -> Memory {
    let (dev, clock) = (Arc::new(Memory::new(512)), Arc::new(VirtualClock::default()));
    scherlfs::make::format(dev.clone(), &*clock, &scherlfs::make::Options::default()).unwrap();
    let volume = Volume::mount(dev.clone(), clock, MountOptions::default()).unwrap();
    for n in 0..6u8 {
        let ino = volume.mknod(ME, volume.root(), &[b'a' + n], &new()).unwrap().attr.ino;
        volume.write(ino, 0, &[n; 7000], WriteFlags::empty()).unwrap();
    }
    volume.unmount().unwrap();
    dev.fork()
}

fn begun() -> Contents {
    (0..6u8).map(|n| (vec![b'a' + n], Bytes::new(vec![n; 7000]))).collect()
}

/// Performs calls to the end, whatever fails; records their results.
fn run(dev: Arc<Faulty<PowerCut>>, options: &MountOptions, seed: u64) -> Course {
    let begun = BTreeSet::from([begun()]);
    let mut course = Course { now: begun.clone(), since: begun, errors: 0 };
    let volume = match Volume::mount(dev, Arc::new(VirtualClock::default()), options.clone()) {
        Ok(volume) => volume,
        Err(e) => {
            assert!(lawful(&e), "mount: {e}");
            course.errors += 1;
            return course;
        }
    };
    let mut rng = Rng::new(seed);
    let mut name = vec![b'a'];
    let nothing = |_: &mut Contents| ();
    for step in 0..60u8 {
        // If rewriting the same file is a special case, use it half of the time.
        if options.placement.is_none() || rng.below(2) == 0 {
            name = vec![b'a' + rng.below(9) as u8];
        }
        let root = volume.root();
        match rng.below(8) {
            0..=3 => {
                let (at, long) = (rng.below(9000) as usize, 1 + rng.below(6000) as usize);
                let found = match volume.lookup(root, &name) {
                    Err(Error::NotFound) => {
                        let made = |c: &mut Contents| _ = c.insert(name.clone(), Bytes::new(Vec::new()));
                        course.call(volume.mknod(ME, root, &name, &new()), made)
                    }
                    found => course.call(found, nothing),
                };
                let Some(entry) = found else { continue };
                let data = vec![step; long];
                let written = volume.write(entry.attr.ino, at as u64, &data, WriteFlags::empty());
                // States that shared a file's bytes share them afterwards.
                let changed = RefCell::new(BTreeMap::new());
                course.call(written, |c| {
                    // A name that may not exist is not written to.
                    let Some(bytes) = c.get_mut(&name) else { return };
                    let mut changed = changed.borrow_mut();
                    let after = changed.entry(Arc::as_ptr(&bytes.0)).or_insert_with(|| {
                        let mut bytes = bytes.0.to_vec();
                        bytes.resize(bytes.len().max(at + long), 0);
                        bytes[at..at + long].fill(step);
                        Bytes::new(bytes)
                    });
                    *bytes = after.clone();
                });
            }
            4 => _ = course.call(volume.unlink(root, &name), |c| _ = c.remove(&name)),
            5 => {
                if let Some(found) = course.call(volume.lookup(root, &name), nothing) {
                    let mut bytes = vec![0; 20_000];
                    course.call(volume.read(found.attr.ino, 0, &mut bytes), nothing);
                }
            }
            _ => {
                if course.call(volume.sync(), nothing).is_some() {
                    course.since = course.now.clone();
                }
            }
        }
    }
    match seed % 2 {
        // The power fails before any further write.
        1 => std::mem::forget(volume),
        _ => _ = course.call(volume.unmount(), nothing),
    }
    course
}

fn contents(dev: &Arc<Memory>) -> Contents {
    let volume = Volume::mount(dev.clone(), Arc::new(VirtualClock::default()), MountOptions::default()).unwrap();
    let mut out = Contents::new();
    for name in (b'a'..b'a' + 9).map(|n| vec![n]) {
        let Ok(found) = volume.lookup(volume.root(), &name) else { continue };
        let mut bytes = vec![0; found.attr.size as usize];
        assert_eq!(volume.read(found.attr.ino, 0, &mut bytes).unwrap(), bytes.len());
        out.insert(name, Bytes::new(bytes));
    }
    volume.unmount().unwrap();
    let report = fsck::check(&**dev);
    assert!(report.is_clean(), "after recovery: {:?}", report.findings);
    out
}

/// A way to mount, and a seed of its calls.
type Kind = (usize, MountOptions, u64);

/// Fails every request of one course once; returns the number of failures, and of courses that saw an error.
fn fail_each(image: &Memory, (which, options, seed): &Kind) -> (u64, u64) {
    let (mut failed, mut told) = (0, 0);
    let whole = Arc::new(Faulty::new(PowerCut::new(image.fork())));
    run(whole.clone(), options, *seed);
    let nth = |op| (1..=whole.requests(op)).map(move |n| (n, Fault::Nth { op, requests: n..n + 1 }));
    let spoiled = (1..=whole.requests(Op::Write)).map(|n| (n, Fault::Spoiled { request: n }));
    for (n, fault) in nth(Op::Read).chain(nth(Op::Write)).chain(nth(Op::Flush)).chain(spoiled) {
        let dev = Arc::new(Faulty::new(PowerCut::new(image.fork())));
        dev.add(fault.clone());
        let course = run(dev.clone(), options, *seed);
        (failed, told) = (failed + 1, told + u64::from(course.errors > 0));
        for loss in [Loss::AllKept, Loss::AllLost, Loss::Random(n)] {
            let place = format!("options {which}, seed {seed}, {fault:?}, {loss}");
            let left = Arc::new(dev.inner().image(loss));
            let report = fsck::check(&*left);
            assert!(report.is_clean(), "{place}: {:?}", report.findings);
            let found = contents(&left);
            let sizes = |c: &Contents| c.iter().map(|(n, b)| (n[0] as char, b.0.len())).collect::<Vec<_>>();
            let may = || course.since.iter().map(sizes).collect::<Vec<_>>();
            assert!(course.since.contains(&found), "{place}: {:?}, not of {:?}", sizes(&found), may());
        }
    }
    (failed, told)
}

#[test]
fn every_request_that_fails_once_is_reported_and_loses_nothing() {
    let image = formatted();
    let call =
        MountOptions { sync: Sync::Call, dir_cache: 0, ifile_cache: 1, inode_cache: 2, ..MountOptions::default() };
    let few = MountOptions { dirty: 8, checkpoint_blocks: 30, inode_cache: 2, ..MountOptions::default() };
    let placed = |p| MountOptions { placement: Some(p), ..call.clone() };
    let placed = [Placement::After, Placement::InPlace, Placement::Delayed].map(placed);
    let all = [call.clone(), few].into_iter().chain(placed).enumerate();
    let kinds: Vec<Kind> =
        all.flat_map(|(which, options)| (0..2).map(move |seed| (which, options.clone(), seed))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = || kinds.get(next.fetch_add(1, Relaxed));
        std::iter::from_fn(mine).map(|kind| fail_each(&image, kind)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let (failed, told) = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work();
        let other = other.join().unwrap();
        (mine.0 + other.0, mine.1 + other.1)
    });
    println!("{failed} requests failed, {told} courses were told");
    assert!(failed > 300 && told * 2 > failed, "{failed} failed, {told} told");
}
