//! How do recorded programs use a volume, one after the other?
//!
//! The recordings are those of `fagc-fig11`: a messaging trace, a clone of a repository, documents that are unpacked
//! and searched, updates of an application. Each removes its files at its end. Their calls are made one after the other
//! without pauses, with generated contents, in a separate directory each. Left out on purpose: their computing between
//! calls.

use record::calls::{Call, Event, Events, Replayed, Replayer};
use vfs::{Caller, FileSystem, Ino};

use super::Times;
use crate::error::LabError;
use crate::experiments::app_replay::{open, unreadable};
use sim::bench::Bench;
use sim::result::Phase;

/// The programs that take turns.
const PROGRAMS: [&str; 4] = ["chat", "clone", "unpack", "download"];

/// A running program.
struct Running<'a> {
    events: Events,
    calls: Replayer<'a>,
    /// Records executed.
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
    /// Starts with no program running.
    pub fn begin(bench: &'a Bench) -> Self {
        Programs { bench, running: Default::default(), turns: 0, done: Replayed::default(), times: Times::default() }
    }

    /// Runs the next program until it has written `bytes` bytes or ends; returns the bytes written and read.
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
                // This volume has its own ticks and unmount.
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

    /// A program's own directory, empty at its start. A reference is kept until the end.
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

    /// Ends a program that has finished or is stopped.
    fn over(&mut self, program: Running<'_>) {
        let done = program.calls.end();
        self.done.calls += done.calls;
        self.done.left_out += done.left_out;
        self.done.diverged += done.diverged;
        self.done.no_space += done.no_space;
    }

    /// Stops all programs at their current call.
    pub fn stop(&mut self) {
        for program in std::mem::take(&mut self.running).into_iter().flatten() {
            self.over(program);
        }
    }

    /// Notes the results of their calls; returns the calls' durations.
    pub fn end(self, phase: &mut Phase) -> Times {
        phase.note("calls", self.done.calls as f64, "calls");
        phase.note("calls_left_out", self.done.left_out as f64, "calls");
        phase.note("calls_ended_otherwise", self.done.diverged as f64, "calls");
        phase.note("calls_without_space", self.done.no_space as f64, "calls");
        self.times
    }
}
