//! Is everything promised there, however the run ends? And if other data is lost, was an error reported?
//!
//! A matrix of workloads and ends: the process is killed, or waits for `commit=` and is killed, or syncs and is killed,
//! or unmounts; the image's host becomes full or the device fails in between. Then the volume is remounted and compared
//! with a model of what each call has promised. `JOULEFS_DEEP=1` runs ten times as many; `JOULEFS_REPLAY=<n>` repeats
//! one and prints its operations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use device::{BLOCK, Fault, Faulty, Memory, Op, Rng, Time, VirtualClock};
use f2fs::mkfs::Options;
use judges::host::SparseHost;
use trials::subject::{F2fs, ScherlFs, Subject};
use vfs::{Caller, Commit, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, RenameFlags, WriteFlags};

const ME: Caller = Caller { uid: 0, gid: 0 };
const NEW: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };
/// `commit=`
const COMMIT: Duration = Duration::from_secs(5);
const FILES: usize = 10;

/// How the work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Kill,
    CommitAndKill,
    SyncAndKill,
    Unmount,
    HostFull,
    DeviceError,
}

const ENDS: [End; 6] = [End::Kill, End::CommitAndKill, End::SyncAndKill, End::Unmount, End::HostFull, End::DeviceError];

/// The state of a file. Version `v` has `lengths[v]` bytes; each block contains its file and version.
#[derive(Debug, Clone, Default)]
struct File {
    /// Length in bytes of each version whose write was begun; never decreases.
    lengths: Vec<usize>,
    /// The last version that was fully accepted.
    taken: usize,
    /// Names it may have: the last one, and those since it was last made durable.
    names: Vec<String>,
    /// An unlink was tried.
    removed: bool,
    /// An unlink succeeded.
    unlinked: bool,
    /// Its removal is promised.
    gone: bool,
    /// The minimum version required: one that was made durable.
    promised: Option<usize>,
    ino: Option<Ino>,
}

impl File {
    /// Everything accepted is durable.
    fn promise(&mut self) {
        if self.unlinked {
            self.gone = true;
            self.promised = None;
            return;
        }
        if self.ino.is_some() {
            self.promised = Some(self.taken);
            self.names = self.names.split_off(self.names.len() - 1);
        }
    }
}

fn block_of(id: usize, version: usize, index: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let words = [0xa500_0000 | id as u32, 0xa500_0000 | version as u32, 0xa500_0000 | index as u32];
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    for (byte, is) in block.iter_mut().zip(bytes.into_iter().cycle()) {
        *byte = is;
    }
    block
}

fn contents(id: usize, version: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len.div_ceil(BLOCK)).flat_map(|i| block_of(id, version, i)).collect();
    bytes.truncate(len);
    bytes
}

/// A volume in use, and its promises.
struct Work<'v, V> {
    vol: &'v V,
    clock: &'v VirtualClock,
    rng: Rng,
    files: Vec<File>,
    /// Failed calls, each of which returned an error.
    told: Vec<String>,
    log: String,
}

