//! Which of a request's many events represents the request?
//!
//! A block trace records a request several times: queued, inserted, merged, issued, completed. Counts and replays use
//! what the device receives. So requests are the [`Issue`](Action::Issue) events if there are any, else those of the
//! next action in [`PREFERENCE`] that the beginning of the recording has. A write with a preflush is two requests, as
//! it is for a device. A request that the driver returned and issued again is one, at its first time. For stacked
//! devices, the requests of the lowest count ([`crate::stacks`] finds it).

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::block::{Action, DeviceId, Event, Events, Flags, Op};
use crate::stacks::{LeftOut, Stacks};
use crate::{Names, OtherCounts, Process, TraceError};

/// Actions that can represent a request: the first of these that occurs is used.
pub const PREFERENCE: [Action; 4] = [Action::Issue, Action::Complete, Action::Insert, Action::Queue];

/// Events at the beginning used to choose the action.
const LOOK: usize = 1 << 16;
/// Most remembered requests in progress. With more, completions are missing in the recording, and all are forgotten.
const UNDER_WAY: usize = 1 << 16;

/// A request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Nanoseconds since the start of the recording's clock.
    pub time: u64,
    /// Type.
    pub op: Op,
    /// Flags, without [`Flags::PREFLUSH`], which is a separate request.
    pub flags: Flags,
    /// The first sector.
    pub sector: u64,
    /// Number of sectors; 0 for a flush.
    pub sectors: u64,
    /// The device.
    pub device: DeviceId,
    /// The process number; 0 if unknown.
    pub pid: u32,
    /// The process name.
    pub process: Process,
}

/// A request or its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A request was made.
    Asked(Request),
    /// A request completed.
    Done {
        /// Its type.
        op: Op,
        /// Nanoseconds it took.
        took: u64,
    },
}

/// The requests of a recording, in its order.
pub struct Requests {
    events: Box<dyn Events>,
    action: Action,
    /// Events read ahead.
    ahead: VecDeque<Event>,
    /// The error that ended reading ahead.
    failed: Option<TraceError>,
    /// Results of one event, in reverse order.
    ready: Vec<Seen>,
    under_way: FxHashMap<(DeviceId, u64, Op), u64>,
    /// Requests among these that were returned by the driver.
    sent_back: FxHashSet<(DeviceId, u64, Op)>,
    /// Requests whose completion is no longer expected.
    forgotten: u64,
    /// True if any completion was seen.
    ends: bool,
    /// Number and bytes of events, by action and operation.
    counts: FxHashMap<(Action, Op), (u64, u64)>,
    stacks: Stacks,
    /// Devices whose events are ignored.
    without: BTreeSet<DeviceId>,
}

impl Requests {
    /// The requests of a recording; reads its beginning.
    pub fn new(mut events: Box<dyn Events>) -> Self {
        let (mut ahead, mut failed) = (VecDeque::new(), None);
        while ahead.len() < LOOK {
            match events.next() {
                Ok(Some(event)) => {
                    ahead.push_back(event);
                    // This action is the most preferred.
                    if event.action == PREFERENCE[0] {
                        break;
                    }
                }
                Ok(None) => break,
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        let has = |action: &Action| ahead.iter().any(|e| e.action == *action);
        let action = PREFERENCE.into_iter().find(has).unwrap_or(PREFERENCE[0]);
        Requests {
            events,
            action,
            ahead,
            failed,
            ready: Vec::new(),
            under_way: FxHashMap::default(),
            sent_back: FxHashSet::default(),
            forgotten: 0,
            ends: false,
            counts: FxHashMap::default(),
            stacks: Stacks::default(),
            without: BTreeSet::new(),
        }
    }

    /// Ignores the requests of these devices.
    #[must_use]
    pub fn without(mut self, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        self.without.extend(devices);
        self
    }

    /// True if this device's events are ignored.
    pub fn is_without(&self, device: &DeviceId) -> bool {
        self.without.contains(device)
    }

    /// Of the devices so far, those whose requests should not be counted in addition to others', and those without
    /// requests.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.stacks.left_out(self.action, self.events.format())
    }

    /// The devices with events so far.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.stacks.devices()
    }

