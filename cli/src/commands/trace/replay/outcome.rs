//! The result of a run: what was replayed, what it cost, and for whom.

use device::energy::Energy;
use device::energy::profile::Profile;
use serde_json::Value;
use sim::traces::Run;
use sim::traces::blocks::Plan;
use sim::traces::calls::OnVolumeDone;
use sim::traces::timeline::Timeline;
use trace::replay::blocks::{self, Latency};
use trace::requests::Requests;
use trace::timing::Timing;
use trace::{Names, Process, TraceError};

use super::variant::Variant;
use crate::metered::{deleted, name_of};
use crate::spent::{self, Cause, FileLine, Spent, Words};
use crate::{of_devices, output, recorded, session};

/// Owner 0 of a recording of a block device.
const NO_PROCESS: &str = "<no process>";

/// The name of an owner in a block device's recording.
fn process(names: &Names, owner: u64) -> String {
    match names.name(Process(owner.saturating_sub(1) as u32)) {
        "" => "<process not known>".to_owned(),
        name => output::plain(name),
    }
}

/// What was replayed.
pub(super) enum Done {
    Blocks { done: blocks::Replayed, plan: Plan, names: Names, cleared: Vec<String>, not_counted: Value },
    Calls(OnVolumeDone),
}

/// The result of a run.
pub struct Outcome {
    pub(super) name: String,
    pub(super) profile: Profile,
    pub(super) run: Run<()>,
    pub(super) done: Done,
    /// The idle energy of the device in the same time, if file systems are compared.
    pub(super) idle: Option<Energy>,
    /// Notes about the recording in words, and its times.
    pub(super) said: Vec<String>,
    pub(super) timing: Timing,
    /// Energy over time, if requested.
    pub(super) timeline: Timeline,
}

impl Outcome {
    pub fn of_blocks(
        variant: &Variant,
        plan: &Plan,
        run: Run<blocks::Replayed>,
        requests: &Requests,
        timeline: Timeline,
    ) -> Self {
        let Run { done, ledger, took, counters, damage } = run;
        let (names, cleared) = (requests.names().clone(), recorded::cleared(requests));
        let mut left_out = requests.left_out();
        if left_out.iter().any(|l| l.device == plan.of) {
            // The device was selected by name.
            left_out.clear();
        }
        let not_counted = of_devices::json(&left_out);
        let done = Done::Blocks { done, plan: plan.clone(), names, cleared, not_counted };
        let timing = requests.events().timing();
        let mut said = session::said(&timing);
        said.extend(of_devices::said(&left_out));
        let run = Run { done: (), ledger, took, counters, damage };
        Outcome { timeline, ..Outcome::new(variant, run, done, said, timing) }
    }

    pub fn of_calls(
        variant: &Variant,
        mut run: Run<OnVolumeDone>,
        idle: Option<Energy>,
        said: Vec<String>,
        timing: Timing,
    ) -> Self {
        let timeline = std::mem::take(&mut run.done.timeline);
        let Run { done, ledger, took, counters, damage } = run;
        let run = Run { done: (), ledger, took, counters, damage };
        Outcome { idle, timeline, ..Outcome::new(variant, run, Done::Calls(done), said, timing) }
    }

    fn new(variant: &Variant, run: Run<()>, done: Done, said: Vec<String>, timing: Timing) -> Self {
        let (name, profile) = (variant.name.clone(), variant.profile.clone());
        Outcome { name, profile, run, done, idle: None, said, timing, timeline: Timeline::default() }
    }

    /// Why reading the recording ended early.
    pub fn damage(&self) -> Option<&TraceError> {
        self.run.damage.as_ref()
    }

    /// Total energy.
    pub fn total(&self) -> Energy {
        self.run.ledger.total()
    }

    /// Number of assumed flushes.
    pub(super) fn assumed_flushes(&self) -> u64 {
        match &self.done {
            Done::Blocks { done, .. } => done.assumed_flushes,
            Done::Calls(_) => 0,
        }
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        self.run.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v)
    }

    pub(super) fn latencies(&self) -> &[Latency] {
        match &self.done {
            Done::Blocks { done, .. } => &done.latencies,
            Done::Calls(done) => &done.calls.latencies,
        }
    }

    /// Blocks written by the file system per block requested; `None` for a block device's recording.
    pub(super) fn amplification_above(&self) -> Option<f64> {
        match &self.done {
            Done::Blocks { .. } => None,
            Done::Calls(done) => {
                let asked = done.calls.written as f64 / 4096.0;
                (asked > 0.0).then(|| done.counts.total().blocks_written as f64 / asked)
            }
        }
    }

    /// Blocks programmed in flash per block written to the device; `None` for a disk.
    pub(super) fn amplification_inside(&self) -> Option<f64> {
        let written = self.counter("blocks_written");
        (written > 0)
            .then(|| (self.counter("blocks_programmed") + self.counter("blocks_copied")) as f64 / written as f64)
    }

    /// The kind of the ledger's owners.
    pub(super) fn owners(&self) -> &'static str {
        if matches!(self.done, Done::Blocks { .. }) { "process" } else { "file" }
    }

    /// The name of an owner: a process, a file, or a label for the rest.
    pub(super) fn owner(&self, owner: u64) -> String {
        match &self.done {
            Done::Blocks { .. } if owner == 0 => NO_PROCESS.to_owned(),
            Done::Blocks { names, .. } => process(names, owner),
            Done::Calls(done) if owner == 0 => Words::of(&*done.volume).rest,
            Done::Calls(done) => output::plain(&name_of(&*done.volume, owner)),
        }
    }

    /// The names of causes; unnamed causes are shown by number.
    pub(super) fn cause(&self) -> impl Fn(u8) -> Cause {
        let words = match &self.done {
            Done::Blocks { .. } => None,
            Done::Calls(done) => Some(Words::of(&*done.volume)),
        };
        move |n: u8| match &words {
            None => Cause::of_requests(n),
            Some(words) => words.named(n),
        }
    }

    pub(super) fn files(&self, most: usize) -> Vec<FileLine> {
        match &self.done {
            Done::Blocks { names, .. } => {
                spent::by_file(&self.run.ledger, most, NO_PROCESS, |_| None, |owner| process(names, owner))
            }
            Done::Calls(done) => spent::by_file(
                &self.run.ledger,
                most,
                &Words::of(&*done.volume).rest,
                |owner| deleted(&*done.volume, owner),
                |owner| output::plain(&name_of(&*done.volume, owner)),
            ),
        }
    }

    pub(super) fn spent(&self, most: usize) -> Spent {
        Spent {
            profile: self.profile.name.clone(),
            ledger: self.run.ledger.clone(),
            took: self.run.took,
            causes: spent::by_cause(&self.run.ledger, self.cause()),
            files: self.files(most),
            owners: self.owners(),
            counters: self.run.counters.clone(),
        }
    }
}
