//! Calls of a program, recorded from the middle of its life, are replayed on a volume and in a directory of the host.
//! The needed files exist before, no call fails, and both end with the same files as the program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use device::clock::VirtualClock;
use device::{Fingerprint, Rng, Time};
use f2fs::{MountOptions, Volume, mkfs};
use record::Tempo;
use trace::call::{Call, Calls, Handle, How, Op, Target};
use trace::replay::calls::{Pauses, replay};
use trace::replay::needs;
use trace::replay::place::{OnDirectory, OnVolume, Place};
use trace::{Format, OtherCounts, TraceError};
use vfs::{FileKind, FileSystem, Flow, Ino};

struct List(std::vec::IntoIter<Call>, OtherCounts);

impl List {
    fn new(calls: &[Call]) -> Self {
        List(Vec::from(calls).into_iter(), OtherCounts::new())
    }
}

impl Calls for List {
    fn format(&self) -> Format {
        Format::Strace
    }
    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        Ok(self.0.next())
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.1
    }
    fn consumed(&self) -> u64 {
        0
    }
}

/// Number of files from before.
const OLD: usize = 12;

/// A simulated program with files, lengths, directories and open files.
struct Program {
    rng: Rng,
    /// Index of each file, by name.
    names: BTreeMap<String, usize>,
    /// Lengths of files.
    lengths: Vec<u64>,
    dirs: Vec<String>,
    open: BTreeMap<u64, (usize, How, u64)>,
    next_handle: u64,
    made: u64,
    calls: Vec<Call>,
    time: u64,
}

impl Program {
    /// With files from before.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let dirs: Vec<String> = ["/data", "/data/app", "/data/app/deep", "/var"].map(String::from).into();
        let (mut names, mut lengths) = (BTreeMap::new(), Vec::new());
        for n in 0..OLD {
            names.insert(format!("{}/old{n}", dirs[rng.index(dirs.len())]), lengths.len());
            lengths.push(rng.below(300_000));
        }
        Program {
            rng,
            names,
            lengths,
            dirs,
            open: BTreeMap::new(),
            next_handle: 0,
            made: 0,
            calls: Vec::new(),
            time: 5_000_000_000,
        }
    }

    fn say(&mut self, op: Op) {
        self.time += self.rng.below(20_000_000);
        self.calls.push(Call { time: self.time, thread: 1, op, took: None, failed: None });
    }

    fn a_name(&mut self) -> Option<String> {
        let n = self.rng.index(self.names.len().max(1));
        self.names.keys().nth(n).cloned()
    }

    fn a_new_name(&mut self) -> String {
        self.made += 1;
        format!("{}/new{}", self.dirs[self.rng.index(self.dirs.len())], self.made)
    }

    fn step(&mut self) {
        match self.rng.below(16) {
            0..3 => {
                let new = self.rng.chance(1, 3);
                let path = if new { Some(self.a_new_name()) } else { self.a_name() };
                let Some(path) = path else { return };
                let mut how = How::READ | How::WRITE;
                if new {
                    how |= How::CREATE;
                    how.set(How::EXCLUSIVE, self.rng.chance(1, 2));
                }
                how.set(How::TRUNCATE, self.rng.chance(1, 6));
                how.set(How::APPEND, self.rng.chance(1, 4));
                how.set(How::SYNC, self.rng.chance(1, 10));
                let file = match self.names.get(&path) {
                    Some(known) => *known,
                    None => {
                        self.lengths.push(0);
                        self.names.insert(path.clone(), self.lengths.len() - 1);
                        self.lengths.len() - 1
                    }
                };
                if how.contains(How::TRUNCATE) {
                    self.lengths[file] = 0;
                }
                self.next_handle += 1;
                self.open.insert(self.next_handle, (file, how, 0));
                self.say(Op::Open { handle: Handle(self.next_handle), path: path.into_bytes(), how });
            }
            3..11 => {
                let n = self.rng.index(self.open.len().max(1));
                let Some((&handle, &(file, how, at))) = self.open.iter().nth(n) else { return };
                self.on_file(Handle(handle), file, how, at);
            }
            11 => {
                let n = self.rng.index(self.open.len().max(1));
                let Some(&handle) = self.open.keys().nth(n) else { return };
                self.open.remove(&handle);
                self.say(Op::Close { handle: Handle(handle) });
            }
            12 => {
                let Some(path) = self.a_name() else { return };
                self.names.remove(&path);
                self.say(Op::Unlink { path: path.into_bytes() });
            }
            13 => {
                let Some(from) = self.a_name() else { return };
                let to = if self.rng.chance(1, 3) { self.a_name() } else { None };
                let to = to.unwrap_or_else(|| self.a_new_name());
                // Two names of one file: rename(2) does nothing.
                if self.names.get(&to) != self.names.get(&from) {
                    let file = self.names.remove(&from).unwrap();
                    self.names.insert(to.clone(), file);
                }
                self.say(Op::Rename { from: from.into_bytes(), to: to.into_bytes() });
            }
            14 => {
                self.made += 1;
                let above = self.dirs[self.rng.index(self.dirs.len())].clone();
                let path = format!("{above}/dir{}", self.made);
                self.dirs.push(path.clone());
                self.say(Op::MakeDir { path: path.into_bytes() });
            }
            _ => {
                let Some(path) = self.a_name() else { return };
                let path = path.into_bytes();
                match self.rng.below(3) {
                    0 => self.say(Op::Stat { file: Target::Path(path) }),
                    1 => {
                        let length = self.rng.below(200_000);
                        let file = self.names[std::str::from_utf8(&path).unwrap()];
                        self.lengths[file] = length;
                        self.say(Op::Truncate { file: Target::Path(path), length });
                    }
                    _ => {
                        let to = self.a_new_name();
                        let file = self.names[std::str::from_utf8(&path).unwrap()];
                        self.names.insert(to.clone(), file);
                        self.say(Op::Link { from: path, to: to.into_bytes() });
                    }
                }
            }
        }
    }

    fn on_file(&mut self, handle: Handle, file: usize, how: How, at: u64) {
        let length = self.lengths[file];
        let placed = self.rng.chance(1, 3);
        match self.rng.below(6) {
            0..2 => {
                let from = if placed { self.rng.below(length + 1) } else { at };
                let bytes = self.rng.below(50_000).min(length.saturating_sub(from));
                if !placed {
                    self.open.get_mut(&handle.0).unwrap().2 += bytes;
                }
                self.say(Op::Read { handle, at: placed.then_some(from), bytes });
            }
            2..4 => {
                // A positioned write to a file opened with O_APPEND ignores the position.
                let placed = placed && !how.contains(How::APPEND);
                let from = match placed {
                    true => self.rng.below(length + 1),
                    false if how.contains(How::APPEND) => length,
                    // A gap would look like a file that was longer before.
                    false => at.min(length),
                };
                if from != at && !placed && !how.contains(How::APPEND) {
                    self.say(Op::Seek { handle, to: Some(from) });
                }
                let bytes = 1 + self.rng.below(50_000);
                self.lengths[file] = length.max(from + bytes);
                if !placed {
                    self.open.get_mut(&handle.0).unwrap().2 = from + bytes;
                }
                self.say(Op::Write { handle, at: placed.then_some(from), bytes });
            }
            4 => {
                let data_only = self.rng.chance(1, 2);
                self.say(Op::Sync { handle, data_only });
            }
            _ => {
                // A recording does not show the end of a file from before.
                let to = (file < OLD || self.rng.chance(3, 4)).then(|| self.rng.below(length + 1));
                self.open.get_mut(&handle.0).unwrap().2 = to.unwrap_or(length);
                self.say(Op::Seek { handle, to });
            }
        }
    }
}

