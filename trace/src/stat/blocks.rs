//! What is in a recording of block devices.

use std::collections::BTreeMap;
use std::ops::Range;

use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::activity::Activity;
use super::distribution::{Sizes, Spread, Times};
use super::randomness::{Randomness, Share};
use super::share;
use crate::block::{Action, DeviceId, Flags, Op, SECTOR};
use crate::requests::{Request, Requests, Seen};
use crate::stacks::Why;
use crate::{Process, TraceError};

/// Sectors of a block of 4 KiB, the unit in which places are remembered.
const BLOCK: u64 = 4096 / SECTOR;
/// Blocks of a gibibyte.
const REGION: u64 = 1 << 18;
/// The longest request whose place is remembered, in sectors: 4 GiB, which no Linux request reaches.
const LONGEST: u64 = 1 << 23;
/// Processes that are told of, those that moved most first.
const PROCESSES: usize = 20;

/// Requests of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct OpStat {
    /// Which.
    pub op: &'static str,
    /// Sizes, from so many bytes to less than twice as many: how many.
    pub classes: Vec<(u64, u64)>,
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Requests that begin where the one before of the same kind and device ended.
    pub continued: u64,
    /// Requests that a process waits for.
    pub sync: u64,
    /// Durable when done.
    pub fua: u64,
    /// Of a file system's own structures.
    pub meta: u64,
    /// How long they took, where the recording tells.
    pub took: Option<Spread>,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceStat {
    /// Its numbers, major and minor.
    pub device: String,
    /// What the recording calls it, if it has a name for it.
    pub name: Option<String>,
    /// Its requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Flushes.
    pub flushes: u64,
    /// The first sector asked for.
    pub first_sector: u64,
    /// The sector after the last one asked for: the device is at least as large.
    pub end_sector: u64,
}

/// Places, in bytes of blocks of 4 KiB that were touched.
#[derive(Debug, Clone, Copy, Serialize, Default)]
pub struct Places {
    /// Blocks read or written at least once: the working set.
    pub touched: u64,
    /// Blocks read at least once.
    pub read: u64,
    /// Blocks written at least once.
    pub written: u64,
    /// Written to blocks that were written before: updates.
    pub overwritten: u64,
    /// Read of blocks that were read or written before.
    pub reread: u64,
    /// Gibibytes (places of 2^30 bytes) touched at all: how widely they are spread.
    pub regions: u64,
}

/// A device with events that are not counted as requests, or should not be beside others'.
#[derive(Debug, Clone, Serialize)]
pub struct NotCounted {
    /// Its numbers.
    pub device: String,
    /// What the recording calls it, if it has a name for it.
    pub name: Option<String>,
    /// How often it was asked.
    pub count: u64,
    /// By events of this action.
    pub event: char,
    /// Why.
    pub why: Why,
    /// The same in words.
    pub said: String,
    /// The devices it passes on to, as far as the recording tells.
    pub passes_on_to: Vec<String>,
    /// It is counted all the same, and so what it was asked counts twice.
    pub counted_twice: bool,
}

/// A process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessStat {
    /// Its name; empty if it is not known.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Events, as blkparse sums them up.
#[derive(Debug, Clone, Serialize)]
pub struct EventStat {
    /// blkparse's letter.
    pub action: char,
    /// To what.
    pub op: &'static str,
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All that is told of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct BlockStat {
    /// Its format.
    pub format: String,
    /// The action that stands for a request.
    pub requests_are: char,
    /// Requests of all kinds.
    pub requests: u64,
    /// False if the recording tells no times.
    pub timed: bool,
    /// Nanoseconds from the first request to the last.
    pub span_ns: u64,
    /// By kind of operation.
    pub operations: Vec<OpStat>,
    /// Reads by the rule of 32 KB.
    pub read_order: Share,
    /// Writes by the rule of 32 KB.
    pub write_order: Share,
    /// Where.
    pub places: Places,
    /// Nanoseconds between one request and the next; none if the recording tells no times.
    pub between: Option<Spread>,
    /// When it was read and written.
    pub activity: Activity,
    /// fsyncs that a file system's own events tell of; 0 if there are no such events.
    pub fsyncs: u64,
    /// By device, busiest first.
    pub devices: Vec<DeviceStat>,
    /// Devices whose events are not counted as requests, because others tell of them again or they are given none.
    pub not_counted: Vec<NotCounted>,
    /// By process, busiest first, at most 20.
    pub processes: Vec<ProcessStat>,
    /// By what happened.
    pub events: Vec<EventStat>,
    /// What else was in the recording.
    pub others: BTreeMap<String, u64>,
}

impl BlockStat {
    /// Requests, flushes and so on in a second of the recording; 0 if it has no length.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.span_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.span_ns as f64 }
    }
    /// One kind of operation.
    pub fn operation(&self, op: Op) -> Option<&OpStat> {
        self.operations.iter().find(|o| o.op == op.text())
    }
    /// Requests with a certain action to a certain operation, and their bytes, as blkparse counts them.
    pub fn events_of(&self, action: Action, op: Op) -> (u64, u64) {
        let found = self.events.iter().find(|e| e.action == action.letter() && e.op == op.text());
        found.map_or((0, 0), |e| (e.count, e.bytes))
    }
}

