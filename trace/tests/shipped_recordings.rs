//! Every recording shipped with an experiment or a reader is read whole, and can be replayed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::clock::{RealClock, Time, VirtualClock};
use device::energy::Nanos;
use device::queue::{Ask, Queue};
use device::{DeviceError, Fingerprint, Tag};
use f2fs::{MountOptions, Volume, mkfs};
use record::Tempo;
use record::calls::{Call, Event};
use trace::read::recording;
use trace::replay::blocks::How;
use trace::replay::calls::Pauses;
use trace::replay::place::OnDirectory;
use trace::replay::{self, extent, needs};
use trace::requests::Requests;
use trace::{Format, Kind, Opened, open, open_as, stat};

/// Other files next to recordings: texts, scripts, plans, sums.
const BESIDE: [&str; 7] = ["md", "py", "sh", "toml", "csv", "fio", "sums"];

fn recordings() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![root.join("experiments"), root.join("recordings"), root.join("trace/fixtures")];
    let mut out = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().map(|e| e.to_string_lossy().into_owned());
            match ending {
                _ if path.is_dir() => folders.push(path),
                // A list of the files that existed when launches were recorded.
                _ if path.ends_with("fagc-fig6/files.zst") => {}
                Some(ending) if !BESIDE.contains(&ending.as_str()) => out.push(path),
                // The only file without an extension is a script.
                _ => {}
            }
        }
    }
    out.sort();
    out
}

fn requests(path: &Path) -> Requests {
    let Ok(Opened::Blocks(events)) = open(path) else { panic!("{}: not of a block device any more", path.display()) };
    Requests::new(events)
}

/// A device that completes every request immediately.
struct AtOnce {
    blocks: u64,
}

impl Queue for AtOnce {
    fn depth(&self) -> usize {
        32
    }
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn submit(&self, now: Nanos, ask: Ask, _: Tag) -> Result<Nanos, DeviceError> {
        let (Ask::Read { at, blocks } | Ask::Write { at, blocks } | Ask::Discard { at, blocks }) = ask else {
            return Ok(now);
        };
        let size = self.blocks;
        match at.0.checked_add(blocks).filter(|end| *end <= size) {
            Some(_) => Ok(now),
            None => Err(DeviceError::OutOfRange { op: "request", at, blocks, size }),
        }
    }
    fn drain(&self) -> Nanos {
        Nanos(0)
    }
}

fn of_blocks(path: &Path) {
    let (stat, whole) = stat::blocks::count(&mut requests(path), |_| {});
    whole.unwrap_or_else(|e| panic!("{e}"));
    let (all, whole) = extent::scan(&mut requests(path), |_| {});
    whole.unwrap();
    let of = extent::busiest(&all, |_| true).unwrap_or_else(|| panic!("{}: no requests", path.display()));
    let device = AtOnce { blocks: all[&of].blocks.max(1) };
    let mut told = 0;
    let (done, whole) =
        replay::blocks::replay(&mut requests(path), of, &device, How::RECORDED, |_, _| told += 1, |_| {});
    whole.unwrap();
    assert_eq!(told, done.requests, "every request made is told of");
    assert_eq!((done.failed, &done.first_failure), (0, &None), "{}", path.display());
    assert!(done.requests > 0 && done.requests <= stat.requests, "{}", path.display());
}

fn of_calls(path: &Path) {
    let again = || match open(path) {
        Ok(Opened::Calls(calls)) => calls,
        _ => panic!("{}: not of calls any more", path.display()),
    };
    let (needs, whole) = needs::scan(&mut *again(), |_| {});
    whole.unwrap_or_else(|e| panic!("{e}"));
    let directory = tempfile::tempdir().unwrap();
    let mut place = OnDirectory::new(directory.path());
    needs.prepare(&mut place, |_| {}).unwrap_or_else(|(of, e)| panic!("{}: {of:?}: {e}", path.display()));
    let (done, whole) = replay::calls::replay(
        &mut *again(),
        &mut place,
        &RealClock::new(),
        &Tempo::BackToBack,
        Pauses::Recorded,
        |_| {},
    );
    whole.unwrap();
    assert_eq!((done.failed, &done.first_failure), (0, &None), "{}", path.display());
    assert!(done.calls > 0, "{}", path.display());
}

/// A recording by inode: counted by path, and replayed on a volume with the initial files.
fn of_inodes(path: &Path) {
    let again = || recording::calls(path).unwrap_or_else(|e| panic!("{e}")).expect("ours").0;
    let Ok(Opened::Calls(mut calls)) = open(path) else { panic!("{}: no calls", path.display()) };
    let (counted, whole) = stat::calls::count(&mut *calls, |_| {});
    whole.unwrap_or_else(|e| panic!("{e}"));
    let (device, clock) = (Arc::new(Fingerprint::new(1 << 20)), Arc::new(VirtualClock::new(Time::default())));
    mkfs::format(&device, &*clock, &mkfs::Options { assume_zeroed: true, ..mkfs::Options::modern() }).unwrap();
    let volume = Volume::mount(device, clock, MountOptions::default()).unwrap();
    let (_, whole) = record::calls::prepare(again().root(), again(), &*volume, || ()).unwrap_or_else(|e| panic!("{e}"));
    whole.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (done, whole) = record::calls::replay(again().root(), again(), &*volume, &Tempo::BackToBack, |_| {});
    whole.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(done.calls > 0, "{}", path.display());
    let written: u64 = again()
        .map(|event| match event.expect("whole") {
            Event { call: Call::Write { .. }, answer: Ok(n), .. } => n,
            _ => 0,
        })
        .sum();
    assert_eq!(counted.written.sizes.bytes, written, "{}", path.display());
    // With contents, the replay must be identical.
    if again().has_contents() {
        assert_eq!((done.left_out, done.diverged, done.generated), (0, 0, 0), "{}: {done:?}", path.display());
    }
}

#[test]
fn every_shipped_recording_is_read_and_replayed() {
    let all = recordings();
    let mut kinds = [0; 3];
    for path in &all {
        match open(path) {
            Ok(Opened::Blocks(events)) => {
                kinds[0] += 1;
                if events.format() == Format::Perfetto {
                    let Ok(Opened::Power(mut rails)) = open_as(path, Kind::Power) else { panic!("no rails") };
                    stat::power::count(&mut *rails, |_| {}).1.unwrap();
                }
                of_blocks(path);
            }
            Ok(Opened::Calls(calls)) if calls.format() == Format::JouleRec => {
                kinds[2] += 1;
                of_inodes(path);
            }
            Ok(Opened::Calls(_)) => {
                kinds[1] += 1;
                of_calls(path);
            }
            Ok(Opened::Power(_)) => panic!("{}: of a meter, and nothing here looks at it", path.display()),
            Err(e) => panic!("{e}"),
        }
    }
    assert!(kinds.iter().all(|n| *n > 3), "{kinds:?} of {}", all.len());
}
