//! How are recorded calls replayed on a file system?
//!
//! Calls are made one after the other, in the recorded order, because threads use each other's files. [`Pauses`]
//! decides when a thread makes its next call.

use std::collections::BTreeMap;
use std::time::Duration;

use device::clock::Clock;
use record::Tempo;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::blocks::Latency;
use super::place::{FileRef, Place, PlaceError, contents};
use crate::TraceError;
use crate::call::{Call, Calls, Handle, How, Op, Target};
use crate::stat::calls::name;
use crate::stat::distribution::Times;

/// Largest read or write in bytes; longer calls are split.
const PIECE: u64 = 1 << 20;

/// Result of a replay.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Replayed {
    /// Calls replayed.
    pub calls: u64,
    /// Calls that failed in the recording, or whose file has no recorded open.
    pub left_out: u64,
    /// The first of them, if known.
    pub first_left_out: Option<String>,
    /// Calls that failed in the replay.
    pub failed: u64,
    /// The first of them, with its error.
    pub first_failure: Option<String>,
    /// Failed calls without space.
    pub no_space: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes among them that were generated, because the recording lacks them.
    pub generated: u64,
    /// Nanoseconds from the first recorded call to the last.
    pub span_ns: u64,
    /// Latencies in the replay, by type.
    pub latencies: Vec<Latency>,
    /// All latencies, by type.
    #[serde(skip)]
    pub took: BTreeMap<&'static str, Times>,
}

impl Replayed {
    /// Adds the result of a repetition.
    pub fn add(&mut self, more: Replayed) {
        self.calls += more.calls;
        self.left_out += more.left_out;
        self.failed += more.failed;
        self.no_space += more.no_space;
        self.read += more.read;
        self.written += more.written;
        self.generated += more.generated;
        self.span_ns += more.span_ns;
        self.first_left_out = self.first_left_out.take().or(more.first_left_out);
        self.first_failure = self.first_failure.take().or(more.first_failure);
        for (op, times) in &more.took {
            self.took.entry(op).or_default().merge(times);
        }
        self.count_times();
    }

    /// Computes the latencies.
    pub fn count_times(&mut self) {
        let latency = |(op, t): (&&'static str, &Times)| t.spread().map(|spread| Latency { op, spread });
        self.latencies = self.took.iter().filter_map(latency).collect();
    }
}

struct Open {
    file: FileRef,
    how: How,
    at: u64,
}

struct State<'a> {
    place: &'a mut dyn Place,
    open: FxHashMap<Handle, Open>,
    buf: Vec<u8>,
    done: Replayed,
}

/// Why a call was not made.
enum NotMade {
    /// No recorded call opened its file.
    Unknown,
    /// The file system returned an error.
    Failed(PlaceError),
}

impl From<PlaceError> for NotMade {
    fn from(e: PlaceError) -> Self {
        NotMade::Failed(e)
    }
}

/// When a thread makes its next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pauses {
    /// At the recorded time, however long earlier calls take: on a slower file system calls pile up.
    #[default]
    Recorded,
    /// After the recorded time that the thread spent between the end of its previous call and this one. If the file
    /// system is slower than the recorded one, the program asks later, as a real one would. In recordings without
    /// durations, a call comes at its recorded time, or at the end of the thread's previous call if that is later.
    Thinking,
}

/// Tracks when threads make their next calls.
struct Threads {
    pauses: Pauses,
    /// By thread: recorded end of its last call, if known, and end in the replay.
    last: FxHashMap<u32, (Option<u64>, u64)>,
}

impl Threads {
    /// The time of a call whose recorded time is `due`. Both count nanoseconds from the first call.
    fn comes(&self, call: &Call, due: u64) -> u64 {
        match self.last.get(&call.thread) {
            Some((Some(ended), now)) if self.pauses == Pauses::Thinking => {
                now.saturating_add(call.time.saturating_sub(*ended))
            }
            Some((None, now)) if self.pauses == Pauses::Thinking => due.max(*now),
            _ => due,
        }
    }

    fn returned(&mut self, call: &Call, now: u64) {
        if self.pauses == Pauses::Thinking {
            self.last.insert(call.thread, (call.took.map(|took| call.time.saturating_add(took)), now));
        }
    }
}

