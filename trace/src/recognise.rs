//! Which format does a recording have? By content; file names do not matter.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use crate::formats::Kind;
use crate::input::HEAD;
use crate::opened::{Opened, Reader};
use crate::{At, Columns, Format, Input, TraceError, read};

/// How a recording is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The first invalid line is an error; see [`Input::strict`].
    pub strict: bool,
    /// It is a table with these columns; its format is not recognised.
    pub columns: Option<Columns>,
    /// Further files of the same recording. Requests are merged by time; files of calls follow each other in the order of
    /// their first call.
    pub further: Vec<PathBuf>,
}

/// Opens one file of a recording, or blktrace's files.
pub(crate) fn open_one(path: &Path, options: &Options) -> Result<Opened, TraceError> {
    let files = if options.columns.is_none() { read::blktrace::of_all_processors(path) } else { Vec::new() };
    if !files.is_empty()
        && let Some(opened) = read::blktrace::open(&files)?
    {
        return Ok(opened);
    }
    let input = Input::open(path)?.strict(options.strict);
    match &options.columns {
        Some(columns) => Ok(read::table::open(input, columns.clone())),
        None => open_input(input),
    }
}

/// The files that [`open`](crate::open) reads for this path.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut files = read::blktrace::of_all_processors(path);
    files.push(path.to_owned());
    files
}

/// Opens a recording from `input`.
pub fn open_input(mut input: Input) -> Result<Opened, TraceError> {
    let head = input.peek(HEAD)?;
    match read::readers().find(|r| (r.knows)(head)) {
        Some(reader) => (reader.open)(input),
        None => {
            let why = unknown(head);
            Err(TraceError::Unknown { path: input.path().to_owned(), why })
        }
    }
}

/// Opens a table with these columns from `input`.
pub fn open_columns(input: Input, columns: Columns) -> Opened {
    read::table::open(input, columns)
}

/// What a recording in no known format may be.
fn unknown(head: &[u8]) -> String {
    if head.is_empty() {
        return "it is empty".into();
    }
    let mut why = begins(head);
    if read::strace::is_without_times(head) {
        return why + "; it looks like strace's output without times: run strace -f -ttt -T -y";
    }
    if let Some(nearest) = nearest(head) {
        why += &format!("; {nearest}");
    }
    let all: Vec<&str> = Format::ALL.iter().map(|format| format.text()).collect();
    why + &format!("; known are {}; for another table give the columns", all.join(", "))
}

/// The format whose reader accepts most of the first lines, and the first line that it does not accept.
fn nearest(head: &[u8]) -> Option<String> {
    // Binary formats would be recognised.
    if memchr::memchr(0, head).is_some() {
        return None;
    }
    let lines = memchr::memrchr(b'\n', head).map_or(head, |end| &head[..=end]);
    let tried = read::readers().filter_map(|reader| accepted(reader, lines)).filter(|(good, ..)| *good > 0);
    let (good, format, refused) = tried.max_by_key(|(good, ..)| *good)?;
    let refused: String = refused.iter().map(|text| format!("; {text}")).collect();
    Some(format!("the nearest format is {format}, which gives {good} events{refused}"))
}

/// How many events a reader finds in these lines, its format, and what it says about the first invalid line.
fn accepted(reader: &Reader, lines: &[u8]) -> Option<(u64, Format, Option<String>)> {
    let input = Input::new(Path::new("beginning"), Cursor::new(lines.to_vec())).ok()?.trial();
    let mut good = 0;
    let (format, others) = match (reader.open)(input).ok()? {
        Opened::Blocks(mut events) => {
            while let Ok(Some(_)) = events.next() {
                good += 1;
            }
            (events.format(), events.other_counts().clone())
        }
        Opened::Calls(mut calls) => {
            while let Ok(Some(_)) = calls.next() {
                good += 1;
            }
            (calls.format(), calls.other_counts().clone())
        }
        // A meter's recording ends at its first invalid line.
        Opened::Power(_) => return None,
    };
    Some((good, format, crate::names::invalid_lines(&others).pop()))
}

/// Opens a recording from `input` as one kind: a Perfetto trace has both block devices and a meter.
pub fn open_input_as(mut input: Input, kind: Kind) -> Result<Opened, TraceError> {
    if kind == Kind::Power && (read::perfetto::READER.knows)(input.peek(HEAD)?) {
        return Ok(read::perfetto::open_power(input));
    }
    let path = input.path().to_owned();
    wanted(&path, open_input(input)?, kind)
}

/// The recording, if it is of this kind.
pub(crate) fn wanted(path: &Path, opened: Opened, kind: Kind) -> Result<Opened, TraceError> {
    if opened.kind() == kind {
        return Ok(opened);
    }
    let what = format!("this is a recording of {}; a recording of {kind} is needed", opened.kind());
    Err(TraceError::Unsupported { path: path.to_owned(), format: opened.format(), at: At::Byte(0), what })
}

/// Describes the beginning of the file.
fn begins(head: &[u8]) -> String {
    let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = &line[..line.len().min(60)];
    match std::str::from_utf8(line) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\t') => format!("it begins with {text:?}"),
        _ => {
            let hex: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
            format!("it begins with the bytes {}", hex.join(" "))
        }
    }
}
