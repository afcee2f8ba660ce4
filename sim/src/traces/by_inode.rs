//! How are the calls of JouleFS recordings, by inode, replayed?
//!
//! All calls are replayed, including failed ones, one after the other in the order of their returns; on recorded files
//! if the recording has contents.
//!
//! * *Times.* As recorded, or in a closed loop ([`How::thinks`]). A recording does not show which thread made a call,
//!   but a program that waited for a call cannot have made its next one before. So the replay keeps the time between a
//!   call and the last one that had ended before it. For a single program this is exact; calls of several programs may
//!   wait for each other although they did not.
//! * *A part.* Calls before the part are replayed at their times too, so that the part finds the right state, but are
//!   not counted. Calls after the part are not replayed.
//! * *Background work* runs at its recorded times, or when the volume asks for it ([`How::own_background`]).
//!
//! Left out: an unmount in the recording becomes a checkpoint if the volume is still needed.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use record::Tempo;
use record::calls::{Call, Event, Events, Prepared, Replayer, prepare};
use trace::TraceError;
use trace::read::recording;
use trace::replay::calls::Replayed;
use trace::session::{Lies, Part, Span};
use trace::stat::distribution::Times;
use trace::timing::Timing;
use vfs::FileSystem;

use super::ReplayError;
use super::room::Room;
use super::source::{Making, Progressed, Source};

/// How to replay calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// The part of the recording.
    pub span: Span,
    /// Keep the time between a call and the last one that had ended before it; otherwise replay at recorded times.
    pub thinks: bool,
    /// Run background work when the volume asks for it, not at its recorded times.
    pub own_background: bool,
}

/// A recording of calls by inode.
#[derive(Clone)]
pub struct ByInode {
    path: PathBuf,
    length: u64,
    how: How,
    room: u64,
    grows: u64,
    timing: Timing,
    has_calls: bool,
}

/// Number of call ends to remember; a call that runs longer than this many others is not waited for.
const ENDS: usize = 1 << 12;

impl ByInode {
    /// Opens a JouleFS recording of calls; `None` for any other file.
    pub fn open(path: &Path, how: How) -> Result<Option<Self>, TraceError> {
        let Some((events, _)) = recording::calls(path)? else { return Ok(None) };
        let there_was = Some(events.bytes()).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX);
        let (mut room, mut grows, mut part) = (0_u64, Room::default(), Part::new(how.span));
        let mut has_calls = false;
        // Written and old contents are counted as if never removed; damage is reported in the replay.
        for event in events {
            let Ok(event) = event else {
                has_calls = true;
                break;
            };
            room = room.saturating_add(match &event.call {
                Call::Write { contents, .. } => contents.len(),
                Call::Was { was, .. } => was.size.min(was.blocks512.saturating_mul(512)),
                _ => 0,
            });
            let lies = place(&mut part, &event);
            if lies != Lies::After {
                grows.add(&event);
            }
            let is_made = !event.call.is_of_before() && !matches!(event.call, Call::Tick {});
            has_calls |= is_made && matches!(lies, Lies::In(_));
        }
        let length = std::fs::metadata(path).map_or(0, |m| m.len());
        let (room, grows) = (room.min(there_was), grows.grows().min(there_was));
        Ok(Some(ByInode { path: path.to_owned(), length, how, room, grows, timing: part.timing(), has_calls }))
    }

    /// False if the part has neither calls nor damage.
    pub fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// The timing of the part.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    fn events(&self) -> Result<(Events, impl Fn() -> f64 + use<>), TraceError> {
        let (path, length) = (self.path.clone(), self.length);
        match recording::calls(&path)? {
            Some((events, consumed)) => Ok((events, move || consumed() as f64 / length.max(1) as f64)),
            None => Err(TraceError::Unknown { path, why: "the file has changed since it was read first".into() }),
        }
    }
}

/// Whether a record is in the part. Background work in a skipped pause counts as after it.
fn place(part: &mut Part, event: &Event) -> Lies {
    match event.call {
        Call::Tick {} => part.place_inactive(event.arrival).map_or(Lies::After, Lies::In),
        _ => part.place(event.arrival, event.took),
    }
}

