//! Recorded requests on a device.

use std::time::Duration;

use device::clock::Clock;
use device::{BLOCK, BlockDevice, DeviceError, Lba, Tag};
use record::Tempo;
use serde::Serialize;

use super::extent;
use crate::TraceError;
use crate::block::{DeviceId, Flags, Op};
use crate::requests::{Request, Requests, Seen};
use crate::stat::distribution::{Spread, Times};

/// Blocks asked for at once at most: 4 MiB. Longer requests are made in parts.
const PIECE: u64 = 1024;

/// Causes on the ledger, in the order of their numbers: what is known of why a request was made.
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

/// How long requests of one kind took.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Which kind.
    pub op: &'static str,
    /// From when they came, or could be asked, to when they were done.
    #[serde(flatten)]
    pub spread: Spread,
}

/// What a replay did.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Replayed {
    /// Requests made.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Requests of other devices.
    pub of_others: u64,
    /// Requests that are neither reads, writes, flushes nor discards.
    pub left_out: u64,
    /// Requests the device refused.
    pub failed: u64,
    /// Why it refused the first.
    pub first_failure: Option<String>,
    /// Nanoseconds from the first request to the last when it was recorded.
    pub span_ns: u64,
    /// How long they took now.
    pub latencies: Vec<Latency>,
}

/// Makes the requests to `from` on `device`, in their order, one after the other, each when it came or as soon as
/// the one before is done. `clock` is the device's.
///
/// On the ledger, a request's cause is one of [`CAUSES`] and its owner the process that asked, by its number in
/// the recording plus one. A request that must be durable is followed by a flush. `progress` is told now and then how
/// many bytes of the file were read.
///
/// A damaged recording is replayed up to the damage; the error comes beside what was done.
pub fn replay(
    requests: &mut Requests,
    from: DeviceId,
    device: &dyn BlockDevice,
    clock: &dyn Clock,
    tempo: &Tempo,
    mut progress: impl FnMut(u64),
) -> (Replayed, Result<(), TraceError>) {
    let mut done = Replayed::default();
    let mut took: [Times; Op::ALL.len()] = std::array::from_fn(|_| Times::default());
    let mut time = tempo.start();
    let mut buf = Vec::new();
    let (mut first, mut last) = (None, 0);
    let whole = loop {
        let request = match requests.seen() {
            Ok(Some(Seen::Asked(request))) => request,
            Ok(Some(Seen::Done { .. })) => continue,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        };
        if request.device != from {
            done.of_others += 1;
            continue;
        }
        if request.op == Op::Other {
            done.left_out += 1;
            continue;
        }
        first.get_or_insert(request.time);
        last = request.time.max(last);
        let due = time.due(request.time).unwrap_or_else(|| clock.monotonic());
        match ask(&request, device, &mut buf) {
            Ok(()) => {
                took[request.op as usize].add(nanos(clock.monotonic().saturating_sub(due)));
                match request.op {
                    Op::Read => done.read += request.sectors.saturating_mul(512),
                    Op::Write => done.written += request.sectors.saturating_mul(512),
                    _ => {}
                }
            }
            Err(e) => {
                done.failed += 1;
                done.first_failure.get_or_insert_with(|| e.to_string());
            }
        }
        done.requests += 1;
        if done.requests.is_multiple_of(1 << 13) {
            progress(requests.events().consumed());
        }
    };
    done.span_ns = last.saturating_sub(first.unwrap_or(0));
    let latency = |(op, t): (Op, &Times)| t.spread().map(|spread| Latency { op: op.text(), spread });
    done.latencies = Op::ALL.into_iter().zip(&took).filter_map(latency).collect();
    (done, whole)
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn ask(request: &Request, device: &dyn BlockDevice, buf: &mut Vec<u8>) -> Result<(), DeviceError> {
    let tag = Tag { cause: cause(request), owner: u64::from(request.process.0) + 1 };
    let (at, blocks) = extent::blocks(request);
    let longest = blocks.min(PIECE) as usize * BLOCK;
    if !matches!(request.op, Op::Flush | Op::Discard | Op::SecureErase) && buf.len() < longest {
        buf.resize(longest, 0);
    }
    let pieces = (0..blocks).step_by(PIECE as usize).map(|done| {
        let n = PIECE.min(blocks - done) as usize * BLOCK;
        (Lba(at.0.saturating_add(done)), n)
    });
    match request.op {
        Op::Read => pieces.into_iter().try_for_each(|(at, n)| device.read(at, &mut buf[..n], tag))?,
        Op::Write | Op::WriteZeroes => {
            pieces.into_iter().try_for_each(|(at, n)| device.write(at, &buf[..n], tag))?;
            if request.flags.contains(Flags::FUA) {
                device.flush(tag)?;
            }
        }
        Op::Flush => device.flush(tag)?,
        Op::Discard | Op::SecureErase => device.discard(at, blocks, tag)?,
        Op::Other => {}
    }
    Ok(())
}
