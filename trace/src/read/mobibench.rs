//! How are MobiBench's recordings of an Android app's system calls read, as MobiGen creates them from strace's output
//! (Jeong et al., the Mobibench tool)? `thread microseconds call arguments`.
//!
//! MobiGen writes one thread after the other, so the whole recording is read before the first call is returned, in
//! order of time; lines that stood behind a later one of their thread are counted. Long recordings are sorted in a
//! temporary file ([`by_time`](super::by_time)). Names of directories are held. The lines mean what they mean to its
//! replayer and its generator:
//!
//! * A descriptor belongs to all threads, from its open to its close. The last argument is the call's result: for
//!   example the bytes of a read.
//! * Only files opened for reading have their whole path, in quotation marks. OtherCounts have its first two parts; every
//!   such open is of a different file, here as in the replayer, named `unnamed-N` in that directory.
//! * `/data/data` without quotation marks was opened before the recording began; MobiGen inserts the open at the first
//!   use. If the descriptor belongs to an open file already, it is not opened again.
//! * Pipes and sockets are not marked. Files in `/dev`, `/proc` and `/sys` are only counted, and so are descriptors
//!   that were never opened.

use std::collections::BTreeSet;
use std::io;

use rustc_hash::FxHashMap;

use super::by_time::{Gathered, InOrder};
use super::decimal::{number, wrong};
use super::paths::{is_special, normal};
use crate::call::{Call, Calls, Handle, How, Op, Target};
use crate::names::count;
use crate::opened::Reader;
use crate::timing::Timing;
use crate::{Format, Input, Opened, OtherCounts, TraceError};

/// Recognised by a first line that parses, or one of the first lines if that one is cut.
pub(crate) const READER: Reader = Reader { knows, open };

/// MobiGen's path for a descriptor that is used without an open.
const OPENED_BEFORE: &[u8] = b"/data/data";

fn knows(head: &[u8]) -> bool {
    let first = head.split(|b| *b == b'\n').next().unwrap_or_default();
    matches!(line(first), Ok(Line { what: What::Known(..), .. }))
}

fn open(input: Input) -> Result<Opened, TraceError> {
    Ok(Opened::Calls(Box::new(Recording {
        input,
        lines: None,
        line: Vec::new(),
        directories: BTreeSet::new(),
        end: None,
        open: FxHashMap::default(),
        handles: 0,
        unnamed: 0,
        others: OtherCounts::new(),
        timing: Timing::default(),
    })))
}

/// Calls supported by the replayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Open,
    Close,
    Read,
    ReadAt,
    Write,
    WriteAt,
    Sync,
    DataSync,
    Stat,
    StatOpen,
    Unlink,
}

/// Calls by name, for 32-bit and 64-bit systems.
fn known(name: &[u8]) -> Option<Name> {
    Some(match name {
        b"open" => Name::Open,
        b"close" => Name::Close,
        b"read" | b"readv" => Name::Read,
        b"pread" | b"pread64" => Name::ReadAt,
        b"write" | b"writev" => Name::Write,
        b"pwrite" | b"pwrite64" => Name::WriteAt,
        b"fsync" => Name::Sync,
        b"fdatasync" => Name::DataSync,
        b"access" | b"stat" | b"stat64" | b"lstat" | b"lstat64" => Name::Stat,
        b"fstat" | b"fstat64" => Name::StatOpen,
        b"unlink" => Name::Unlink,
        _ => return None,
    })
}

enum What<'a> {
    Known(Name, Arguments<'a>),
    /// A call that MobiGen records and the replayer ignores.
    Other(&'a [u8]),
}

/// The arguments of a call; missing ones are empty or 0.
struct Arguments<'a> {
    fd: u64,
    path: &'a [u8],
    flags: &'a [u8],
    at: u64,
    /// Its result; `None` if it failed.
    returned: Option<u64>,
}

struct Line<'a> {
    thread: u32,
    microseconds: u64,
    what: What<'a>,
}

/// The text up to the next space, and the rest.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

/// The text after the last space, and the text before it.
fn last(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b' ', text) {
        Some(at) => (&text[at + 1..], &text[..at]),
        None => (text, &[]),
    }
}

fn line(text: &[u8]) -> Result<Line<'_>, String> {
    let (thread, rest) = word(text);
    let (time, rest) = word(rest);
    let (name, rest) = word(rest);
    let thread =
        number(thread).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong("the number of the thread", thread))?;
    let microseconds = number(time).filter(|n| n.checked_mul(1000).is_some()).ok_or_else(|| wrong("the time", time))?;
    let is_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    if name.is_empty() || !name.iter().all(is_name) {
        return Err(wrong("the call", name));
    }
    let what = match known(name) {
        None => What::Other(name),
        Some(known) => What::Known(known, arguments(known, rest)?),
    };
    Ok(Line { thread, microseconds, what })
}