/// The call's name in a table; `None` if no program waits for it.
fn name(call: &Call) -> Option<&'static str> {
    Some(match call {
        Call::Lookup { .. } | Call::Getattr { .. } => "stat",
        Call::Setattr { set, .. } if set.size.is_some() => "truncate",
        Call::Setattr { .. } => "setattr",
        Call::Readlink { .. } => "readlink",
        Call::Mknod { .. } | Call::Tmpfile { .. } => "create",
        Call::Mkdir { .. } => "mkdir",
        Call::Symlink { .. } => "symlink",
        Call::Link { .. } => "link",
        Call::Unlink { .. } => "unlink",
        Call::Rmdir { .. } => "rmdir",
        Call::Rename { .. } => "rename",
        Call::Open { .. } => "open",
        Call::Release { .. } => "close",
        Call::Read { .. } => "read",
        Call::Write { .. } => "write",
        Call::Fallocate { .. } => "fallocate",
        Call::Seek { .. } => "seek",
        Call::Readdir { .. } => "list",
        Call::Fsync { data_only: false, .. } => "fsync",
        Call::Fsync { data_only: true, .. } => "fdatasync",
        Call::Fsyncdir { .. } => "fsync of a directory",
        Call::Sync {} => "sync",
        Call::Getxattr { .. } | Call::Listxattr { .. } => "getxattr",
        Call::Setxattr { .. } | Call::Removexattr { .. } => "setxattr",
        Call::Statfs {} => "statfs",
        Call::Forget { .. } | Call::Tick {} | Call::Unmount {} => return None,
        Call::Part { .. } | Call::Was { .. } | Call::WasAttribute { .. } | Call::WasContents { .. } => return None,
    })
}

/// Recorded and replayed ends of calls, the latest last.
#[derive(Default)]
struct Ends(VecDeque<(u64, Duration)>);

impl Ends {
    /// The time of a call that arrived at `arrival`; `None` if no call had ended before.
    fn comes(&self, arrival: u64) -> Option<Duration> {
        let (then, now) = self.0.iter().rev().find(|(then, _)| *then <= arrival)?;
        Some(now.saturating_add(Duration::from_nanos(arrival - then)))
    }

    fn add(&mut self, then: u64, now: Duration) {
        if self.0.len() == ENDS {
            self.0.pop_front();
        }
        self.0.push_back((then, now));
    }
}

/// The volume's own background work, on its own schedule.
struct Background<'a> {
    fs: &'a dyn FileSystem,
    due: Option<Duration>,
}

impl Background<'_> {
    fn until(&mut self, at: Duration, making: &Making<'_>, wait: &mut dyn FnMut(Duration)) {
        while let Some(due) = self.due.filter(|due| *due <= at) {
            wait(due);
            // If background work fails, the volume's calls report it too.
            let next = self.fs.tick().ok();
            self.due = next.map(|d| making.clock.monotonic().saturating_add(d.max(Duration::from_millis(1))));
        }
    }
}

impl Source for ByInode {
    fn room(&self) -> u64 {
        self.room
    }

    fn grows(&self) -> u64 {
        self.grows
    }

    fn is_compared(&self) -> bool {
        true
    }

    fn prepare(&mut self, fs: &dyn FileSystem, progress: Progressed<'_>) -> Result<Prepared, ReplayError> {
        let (events, consumed) = self.events()?;
        if !events.has_contents() {
            return Ok(Prepared::default());
        }
        let mut part = Part::new(self.how.span);
        let root = events.root();
        let events = events.filter(|event| event.as_ref().map_or(true, |event| place(&mut part, event) != Lies::After));
        let prepared = prepare(root, events, fs, || progress(consumed()));
        // Damage is found again, and reported, in the replay.
        let (done, _) = prepared.map_err(|e| ReplayError::Prepare {
            path: e.name.clone(),
            why: e.source.to_string(),
            no_space: matches!(e.source, vfs::Error::NoSpace),
        })?;
        Ok(done)
    }

