//! Recorded calls are replayed with their threads' pauses, or at their recorded times.

use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Time, VirtualClock};
use record::Tempo;
use trace::call::{Call, Calls, Handle, How, Op};
use trace::replay::calls::{Pauses, replay};
use trace::replay::place::{FileRef, OnDirectory, Place, PlaceError};
use trace::{Format, OtherCounts, TraceError};

type Done<T> = Result<T, PlaceError>;

/// A place where an fsync takes ten milliseconds and all else takes no time; it records when each fsync began.
struct Slow {
    directory: OnDirectory,
    clock: Arc<VirtualClock>,
    syncs: Vec<u64>,
}

const SYNC: u64 = 10;

impl Slow {
    fn now(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }
}

impl Place for Slow {
    fn open(&mut self, path: &[u8], how: How) -> Done<FileRef> {
        self.directory.open(path, how)
    }
    fn close(&mut self, file: FileRef) {
        self.directory.close(file);
    }
    fn length(&mut self, _: FileRef) -> Done<u64> {
        Ok(0)
    }
    fn read(&mut self, _: FileRef, _: u64, buf: &mut [u8]) -> Done<u64> {
        Ok(buf.len() as u64)
    }
    fn write(&mut self, _: FileRef, _: u64, _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn sync(&mut self, _: FileRef, _: bool) -> Done<()> {
        self.syncs.push(self.now());
        self.clock.advance(Duration::from_millis(SYNC));
        Ok(())
    }
    fn sync_all(&mut self) -> Done<()> {
        Ok(())
    }
    fn truncate(&mut self, _: FileRef, _: u64) -> Done<()> {
        Ok(())
    }
    fn allocate(&mut self, _: FileRef, _: u64, _: u64, _: bool, _: bool) -> Done<()> {
        Ok(())
    }
    fn unlink(&mut self, _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn remove_dir(&mut self, _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn make_dir(&mut self, _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn rename(&mut self, _: &[u8], _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn link(&mut self, _: &[u8], _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn symlink(&mut self, _: &[u8], _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn stat(&mut self, _: &[u8]) -> Done<()> {
        Ok(())
    }
    fn list(&mut self, _: FileRef) -> Done<()> {
        Ok(())
    }
    fn tick(&mut self) -> Done<Option<Duration>> {
        Ok(None)
    }
}

struct List {
    calls: std::vec::IntoIter<Call>,
    others: OtherCounts,
}

impl Calls for List {
    fn format(&self) -> Format {
        Format::Strace
    }
    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        Ok(self.calls.next())
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }
    fn consumed(&self) -> u64 {
        0
    }
}

/// Opens a file in each of two threads, then makes these fsyncs: thread, recorded milliseconds, recorded duration in
/// milliseconds. Returns when they began, and the longest wait in milliseconds.
fn syncs(pauses: Pauses, list: &[(u32, u64, Option<u64>)]) -> (Vec<u64>, u64) {
    let ms = |n: u64| n * 1_000_000;
    let open = |thread: u32| Call {
        time: 0,
        thread,
        op: Op::Open { handle: Handle(thread.into()), path: b"/f".to_vec(), how: How::WRITE | How::CREATE },
        took: Some(0),
        failed: None,
    };
    let sync = |&(thread, at, took): &(u32, u64, Option<u64>)| Call {
        time: ms(at),
        thread,
        op: Op::Sync { handle: Handle(thread.into()), data_only: false },
        took: took.map(ms),
        failed: None,
    };
    let calls: Vec<Call> = [open(1), open(2)].into_iter().chain(list.iter().map(sync)).collect();
    let clock = Arc::new(VirtualClock::new(Time::default()));
    let there = tempfile::tempdir().unwrap();
    let directory = OnDirectory::new(there.path());
    let mut place = Slow { directory, clock: clock.clone(), syncs: Vec::new() };
    let mut calls = List { calls: calls.into_iter(), others: OtherCounts::new() };
    let (done, whole) = replay(&mut calls, &mut place, &*clock, &Tempo::Virtual(clock.clone()), pauses, |_| {});
    whole.unwrap();
    assert_eq!((done.failed, done.calls), (0, 2 + list.len() as u64), "{:?}", done.first_failure);
    let longest = done.latencies.iter().find(|l| l.op == "fsync").unwrap().spread.max_ns;
    (place.syncs, longest / 1_000_000)
}

#[test]
fn a_thread_that_waits_longer_than_recorded_calls_later() {
    // Every 4 milliseconds an fsync of 1 millisecond: the thread paused for 3.
    let list: Vec<_> = (0..20).map(|n| (1, 4 * n, Some(1))).collect();
    let (thinking, waited) = syncs(Pauses::Thinking, &list);
    assert_eq!(thinking, (0..20).map(|n| n * (SYNC + 3)).collect::<Vec<_>>());
    assert_eq!(waited, SYNC, "no call waits for more than itself");
    let (recorded, waited) = syncs(Pauses::Recorded, &list);
    assert_eq!(recorded, (0..20).map(|n| n * SYNC).collect::<Vec<_>>());
    assert_eq!(waited, 20 * SYNC - 4 * 19, "what is slower piles up");
}

#[test]
fn a_thread_on_a_faster_file_system_calls_earlier_if_other_threads_allow() {
    let list = [(1, 0, Some(50)), (1, 60, Some(50)), (2, 200, Some(50)), (1, 300, Some(50))];
    // Thread 1 pauses for 10 and then for 190; thread 2 is alone and comes at its recorded time.
    assert_eq!(syncs(Pauses::Thinking, &list).0, [0, 20, 200, 220]);
    assert_eq!(syncs(Pauses::Recorded, &list).0, [0, 60, 200, 300]);
}

#[test]
fn without_durations_a_call_comes_at_its_recorded_time_or_when_its_thread_is_free() {
    let list = [(1, 0, None), (1, 4, None), (1, 100, None)];
    assert_eq!(syncs(Pauses::Thinking, &list).0, [0, SYNC, 100]);
}
