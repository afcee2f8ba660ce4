//! Recordings by other programs, opened with a progress bar and one-line errors.

use std::path::Path;
use std::process::ExitCode;

use indicatif::ProgressBar;
use record::calls::Prepared;
use sim::traces::requeued::{Cleared, DISCARDS, TOLD_AGAIN};
use trace::askers::WithFiles;
use trace::block::Events;
use trace::call::Calls;
use trace::requests::Requests;
use trace::session::{Session, Span};
use trace::timing::Timing;
use trace::{Format, Opened, TraceError};

use crate::session::SessionArgs;
use crate::{Failure, output, progress};

/// An open recording with a progress bar over its bytes.
pub struct Recorded {
    /// The recording by kind.
    pub opened: Opened,
    /// Size of its file; 0 if unknown.
    pub length: u64,
}

/// Opens a recording.
pub fn open(path: &Path) -> Result<Recorded, Failure> {
    open_whole(path, &SessionArgs::default())
}

/// Opens all files of a recording.
fn open_whole(path: &Path, part: &SessionArgs) -> Result<Recorded, Failure> {
    let opened = trace::open_with(path, &part.options()).map_err(|e| e.to_string())?;
    Ok(Recorded { opened, length: part.files(path).map(length).sum() })
}

/// Opens a part of a recording. Events out of time order are counted even if the part is the whole.
pub fn open_part(path: &Path, part: &SessionArgs) -> Result<Recorded, Failure> {
    open_as(path, part, |events| events)
}

/// Like [`open_part`], reading a block device's events as `seen`.
pub fn open_as(
    path: &Path,
    part: &SessionArgs,
    seen: impl FnOnce(Box<dyn Events>) -> Box<dyn Events>,
) -> Result<Recorded, Failure> {
    let span = part.span()?;
    let Recorded { opened, length } = open_whole(path, part)?;
    let opened = match opened {
        Opened::Blocks(events) => Opened::Blocks(of_events(seen(events), span, path, part)?),
        Opened::Calls(calls) => Opened::Calls(of_calls(calls, span)),
        Opened::Power(readings) => match part.given() {
            Some(option) => {
                let why = "is for recordings of a block device or of calls";
                return Err(Failure::Usage(format!("{}: a recording of a meter: {option} {why}", path.display())));
            }
            None => Opened::Power(readings),
        },
    };
    Ok(Recorded { opened, length })
}

fn of_events(events: Box<dyn Events>, span: Span, path: &Path, part: &SessionArgs) -> Result<Box<dyn Events>, Failure> {
    if let (Format::LogWrites, Some(option)) = (events.format(), part.given()) {
        return Err(Failure::Usage(format!("{}: {option}: this recording has no times", path.display())));
    }
    Ok(Box::new(Session::<dyn Events>::new(events, span)))
}

/// A part of a recording of calls.
pub fn of_calls(calls: Box<dyn Calls>, span: Span) -> Box<dyn Calls> {
    Box::new(Session::<dyn Calls>::new(calls, span))
}

/// Size of a recording's file; 0 if unknown.
pub fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Opens a part of a recording, for a block device without the duplicates of a mobile block trace.
pub fn open_cleared(path: &Path, part: &SessionArgs) -> Result<Recorded, Failure> {
    open_as(path, part, |events| Box::new(Cleared::new(Box::new(WithFiles::new(events)))))
}

/// Error: the recording is not of a block device.
pub fn no_blocks(path: &Path, opened: &Opened) -> Failure {
    not_of(path, &opened.kind().to_string(), "requests to a block device")
}

/// The requests of a block device's recording, without the duplicates of a mobile block trace.
pub fn requests(path: &Path, part: &SessionArgs) -> Result<(Requests, u64), Failure> {
    let Recorded { opened, length } = open_cleared(path, part)?;
    match opened {
        Opened::Blocks(events) => Ok((Requests::new(events), length)),
        other => Err(no_blocks(path, &other)),
    }
}

/// Why a recording has no usable requests: an error before the first one, or else `otherwise`.
pub fn wrong_before_the_first(path: &Path, part: &SessionArgs, otherwise: Failure) -> Failure {
    let Ok((mut requests, _)) = requests(path, part) else { return otherwise };
    loop {
        match requests.seen() {
            Ok(Some(_)) => {}
            Ok(None) => {
                let Timing { before, after, .. } = requests.events().timing();
                if before + after == 0 {
                    return otherwise;
                }
                let file = path.display();
                let sides = format!("{before} are before it, {after} after it");
                return format!("{file}: no request to a device lies in the session: {sides}").into();
            }
            Err(e) => return e.to_string().into(),
        }
    }
}

/// Notes about invalid lines, duplicate requests and requests recorded as another kind; empty for most recordings.
pub fn cleared(requests: &Requests) -> Vec<String> {
    let texts = [(TOLD_AGAIN, "duplicate requests skipped"), (DISCARDS, "discards marked as reads corrected")];
    let counted = |(key, text): (&str, &str)| requests.other_counts().get(key).map(|n| format!("{n} {text}"));
    trace::invalid_lines(requests.other_counts()).into_iter().chain(texts.into_iter().filter_map(counted)).collect()
}

/// Error: a recording of the wrong kind.
pub fn not_of(path: &Path, is: &str, wanted: &str) -> Failure {
    format!("{}: a recording of {is}; one of {wanted} is needed", path.display()).into()
}

/// Whether a replay of calls wrote the programs' real data, in one line.
pub fn contents_of(before: &Prepared, written: u64, generated: u64) -> String {
    let bytes = output::bytes;
    let written = match (written, generated) {
        (0, _) => String::new(),
        (_, 0) => "contents: as recorded".into(),
        (all, some) if all == some => "contents: generated, since the recording has none; results that depend on \
            contents (deltas, compression) mean nothing"
            .into(),
        (_, some) => format!("contents: as recorded, but for {} that are generated", bytes(some)),
    };
    let there = match (before.files, before.generated) {
        (0, _) => String::new(),
        (files, 0) => format!("{files} files were created before, with their recorded contents"),
        (files, some) => format!("{files} files were created before, with {} of generated contents", bytes(some)),
    };
    let both: Vec<_> = [written, there].into_iter().filter(|part| !part.is_empty()).collect();
    both.join("; ")
}

/// The exit code of a command that read a recording up to a damaged place. Prints the damage, unless the JSON value
/// contains it.
pub fn end(damage: Option<&TraceError>, as_json: bool) -> ExitCode {
    let Some(e) = damage else { return ExitCode::SUCCESS };
    if !as_json {
        output::failure(&e.to_string(), false);
    }
    ExitCode::FAILURE
}

/// Fails if a recording cannot be read twice, such as standard input and pipes.
pub fn again(path: &Path) -> Result<(), Failure> {
    if path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Err(Failure::usage(format!(
            "{}: must be read twice, so it cannot be a pipe; write it to a file",
            path.display()
        )));
    }
    Ok(())
}

/// A progress bar over the bytes of a recording, and the function that moves it.
pub fn bar(length: u64, what: &str) -> (ProgressBar, impl Fn(u64) + use<>) {
    let bar = progress::bytes(length, what);
    let moved = bar.clone();
    (bar, move |at| {
        moved.set_position(at);
        progress::show_if_slow(&moved);
    })
}
