//! Which format does a recording have? By content; file names do not matter.

use std::path::{Path, PathBuf};

use crate::formats::Kind;
use crate::opened::Opened;
use crate::{At, Input, TraceError, read};

/// Bytes used for recognition.
const HEAD: usize = 64 << 10;

/// Opens a recording; `-` is standard input. For blktrace's files, one per CPU (`sda.blktrace.0`), any of them or their
/// common name (`sda`) opens all.
pub fn open(path: &Path) -> Result<Opened, TraceError> {
    let files = read::blktrace::of_all_processors(path);
    if !files.is_empty()
        && let Some(opened) = read::blktrace::open(&files)?
    {
        return Ok(opened);
    }
    open_input(Input::open(path)?)
}

/// The files that [`open`] reads for this path.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut files = read::blktrace::of_all_processors(path);
    files.push(path.to_owned());
    files
}

/// Opens a recording from `input`.
pub fn open_input(mut input: Input) -> Result<Opened, TraceError> {
    let head = input.peek(HEAD)?;
    match read::READERS.iter().find(|r| (r.knows)(head)) {
        Some(reader) => (reader.open)(input),
        None => {
            let mut why = if head.is_empty() { "it is empty".to_owned() } else { begins(head) };
            if read::strace::is_without_times(head) {
                why += "; it looks like strace's output without times: run strace -f -ttt -T -y";
            }
            Err(TraceError::Unknown { path: input.path().to_owned(), why })
        }
    }
}

/// Opens a recording as one kind: a Perfetto trace has both block devices and a meter.
pub fn open_as(path: &Path, kind: Kind) -> Result<Opened, TraceError> {
    if kind == Kind::Power { open_input_as(Input::open(path)?, kind) } else { wanted(path, open(path)?, kind) }
}

/// The same from `input`.
pub fn open_input_as(mut input: Input, kind: Kind) -> Result<Opened, TraceError> {
    if kind == Kind::Power && (read::perfetto::READER.knows)(input.peek(HEAD)?) {
        return Ok(read::perfetto::open_power(input));
    }
    let path = input.path().to_owned();
    wanted(&path, open_input(input)?, kind)
}

fn wanted(path: &Path, opened: Opened, kind: Kind) -> Result<Opened, TraceError> {
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