fn arguments(name: Name, text: &[u8]) -> Result<Arguments<'_>, String> {
    let (returned, rest) = last(text);
    let mut out = Arguments { fd: 0, path: &[], flags: &[], at: 0, returned: None };
    out.returned = match returned.strip_prefix(b"-") {
        Some(error) => number(error).map(|_| None),
        None => number(returned).map(Some),
    }
    .ok_or_else(|| wrong("what the call returned", returned))?;
    let fd = |text| number(text).ok_or_else(|| wrong("the descriptor", text));
    match name {
        Name::Open => (out.flags, out.path) = last(rest),
        Name::Stat | Name::Unlink => out.path = rest,
        Name::ReadAt | Name::WriteAt => {
            let (at, rest) = last(rest);
            out.fd = fd(rest)?;
            out.at = number(at).ok_or_else(|| wrong("the offset", at))?;
        }
        _ => out.fd = fd(rest)?,
    }
    if matches!(name, Name::Open | Name::Stat | Name::Unlink) && out.path.is_empty() {
        return Err("it has no path".into());
    }
    if name == Name::Open && !out.flags.starts_with(b"O_") {
        return Err(wrong("the flags", out.flags));
    }
    Ok(out)
}

/// Meaning of a path in the recording.
enum Place {
    Whole(Vec<u8>),
    /// A file in this directory or below.
    Within(Vec<u8>),
    OpenedBefore,
}

fn place(text: &[u8]) -> Place {
    if text == OPENED_BEFORE {
        return Place::OpenedBefore;
    }
    if let Some(quoted) = text.strip_prefix(b"\"") {
        return Place::Whole(normal(b"/", quoted.strip_suffix(b"\"").unwrap_or(quoted)));
    }
    // The first two parts of a quoted path; the closing quote is present if the path has no more.
    match memchr::memchr(b'"', text) {
        Some(end) => Place::Whole(normal(b"/", &text[..end])),
        None => Place::Within(normal(b"/", text)),
    }
}

fn how(flags: &[u8]) -> How {
    let mut how = How::READ;
    for flag in flags.split(|b| *b == b'|') {
        match flag {
            b"O_WRONLY" => how = (how - How::READ) | How::WRITE,
            b"O_RDWR" => how |= How::WRITE,
            b"O_CREAT" => how |= How::CREATE,
            b"O_TRUNC" => how |= How::TRUNCATE,
            b"O_APPEND" => how |= How::APPEND,
            b"O_EXCL" => how |= How::EXCLUSIVE,
            b"O_SYNC" => how |= How::SYNC,
            b"O_DSYNC" => how |= How::DATA_SYNC,
            b"O_DIRECTORY" => how |= How::DIRECTORY,
            _ => {}
        }
    }
    how
}

struct Recording {
    input: Input,
    /// The lines by time, after all were read; and the current one.
    lines: Option<InOrder>,
    line: Vec<u8>,
    /// Directories in the recording's paths.
    directories: BTreeSet<Vec<u8>>,
    /// Why the lines end.
    end: Option<TraceError>,
    /// Open files by descriptor; `None` for other than regular files.
    open: FxHashMap<u64, Option<Handle>>,
    handles: u64,
    unnamed: u64,
    others: OtherCounts,
    /// Counts lines that stood behind a later one of their thread.
    timing: Timing,
}

impl Recording {
    fn load(&mut self) -> io::Result<InOrder> {
        const FORMAT: Format = Format::Mobibench;
        let mut lines = Gathered::default();
        // Threads follow each other; the lines of each are in order, or out of order.
        let mut latest: FxHashMap<u32, u64> = FxHashMap::default();
        loop {
            let text = match self.input.line(FORMAT) {
                Ok(Some(text)) => text,
                Ok(None) => break,
                Err(e) => {
                    self.end = Some(e);
                    break;
                }
            };
            let read = match text {
                b"" => Ok(None),
                text => line(text).map(Some),
            };
            let read = read.map(|line| {
                line.map(|line| {
                    self.line.clear();
                    self.line.extend_from_slice(text);
                    if let What::Known(Name::Open | Name::Stat | Name::Unlink, Arguments { path, .. }) = line.what
                        && let Place::Whole(path) = place(path)
                    {
                        let mut above = &path[..];
                        while let Some(slash) = memchr::memrchr(b'/', above).filter(|at| *at > 0) {
                            above = &above[..slash];
                            if !self.directories.insert(above.to_vec()) {
                                break;
                            }
                        }
                    }
                    (line.thread, line.microseconds)
                })
            });
            let at = self.input.at_line();
            if self.input.ended_without_newline() {
                self.end = Some(self.input.cut_short(FORMAT, at));
                break;
            }
            match read {
                Ok(Some((thread, time))) => {
                    let latest = latest.entry(thread).or_insert(time);
                    self.timing.in_order(latest, time, 1000);
                    lines.push(time, &self.line)?;
                }
                Ok(None) => self.count("empty lines"),
                Err(what) => {
                    if let Err(e) = self.input.skip_line(FORMAT, what, &mut self.others) {
                        self.end = Some(e);
                        break;
                    }
                }
            }
        }
        lines.in_order()
    }