/// Lengths of all files of a volume, by path.
fn files_of(fs: &dyn FileSystem, dir: Ino, path: &str, out: &mut BTreeMap<String, u64>) {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |e| {
        if e.name != b"." && e.name != b".." {
            entries.push(String::from_utf8(e.name.to_vec()).unwrap());
        }
        Flow::Continue
    })
    .unwrap();
    for name in entries {
        let attr = fs.lookup(dir, name.as_bytes()).unwrap().attr;
        let below = format!("{path}/{name}");
        match attr.kind {
            FileKind::Directory => files_of(fs, attr.ino, &below, out),
            _ => _ = out.insert(below, attr.size),
        }
        fs.forget(attr.ino, 1);
    }
}

fn files_in(dir: &Path, path: &str, out: &mut BTreeMap<String, u64>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let below = format!("{path}/{}", entry.file_name().to_str().unwrap());
        match entry.metadata().unwrap() {
            m if m.is_dir() => files_in(&entry.path(), &below, out),
            m => _ = out.insert(below, m.len()),
        }
    }
}

/// Creates a volume, runs `work` on it, and returns its files.
fn on_a_volume(work: impl FnOnce(&mut dyn Place, &Arc<VirtualClock>)) -> BTreeMap<String, u64> {
    let clock = Arc::new(VirtualClock::new(Time { secs: 1_700_000_000, nanos: 0 }));
    let dev = Arc::new(Fingerprint::new(100_000));
    mkfs::format(&dev, &*clock, &mkfs::Options { assume_zeroed: true, ..mkfs::Options::default() }).unwrap();
    let volume = Volume::mount(dev, clock.clone(), MountOptions::default()).unwrap();
    work(&mut OnVolume::new(&*volume), &clock);
    let mut files = BTreeMap::new();
    files_of(&*volume, volume.root(), "", &mut files);
    volume.unmount().unwrap();
    files
}

