//! The shares of random I/O equal a plain sum over the recorded requests.

use std::io::{Cursor, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Memory;
use f2fs::{MountOptions, Volume};
use lab::plan::{Changes, Experiment};
use parking_lot::Mutex;
use record::blocks::Recorder;
use sim::aging;
use sim::traces::order::Ordered;
use trace::block::{Event, Op};
use trace::stat::randomness::Share;
use trace::{Input, Opened};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode, WriteFlags};

/// Requests in one direction: searches all requests since the last flush for the latest one that ends where this one
/// begins.
fn summed(events: &[Event], direction: Op) -> Share {
    let mut share = Share::default();
    for between in events.split(|e| e.op == Op::Flush) {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for e in between.iter().filter(|e| e.op == direction) {
            let before = runs.iter().rposition(|(end, _)| *end == e.sector).map(|at| runs.remove(at).1);
            runs.push((e.sector + e.sectors, before.unwrap_or(0) + e.sectors * 512));
        }
        for (_, bytes) in runs {
            let (count, sum) = match bytes < 32 * 1024 {
                true => (&mut share.random_runs, &mut share.random_bytes),
                false => (&mut share.sequential_runs, &mut share.sequential_bytes),
            };
            *count += 1;
            *sum += bytes;
        }
    }
    share
}

fn all(opened: Opened) -> Vec<Event> {
    let Opened::Blocks(mut events) = opened else { panic!("no recording of a block device") };
    std::iter::from_fn(|| events.next().unwrap()).collect()
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(buf);
        Ok(buf.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_volume_asks_is_ordered_as_its_recording_says() {
    let (file, clock) = (Shared::default(), aging::clock());
    let recorder = Recorder::new(Memory::new(64 << 8), file.clone(), clock.clone(), &[]).unwrap();
    let device = Arc::new(Ordered::new(recorder));
    aging::format(::volume::Kind::F2fs, device.clone(), &*clock, 1, true).unwrap();
    let volume = Volume::mount(device.clone(), clock, MountOptions::default()).unwrap();
    let mut buf = vec![7; 300_000];
    for n in 0..40_usize {
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let name = format!("f{n}");
        let ino = volume.mknod(Caller::default(), volume.root(), name.as_bytes(), &new).unwrap().attr.ino;
        volume.write(ino, 0, &buf[..n * 7001 % 290_000], WriteFlags::empty()).unwrap();
        if n % 3 == 0 {
            volume.fsync(ino, false).unwrap();
            volume.read(ino, (n % 5) as u64 * 4096, &mut buf[..n * 1000 + 1]).unwrap();
        }
    }
    volume.unmount().unwrap();
    device.inner().finish().unwrap();
    let order = device.take();
    let bytes = std::mem::take(&mut *file.0.lock());
    let events = all(trace::open_input(Input::new(Path::new("here"), Cursor::new(bytes)).unwrap()).unwrap());
    assert_eq!((order.read, order.written), (summed(&events, Op::Read), summed(&events, Op::Write)));
    assert!(order.written.random_runs > 20 && order.written.sequential_runs > 5, "{order:?}");
    assert_eq!(order.requests, events.iter().filter(|e| e.op != Op::Discard).count() as u64);
    assert_eq!(device.take().requests, 0, "a new beginning");
}

#[test]
fn shares_and_price_of_the_recorded_requests_of_ext4_are_those_of_a_plain_sum() {
    let experiment = Experiment::find("nexus-apps").unwrap();
    let changes = Changes { variants: vec!["ext4".into()], ..Changes::default() };
    let outcome = lab::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).unwrap();
    let prices = &outcome.variants[0].parameters["prices"];
    for phase in &outcome.variants[0].phases {
        let folder = format!("{}/../experiments/nexus-apps", env!("CARGO_MANIFEST_DIR"));
        let is_its =
            |f: &PathBuf| f.file_name().unwrap().to_string_lossy().starts_with(&format!("{}.ext4.", phase.name));
        let file = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).find(is_its).unwrap();
        let events = all(trace::open(&file).unwrap());
        let (read, written) = (summed(&events, Op::Read), summed(&events, Op::Write));
        let is = |name: &str, wanted: f64| {
            let got = phase.measures[name].value;
            assert!((got - wanted).abs() <= 1e-9 * wanted.abs(), "{}, {name}: {got}, not {wanted}", phase.name);
        };
        let share = |random: u64, other: u64| 100.0 * random as f64 / (random + other).max(1) as f64;
        is("random_reads", share(read.random_runs, read.sequential_runs));
        is("random_bytes_read", share(read.random_bytes, read.sequential_bytes));
        is("random_writes", share(written.random_runs, written.sequential_runs));
        is("random_bytes_written", share(written.random_bytes, written.sequential_bytes));
        let cost = |bytes: u64, price: &str| bytes as f64 / 1024.0 * prices[price].as_float().unwrap() * 1e-6;
        let joules = cost(read.sequential_bytes, "read_sequential")
            + cost(read.random_bytes, "read_random")
            + cost(written.sequential_bytes, "write_sequential")
            + cost(written.random_bytes, "write_random");
        is("priced", joules);
        assert!(written.random_runs > 20, "{}: {written:?}", phase.name);
    }
}
