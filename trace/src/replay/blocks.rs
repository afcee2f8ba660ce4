//! How are recorded requests replayed on a device?
//!
//! This module converts and counts the requests; [`super::host`] decides when each is issued.

use device::energy::Nanos;
use device::queue::{Ask, Queue};
use device::{DeviceError, Tag};
use serde::Serialize;

use super::extent;
use super::host::{Coming, Host, Served};
use crate::block::{DeviceId, Flags, Op};
use crate::requests::{Request, Requests, Seen};
use crate::stat::distribution::{Spread, Times};
use crate::{Names, TraceError};

/// Causes on the ledger, by number: the known reasons of requests.
pub const CAUSES: [&str; 9] = [
    "waiting",
    "read",
    "read ahead",
    "read of metadata",
    "write somebody waits for",
    "write in the background",
    "write of metadata",
    "flush",
    "discard",
];

/// Stable identifiers of the causes, for programs.
pub const KEYS: [&str; CAUSES.len()] = [
    "waiting",
    "read",
    "read_ahead",
    "read_of_metadata",
    "write_somebody_waits_for",
    "write_in_the_background",
    "write_of_metadata",
    "flush",
    "discard",
];

/// The number of a request's cause in [`CAUSES`].
fn cause(request: &Request) -> u8 {
    let f = request.flags;
    match request.op {
        Op::Read if f.contains(Flags::META) => 3,
        Op::Read if f.contains(Flags::AHEAD) => 2,
        Op::Read => 1,
        Op::Write | Op::WriteZeroes if f.contains(Flags::META) => 6,
        Op::Write | Op::WriteZeroes if f.intersects(Flags::SYNC | Flags::FUA) => 4,
        Op::Write | Op::WriteZeroes => 5,
        Op::Flush => 7,
        Op::Discard | Op::SecureErase => 8,
        Op::Other => 0,
    }
}

/// Latencies of one type of request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// The type.
    pub op: &'static str,
    /// From arrival, or from when it could be issued, to completion.
    #[serde(flatten)]
    pub spread: Spread,
}

/// Result of a replay.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Replayed {
    /// Requests replayed.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Requests to other devices.
    pub of_others: u64,
    /// Requests other than reads, writes, flushes and discards.
    pub left_out: u64,
    /// Assumed flushes that are not in the recording.
    pub assumed_flushes: u64,
    /// Requests that the device refused.
    pub failed: u64,
    /// The first error.
    pub first_failure: Option<String>,
    /// Nanoseconds from the first recorded request to the last.
    pub span_ns: u64,
    /// Most requests in progress at the same time.
    pub most_at_once: usize,
    /// The limit on requests in progress.
    pub queue: usize,
    /// Latencies in the replay.
    pub latencies: Vec<Latency>,
}

/// When requests are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At their recorded times, or when the device's queue has room.
    Recorded,
    /// When the queue has room.
    BackToBack,
}

/// How to replay requests.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// When to issue them.
    pub when: When,
    /// Most requests in progress; by default the device's queue depth.
    pub queue: Option<usize>,
    /// Assume flushes that are not in the recording: one this long after the last flush, or after the first write that
    /// followed it. Not used back to back.
    pub flush_every: Option<Nanos>,
}

impl How {
    /// As recorded, without assumed flushes.
    pub const RECORDED: How = How { when: When::Recorded, queue: None, flush_every: None };
}

/// When assumed flushes are due.
struct Assumed {
    every: Option<u64>,
    /// Nanoseconds from the first request to the first write after the last flush.
    dirty: Option<u64>,
    made: u64,
}

impl Assumed {
    /// When a flush is due, if that is before a request at `now`.
    fn due(&self, now: u64) -> Option<u64> {
        let due = self.dirty?.saturating_add(self.every?);
        (due <= now).then_some(due)
    }

    /// Notes a request.
    fn came(&mut self, now: u64, ask: Ask) {
        match ask {
            Ask::Write { .. } => _ = self.dirty.get_or_insert(now),
            Ask::Flush => self.dirty = None,
            _ => {}
        }
    }
}

/// A replayed request. Times are nanoseconds since the first request could be issued.
#[derive(Debug, Clone)]
pub struct Made {
    /// The recorded request.
    pub request: Request,
    /// Its arrival.
    pub came: u64,
    /// When it was issued.
    pub given: u64,
    /// When it completed, or why the device refused it.
    pub done: Result<u64, String>,
}