    /// Reads the next line into `self.line`; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let mut lines = match self.lines.take() {
            Some(lines) => lines,
            None => self.load()?,
        };
        let there = lines.next(&mut self.line)?.is_some();
        self.lines = Some(lines);
        Ok(there)
    }

    fn count(&mut self, what: &str) {
        count(&mut self.others, what);
    }

    /// An unused handle.
    fn handle(&mut self) -> Handle {
        self.handles += 1;
        Handle(self.handles)
    }

    /// An open, if it is of a file.
    fn opened(&mut self, path: &[u8], flags: &[u8], fd: Option<u64>) -> Option<Op> {
        let mut how = how(flags);
        let path = match place(path) {
            Place::Whole(path) => path,
            Place::OpenedBefore if fd.is_some_and(|fd| self.open.contains_key(&fd)) => {
                self.count("MobiGen's opens of files that are open");
                return None;
            }
            Place::OpenedBefore => {
                how = How::READ | How::WRITE;
                self.next_unnamed(OPENED_BEFORE.to_vec())
            }
            Place::Within(directory) => self.next_unnamed(directory),
        };
        if is_special(&path) {
            if let Some(fd) = fd {
                self.open.insert(fd, None);
            }
            self.count("open of no regular file");
            return None;
        }
        if self.directories.contains(&path) {
            how |= How::DIRECTORY;
        }
        let handle = self.handle();
        if let Some(fd) = fd {
            self.open.insert(fd, Some(handle));
        }
        Some(Op::Open { handle, path, how })
    }

    fn next_unnamed(&mut self, mut directory: Vec<u8>) -> Vec<u8> {
        self.unnamed += 1;
        directory.extend_from_slice(format!("/unnamed-{}", self.unnamed).as_bytes());
        directory
    }

    fn op(&mut self, name: Name, of: &Arguments<'_>) -> Option<Op> {
        match name {
            Name::Open => return self.opened(of.path, of.flags, of.returned),
            Name::Stat | Name::Unlink => {
                let (Place::Whole(path) | Place::Within(path)) = place(of.path) else {
                    // Without quotation marks it is an ordinary directory.
                    let path = OPENED_BEFORE.to_vec();
                    return Some(Op::Stat { file: Target::Path(path) });
                };
                if is_special(&path) {
                    self.count("look at no regular file");
                    return None;
                }
                return Some(match name {
                    Name::Unlink => Op::Unlink { path },
                    _ => Op::Stat { file: Target::Path(path) },
                });
            }
            _ => {}
        }
        let handle = match self.open.get(&of.fd) {
            Some(Some(handle)) => *handle,
            Some(None) => {
                self.count("calls on no regular file");
                if name == Name::Close {
                    self.open.remove(&of.fd);
                }
                return None;
            }
            None => {
                self.count("calls on descriptors that nobody opened");
                return None;
            }
        };
        let bytes = of.returned.unwrap_or(0);
        Some(match name {
            Name::Close => {
                self.open.remove(&of.fd);
                Op::Close { handle }
            }
            Name::Read => Op::Read { handle, at: None, bytes },
            Name::ReadAt => Op::Read { handle, at: Some(of.at), bytes },
            Name::Write => Op::Write { handle, at: None, bytes },
            Name::WriteAt => Op::Write { handle, at: Some(of.at), bytes },
            Name::DataSync => Op::Sync { handle, data_only: true },
            Name::StatOpen => Op::Stat { file: Target::Open(handle) },
            _ => Op::Sync { handle, data_only: false },
        })
    }
}

impl Calls for Recording {
    fn format(&self) -> Format {
        Format::Mobibench
    }

    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        loop {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(source) => {
                    // Nothing follows.
                    (self.lines, self.end) = (Some(InOrder::none()), None);
                    return Err(TraceError::Io { path: self.input.path().to_owned(), source });
                }
            }
            let text = std::mem::take(&mut self.line);
            let read = line(&text).map(|Line { thread, microseconds, what }| match what {
                What::Other(name) => {
                    self.count(&String::from_utf8_lossy(name));
                    None
                }
                What::Known(name, of) => self.op(name, &of).map(|op| Call {
                    time: microseconds * 1000,
                    thread,
                    op,
                    took: None,
                    failed: of.returned.is_none().then(|| "unknown".to_owned()),
                }),
            });
            self.line = text;
            // Every line parsed before and parses again.
            if let Ok(Some(call)) = read {
                return Ok(Some(call));
            }
        }
        match self.end.take() {
            Some(e) => Err(e),
            None => Ok(None),
        }
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn timing(&self) -> Timing {
        self.timing
    }
    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
