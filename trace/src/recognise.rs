//! Which format is this? By content; names of files are not looked at.

use std::fmt;
use std::path::Path;

use crate::{At, Input, TraceError, block, call, power, read};

/// Bytes of the beginning that recognition looks at.
const HEAD: usize = 64 << 10;

/// A format that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Our own recordings of a block device.
    JouleRec,
    /// Linux blktrace, binary, version 7 (48-byte records) and 8 (`blk_io_trace2`, 64-byte records).
    Blktrace,
    /// What blkparse prints.
    Blkparse,
    /// The kernel's trace file (`/sys/kernel/tracing/trace`), `trace-cmd report`, Android systrace.
    Ftrace,
    /// What `trace-cmd record` writes.
    TraceDat,
    /// A Perfetto trace, its block, UFS and file system events.
    Perfetto,
    /// The power rails of a Perfetto trace.
    PerfettoPower,
    /// fio's iolog, version 2 and 3.
    FioIolog,
    /// Microsoft Research Cambridge traces (SNIA IOTTA): `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
    MsrCsv,
    /// SYSTOR'17 traces (SNIA IOTTA): `Timestamp,Response,IOType,LUN,Offset,Size`.
    SystorCsv,
    /// Mobile block traces (SYSTOR'24): `proces,device,rw_flag,sector,size,timestamp`.
    MobileCsv,
    /// dm-log-writes of Linux, and QEMU's blklogwrites.
    LogWrites,
    /// MobiBench's recordings of an app's system calls.
    Mobibench,
    /// `strace -f -ttt`.
    Strace,
    /// Monsoon power monitor, as PyMonsoon writes it.
    MonsoonCsv,
    /// powermonitor-hvpm.
    HvpmCsv,
    /// `joulefs energy measure`.
    JoulesCsv,
}

impl Format {
    /// In words, for errors and tables.
    pub fn text(self) -> &'static str {
        match self {
            Format::JouleRec => "recording",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse text",
            Format::Ftrace => "ftrace text",
            Format::TraceDat => "trace.dat",
            Format::Perfetto => "Perfetto",
            Format::PerfettoPower => "Perfetto power rails",
            Format::FioIolog => "fio iolog",
            Format::MsrCsv => "MSR Cambridge CSV",
            Format::SystorCsv => "SYSTOR'17 CSV",
            Format::MobileCsv => "mobile block CSV",
            Format::LogWrites => "write log",
            Format::Mobibench => "MobiBench",
            Format::Strace => "strace",
            Format::MonsoonCsv => "Monsoon CSV",
            Format::HvpmCsv => "powermonitor-hvpm CSV",
            Format::JoulesCsv => "CSV of joules",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What a recording is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Requests to block devices.
    Blocks,
    /// Calls to a file system.
    Calls,
    /// A meter.
    Power,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Blocks => "block devices",
            Kind::Calls => "calls to a file system",
            Kind::Power => "a meter",
        })
    }
}

/// A recording that was opened.
pub enum Opened {
    /// Of block devices.
    Blocks(Box<dyn block::Events>),
    /// Of a file system.
    Calls(Box<dyn call::Calls>),
    /// Of a meter.
    Power(Box<dyn power::Readings>),
}

impl Opened {
    /// What it is of.
    pub fn kind(&self) -> Kind {
        match self {
            Opened::Blocks(_) => Kind::Blocks,
            Opened::Calls(_) => Kind::Calls,
            Opened::Power(_) => Kind::Power,
        }
    }

    /// What it is read as.
    pub fn format(&self) -> Format {
        match self {
            Opened::Blocks(blocks) => blocks.format(),
            Opened::Calls(calls) => calls.format(),
            Opened::Power(power) => power.format(),
        }
    }
}

/// How a format is recognised and opened.
pub(crate) struct Reader {
    /// True if the beginning of a recording (up to 64 KiB of it) is of this format, and of no other.
    pub(crate) knows: fn(&[u8]) -> bool,
    /// Reads from the beginning.
    pub(crate) open: fn(Input) -> Result<Opened, TraceError>,
}

/// Opens a recording; `-` is standard input. One of the files that blktrace makes, one a processor
/// (`sda.blktrace.0`), or what their names have in common (`sda`) stands for all of them.
pub fn open(path: &Path) -> Result<Opened, TraceError> {
    let files = read::blktrace::of_all_processors(path);
    if !files.is_empty()
        && let Some(opened) = read::blktrace::open(&files)?
    {
        return Ok(opened);
    }
    open_input(Input::open(path)?)
}

/// Opens what is read from `input`.
pub fn open_input(mut input: Input) -> Result<Opened, TraceError> {
    let head = input.peek(HEAD)?;
    match read::READERS.iter().find(|r| (r.knows)(head)) {
        Some(reader) => (reader.open)(input),
        None => {
            let why = if head.is_empty() { "it is empty".to_owned() } else { begins(head) };
            Err(TraceError::Unknown { path: input.path().to_owned(), why })
        }
    }
}

/// Opens a recording for one of the things it may be of: a Perfetto trace has block devices and a meter.
pub fn open_as(path: &Path, kind: Kind) -> Result<Opened, TraceError> {
    if kind == Kind::Power { open_input_as(Input::open(path)?, kind) } else { wanted(path, open(path)?, kind) }
}

/// Opens what is read from `input` for one of the things it may be of.
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
    let what = format!("this is a recording of {}, and one of {kind} is wanted", opened.kind());
    Err(TraceError::Unsupported { path: path.to_owned(), format: opened.format(), at: At::Byte(0), what })
}

/// What the beginning looks like, in words.
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
