//! Which devices of a recording pass their requests on to other recorded devices?
//!
//! A file system on stacked devices makes one request, and a recording has it once per device of the stack. Requests
//! are counted at the lowest device, which is found from:
//!
//! * *Remaps.* Device mapper, md and partitions record where they pass a request on. A partition's requests are those
//!   of its disk and are recorded once. A stacked device's are recorded again at the device underneath, if that one
//!   queues a new request after the remap, or if both are issued requests (request-based device mapper).
//! * *Loop devices* do not record what their files lie on. They are recognised by their fixed major number (7): their
//!   requests reach the disk that holds the file, later and in other pieces. So they are not counted if there is any
//!   disk. This is wrong for a file in memory or on a disk that was not recorded, so it is reported.
//! * *No requests.* Devices that take bios are issued no requests (`D`): if issues are counted, they do not count
//!   anyway.
//!
//! Left out: stacks without any record, such as a network block device served by the same machine, or a recording
//! without remaps in which completions represent requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::Format;
use crate::block::{Action, DeviceId, Event};

/// Most devices and passages remembered; further ones are ignored.
const MOST: usize = 1 << 12;
/// Most recent remaps for which a new request underneath is expected; it comes immediately.
const PENDING: usize = 64;
/// Major number of loop devices.
const LOOP: u32 = 7;

/// Why a device's requests are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// They are recorded again at devices underneath.
    ToldAgain,
    /// A loop device's file lies on a disk.
    Loop,
    /// It has no events that represent requests.
    GivenNone,
}

/// A device whose requests are not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The device.
    pub device: DeviceId,
    /// The reason.
    pub why: Why,
    /// The devices that it passes requests on to, as far as recorded.
    pub passes_on_to: Vec<DeviceId>,
    /// Number of its events with `action`.
    pub count: u64,
    /// The action counted.
    pub action: Action,
}

/// Count of requests passed from one device to another.
#[derive(Debug, Clone, Copy, Default)]
struct Passage {
    times: u64,
    /// Number of these for which the device underneath got a new request.
    anew: u64,
}

/// The recording's devices and their relations.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Number of events per device, by [`Action::ALL`].
    devices: Vec<(DeviceId, [u64; Action::ALL.len()])>,
    places: FxHashMap<DeviceId, usize>,
    last: usize,
    passages: BTreeMap<(DeviceId, DeviceId), Passage>,
    /// Recent remaps: target device and sector, and the origin.
    pending: VecDeque<(DeviceId, u64, DeviceId)>,
}

impl Stacks {
    /// Adds the next event.
    #[inline]
    pub fn add(&mut self, event: &Event) {
        if self.devices.get(self.last).is_none_or(|(id, _)| *id != event.device) {
            let next = self.devices.len();
            if next == MOST && !self.places.contains_key(&event.device) {
                return;
            }
            self.last = *self.places.entry(event.device).or_insert(next);
            if self.last == next {
                self.devices.push((event.device, [0; Action::ALL.len()]));
            }
        }
        self.devices[self.last].1[event.action as usize] += 1;
        match event.action {
            Action::Remap => self.passes(event),
            Action::Queue if !self.pending.is_empty() => self.queued(event),
            _ => {}
        }
    }

    fn passes(&mut self, event: &Event) {
        let Some((from, _)) = event.from.filter(|(from, _)| *from != event.device) else { return };
        if self.passages.len() == MOST && !self.passages.contains_key(&(from, event.device)) {
            return;
        }
        self.passages.entry((from, event.device)).or_default().times += 1;
        if self.pending.len() == PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back((event.device, event.sector, from));
    }

    fn queued(&mut self, event: &Event) {
        let is = |(to, sector, _): &(DeviceId, u64, DeviceId)| (*to, *sector) == (event.device, event.sector);
        let Some(at) = self.pending.iter().rposition(is) else { return };
        if let Some((to, _, from)) = self.pending.remove(at)
            && let Some(passage) = self.passages.get_mut(&(from, to))
        {
            passage.anew += 1;
        }
    }

    fn count(&self, device: DeviceId, action: Action) -> u64 {
        self.places.get(&device).map_or(0, |at| self.devices[*at].1[action as usize])
    }