#[test]
fn needed_files_exist_and_both_places_end_like_the_program() {
    for seed in 0..60 {
        let mut program = Program::new(seed);
        (0..400).for_each(|_| program.step());
        let (needs, whole) = needs::scan(&mut List::new(&program.calls), |_| {});
        whole.unwrap();
        let again = |place: &mut dyn Place, clock: &Arc<VirtualClock>, tempo: &Tempo| {
            needs.prepare(place, |_| {}).unwrap();
            let (done, whole) =
                replay(&mut List::new(&program.calls), place, &**clock, tempo, Pauses::Recorded, |_| {});
            whole.unwrap();
            assert_eq!((done.failed, done.left_out), (0, 0), "seed {seed}: {:?}", done.first_failure);
            assert_eq!(done.calls, program.calls.len() as u64);
            done
        };
        let mut read = Vec::new();
        let ours = on_a_volume(|place, clock| {
            let done = again(place, clock, &Tempo::Virtual(clock.clone()));
            let span = program.calls.last().unwrap().time - program.calls[0].time;
            assert_eq!(done.span_ns, span);
            assert!(clock.monotonic_ns() >= span, "time passed");
            read.push((done.read, done.written));
        });
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(VirtualClock::new(Time { secs: 0, nanos: 0 }));
        let done = again(&mut OnDirectory::new(dir.path()), &clock, &Tempo::BackToBack);
        read.push((done.read, done.written));
        let mut theirs = BTreeMap::new();
        files_in(dir.path(), "", &mut theirs);
        assert_eq!(ours, theirs, "seed {seed}");
        assert_eq!(read[0], read[1], "seed {seed}");

        // Every byte that the program read was available.
        let asked = |write: bool| -> u64 {
            let of = |c: &Call| match c.op {
                Op::Read { bytes, .. } if !write => bytes,
                Op::Write { bytes, .. } if write => bytes,
                _ => 0,
            };
            program.calls.iter().map(of).sum()
        };
        assert_eq!(read[0], (asked(false), asked(true)), "seed {seed}");

        // Files that the program touched are as it left them; others are unknown.
        let named: BTreeMap<&String, u64> = program.names.iter().map(|(p, f)| (p, program.lengths[*f])).collect();
        for (path, length) in &ours {
            let should = named.get(path).unwrap_or_else(|| panic!("seed {seed}: {path} should be gone"));
            assert!(length <= should, "seed {seed}: {path} is {length} long, not {should}");
        }
    }
}

trait Nanos {
    fn monotonic_ns(&self) -> u64;
}

impl Nanos for VirtualClock {
    fn monotonic_ns(&self) -> u64 {
        device::Clock::monotonic(self).as_nanos() as u64
    }
}

#[test]
fn calls_in_a_directory_cannot_leave_it() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(dir.path().join("outside"), b"keep").unwrap();
    std::os::unix::fs::symlink(dir.path().join("outside"), inside.join("link")).unwrap();
    let mut place = OnDirectory::new(&inside);
    assert!(place.open(b"/../outside", How::WRITE | How::TRUNCATE).is_err());
    assert!(place.unlink(b"/../outside").is_err());
    assert!(place.open(b"/link", How::WRITE | How::TRUNCATE).is_err());
    assert_eq!(std::fs::read(dir.path().join("outside")).unwrap(), b"keep");

    // Nor through a link on the way.
    place.symlink(b"/way", dir.path().to_str().unwrap().as_bytes()).unwrap();
    place.make_dir(b"/own").unwrap();
    assert!(place.open(b"/way/outside", How::READ | How::WRITE | How::CREATE | How::TRUNCATE).is_err());
    assert!(place.unlink(b"/way/outside").is_err());
    assert!(place.make_dir(b"/way/new").is_err());
    assert!(place.rename(b"/way/outside", b"/own/it").is_err());
    assert!(place.link(b"/way/outside", b"/own/it").is_err());
    assert!(place.symlink(b"/way/link", b"x").is_err());
    assert!(place.stat(b"/way/outside").is_err());
    assert_eq!(std::fs::read(dir.path().join("outside")).unwrap(), b"keep");
    assert!(!dir.path().join("new").exists());
    // The link itself is an ordinary name.
    place.rename(b"/way", b"/own/way").unwrap();
    place.unlink(b"/own/way").unwrap();
}

#[test]
fn files_in_a_created_directory_did_not_exist_before() {
    let path = |p: &str| p.as_bytes().to_vec();
    let ops = [
        Op::MakeDir { path: path("/made") },
        Op::Symlink { path: path("/made/link"), target: path("nowhere") },
        Op::Unlink { path: path("/made/link") },
        Op::Stat { file: Target::Path(path("/made/unseen")) },
        Op::Symlink { path: path("/old/link"), target: path("nowhere") },
        Op::Rename { from: path("/old/link"), to: path("/old/other") },
        Op::Stat { file: Target::Path(path("/old/seen")) },
    ];
    let calls: Vec<Call> =
        (0..).zip(ops).map(|(time, op)| Call { time, thread: 1, op, took: None, failed: None }).collect();
    let (needs, whole) = needs::scan(&mut List::new(&calls), |_| {});
    whole.unwrap();
    assert_eq!(needs.directories.into_iter().collect::<Vec<_>>(), [path("/old")]);
    assert_eq!(needs.files.into_keys().collect::<Vec<_>>(), [path("/old/seen")]);
}
