//! Where do the calls come from that are made on a volume?
//!
//! From recordings of other programs: calls by path, which need files that are made up ([`ByPath`]). Or from our own:
//! calls by inode, on files that the recording has if it has contents ([`ByInode`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::clock::Clock;
use record::Tempo;
use record::calls::{Call, Event, Prepared, prepare};
use trace::TraceError;
use trace::call::Calls;
use trace::read::recording;
use trace::replay::calls::{Pauses, Replayed, replay};
use trace::replay::needs::Needs;
use trace::replay::place::OnVolume;
use trace::stat::distribution::Times;
use vfs::FileSystem;

use super::ReplayError;
use super::host_memory::ReadAhead;

/// How much of the recording has been used, from 0 to 1.
pub type Part<'a> = &'a mut dyn FnMut(f64);

/// A recording of calls.
pub trait Source {
    /// Bytes of room that its calls need.
    fn room(&self) -> u64;
    /// Of them, those that are not there before the first call.
    fn grows(&self) -> u64;
    /// Whether a call that ends otherwise than it did when it was recorded counts as failed.
    fn is_compared(&self) -> bool;
    /// Puts on a new volume, or on one that holds a part of it, what the calls need.
    fn prepare(&mut self, fs: &dyn FileSystem, part: Part<'_>) -> Result<Prepared, ReplayError>;
    /// Makes the calls; `ahead`: below a host's memory, which reads ahead. `pauses` is heeded where a recording tells which
    /// thread called.
    fn replay(
        &mut self,
        fs: &dyn FileSystem,
        ahead: bool,
        clock: &dyn Clock,
        tempo: &Tempo,
        pauses: Pauses,
        part: Part<'_>,
    ) -> Result<(Replayed, Option<TraceError>), ReplayError>;
}

/// Calls by path.
pub struct ByPath<'a> {
    /// Opens the recording at its beginning.
    pub open: &'a dyn Fn() -> Result<Box<dyn Calls>, ReplayError>,
    /// What must be there.
    pub needs: &'a Needs,
    /// Bytes of the recording's file.
    pub length: u64,
}

impl Source for ByPath<'_> {
    fn room(&self) -> u64 {
        self.needs.peak.max(self.needs.bytes())
    }

    fn grows(&self) -> u64 {
        self.needs.peak.saturating_sub(self.needs.bytes())
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn prepare(&mut self, fs: &dyn FileSystem, part: Part<'_>) -> Result<Prepared, ReplayError> {
        let all = self.needs.bytes();
        let done = self.needs.prepare(&mut OnVolume::new(fs), |done| part(done as f64 / all.max(1) as f64));
        done.map_err(|(path, why)| ReplayError::Prepare {
            path: String::from_utf8_lossy(&path).into_owned(),
            why: why.to_string(),
        })?;
        Ok(Prepared { files: self.needs.files.len() as u64, recorded: 0, generated: all })
    }

    fn replay(
        &mut self,
        fs: &dyn FileSystem,
        ahead: bool,
        clock: &dyn Clock,
        tempo: &Tempo,
        pauses: Pauses,
        part: Part<'_>,
    ) -> Result<(Replayed, Option<TraceError>), ReplayError> {
        let mut calls = (self.open)()?;
        let mut plain = OnVolume::new(fs);
        let moved = |bytes| part(bytes as f64 / self.length.max(1) as f64);
        let (done, whole) = if ahead {
            replay(&mut *calls, &mut ReadAhead::new(&mut plain), clock, tempo, pauses, moved)
        } else {
            replay(&mut *calls, &mut plain, clock, tempo, pauses, moved)
        };
        Ok((done, whole.err()))
    }
}

/// Calls by inode. Background work is done when it was done then.
#[derive(Clone)]
pub struct ByInode {
    path: PathBuf,
    length: u64,
    room: u64,
}

impl ByInode {
    /// Our own recording of calls; `None` if the file is anything else.
    pub fn open(path: &Path) -> Result<Option<Self>, TraceError> {
        let Some((events, _)) = recording::calls(path)? else { return Ok(None) };
        let there_was = Some(events.bytes()).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX);
        let mut room = 0_u64;
        // What is written and what was there, as if nothing was ever removed: damage is told when the calls are made.
        for event in events.map_while(Result::ok) {
            room = room.saturating_add(match event.call {
                Call::Write { contents, .. } => contents.len(),
                Call::Was { was, .. } => was.size.min(was.blocks512.saturating_mul(512)),
                _ => 0,
            });
        }
        let length = std::fs::metadata(path).map_or(0, |m| m.len());
        Ok(Some(ByInode { path: path.to_owned(), length, room: room.min(there_was) }))
    }

    fn events(&self) -> Result<(record::calls::Events, impl Fn() -> f64 + use<>), TraceError> {
        let (path, length) = (self.path.clone(), self.length);
        match recording::calls(&path)? {
            Some((events, consumed)) => Ok((events, move || consumed() as f64 / length.max(1) as f64)),
            None => Err(TraceError::Unknown { path, why: "it is another file than before".into() }),
        }
    }
}

/// What a call is called in a table; none for what no program waits for.
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

impl Source for ByInode {
    fn room(&self) -> u64 {
        self.room
    }

    fn grows(&self) -> u64 {
        // How much of it is there before is not known without preparing it.
        0
    }

    fn is_compared(&self) -> bool {
        true
    }

    fn prepare(&mut self, fs: &dyn FileSystem, part: Part<'_>) -> Result<Prepared, ReplayError> {
        let (events, consumed) = self.events()?;
        if !events.has_contents() {
            return Ok(Prepared::default());
        }
        let prepared = prepare(events.root(), events, fs, || part(consumed()));
        // Damage is met again, and told, where the calls are made.
        let (done, _) =
            prepared.map_err(|e| ReplayError::Prepare { path: e.name.clone(), why: e.source.to_string() })?;
        Ok(done)
    }

    fn replay(
        &mut self,
        fs: &dyn FileSystem,
        _ahead: bool,
        clock: &dyn Clock,
        tempo: &Tempo,
        _pauses: Pauses,
        part: Part<'_>,
    ) -> Result<(Replayed, Option<TraceError>), ReplayError> {
        let (events, consumed) = self.events()?;
        let mut took: BTreeMap<&'static str, Times> = BTreeMap::new();
        let began = clock.monotonic();
        let (mut first, mut free) = (None, began);
        let back_to_back = matches!(tempo, Tempo::BackToBack);
        let root = events.root();
        let (done, whole) = record::calls::replay(root, events, fs, tempo, |event: &Event| {
            let now = clock.monotonic();
            let since = event.arrival.saturating_sub(*first.get_or_insert(event.arrival));
            // From when it came, or from when it could be made.
            let due = if back_to_back { free } else { began + std::time::Duration::from_nanos(since) };
            if let (Some(name), Ok(_)) = (name(&event.call), event.answer) {
                let passed = now.saturating_sub(due).as_nanos();
                took.entry(name).or_default().add(u64::try_from(passed).unwrap_or(u64::MAX));
            }
            free = now;
            part(consumed());
        });
        let diverged = done
            .first_divergence
            .map(|d| format!("{} (record {}): then {}, now {}", d.call, d.record, said(&d.then), said(&d.now)));
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
            no_space: 0,
            latencies: Vec::new(),
            took,
        };
        done.count_times();
        Ok((done, whole.err().map(|e| recording::damage(&self.path, &e))))
    }
}

fn said(answer: &Result<u64, record::calls::Failure>) -> String {
    match answer {
        Ok(n) => n.to_string(),
        Err(failure) => format!("{failure:?}"),
    }
}