/// Replays calls on `place` in order, one after the other, each at its time ([`Pauses`]) or as soon as the previous one
/// returns. The place should have what the recording [needs](super::needs). `clock` is the place's clock; while time
/// passes, due background work runs.
///
/// A damaged recording is replayed up to the damage; the error is returned together with the result so far. Open files
/// are closed at the end.
pub fn replay(
    calls: &mut dyn Calls,
    place: &mut dyn Place,
    clock: &dyn Clock,
    tempo: &Tempo,
    pauses: Pauses,
    mut progress: impl FnMut(u64),
) -> (Replayed, Result<(), TraceError>) {
    let mut threads = Threads { pauses, last: FxHashMap::default() };
    let mut state = State { place, open: FxHashMap::default(), buf: Vec::new(), done: Replayed::default() };
    let mut time = tempo.start();
    let began = clock.monotonic();
    let (mut first, mut last) = (None, 0_u64);
    let mut tick = Some(began);
    let whole = loop {
        let call = match calls.next() {
            Ok(Some(call)) => call,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        };
        let from = *first.get_or_insert(call.time);
        last = last.max(call.time);
        let comes = threads.comes(&call, call.time.saturating_sub(from));
        // Background work that is due before it.
        let arrives = began.saturating_add(Duration::from_nanos(comes));
        let until = if matches!(tempo, Tempo::BackToBack) { clock.monotonic() } else { arrives };
        while let Some(at) = tick.filter(|at| *at <= until) {
            time.due(from.saturating_add(nanos(at.saturating_sub(began))));
            tick = match state.place.tick() {
                Ok(next) => next.map(|d| clock.monotonic().saturating_add(d.max(Duration::from_millis(1)))),
                Err(e) => {
                    state.failed(&|| "background work".to_owned(), &e);
                    None
                }
            };
        }
        let due = time.due(from.saturating_add(comes)).unwrap_or_else(|| clock.monotonic());
        // A thinking program cannot arrive before the call that precedes its own.
        let due = if pauses == Pauses::Thinking { due.max(clock.monotonic()) } else { due };
        if call.failed.is_some() {
            state.done.left_out += 1;
            threads.returned(&call, nanos(clock.monotonic().saturating_sub(began)));
            continue;
        }
        let made = state.make(&call);
        threads.returned(&call, nanos(clock.monotonic().saturating_sub(began)));
        match made {
            Ok(()) => {
                state.done.calls += 1;
                let passed = clock.monotonic().saturating_sub(due);
                state.done.took.entry(name(&call.op)).or_default().add(nanos(passed));
            }
            Err(NotMade::Unknown) => state.done.left_out += 1,
            Err(NotMade::Failed(e)) => {
                state.done.calls += 1;
                state.failed(&|| describe(&call.op), &e);
            }
        }
        if state.done.calls.is_multiple_of(1 << 8) {
            progress(calls.consumed());
        }
    };
    let State { place, open, mut done, .. } = state;
    let mut left: Vec<_> = open.into_iter().collect();
    left.sort_unstable_by_key(|(handle, _)| *handle);
    left.into_iter().for_each(|(_, open)| place.close(open.file));
    // These recordings have no contents.
    done.generated = done.written;
    done.span_ns = last.saturating_sub(first.unwrap_or(0));
    done.count_times();
    (done, whole)
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A call as text.
fn describe(op: &Op) -> String {
    let path = match op {
        Op::Open { path, .. }
        | Op::Unlink { path }
        | Op::RemoveDir { path }
        | Op::MakeDir { path }
        | Op::Symlink { path, .. }
        | Op::Truncate { file: Target::Path(path), .. }
        | Op::Stat { file: Target::Path(path) } => Some(path),
        Op::Rename { from, .. } | Op::Link { from, .. } => Some(from),
        _ => None,
    };
    match path {
        Some(path) => format!("{} of {}", name(op), String::from_utf8_lossy(path)),
        None => name(op).to_owned(),
    }
}

impl State<'_> {
    fn failed(&mut self, what: &dyn Fn() -> String, e: &PlaceError) {
        self.done.failed += 1;
        self.done.no_space += u64::from(e.no_space);
        self.done.first_failure.get_or_insert_with(|| format!("{}: {e}", what()));
    }

    fn file(&self, handle: Handle) -> Result<&Open, NotMade> {
        self.open.get(&handle).ok_or(NotMade::Unknown)
    }

    fn make(&mut self, call: &Call) -> Result<(), NotMade> {
        match &call.op {
            Op::Open { handle, path, how } => {
                let file = self.place.open(path, *how)?;
                if let Some(before) = self.open.insert(*handle, Open { file, how: *how, at: 0 }) {
                    self.place.close(before.file);
                }
            }
            Op::Close { handle } => {
                let open = self.open.remove(handle).ok_or(NotMade::Unknown)?;
                self.place.close(open.file);
            }
            Op::Read { handle, at, bytes } => self.read(*handle, *at, *bytes)?,
            Op::Write { handle, at, bytes } => self.write(*handle, *at, *bytes)?,
            Op::Seek { handle, to } => {
                let file = self.file(*handle)?.file;
                let to = match to {
                    Some(to) => *to,
                    None => self.place.length(file)?,
                };
                self.open.get_mut(handle).ok_or(NotMade::Unknown)?.at = to;
            }
            Op::Sync { handle, data_only } => {
                let file = self.file(*handle)?.file;
                self.place.sync(file, *data_only)?;
            }
            Op::SyncAll => self.place.sync_all()?,
            Op::Truncate { file: Target::Open(handle), length } => {
                let file = self.file(*handle)?.file;
                self.place.truncate(file, *length)?;
            }
            Op::Truncate { file: Target::Path(path), length } => {
                let file = self.place.open(path, How::WRITE)?;
                let truncated = self.place.truncate(file, *length);
                self.place.close(file);
                truncated?;
            }
            Op::Allocate { handle, at, bytes, punch, keep_size } => {
                let file = self.file(*handle)?.file;
                self.place.allocate(file, *at, *bytes, *punch, *keep_size)?;
            }
            Op::Unlink { path } => self.place.unlink(path)?,
            Op::RemoveDir { path } => self.place.remove_dir(path)?,
            Op::MakeDir { path } => self.place.make_dir(path)?,
            Op::Rename { from, to } => self.place.rename(from, to)?,
            Op::Link { from, to } => self.place.link(from, to)?,
            Op::Symlink { path, target } => self.place.symlink(path, target)?,
            Op::Stat { file: Target::Path(path) } => self.place.stat(path)?,
            Op::Stat { file: Target::Open(handle) } => {
                let file = self.file(*handle)?.file;
                self.place.length(file)?;
            }
            Op::List { handle } => {
                let file = self.file(*handle)?.file;
                self.place.list(file)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, handle: Handle, at: Option<u64>, bytes: u64) -> Result<(), NotMade> {
        let open = self.file(handle)?;
        let (file, from) = (open.file, at.unwrap_or(open.at));
        let mut got = 0;
        while got < bytes {
            let piece = PIECE.min(bytes - got) as usize;
            if self.buf.len() < piece {
                self.buf.resize(piece, 0);
            }
            let n = self.place.read(file, from.saturating_add(got), &mut self.buf[..piece])?;
            got += n;
            if n < piece as u64 {
                break;
            }
        }
        self.done.read += got;
        if at.is_none() {
            self.open.get_mut(&handle).ok_or(NotMade::Unknown)?.at = from.saturating_add(got);
        }
        Ok(())
    }

    fn write(&mut self, handle: Handle, at: Option<u64>, bytes: u64) -> Result<(), NotMade> {
        let &Open { file, how, at: position } = self.file(handle)?;
        let from = match at {
            Some(at) => at,
            None if how.contains(How::APPEND) => self.place.length(file)?,
            None => position,
        };
        let mut done = 0;
        while done < bytes {
            let piece = PIECE.min(bytes - done) as usize;
            // Every write has different contents.
            let seed = self.done.written ^ 1 << 63;
            self.place.write(file, from.saturating_add(done), contents(seed, piece, &mut self.buf))?;
            done += piece as u64;
            self.done.written += piece as u64;
        }
        if how.intersects(How::SYNC | How::DATA_SYNC) {
            self.place.sync(file, !how.contains(How::SYNC))?;
        }
        if at.is_none() {
            self.open.get_mut(&handle).ok_or(NotMade::Unknown)?.at = from.saturating_add(bytes);
        }
        Ok(())
    }
}