impl<V: FileSystem> Work<'_, V> {
    fn ok<T: std::fmt::Debug>(&mut self, what: &str, done: vfs::Result<T>) -> Option<T> {
        let _ = writeln!(self.log, "{what}: {:?}", done.as_ref().map(drop));
        match done {
            Ok(value) => Some(value),
            Err(e) => {
                self.told.push(format!("{what}: {e}"));
                None
            }
        }
    }

    fn step(&mut self) {
        let id = self.rng.index(FILES);
        let root = self.vol.root();
        let chance = self.rng.index(20);
        let Some(ino) = self.files[id].ino else { return self.create(id) };
        let last = self.files[id].names.last().cloned().unwrap_or_default();
        match chance {
            0..=7 => self.write(id, ino),
            8..=12 => {
                if self.ok(&format!("fsync {id}"), self.vol.fsync(ino, chance == 8)).is_some() {
                    self.files[id].promise();
                }
            }
            13..=14 => {
                let new = format!("file {id} {}", self.rng.below(1 << 40));
                let moved = self.vol.rename(ME, (root, last.as_bytes()), (root, new.as_bytes()), RenameFlags::empty());
                let names = &mut self.files[id].names;
                names.push(new.clone());
                if moved.is_err() {
                    // It may have either name.
                    names.push(last.clone());
                }
                self.ok(&format!("rename {id} from {last:?} to {new:?}"), moved);
            }
            15 => {
                self.files[id].removed = true;
                let removed = self.vol.unlink(root, last.as_bytes());
                self.vol.forget(ino, 1);
                self.files[id].ino = None;
                // A file whose unlink failed is no longer used.
                self.files[id].unlinked = self.ok(&format!("unlink {id} {last:?}"), removed).is_some();
            }
            16 => {
                if self.ok("sync", self.vol.sync()).is_some() {
                    self.files.iter_mut().for_each(File::promise);
                }
            }
            _ => {
                self.clock.advance(Duration::from_millis(self.rng.below(3000)));
                let _ = self.vol.tick();
            }
        }
    }

    fn create(&mut self, id: usize) {
        if self.files[id].removed {
            return;
        }
        let name = format!("file {id}");
        let made = self.vol.mknod(ME, self.vol.root(), name.as_bytes(), &NEW);
        if let Some(made) = self.ok(&format!("create {id}"), made) {
            self.files[id] = File { lengths: vec![0], names: vec![name], ino: Some(made.attr.ino), ..File::default() };
        }
    }

    /// Writes a new version over the whole file, and past its end.
    fn write(&mut self, id: usize, ino: Ino) {
        let file = &mut self.files[id];
        let was = file.lengths.last().copied().unwrap_or_default();
        let len = was + if self.rng.chance(1, 3) { self.rng.index(9 * BLOCK) } else { 0 };
        let len = len.max(1 + self.rng.index(300)).min(40 * BLOCK);
        let version = file.lengths.len();
        file.lengths.push(len);
        let bytes = contents(id, version, len);
        let wrote = self.vol.write(ino, 0, &bytes, WriteFlags::empty());
        let whole = matches!(wrote, Ok(n) if n == len);
        self.ok(&format!("write version {version} of {id}, {len} bytes"), wrote);
        if whole {
            self.files[id].taken = version;
        }
    }
}

/// What is on a volume: names and contents.
fn found<V: FileSystem>(vol: &V) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    vol.readdir(vol.root(), 0, &mut |e| {
        names.push((e.name.to_vec(), e.kind));
        Flow::Continue
    })
    .expect("the root can be read");
    let mut out = BTreeMap::new();
    for (name, _) in names.into_iter().filter(|(name, kind)| *kind == FileKind::Regular && name.starts_with(b"file ")) {
        let shown = String::from_utf8_lossy(&name).into_owned();
        let attr = vol.lookup(vol.root(), &name).unwrap_or_else(|e| panic!("{shown}: {e}")).attr;
        let mut bytes = vec![0; attr.size as usize];
        let n = vol.read(attr.ino, 0, &mut bytes).unwrap_or_else(|e| panic!("{shown}: {e}"));
        assert_eq!(n, bytes.len(), "{shown} can be read to its end");
        out.insert(shown, bytes);
    }
    out
}