    /// The devices with events.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.iter().map(|(id, _)| *id)
    }

    /// True if requests passed on like this are recorded again underneath.
    fn is_asked_anew(&self, passage: Passage, action: Action) -> bool {
        // Requests name disks, never partitions.
        action == Action::Issue
            || self.devices.iter().all(|(_, n)| n[Action::Queue as usize] == 0)
            || passage.anew.saturating_mul(2) >= passage.times
    }

    /// The devices with requests that repeat those of `top`.
    fn below(&self, top: DeviceId, action: Action) -> BTreeSet<DeviceId> {
        // A device, and whether a new request was made on the way to it.
        let mut reached = BTreeSet::from([(top, false)]);
        let mut next = vec![(top, false)];
        while let Some((device, anew)) = next.pop() {
            let range = (device, DeviceId::default())..=(device, DeviceId { major: u32::MAX, minor: u32::MAX });
            for ((_, to), passage) in self.passages.range(range) {
                let to = (*to, anew || self.is_asked_anew(*passage, action));
                if reached.insert(to) {
                    next.push(to);
                }
            }
        }
        let tells = |(device, anew): (DeviceId, bool)| (anew && self.count(device, action) > 0).then_some(device);
        reached.into_iter().filter_map(tells).filter(|device| *device != top).collect()
    }

    /// The devices not counted if events of `action` represent requests, in order.
    pub fn left_out(&self, action: Action, format: Format) -> Vec<LeftOut> {
        let asked: BTreeSet<DeviceId> = self.devices().filter(|id| self.count(*id, action) > 0).collect();
        let below: BTreeMap<DeviceId, BTreeSet<DeviceId>> =
            asked.iter().map(|id| (*id, self.below(*id, action))).collect();
        // Reused device numbers may form a cycle: then nothing is left out.
        let lowest = |id: &DeviceId| below.get(id).is_some_and(BTreeSet::is_empty);
        let again: BTreeSet<DeviceId> =
            below.iter().filter(|(_, to)| to.iter().any(lowest)).map(|(id, _)| *id).collect();
        let is_loop = |id: &DeviceId| format.has_the_kernels_numbers() && id.major == LOOP;
        let beside_loops = asked.iter().any(|id| !again.contains(id) && !is_loop(id));
        let why = |id: DeviceId| match asked.contains(&id) {
            false => Some(Why::GivenNone),
            true if again.contains(&id) => Some(Why::ToldAgain),
            true => (beside_loops && is_loop(&id)).then_some(Why::Loop),
        };
        let mut all: Vec<LeftOut> = self
            .devices()
            .filter_map(|device| {
                let why = why(device)?;
                let counts = |action: &Action| self.count(device, *action);
                let action = match why {
                    Why::GivenNone => [Action::Queue, Action::Complete].into_iter().find(|a| counts(a) > 0)?,
                    _ => action,
                };
                let to = self.passages.keys().filter(|(from, _)| *from == device).map(|(_, to)| *to).collect();
                Some(LeftOut { device, why, passes_on_to: to, count: counts(&action), action })
            })
            .collect();
        all.sort_by_key(|l| l.device);
        all
    }
}

impl LeftOut {
    /// True if it has events that would be counted as requests.
    pub fn has_requests(&self) -> bool {
        self.why != Why::GivenNone
    }

