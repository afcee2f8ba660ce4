//! How do recorded programs use a volume, one after the other?
//!
//! The recordings are those of `fagc-fig11`: a chat, a clone of a repository, documents that are unpacked and searched, updates
//! of an application. Each removes at its end what it made. Their calls are made one after the other, each as soon as the one
//! before is done, with generated contents, in a directory of its own. Left out on purpose: how long they computed between two calls.

use record::calls::{Call, Event, Events, Replayed, Replayer};
use vfs::{Caller, FileSystem, Ino};

use super::Times;
use crate::error::LabError;
use crate::experiments::app_replay::{open, unreadable};
use sim::bench::Bench;
use sim::result::Phase;

/// Those that take turns.
const PROGRAMS: [&str; 4] = ["chat", "clone", "unpack", "download"];

/// One that is under way.
struct Running<'a> {
    events: Events,
    calls: Replayer<'a>,
    /// Records made.
    made: u64,
}

/// Programs that take turns.
pub(super) struct Programs<'a> {
    bench: &'a Bench,
    running: [Option<Running<'a>>; PROGRAMS.len()],
    turns: usize,
    done: Replayed,
    times: Times,
}

impl<'a> Programs<'a> {
    /// None of them has begun.
    pub fn begin(bench: &'a Bench) -> Self {
        Programs { bench, running: Default::default(), turns: 0, done: Replayed::default(), times: Times::default() }
    }

    /// The next one goes on until it has written so many bytes, or is done; says how many it wrote and read.
    pub fn turn(&mut self, bytes: u64) -> Result<u64, LabError> {
        let which = self.turns % PROGRAMS.len();
        self.turns += 1;
        let mut program = match self.running[which].take() {
            Some(program) => program,
            None => {
                let events = open(PROGRAMS[which])?;
                let volume = self.bench.f2fs()?;
                let calls = Replayer::below(self.directory(PROGRAMS[which])?, events.root(), &**volume);
                Running { events, calls, made: 0 }
            }
        };
        let (mut written, mut read) = (0, 0);
        while written < bytes {
            let Some(event) = program.events.next() else {
                self.over(program);
                return Ok(written + read);
            };
            let event = event.map_err(|e| unreadable(PROGRAMS[which], &e))?;
            match (&event.call, event.answer) {
                // Time and the end of the mount are this one's own.
                (Call::Tick {} | Call::Unmount {}, _) => continue,
                (Call::Write { .. }, Ok(n)) => written += n,
                (Call::Read { .. }, Ok(n)) => read += n,
                _ => {}
            }
            self.make(&mut program, &event)?;
        }
        self.running[which] = Some(program);
        Ok(written + read)
    }

    /// A program's own directory, which it finds empty when it begins. It is referred to until the end.
    fn directory(&mut self, program: &str) -> Result<Ino, LabError> {
        let volume = self.bench.f2fs()?;
        match volume.lookup(volume.root(), program.as_bytes()) {
            Err(vfs::Error::NotFound) => {
                Ok(volume.mkdir(Caller::default(), volume.root(), program.as_bytes(), 0o755, 0)?.attr.ino)
            }
            found => Ok(found?.attr.ino),
        }
    }

    fn make(&mut self, program: &mut Running<'_>, event: &Event) -> Result<(), LabError> {
        let times = match event.call {
            Call::Fsync { .. } | Call::Fsyncdir { .. } | Call::Sync {} => &mut self.times.syncs,
            Call::Read { .. } => &mut self.times.reads,
            _ => &mut self.times.calls,
        };
        Ok(Times::note(times, self.bench.clock(), || {
            program.calls.make(program.made, event);
            program.made += 1;
            Ok(())
        })?)
    }

    /// A program is done, or stopped.
    fn over(&mut self, program: Running<'_>) {
        let done = program.calls.end();
        self.done.calls += done.calls;
        self.done.left_out += done.left_out;
        self.done.diverged += done.diverged;
        self.done.no_space += done.no_space;
    }

    /// All of them are stopped where they are.
    pub fn stop(&mut self) {
        for program in std::mem::take(&mut self.running).into_iter().flatten() {
            self.over(program);
        }
    }

    /// Notes what became of their calls, and says how long these took.
    pub fn end(self, phase: &mut Phase) -> Times {
        phase.note("calls", self.done.calls as f64, "calls");
        phase.note("calls_left_out", self.done.left_out as f64, "calls");
        phase.note("calls_ended_otherwise", self.done.diverged as f64, "calls");
        phase.note("calls_without_space", self.done.no_space as f64, "calls");
        self.times
    }
}