/// Checks a file against its promises. `exact`: it must have its last state.
fn kept(id: usize, file: &File, found: &BTreeMap<String, Vec<u8>>, exact: bool) {
    let at: Vec<(&String, &Vec<u8>)> = found
        .iter()
        .filter(|(name, _)| name.as_str() == format!("file {id}") || name.starts_with(&format!("file {id} ")))
        .collect();
    assert!(at.len() <= 1, "file {id} has the names {:?}", at.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let Some((name, bytes)) = at.first() else {
        let lost = (file.promised.is_some() && !file.removed) || (exact && file.ino.is_some());
        assert!(!lost, "file {id} is gone: {file:?}");
        return;
    };
    assert!(!(file.gone || exact && file.unlinked), "file {id} was removed, and is there as {name:?}");
    if file.promised.is_some() || exact {
        let may = if exact { &file.names[file.names.len().saturating_sub(2)..] } else { &file.names[..] };
        assert!(may.contains(name), "file {id} is {name:?}, not one of {may:?}");
    }
    let least = if exact { file.taken } else { file.promised.unwrap_or(0) };
    let bounded = file.promised.is_some() || exact;
    let versions = least..file.lengths.len();
    let (shortest, longest) = (file.lengths[least], *file.lengths.last().expect("there is one"));
    assert!(bytes.len() <= longest, "file {id} has {} bytes, never more than {longest} were written", bytes.len());
    if bounded {
        assert!(bytes.len() >= shortest, "file {id} has {} of {shortest} bytes", bytes.len());
    }
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        let is = |v: usize| {
            // Past the end of that version, another version's data may follow.
            let len = file.lengths[v].saturating_sub(index * BLOCK).min(block.len());
            len > 0 && block[..len] == block_of(id, v, index)[..len]
        };
        let own = versions.clone().any(is);
        let hole = || block.iter().all(|b| *b == 0) && (!bounded || index * BLOCK >= shortest);
        assert!(
            own || hole(),
            "block {index} of file {id} is of no version from {least} on: {:x?}",
            &block[..12.min(block.len())]
        );
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    /// Promises kept.
    promised: usize,
    /// Errors returned to callers.
    told: usize,
    /// It ended by a successful unmount.
    clean: bool,
}

fn run<S: Subject>(subject: &S, base: &Memory, end: End, seed: u64, shown: bool) -> Came {
    let dev = Arc::new(Faulty::new(SparseHost::new(base.fork())));
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    let vol = subject.mount(dev.clone(), clock.clone()).unwrap();
    let mut rng = Rng::new(seed);
    let steps = 20 + rng.index(120);
    let mut work = Work {
        vol: &*vol,
        clock: &clock,
        rng: Rng::new(seed ^ 0x5eed),
        files: vec![File::default(); FILES],
        told: Vec::new(),
        log: String::new(),
    };
    (0..steps).for_each(|_| work.step());
    match end {
        End::HostFull => dev.inner().leave(rng.below(60)),
        End::DeviceError => {
            let op = [Op::Write, Op::Write, Op::Flush, Op::Read][rng.index(4)];
            let from = dev.requests(op) + 1 + rng.below(20);
            let to = if rng.chance(1, 2) { u64::MAX } else { from + 1 + rng.below(6) };
            dev.add(Fault::Nth { op, requests: from..to });
        }
        _ => {}
    }
    if matches!(end, End::HostFull | End::DeviceError) {
        (0..steps).for_each(|_| work.step());
    }
    let mut exact = false;
    match end {
        End::Kill => {}
        End::CommitAndKill => {
            let ticks = (0..8).map(|_| {
                clock.advance(Duration::from_secs(1));
                vol.tick()
            });
            let all = ticks.collect::<vfs::Result<Vec<_>>>();
            if work.ok("commit", all).is_some() {
                work.files.iter_mut().for_each(File::promise);
            }
        }
        End::SyncAndKill => {
            if work.ok("sync", vol.sync()).is_some() {
                work.files.iter_mut().for_each(File::promise);
            }
        }
        End::Unmount => exact = work.ok("unmount", vol.unmount()).is_some(),
        End::HostFull | End::DeviceError => {
            // In some runs, space is freed.
            if rng.chance(1, 3) {
                dev.inner().leave(u64::MAX);
                dev.heal();
                if work.ok("sync after the fault", vol.sync()).is_some() {
                    work.files.iter_mut().for_each(File::promise);
                }
            }
            if rng.chance(3, 4) {
                exact = work.ok("unmount", vol.unmount()).is_some();
            }
        }
    }
    if shown {
        println!("{}", work.log);
    }
    let (files, told) = (work.files, work.told);
    dev.heal();
    let image = Arc::new(dev.inner().image());
    drop(vol);
    let again = subject
        .mount(image.clone(), Arc::new(VirtualClock::new(Time::new(1_700_001_000, 0))))
        .unwrap_or_else(|e| panic!("mounting again: {e}"));
    let found = found(&*again);
    for (id, file) in files.iter().enumerate().filter(|(_, file)| !file.lengths.is_empty()) {
        // The effect of a failed call may exist or not; that of a successful one exists.
        kept(id, file, &found, exact);
    }
    if matches!(end, End::Unmount) {
        assert!(exact, "nothing was in the way, and unmounting failed: {told:?}");
    }
    again.unmount().unwrap_or_else(|e| panic!("unmounting again: {e}"));
    drop(again);
    subject.check(&*image).unwrap_or_else(|e| panic!("afterwards: {e}"));
    Came { promised: files.iter().filter(|f| f.promised.is_some() || f.gone).count(), told: told.len(), clean: exact }
}

fn matrix<S: Subject>(subject: &S, blocks: u64, count: u64) {
    let dev = Arc::new(Memory::new(blocks));
    subject.format(dev.clone(), &VirtualClock::new(Time::new(1_700_000_000, 0))).unwrap();
    let base = dev.fork();
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let mut seeds: Vec<u64> = (0..if deep { 10 * count } else { count }).collect();
    let replay = std::env::var("JOULEFS_REPLAY").ok().map(|n| n.parse().expect("JOULEFS_REPLAY=<n>"));
    if let Some(n) = replay {
        seeds = vec![n];
    }
    let (mut failed, mut came) = (Vec::new(), BTreeMap::<End, (u64, Came, u64)>::new());
    for n in seeds {
        let end = ENDS[(n % ENDS.len() as u64) as usize];
        let run = || run(subject, &base, end, n, replay.is_some());
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(is) => {
                let (runs, sum, clean) = came.entry(end).or_default();
                (*runs, *clean) = (*runs + 1, *clean + u64::from(is.clean));
                (sum.promised, sum.told) = (sum.promised + is.promised, sum.told + is.told);
            }
            Err(why) => {
                let text = why.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
                failed.push(format!("run {n}, {end:?}: {text}"));
            }
        }
    }
    for (end, (runs, sum, clean)) in &came {
        println!(
            "{end:?}: {runs} runs, {} promises kept, {} failures told, {clean} clean unmounts",
            sum.promised, sum.told
        );
    }
    assert!(failed.is_empty(), "{} runs failed:\n{}", failed.len(), failed.join("\n"));
    // The matrix is useless if its faults hit nothing.
    if replay.is_none() {
        assert!(came.values().all(|(_, sum, _)| sum.promised > 0), "{came:?}");
        assert!(came[&End::HostFull].1.told > 0 && came[&End::DeviceError].1.told > 0, "{came:?}");
        assert!(came[&End::Unmount].2 == came[&End::Unmount].0, "{came:?}");
    }
}

#[test]
fn what_f2fs_promised_is_there_however_it_ends() {
    let made = Options { assume_zeroed: true, checkpoint_version: Some(7), uuid: Some([3; 16]), ..Options::modern() };
    let mounted = f2fs::MountOptions { commit: Some(Commit::within(COMMIT)), ..f2fs::MountOptions::default() };
    matrix(&F2fs { made, mounted, deltas: false }, 16_384, 1002);
}

#[test]
fn what_f2fs_with_deltas_promised_is_there_however_it_ends() {
    let made = Options { assume_zeroed: true, checkpoint_version: Some(7), uuid: Some([3; 16]), ..Options::modern() };
    let mounted = f2fs::MountOptions { commit: Some(Commit::within(COMMIT)), ..f2fs::MountOptions::default() };
    matrix(&F2fs { made, mounted, deltas: true }, 16_384, 300);
}

#[test]
fn what_scherlfs_promised_is_there_however_it_ends() {
    let mounted = scherlfs::MountOptions { commit: Some(Commit::within(COMMIT)), ..scherlfs::MountOptions::default() };
    matrix(&ScherlFs { mounted, ..ScherlFs::default() }, 4096, 1002);
}
