//! What is the result of a run: what was replayed, what did it cost, and for whom?

use device::energy::Energy;
use device::energy::profile::Profile;
use trace::replay::blocks::{self, Latency};
use trace::requests::Requests;
use trace::stacks::LeftOut;
use trace::timing::Timing;
use trace::{Format, Names, TraceError};

use super::notes;
use super::variant::Variant;
use crate::labels::{self, Cause, Words};
use crate::traces::Run;
use crate::traces::blocks::Plan;
use crate::traces::calls::OnVolumeDone;
use crate::traces::timeline::Timeline;

/// A device that finishes later than this, and than a fiftieth of the recorded time, is overloaded: an unmount writes for
/// less.
const LATE: u64 = 1_000_000_000;

/// What was replayed.
pub enum Done {
    /// Requests to a block device.
    Blocks(OnDevice),
    /// Calls.
    Calls(OnVolumeDone),
}

/// Results of requests, apart from energy.
pub struct OnDevice {
    /// The requests.
    pub done: blocks::Replayed,
    /// The recorded and the simulated device.
    pub plan: Plan,
    /// Names of processes.
    pub names: Names,
    /// The recording's format.
    pub format: Format,
    /// Start of the replay in nanoseconds of the recording's clock.
    pub began: u64,
    /// Notes about duplicate requests and requests recorded as another kind.
    pub cleared: Vec<String>,
    /// Devices left out so that no request counts twice.
    pub left_out: Vec<LeftOut>,
}

/// The result of a run.
pub struct Outcome {
    /// The run's distinguishing name; empty for a single run.
    pub name: String,
    /// Its device.
    pub profile: Profile,
    /// What it cost.
    pub run: Run<()>,
    /// What was replayed.
    pub done: Done,
    /// The idle energy of the device in the same time, if file systems are compared.
    pub idle: Option<Energy>,
    /// Notes about the recording.
    pub notes: Vec<String>,
    /// The recording's times.
    pub timing: Timing,
    /// Energy over time, if requested.
    pub timeline: Timeline,
}

impl Outcome {
    pub(super) fn of_blocks(
        variant: &Variant,
        plan: &Plan,
        run: Run<blocks::Replayed>,
        requests: &Requests,
        began: u64,
        timeline: Timeline,
    ) -> Self {
        let Run { done, ledger, took, counters, damage } = run;
        let mut left_out = requests.left_out();
        if left_out.iter().any(|l| l.device == plan.of) {
            // The device was selected by name.
            left_out.clear();
        }
        let timing = requests.events().timing();
        let mut notes = notes::of_timing(&timing);
        notes.extend(notes::of_left_out(&left_out));
        let done = Done::Blocks(OnDevice {
            done,
            plan: plan.clone(),
            names: requests.names().clone(),
            format: requests.events().format(),
            began,
            cleared: notes::of_cleared(requests),
            left_out,
        });
        let run = Run { done: (), ledger, took, counters, damage };
        Outcome { timeline, ..Outcome::new(variant, run, done, notes, timing) }
    }

    pub(super) fn of_calls(
        variant: &Variant,
        mut run: Run<OnVolumeDone>,
        idle: Option<Energy>,
        notes: Vec<String>,
        timing: Timing,
    ) -> Self {
        let timeline = std::mem::take(&mut run.done.timeline);
        let Run { done, ledger, took, counters, damage } = run;
        let run = Run { done: (), ledger, took, counters, damage };
        Outcome { idle, timeline, ..Outcome::new(variant, run, Done::Calls(done), notes, timing) }
    }

    fn new(variant: &Variant, run: Run<()>, done: Done, notes: Vec<String>, timing: Timing) -> Self {
        let (name, profile) = (variant.name.clone(), variant.profile.clone());
        Outcome { name, profile, run, done, idle: None, notes, timing, timeline: Timeline::default() }
    }

    /// Why reading the recording ended early.
    pub fn damage(&self) -> Option<&TraceError> {
        self.run.damage.as_ref()
    }