/// Replays the requests to `from` on `device`.
///
/// On the ledger, a request's cause is one of [`CAUSES`], and its owner is the process number in the recording plus
/// one. `each` receives every request when its end is known, with the names of processes so far; `progress` the number
/// of bytes read so far, at intervals.
///
/// A damaged recording is replayed up to the damage; the error is returned together with the result so far.
pub fn replay(
    requests: &mut Requests,
    from: DeviceId,
    device: &dyn Queue,
    how: How,
    mut each: impl FnMut(&Made, &Names),
    mut progress: impl FnMut(u64),
) -> (Replayed, Result<(), TraceError>) {
    let queue = how.queue.unwrap_or_else(|| device.depth()).max(1);
    let mut assumed = Assumed { every: how.flush_every.map(|n| n.0), dirty: None, made: 0 };
    let mut done = Replayed { queue, ..Replayed::default() };
    let mut took: [Times; Op::ALL.len()] = std::array::from_fn(|_| Times::default());
    let began = device.now();
    let mut host = Host::new(device, queue);
    let (mut first, mut last) = (None, 0);
    let (mut others, mut left_out, mut made) = (0, 0, 0_u64);
    let mut served = |s: Served<Request>, names: &Names| {
        match &s.done {
            Ok(at) => {
                took[s.of.op as usize].add(at.since(s.came).0);
                match s.of.op {
                    Op::Read => done.read += s.of.sectors.saturating_mul(512),
                    Op::Write => done.written += s.of.sectors.saturating_mul(512),
                    _ => {}
                }
            }
            Err(e) => {
                done.failed += 1;
                done.first_failure.get_or_insert_with(|| e.to_string());
            }
        }
        let made = Made {
            request: s.of,
            came: s.came.since(began).0,
            given: s.given.since(began).0,
            done: s.done.map(|at| at.since(began).0).map_err(|e: DeviceError| e.to_string()),
        };
        each(&made, names);
    };
    let whole = loop {
        let request = match requests.seen() {
            Ok(Some(Seen::Asked(request))) => request,
            Ok(Some(Seen::Done { .. })) => continue,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        };
        if request.device != from {
            others += 1;
            continue;
        }
        let Some(ask) = ask(&request) else {
            left_out += 1;
            continue;
        };
        let first = *first.get_or_insert(request.time);
        last = request.time.max(last);
        let since = request.time.saturating_sub(first);
        let came = (how.when == When::Recorded).then(|| began + Nanos(since));
        if let Some(due) = assumed.due(since).filter(|_| came.is_some()) {
            let flush = Request { time: first + due, op: Op::Flush, sectors: 0, flags: Flags::empty(), ..request };
            let tag = Tag { cause: cause(&flush), owner: 0 };
            let coming = Coming { came: Some(began + Nanos(due)), ask: Ask::Flush, tag, durable: false, of: flush };
            host.come(coming, &mut |s| served(s, requests.names()));
            assumed.came(due, Ask::Flush);
            assumed.made += 1;
        }
        assumed.came(since, ask);
        let tag = Tag { cause: cause(&request), owner: u64::from(request.process.0) + 1 };
        let durable = matches!(ask, Ask::Write { .. }) && request.flags.contains(Flags::FUA);
        host.come(Coming { came, ask, tag, durable, of: request }, &mut |s| served(s, requests.names()));
        made += 1;
        if made.is_multiple_of(1 << 13) {
            progress(requests.events().consumed());
        }
    };
    host.end(&mut |s| served(s, requests.names()));
    let most_at_once = host.most();
    (done.requests, done.of_others, done.left_out, done.most_at_once) = (made, others, left_out, most_at_once);
    done.assumed_flushes = assumed.made;
    done.span_ns = last.saturating_sub(first.unwrap_or(0));
    let latency = |(op, t): (Op, &Times)| t.spread().map(|spread| Latency { op: op.text(), spread });
    done.latencies = Op::ALL.into_iter().zip(&took).filter_map(latency).collect();
    (done, whole)
}

/// The device request; `None` for events that are not a host's requests.
fn ask(request: &Request) -> Option<Ask> {
    let (at, blocks) = extent::blocks(request);
    match request.op {
        Op::Read => Some(Ask::Read { at, blocks }),
        Op::Write | Op::WriteZeroes => Some(Ask::Write { at, blocks }),
        Op::Flush => Some(Ask::Flush),
        Op::Discard | Op::SecureErase => Some(Ask::Discard { at, blocks }),
        Op::Other => None,
    }
}