#[derive(Default)]
struct Kind {
    sizes: Sizes,
    continued: u64,
    sync: u64,
    fua: u64,
    meta: u64,
    took: Times,
}

#[derive(Default)]
struct Place {
    stat: Option<DeviceStat>,
    /// Where the last request of each kind ended.
    ends: [u64; Op::ALL.len()],
    /// Blocks that were read, that were written, and both together.
    read: RoaringTreemap,
    written: RoaringTreemap,
    touched: RoaringTreemap,
    /// Places of [`REGION`] blocks that were touched.
    regions: RoaringTreemap,
}

impl Place {
    /// Remembers blocks; how many of them were not known.
    fn touch(&mut self, blocks: Range<u64>) -> u64 {
        if !blocks.is_empty() {
            self.regions.insert_range(blocks.start / REGION..blocks.end.div_ceil(REGION));
        }
        self.touched.insert_range(blocks)
    }
}

/// Counts requests one by one.
#[derive(Default)]
struct Counter {
    kinds: [Kind; Op::ALL.len()],
    devices: BTreeMap<DeviceId, Place>,
    order: Randomness,
    places: Places,
    between: Times,
    activity: Activity,
    processes: FxHashMap<Process, (u64, u64, u64)>,
    requests: u64,
    first: Option<u64>,
    /// Times of the last request and the latest one.
    last: u64,
}

/// Reads a recording to its end, or up to damage: the error comes beside what was counted. `progress` is told now and then how many bytes of the file were read.
pub fn count(requests: &mut Requests, progress: impl FnMut(u64)) -> (BlockStat, Result<(), TraceError>) {
    count_beside(requests, |_| {}, progress)
}

/// The same, while `beside` sees every request.
pub fn count_beside(
    requests: &mut Requests,
    mut beside: impl FnMut(&Request),
    mut progress: impl FnMut(u64),
) -> (BlockStat, Result<(), TraceError>) {
    let mut counter = Counter::default();
    let whole = loop {
        match requests.seen() {
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
            Ok(Some(Seen::Asked(request))) => {
                counter.add(&request);
                beside(&request);
                if counter.requests.is_multiple_of(1 << 14) {
                    progress(requests.events().consumed());
                }
            }
            Ok(Some(Seen::Done { op, took })) => counter.kinds[op as usize].took.add(took),
        }
    };
    (counter.done(requests), whole)
}

