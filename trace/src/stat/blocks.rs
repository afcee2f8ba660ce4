//! What does a recording of block devices contain?

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

/// Sectors per 4 KiB block, the unit of remembered addresses.
const BLOCK: u64 = 4096 / SECTOR;
/// Blocks per gibibyte.
const REGION: u64 = 1 << 18;
/// Longest request whose address is remembered, in sectors: 4 GiB, above any Linux request.
const LONGEST: u64 = 1 << 23;
/// Most processes reported, the busiest first.
const PROCESSES: usize = 20;

/// Requests of one type.
#[derive(Debug, Clone, Serialize)]
pub struct OpStat {
    /// The type.
    pub op: &'static str,
    /// Number of requests per size class; a class begins at this size and ends below twice of it.
    pub classes: Vec<(u64, u64)>,
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Requests that begin at the end of the previous one of the same type and device.
    pub continued: u64,
    /// Requests that a process waits for.
    pub sync: u64,
    /// Durable when done.
    pub fua: u64,
    /// Metadata of a file system.
    pub meta: u64,
    /// Latencies, if recorded.
    pub took: Option<Spread>,
}

/// A device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceStat {
    /// Major and minor number.
    pub device: String,
    /// Its name in the recording, if any.
    pub name: Option<String>,
    /// Number of requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Flushes.
    pub flushes: u64,
    /// First sector used.
    pub first_sector: u64,
    /// Sector after the last one used: the least size of the device.
    pub end_sector: u64,
}

/// Addresses, as bytes of the 4 KiB blocks touched.
#[derive(Debug, Clone, Copy, Serialize, Default)]
pub struct Places {
    /// Blocks read or written at least once: the working set.
    pub touched: u64,
    /// Blocks read at least once.
    pub read: u64,
    /// Blocks written at least once.
    pub written: u64,
    /// Bytes written to blocks that had been written before: updates.
    pub overwritten: u64,
    /// Bytes read from blocks that had been read or written before.
    pub reread: u64,
    /// Number of gibibyte regions (2^30 bytes) touched: the spread.
    pub regions: u64,
}

/// A device whose events are not counted as requests, or should not be counted in addition to others'.
#[derive(Debug, Clone, Serialize)]
pub struct NotCounted {
    /// Major and minor number.
    pub device: String,
    /// Its name in the recording, if any.
    pub name: Option<String>,
    /// Number of events.
    pub count: u64,
    /// Action of these events.
    pub event: char,
    /// The reason.
    pub why: Why,
    /// The reason as text.
    pub said: String,
    /// The devices that it passes requests on to, as far as recorded.
    pub passes_on_to: Vec<String>,
    /// True if it is counted nevertheless, so that its requests count twice.
    pub counted_twice: bool,
}

/// A process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessStat {
    /// Its name; empty if unknown.
    pub name: String,
    /// Number of requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Events, summed up like in blkparse.
#[derive(Debug, Clone, Serialize)]
pub struct EventStat {
    /// blkparse's letter.
    pub action: char,
    /// The operation.
    pub op: &'static str,
    /// Number of events.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Statistics of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct BlockStat {
    /// Its format.
    pub format: String,
    /// The action that represents a request.
    pub requests_are: char,
    /// Requests of all kinds.
    pub requests: u64,
    /// False if the recording has no times.
    pub timed: bool,
    /// Nanoseconds from the first request to the last.
    pub span_ns: u64,
    /// By type of operation.
    pub operations: Vec<OpStat>,
    /// Reads by the rule of 32 KB.
    pub read_order: Share,
    /// Writes by the rule of 32 KB.
    pub write_order: Share,
    /// Addresses.
    pub places: Places,
    /// Nanoseconds between consecutive requests; `None` without times.
    pub between: Option<Spread>,
    /// Bytes read and written over time.
    pub activity: Activity,
    /// fsyncs in a file system's own events; 0 if there are no such events.
    pub fsyncs: u64,
    /// By device, busiest first.
    pub devices: Vec<DeviceStat>,
    /// Devices whose events are not counted as requests, because other devices repeat them or they get none.
    pub not_counted: Vec<NotCounted>,
    /// By process, busiest first, at most 20.
    pub processes: Vec<ProcessStat>,
    /// By action and operation.
    pub events: Vec<EventStat>,
    /// Other contents of the recording.
    pub others: BTreeMap<String, u64>,
}

impl BlockStat {
    /// Converts a count to a rate per second of the recording; 0 if it has no duration.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.span_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.span_ns as f64 }
    }
    /// Statistics of one type of operation.
    pub fn operation(&self, op: Op) -> Option<&OpStat> {
        self.operations.iter().find(|o| o.op == op.text())
    }
    /// Number and bytes of events with this action and operation, as blkparse counts them.
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
    /// End of the last request of each type.
    ends: [u64; Op::ALL.len()],
    /// Blocks read, blocks written, and both together.
    read: RoaringTreemap,
    written: RoaringTreemap,
    touched: RoaringTreemap,
    /// Regions of [`REGION`] blocks touched.
    regions: RoaringTreemap,
}

impl Place {
    /// Remembers blocks; returns how many were new.
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

/// Reads a recording to its end, or up to damage: the error is returned together with the counts up to there.
/// `progress` receives the number of bytes read so far, at intervals.
pub fn count(requests: &mut Requests, progress: impl FnMut(u64)) -> (BlockStat, Result<(), TraceError>) {
    count_with(requests, |_| {}, progress)
}

/// The same; `beside` also receives every request.
pub fn count_with(
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
                said: l.reason(),
                passes_on_to: l.passes_on_to.iter().map(ToString::to_string).collect(),
                counted_twice: l.has_requests() && !requests.is_without(&l.device),
            })
            .collect();
        devices.sort_by_key(|d| std::cmp::Reverse((d.read + d.written, d.requests)));
        let mut processes: Vec<_> = self.processes.into_iter().collect();
        processes.sort_by_key(|(p, (n, read, written))| (std::cmp::Reverse((read + written, *n)), *p));
        processes.truncate(PROCESSES);
        let mut others = requests.other_counts().clone();
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