    /// The reason as text.
    pub fn reason(&self) -> String {
        let to: Vec<String> = self.passes_on_to.iter().map(ToString::to_string).collect();
        let to = if to.is_empty() { String::new() } else { format!("passes on to {}", to.join(" and ")) };
        match self.why {
            Why::ToldAgain if to.is_empty() => "is recorded again on the devices below".into(),
            Why::ToldAgain => format!("{to}, where the same requests are recorded again"),
            Why::Loop => "is a loop device: its requests reach the disk that holds its file".into(),
            Why::GivenNone if to.is_empty() => "receives no requests".into(),
            Why::GivenNone => format!("{to}, and receives no requests"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Flags, Op};
    use crate::names::files::Writing;

    const DISK: DeviceId = DeviceId { major: 8, minor: 0 };
    const PARTITION: DeviceId = DeviceId { major: 8, minor: 1 };
    const MAPPED: DeviceId = DeviceId { major: 254, minor: 0 };
    const LOOPED: DeviceId = DeviceId { major: 7, minor: 0 };

    fn event(action: Action, device: DeviceId, sector: u64, from: Option<DeviceId>) -> Event {
        let from = from.map(|from| (from, sector));
        let (op, flags, process) = (Op::Write, Flags::empty(), crate::Process::default());
        let (time, cpu, pid, took, error, writing) = (0, 0, 0, None, 0, Writing::default());
        Event { time, action, op, flags, sector, sectors: 8, device, cpu, pid, process, writing, took, error, from }
    }

    fn left_out(action: Action, events: &[(Action, DeviceId, u64, Option<DeviceId>)]) -> Vec<(DeviceId, Why)> {
        let mut stacks = Stacks::default();
        events.iter().for_each(|(action, device, at, from)| stacks.add(&event(*action, *device, *at, *from)));
        stacks.left_out(action, Format::Ftrace).into_iter().map(|l| (l.device, l.why)).collect()
    }

    #[test]
    fn a_stacked_device_is_left_out_and_a_partition_is_not() {
        use Action::{Queue, Remap};
        let mapped = [(Queue, MAPPED, 1, None), (Remap, PARTITION, 2, Some(MAPPED)), (Queue, PARTITION, 2, None)];
        let on_disk = [(Remap, DISK, 3, Some(PARTITION)), (Queue, DISK, 99, None)];
        let all = [&mapped[..], &on_disk[..]].concat();
        assert_eq!(left_out(Queue, &all), [(MAPPED, Why::ToldAgain)]);
        // The same without queue events; completions represent requests.
        let ends =
            [(Action::Complete, MAPPED, 1, None), (Remap, DISK, 2, Some(MAPPED)), (Action::Complete, DISK, 2, None)];
        assert_eq!(left_out(Action::Complete, &ends), [(MAPPED, Why::ToldAgain)]);
    }

    #[test]
    fn devices_without_requests_are_reported_and_devices_that_pass_requests_on_are_left_out() {
        use Action::{Issue, Queue, Remap};
        let bios = [(Queue, MAPPED, 1, None), (Remap, DISK, 2, Some(MAPPED)), (Issue, DISK, 2, None)];
        assert_eq!(left_out(Issue, &bios), [(MAPPED, Why::GivenNone)]);
        let requests = [(Issue, MAPPED, 1, None), (Remap, DISK, 2, Some(MAPPED)), (Issue, DISK, 2, None)];
        assert_eq!(left_out(Issue, &requests), [(MAPPED, Why::ToldAgain)]);
    }

    #[test]
    fn a_loop_device_is_left_out_next_to_a_disk_and_counted_alone_or_with_foreign_numbers() {
        let both = [(Action::Issue, LOOPED, 1, None), (Action::Issue, DISK, 2, None)];
        assert_eq!(left_out(Action::Issue, &both), [(LOOPED, Why::Loop)]);
        assert_eq!(left_out(Action::Issue, &both[..1]), []);
        let mut stacks = Stacks::default();
        both.iter().for_each(|(action, device, at, from)| stacks.add(&event(*action, *device, *at, *from)));
        assert_eq!(stacks.left_out(Action::Issue, Format::MsrCsv), []);
    }

    #[test]
    fn numbers_that_go_round_in_a_circle_are_all_counted() {
        use Action::{Issue, Remap};
        let circle = [
            (Issue, MAPPED, 1, None),
            (Remap, DISK, 1, Some(MAPPED)),
            (Issue, DISK, 1, None),
            (Remap, MAPPED, 1, Some(DISK)),
        ];
        assert_eq!(left_out(Issue, &circle), []);
    }

    #[test]
    fn a_recording_of_any_number_of_devices_is_heard_in_the_same_memory() {
        let mut stacks = Stacks::default();
        for minor in 0..3 * MOST as u32 {
            let device = DeviceId { major: 8, minor };
            stacks.add(&event(Action::Remap, device, 0, Some(MAPPED)));
        }
        assert!(stacks.devices.len() == MOST && stacks.passages.len() == MOST && stacks.pending.len() == PENDING);
    }
}