impl Counter {
    fn add(&mut self, r: &Request) {
        self.requests += 1;
        if self.first.is_some() {
            self.between.add(r.time.saturating_sub(self.last));
        }
        let first = self.first.map_or(r.time, |f| f.min(r.time));
        self.first = Some(first);
        self.last = self.last.max(r.time);
        self.order.add(r);
        let bytes = r.sectors.saturating_mul(SECTOR);
        if matches!(r.op, Op::Read | Op::Write) {
            self.activity.add(r.time - first, bytes, r.op == Op::Write);
        }
        let end = r.sector.saturating_add(r.sectors);
        let place = self.devices.entry(r.device).or_default();
        let kind = &mut self.kinds[r.op as usize];
        kind.sizes.add(bytes);
        let last = &mut place.ends[r.op as usize];
        kind.continued += u64::from(r.sectors > 0 && *last == r.sector && *last > 0);
        *last = end;
        kind.sync += u64::from(r.flags.contains(Flags::SYNC));
        kind.fua += u64::from(r.flags.contains(Flags::FUA));
        kind.meta += u64::from(r.flags.contains(Flags::META));
        let stat = place.stat.get_or_insert_with(|| DeviceStat {
            device: r.device.to_string(),
            name: None,
            requests: 0,
            read: 0,
            written: 0,
            flushes: 0,
            first_sector: u64::MAX,
            end_sector: 0,
        });
        stat.requests += 1;
        let process = self.processes.entry(r.process).or_default();
        process.0 += 1;
        if r.sectors > 0 {
            stat.first_sector = stat.first_sector.min(r.sector);
            stat.end_sector = stat.end_sector.max(end);
        }
        let blocks = r.sector / BLOCK..if r.sectors > LONGEST { r.sector / BLOCK } else { end.div_ceil(BLOCK) };
        let asked = blocks.end - blocks.start;
        match r.op {
            Op::Flush => stat.flushes += 1,
            Op::Read => {
                stat.read += bytes;
                process.1 += bytes;
                place.read.insert_range(blocks.clone());
                self.places.reread += share(bytes, asked - place.touch(blocks), asked);
            }
            Op::Write => {
                stat.written += bytes;
                process.2 += bytes;
                let old = asked - place.written.insert_range(blocks.clone());
                self.places.overwritten += share(bytes, old, asked);
                place.touch(blocks);
            }
            _ => {}
        }
    }

    fn done(self, requests: &Requests) -> BlockStat {
        let mut places = self.places;
        let (read_order, write_order) = self.order.shares();
        let mut devices = Vec::new();
        for (id, place) in self.devices {
            places.read += place.read.len() * 4096;
            places.written += place.written.len() * 4096;
            places.touched += place.touched.len() * 4096;
            places.regions += place.regions.len();
            devices.extend(place.stat.map(|s| DeviceStat {
                first_sector: s.first_sector.min(s.end_sector),
                name: requests.events().device(id),
                ..s
            }));
        }
        let not_counted = requests
            .left_out()
            .into_iter()
            .map(|l| NotCounted {
                device: l.device.to_string(),
                name: requests.events().device(l.device),
                count: l.count,
                event: l.action.letter(),
                why: l.why,
                said: l.said(),
                passes_on_to: l.passes_on_to.iter().map(ToString::to_string).collect(),
                counted_twice: l.has_requests() && !requests.is_without(&l.device),
            })
            .collect();
        devices.sort_by_key(|d| std::cmp::Reverse((d.read + d.written, d.requests)));
        let mut processes: Vec<_> = self.processes.into_iter().collect();
        processes.sort_by_key(|(p, (n, read, written))| (std::cmp::Reverse((read + written, *n)), *p));
        processes.truncate(PROCESSES);
        let mut others = requests.others().clone();
        if requests.without_end() > 0 {
            others.insert("requests without an end, whose times are not known".into(), requests.without_end());
        }
        BlockStat {
            format: requests.events().format().to_string(),
            requests_are: requests.action().letter(),
            requests: self.requests,
            timed: requests.events().timed(),
            span_ns: self.last.saturating_sub(self.first.unwrap_or(0)),
            operations: Op::ALL
                .into_iter()
                .zip(self.kinds)
                .filter(|(_, k)| k.sizes.count > 0)
                .map(|(op, k)| OpStat {
                    op: op.text(),
                    classes: k.sizes.classes().collect(),
                    sizes: k.sizes,
                    continued: k.continued,
                    sync: k.sync,
                    fua: k.fua,
                    meta: k.meta,
                    took: k.took.spread(),
                })
                .collect(),
            read_order,
            write_order,
            places,
            between: self.between.spread().filter(|_| requests.events().timed()),
            activity: self.activity,
            fsyncs: ["f2fs_sync_file_enter", "ext4_sync_file_enter"].iter().filter_map(|n| others.get(*n)).sum(),
            devices,
            not_counted,
            processes: processes
                .into_iter()
                .map(|(p, (requests_made, read, written))| ProcessStat {
                    name: requests.names().name(p).to_owned(),
                    requests: requests_made,
                    read,
                    written,
                })
                .collect(),
            events: requests
                .counts()
                .into_iter()
                .map(|(action, op, count, bytes)| EventStat { action: action.letter(), op: op.text(), count, bytes })
                .collect(),
            others,
        }
    }
}
