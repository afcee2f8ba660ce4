//! How is a recording opened, as a whole or in part?

use std::path::Path;

use trace::askers::WithFiles;
use trace::block::Events;
use trace::call::Calls;
use trace::requests::Requests;
use trace::session::{Session, Span};
use trace::timing::Timing;
use trace::{Opened, Options};

use super::error::Error;
use crate::traces::requeued::Cleared;

/// A part of a recording.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Its times, in nanoseconds.
    pub span: Span,
    /// The first option that selects it, for errors; `None` for a whole recording.
    pub option: Option<&'static str>,
    /// How the recording is read, and its further files.
    pub read: Options,
}

impl Part {
    /// Bytes of all files of a recording.
    pub(super) fn length(&self, path: &Path) -> u64 {
        length(path) + self.read.further.iter().map(|file| length(file)).sum::<u64>()
    }
}

/// An open recording.
pub struct Recorded {
    /// The recording by kind.
    pub opened: Opened,
    /// Size of its file in bytes; 0 if unknown.
    pub length: u64,
}

/// Opens a recording.
pub fn open(path: &Path) -> Result<Recorded, Error> {
    Ok(Recorded { opened: trace::open(path)?, length: length(path) })
}

/// Opens a part of a recording. Events out of time order are counted even if the part is the whole.
pub fn open_part(path: &Path, part: &Part) -> Result<Recorded, Error> {
    open_as(path, part, |events| events)
}

/// Like [`open_part`], reading a block device's events as `seen`.
pub fn open_as(
    path: &Path,
    part: &Part,
    seen: impl FnOnce(Box<dyn Events>) -> Box<dyn Events>,
) -> Result<Recorded, Error> {
    let wrong = |why: String| Error::Setting(format!("{}: {why}", path.display()));
    let (opened, length) = (trace::open_with(path, &part.read)?, part.length(path));
    let opened = match (opened, part.option) {
        (Opened::Blocks(events), _) => Opened::Blocks(Box::new(Session::<dyn Events>::new(seen(events), part.span))),
        (Opened::Calls(calls), _) => Opened::Calls(of_calls(calls, part.span)),
        (Opened::Power(_), Some(option)) => {
            let why = "is for recordings of a block device or of calls";
            return Err(wrong(format!("a recording of a meter: {option} {why}")));
        }
        (Opened::Power(readings), None) => Opened::Power(readings),
    };
    Ok(Recorded { opened, length })
}

/// A part of a recording of calls.
pub(super) fn of_calls(calls: Box<dyn Calls>, span: Span) -> Box<dyn Calls> {
    Box::new(Session::<dyn Calls>::new(calls, span))
}

/// Size of a recording's file in bytes; 0 if unknown.
pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// The requests of a part of a block device's recording, without the duplicates of a mobile block trace, and the size
/// of the file in bytes.
pub fn requests(path: &Path, part: &Part) -> Result<(Requests, u64), Error> {
    let (events, length) = events(path, part)?;
    Ok((Requests::new(events), length))
}

/// The same as events.
pub(super) fn events(path: &Path, part: &Part) -> Result<(Box<dyn Events>, u64), Error> {
    let cleared = |events| -> Box<dyn Events> { Box::new(Cleared::new(Box::new(WithFiles::new(events)))) };
    let Recorded { opened, length } = open_as(path, part, cleared)?;
    match opened {
        Opened::Blocks(events) => Ok((events, length)),
        other => Err(no_blocks(path, &other)),
    }
}

/// The calls of a part of a recording, and the size of its file in bytes.
pub(super) fn calls(path: &Path, part: &Part) -> Result<(Box<dyn Calls>, u64), Error> {
    let Recorded { opened, length } = open_part(path, part)?;
    match opened {
        Opened::Calls(calls) => Ok((calls, length)),
        Opened::Blocks(_) => Err(Error::of_kind(path, "requests to a block device", "calls to a file system")),
        Opened::Power(_) => Err(Error::of_kind(path, "a meter", "calls to a file system")),
    }
}

/// Error: the recording is not of a block device.
pub fn no_blocks(path: &Path, opened: &Opened) -> Error {
    Error::of_kind(path, &opened.kind().to_string(), "requests to a block device")
}

/// Why a recording has no usable requests: an error before the first one, or else `otherwise`.
pub fn wrong_before_the_first(path: &Path, part: &Part, otherwise: Error) -> Error {
    let Ok((mut requests, _)) = requests(path, part) else { return otherwise };
    loop {
        match requests.seen() {
            Ok(Some(_)) => {}
            Ok(None) => {
                let Timing { before, after, .. } = requests.events().timing();
                if before + after == 0 {
                    return otherwise;
                }
                let sides = format!("{before} are before it, {after} after it");
                return Error::of_file(path, format!("no request to a device lies in the session: {sides}"));
            }
            Err(e) => return e.into(),
        }
    }
}

/// Fails if a recording cannot be read twice, such as standard input and pipes.
pub fn again(path: &Path) -> Result<(), Error> {
    if path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Err(Error::Setting(format!(
            "{}: must be read twice, so it cannot be a pipe; write it to a file",
            path.display()
        )));
    }
    Ok(())
}