    fn replay(
        &mut self,
        fs: &dyn FileSystem,
        making: &mut Making<'_>,
        progress: Progressed<'_>,
    ) -> Result<(Replayed, Option<TraceError>), ReplayError> {
        let (events, consumed) = self.events()?;
        let mut calls = Replayer::new(events.root(), fs);
        let mut took: BTreeMap<&'static str, Times> = BTreeMap::new();
        let (clock, tempo) = (making.clock, making.tempo);
        let back_to_back = matches!(tempo, Tempo::BackToBack);
        let mut time = tempo.start();
        let began = clock.monotonic();
        let (mut first, mut free) = (None, began);
        let mut part = Part::new(self.how.span);
        let mut counts = self.how.span.from == 0;
        let mut ends = Ends::default();
        let mut background = Background { fs, due: self.how.own_background.then_some(began) };
        let mut whole = Ok(());
        for (n, event) in (0..).zip(events) {
            let event = match event {
                Ok(event) => event,
                Err(e) => {
                    whole = Err(e);
                    break;
                }
            };
            let (at, is_before) = match place(&mut part, &event) {
                Lies::Before => (event.arrival, true),
                Lies::In(at) => (at, false),
                Lies::After => continue,
            };
            let is_background = matches!(event.call, Call::Tick {});
            if !counts && !is_before && !is_background {
                counts = true;
                calls.count_from_here();
                took.clear();
                (making.begins)();
            }
            calls.arrives(at);
            let from = *first.get_or_insert(at);
            let recorded = began + Duration::from_nanos(at.saturating_sub(from));
            let comes = if self.how.thinks && !event.call.is_of_before() {
                ends.comes(event.arrival).unwrap_or(recorded)
            } else {
                recorded
            };
            let mut wait = |until: Duration| {
                let since = u64::try_from(until.saturating_sub(began).as_nanos()).unwrap_or(u64::MAX);
                time.due(from.saturating_add(since));
            };
            background.until(if back_to_back { clock.monotonic() } else { comes }, making, &mut wait);
            wait(comes);
            if event.call.is_of_before() || (is_background && self.how.own_background) {
                continue;
            }
            let came = clock.monotonic();
            match event.call {
                Call::Unmount {} if !making.is_last => {
                    let answer = event.answer;
                    calls.make(n, &Event { arrival: at, took: event.took, call: Call::Sync {}, answer });
                }
                _ => calls.make(n, &event),
            }
            let now = clock.monotonic();
            ends.add(event.arrival.saturating_add(event.took), now);
            // From the arrival, or from the moment the call could be made.
            let due = match (back_to_back, self.how.thinks) {
                (true, _) => free,
                (_, true) => came,
                _ => comes,
            };
            if let (Some(name), Ok(_)) = (name(&event.call), event.answer) {
                let passed = now.saturating_sub(due).as_nanos();
                took.entry(name).or_default().add(u64::try_from(passed).unwrap_or(u64::MAX));
            }
            free = now;
            progress(consumed());
        }
        let done = calls.end();
        if !counts {
            // The part has no records.
            (making.begins)();
        }
        let diverged = done.first_divergence.map(|d| {
            format!("{} (record {}): then {}, now {}", d.call, d.record, result_text(&d.then), result_text(&d.now))
        });
        let mut done = Replayed {
            calls: done.calls,
            left_out: done.left_out,
            first_left_out: done.first_left_out.map(|(n, call)| format!("{call} (record {n})")),
            failed: done.diverged,
            first_failure: diverged,
            read: done.read,
            written: done.written,
            generated: done.generated,
            span_ns: done.span,
            no_space: done.no_space,
            latencies: Vec::new(),
            took,
        };
        done.count_times();
        Ok((done, whole.err().map(|e| recording::damage(&self.path, &e))))
    }
}

fn result_text(answer: &Result<u64, record::calls::Failure>) -> String {
    match answer {
        Ok(n) => n.to_string(),
        Err(failure) => format!("{failure:?}"),
    }
}
