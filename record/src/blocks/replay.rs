//! How are the requests of a recording replayed on another device?

use device::{BLOCK, BlockDevice, DeviceError, generate};

use super::event::{Event, Request};
use crate::{RecordError, Tempo};

/// Largest request in blocks; longer ones are split.
const PIECE: u64 = 256;

/// Result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Requests replayed.
    pub requests: u64,
    /// Requests that failed now, but not in the recording.
    pub failed: u64,
    /// Requests skipped because they failed in the recording.
    pub left_out: u64,
    /// Nanoseconds from the first recorded arrival to the last.
    pub span: u64,
}

/// Replays the requests of a recording on `device`, one after the other, with their tags. Writes write generated
/// blocks, seeded by the fingerprint.
///
/// Requests that failed in the recording are skipped; those that fail now are counted. `each` is called for every
/// request, with its error. Requests longer than 1 MiB are split.
///
/// A damaged recording is replayed up to the damage; the error is returned together with the result so far.
pub fn replay(
    events: impl Iterator<Item = Result<Event, RecordError>>,
    device: &dyn BlockDevice,
    tempo: &Tempo,
    mut each: impl FnMut(&Event, Option<&DeviceError>),
) -> (Replayed, Result<(), RecordError>) {
    let mut done = Replayed::default();
    let mut time = tempo.start();
    let mut buf = Vec::new();
    let mut first = None;
    for event in events {
        let event = match event {
            Ok(event) => event,
            Err(e) => return (done, Err(e)),
        };
        let start = *first.get_or_insert(event.arrival);
        done.span = done.span.max(event.arrival.saturating_sub(start));
        if event.failed {
            done.left_out += 1;
            continue;
        }
        time.due(event.arrival);
        done.requests += 1;
        let failure = ask(&event, device, &mut buf).err();
        done.failed += u64::from(failure.is_some());
        each(&event, failure.as_ref());
    }
    (done, Ok(()))
}

fn ask(event: &Event, device: &dyn BlockDevice, buf: &mut Vec<u8>) -> device::Result<()> {
    let tag = event.tag;
    match event.request {
        Request::Read { at, blocks } => pieces(at.0, blocks, |at, _, n| {
            buf.resize(n * BLOCK, 0);
            device.read(device::Lba(at), buf, tag)
        }),
        Request::Write { at, blocks, fingerprint } => pieces(at.0, blocks, |at, done, n| {
            buf.resize(n * BLOCK, 0);
            // A generated sequence has 2^32 blocks; a longer write repeats it.
            generate(u64::from(fingerprint), done as u32, buf);
            device.write(device::Lba(at), buf, tag)
        }),
        Request::Flush => device.flush(tag),
        Request::Discard { at, blocks } => device.discard(at, blocks, tag),
        Request::Remap { from, to, blocks, how } => device.remap(from, to, blocks, how, tag),
    }
}

/// Calls `each` for each piece with its first block, its offset in the request, and its length.
fn pieces(at: u64, blocks: u64, mut each: impl FnMut(u64, u64, usize) -> device::Result<()>) -> device::Result<()> {
    let mut done = 0;
    loop {
        let n = PIECE.min(blocks - done);
        // The device reports an error if this is past its end.
        each(at.saturating_add(done), done, n as usize)?;
        done += n;
        if done >= blocks {
            return Ok(());
        }
    }
}