    /// The action that represents a request.
    pub fn action(&self) -> Action {
        self.action
    }
    /// The underlying recording.
    pub fn events(&self) -> &dyn Events {
        &*self.events
    }
    /// Names of processes in requests so far.
    pub fn names(&self) -> &Names {
        self.events.names()
    }
    /// Other contents of the recording so far.
    pub fn other_counts(&self) -> &OtherCounts {
        self.events.other_counts()
    }

    /// Requests so far without a completion; 0 if the recording has no completions.
    pub fn without_end(&self) -> u64 {
        if self.ends { self.forgotten + self.under_way.len() as u64 } else { 0 }
    }

    /// Events so far, by action and operation: number and bytes.
    pub fn counts(&self) -> Vec<(Action, Op, u64, u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(&(a, o), &(n, bytes))| (a, o, n, bytes)).collect();
        all.sort_unstable();
        all
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        match (self.ahead.pop_front(), self.failed.take()) {
            (Some(event), failed) => {
                self.failed = failed;
                Ok(Some(event))
            }
            (None, Some(e)) => Err(e),
            (None, None) => self.events.next(),
        }
    }

    /// The next item; `None` at a complete end.
    pub fn seen(&mut self) -> Result<Option<Seen>, TraceError> {
        loop {
            if let Some(seen) = self.ready.pop() {
                return Ok(Some(seen));
            }
            let Some(event) = self.event()? else { return Ok(None) };
            let count = self.counts.entry((event.action, event.op)).or_default();
            count.0 += 1;
            count.1 = count.1.saturating_add(event.bytes());
            self.stacks.add(&event);
            if event.action == Action::Complete {
                self.done(&event);
            }
            let place = (event.device, event.sector, event.op);
            if event.action == Action::Requeue && self.under_way.contains_key(&place) {
                self.sent_back.insert(place);
            }
            let counts = event.action == self.action && !self.without.contains(&event.device);
            if counts && !self.sent_back.remove(&place) {
                self.asked(&event);
            }
        }
    }

    fn done(&mut self, event: &Event) {
        // If only completions are recorded, a completion is the request, too.
        if let Some(began) = self.under_way.remove(&(event.device, event.sector, event.op)) {
            self.ends = true;
            self.ready.push(Seen::Done { op: event.op, took: event.time.saturating_sub(began) });
        }
    }

    fn asked(&mut self, event: &Event) {
        let Event { time, device, sector, sectors, pid, process, .. } = *event;
        let flags = event.flags - Flags::PREFLUSH;
        let flush =
            Request { time, op: Op::Flush, flags: flags & Flags::SYNC, sector: 0, sectors: 0, device, pid, process };
        if let Some(took) = event.took {
            self.ready.push(Seen::Done { op: event.op, took });
        } else if self.action != Action::Complete {
            if self.under_way.len() == UNDER_WAY {
                self.forgotten += UNDER_WAY as u64;
                self.under_way.clear();
                self.sent_back.clear();
            }
            if self.under_way.insert((device, sector, event.op), time).is_some() {
                self.forgotten += 1;
            }
        }
        let empty = sectors == 0;
        match event.op {
            Op::Flush => self.ready.push(Seen::Asked(flush)),
            Op::Write if empty && event.flags.contains(Flags::PREFLUSH) => self.ready.push(Seen::Asked(flush)),
            // Without sectors nothing was requested.
            Op::Read | Op::Write | Op::Discard | Op::SecureErase | Op::WriteZeroes if empty => {}
            op => {
                self.ready.push(Seen::Asked(Request { time, op, flags, sector, sectors, device, pid, process }));
                if event.flags.contains(Flags::PREFLUSH) {
                    self.ready.push(Seen::Asked(flush));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    struct List(std::vec::IntoIter<Event>, Names, OtherCounts);
    impl Events for List {
        fn format(&self) -> Format {
            Format::Blktrace
        }
        fn next(&mut self) -> Result<Option<Event>, TraceError> {
            Ok(self.0.next())
        }
        fn names(&self) -> &Names {
            &self.1
        }
        fn other_counts(&self) -> &OtherCounts {
            &self.2
        }
        fn consumed(&self) -> u64 {
            0
        }
    }

    fn event(time: u64, action: Action, op: Op, sector: u64, sectors: u64, flags: Flags) -> Event {
        Event {
            time,
            action,
            op,
            flags,
            sector,
            sectors,
            device: DeviceId::default(),
            cpu: 0,
            pid: 0,
            process: Process(0),
            took: None,
            error: 0,
            writing: Default::default(),
            from: None,
        }
    }

    /// Reads to the end.
    fn without_end(events: Vec<Event>) -> u64 {
        let mut requests = Requests::new(Box::new(List(events.into_iter(), Names::default(), OtherCounts::new())));
        while requests.seen().unwrap().is_some() {}
        requests.without_end()
    }

    #[test]
    fn requests_without_a_completion_are_counted_if_completions_are_recorded() {
        let asked = |sector| event(sector, Action::Issue, Op::Write, sector, 8, Flags::empty());
        let end = event(9, Action::Complete, Op::Write, 8, 8, Flags::empty());
        let many = UNDER_WAY as u64 + 10;
        assert_eq!(without_end((0..many).map(asked).collect()), 0, "nothing is told of ends");
        assert_eq!(without_end([asked(8), end].into_iter().chain((0..many).map(asked)).collect()), many);
        // Two requests at one address, one completion.
        assert_eq!(without_end(vec![asked(8), asked(8), end]), 1);
    }

    fn all(events: Vec<Event>) -> (Action, Vec<Seen>) {
        let list = List(events.into_iter(), Names::default(), OtherCounts::new());
        let mut requests = Requests::new(Box::new(list));
        let mut out = Vec::new();
        while let Some(seen) = requests.seen().unwrap() {
            out.push(seen);
        }
        (requests.action(), out)
    }

    #[test]
    fn a_request_is_counted_once_and_its_time_is_from_issue_to_completion() {
        let steps = [Action::Queue, Action::Get, Action::Insert, Action::Issue, Action::Complete];
        let events = (0..).zip(steps).map(|(t, a)| event(t * 10, a, Op::Write, 8, 16, Flags::empty())).collect();
        let (action, seen) = all(events);
        assert_eq!(action, Action::Issue);
        assert!(matches!(seen[0], Seen::Asked(Request { time: 30, sector: 8, sectors: 16, .. })));
        assert_eq!(seen[1..], [Seen::Done { op: Op::Write, took: 10 }]);
    }

    #[test]
    fn a_preflush_is_a_flush_before_and_an_empty_write_nothing_else() {
        let q = |sectors, flags| event(0, Action::Queue, Op::Write, 0, sectors, flags);
        let (action, seen) = all(vec![q(8, Flags::PREFLUSH | Flags::FUA), q(0, Flags::PREFLUSH), q(0, Flags::empty())]);
        assert_eq!(action, Action::Queue);
        let ops: Vec<(Op, bool)> = seen
            .iter()
            .map(|s| match s {
                Seen::Asked(r) => (r.op, r.flags.contains(Flags::FUA)),
                Seen::Done { .. } => panic!("nothing is done"),
            })
            .collect();
        assert_eq!(ops, [(Op::Flush, false), (Op::Write, true), (Op::Flush, false)]);
    }

    #[test]
    fn a_requeued_request_is_one_and_a_repeated_request_is_two() {
        let read = |t, action, sector| event(t, action, Op::Read, sector, 8, Flags::empty());
        let events = vec![
            read(0, Action::Issue, 8),
            read(5, Action::Requeue, 8),
            read(6, Action::Issue, 16),
            read(7, Action::Issue, 8),
            read(9, Action::Complete, 8),
            read(10, Action::Requeue, 80),
            read(11, Action::Issue, 80),
            read(12, Action::Issue, 8),
        ];
        let (_, seen) = all(events);
        let asked = |s: &Seen| match s {
            Seen::Asked(r) => Some((r.time, r.sector)),
            Seen::Done { took, .. } => Some((u64::MAX, *took)),
        };
        let seen: Vec<_> = seen.iter().filter_map(asked).collect();
        assert_eq!(seen, [(0, 8), (6, 16), (u64::MAX, 9), (11, 80), (12, 8)]);
    }

    #[test]
    fn completions_represent_requests_if_there_are_no_other_events() {
        let done = |t| event(t, Action::Complete, Op::Read, t, 8, Flags::empty());
        let (action, seen) = all((0..5).map(done).collect());
        assert_eq!((action, seen.len()), (Action::Complete, 5));
    }
}