    /// Nanoseconds by which the device finished after the last request or call had come, if that is much.
    pub(super) fn late(&self) -> Option<u64> {
        let late = self.run.took.saturating_sub(self.recorded());
        (late > LATE.max(self.recorded() / 50)).then_some(late)
    }

    /// Erased blocks of flash.
    pub(super) fn erases(&self) -> u64 {
        self.counter("erases")
    }

    /// Pages stored as deltas.
    pub(super) fn deltas(&self) -> u64 {
        match &self.done {
            Done::Blocks(_) => 0,
            Done::Calls(done) => done.deltas,
        }
    }

    /// Total energy.
    pub fn total(&self) -> Energy {
        self.run.ledger.total()
    }

    /// Nanoseconds between the first and the last recorded request or call.
    pub fn recorded(&self) -> u64 {
        match &self.done {
            Done::Blocks(on) => on.done.span_ns,
            Done::Calls(done) => done.calls.span_ns,
        }
    }

    /// Bytes of the simulated device.
    pub fn device_bytes(&self) -> u64 {
        match &self.done {
            Done::Blocks(on) => on.plan.blocks * 4096,
            Done::Calls(done) => done.device_bytes,
        }
    }

    /// Number of assumed flushes.
    pub fn assumed_flushes(&self) -> u64 {
        match &self.done {
            Done::Blocks(on) => on.done.assumed_flushes,
            Done::Calls(_) => 0,
        }
    }

    fn counter(&self, name: &str) -> u64 {
        self.run.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v)
    }

    /// Latencies by kind of request or call.
    pub fn latencies(&self) -> &[Latency] {
        match &self.done {
            Done::Blocks(on) => &on.done.latencies,
            Done::Calls(done) => &done.calls.latencies,
        }
    }

    /// Blocks written by the file system per block requested; `None` for a block device's recording.
    pub fn amplification_above(&self) -> Option<f64> {
        match &self.done {
            Done::Blocks(_) => None,
            Done::Calls(done) => {
                let asked = done.calls.written as f64 / 4096.0;
                (asked > 0.0).then(|| done.counts.total().blocks_written as f64 / asked)
            }
        }
    }

    /// Blocks programmed in flash per block written to the device; `None` for a disk.
    pub fn amplification_inside(&self) -> Option<f64> {
        let written = self.counter("blocks_written");
        (written > 0)
            .then(|| (self.counter("blocks_programmed") + self.counter("blocks_copied")) as f64 / written as f64)
    }

    /// The kind of the ledger's owners: processes or files.
    pub fn owners(&self) -> &'static str {
        if matches!(self.done, Done::Blocks(_)) { "process" } else { "file" }
    }

    /// The label of what belongs to no owner.
    pub fn rest(&self) -> String {
        match &self.done {
            Done::Blocks(_) => labels::NO_PROCESS.to_owned(),
            Done::Calls(done) => Words::of(&*done.volume).rest,
        }
    }

    /// The name of an owner: a process, a file, or a label for the rest. It is as recorded, with control characters.
    pub fn owner(&self, owner: u64) -> String {
        match &self.done {
            _ if owner == 0 => self.rest(),
            Done::Blocks(on) => labels::process(&on.names, owner),
            Done::Calls(done) => labels::name_of(&*done.volume, owner),
        }
    }

    /// The name of an owner that was deleted; files with the same name may share a line.
    pub fn deleted(&self, owner: u64) -> Option<String> {
        match &self.done {
            Done::Blocks(_) => None,
            Done::Calls(done) => labels::deleted(&*done.volume, owner),
        }
    }

    /// The meanings of causes by number.
    pub fn cause(&self) -> impl Fn(u8) -> Cause + use<> {
        let words = match &self.done {
            Done::Blocks(_) => None,
            Done::Calls(done) => Some(Words::of(&*done.volume)),
        };
        move |n: u8| match &words {
            None => Cause::of_requests(n),
            Some(words) => words.named(n),
        }
    }
}
