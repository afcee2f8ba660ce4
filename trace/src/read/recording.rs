//! How are JouleFS recordings (`record`) read, so that they can be counted and converted like foreign ones?
//!
//! A request is issued to the device on arrival ([`Action::Issue`]), and the event includes its duration. Its cause is
//! given as the process; a remap is an operation that other formats lack. Failed requests have errno 5 (EIO).
//!
//! Recordings of calls are by inode: [`by_path`] turns them into calls by path, for counting and conversion. A replay
//! reads them directly ([`calls`]).

mod by_path;

use std::io::Read;
use std::path::Path;

use record::blocks::{self, Request};
use record::calls::Events as CallEvents;
use record::{Kind, Reader as Recording, RecordError};

use crate::block::{Action, DeviceId, Event, Events, Flags, Op};
use crate::opened::Reader;
use crate::{At, Format, Input, Names, Opened, OtherCounts, Process, TraceError};

/// Sectors per block.
const SECTORS: u64 = 8;

/// Recognised by its first bytes.
pub(crate) const READER: Reader = Reader { knows: |head| head.starts_with(b"JouleRec"), open };

fn open(input: Input) -> Result<Opened, TraceError> {
    let path = input.path().to_owned();
    let consumed = input.consumption();
    let damaged = |e: &RecordError| damage(&path, e);
    let reader = Recording::new(input).map_err(|e| damaged(&e))?;
    if reader.kind() == Kind::Calls {
        let events = CallEvents::new(reader).map_err(|e| damaged(&e))?;
        return Ok(Opened::Calls(Box::new(by_path::ByPath::new(events, path, consumed))));
    }
    let events = blocks::Events::new(reader).map_err(|e| damaged(&e))?;
    let mut names = Names::default();
    // One process per cause; causes without a name are named by number.
    let process = (0..=u8::MAX)
        .map(|n| match events.causes().get(&n) {
            Some(cause) => names.number(cause.as_bytes()),
            None => Process::default(),
        })
        .collect();
    Ok(Opened::Blocks(Box::new(Recorded { events, path, names, process, others: OtherCounts::new(), consumed })))
}

/// Opens a JouleFS recording of calls by inode, with contents if it has them; `None` for any other file. The second
/// value returns the number of bytes read.
pub fn calls(path: &Path) -> Result<Option<(CallEvents, impl Fn() -> u64 + Send + use<>)>, TraceError> {
    let mut input = Input::open(path)?;
    if !(READER.knows)(input.peek(8)?) {
        return Ok(None);
    }
    let consumed = input.consumption();
    let reader = Recording::new(input).map_err(|e| damage(path, &e))?;
    if reader.kind() != Kind::Calls {
        return Ok(None);
    }
    let events = CallEvents::new(reader).map_err(|e| damage(path, &e))?;
    Ok(Some((events, move || consumed.bytes())))
}

struct Recorded {
    events: blocks::Events,
    path: std::path::PathBuf,
    names: Names,
    /// By cause.
    process: Vec<Process>,
    others: OtherCounts,
    consumed: crate::input::Consumption,
}

/// A recording's error as an error of its file.
pub fn damage(path: &Path, e: &RecordError) -> TraceError {
    let format = Format::JouleRec;
    match e {
        RecordError::CutShort { at, .. } => TraceError::CutShort { path: path.to_owned(), format, at: At::Byte(*at) },
        RecordError::Damaged { at, what, .. } => {
            TraceError::Damaged { path: path.to_owned(), format, at: At::Byte(*at), what: (*what).to_owned() }
        }
        e => TraceError::Damaged { path: path.to_owned(), format, at: At::Byte(0), what: e.to_string() },
    }
}

impl Events for Recorded {
    fn format(&self) -> Format {
        Format::JouleRec
    }
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let event = match self.events.next() {
            None => return Ok(None),
            Some(Ok(event)) => event,
            Some(Err(e)) => return Err(damage(&self.path, &e)),
        };
        let (op, at, blocks) = match event.request {
            Request::Read { at, blocks } => (Op::Read, at.0, blocks),
            Request::Write { at, blocks, .. } => (Op::Write, at.0, blocks),
            Request::Flush => (Op::Flush, 0, 0),
            Request::Discard { at, blocks } => (Op::Discard, at.0, blocks),
            Request::Remap { from, blocks, .. } => {
                *self.others.entry("remap".into()).or_default() += 1;
                (Op::Other, from.0, blocks)
            }
        };
        Ok(Some(Event {
            time: event.arrival,
            action: Action::Issue,
            op,
            flags: Flags::empty(),
            sector: at.saturating_mul(SECTORS),
            sectors: blocks.saturating_mul(SECTORS),
            device: DeviceId::default(),
            cpu: 0,
            pid: 0,
            process: self.process[usize::from(event.tag.cause)],
            took: Some(event.took),
            error: if event.failed { 5 } else { 0 },
            writing: Default::default(),
            from: None,
        }))
    }
    fn names(&self) -> &Names {
        &self.names
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }
    fn consumed(&self) -> u64 {
        self.consumed.bytes()
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let there = self.peek(buf.len().min(1 << 16)).map_err(|e| match e {
            TraceError::Io { source, .. } => source,
            e => std::io::Error::other(e.to_string()),
        })?;
        let n = there.len().min(buf.len());
        buf[..n].copy_from_slice(&there[..n]);
        self.take(n);
        Ok(n)
    }
}
