//! How is fio's iolog read, version 2 and 3 (`write_iolog`, `read_iolog`)? It has a job's requests to its files.
//!
//! Every file is a device, numbered from 0,0 in the order of `add`; [`Events::device`](crate::block::Events::device)
//! returns its name. Each line becomes an issue; `sync`, `datasync` and `syncfs` are flushes, `trim` is a discard. A
//! range that is not aligned to sectors is widened, and counted.
//!
//! Version 3 has microseconds since the job began on every line. Version 2 has no times except `wait`: when fio 3
//! replays it, the number is milliseconds since fio began, although its manual documents microseconds since the
//! previous wait; here it is what fio does. `write_iolog` appends: later runs in the same file follow the earlier ones.

use rustc_hash::FxHashMap;

use super::decimal::{number, wrong};
use super::extent::sectors;
use super::rows::{Read, Row, Rows};
use crate::block::{Action, DeviceId, Event, Flags, Op};
use crate::opened::Reader;
use crate::{Format, Input, Opened, OtherCounts, Process, TraceError};

/// The first lines.
const VERSION_2: &[u8] = b"fio version 2 iolog";
const VERSION_3: &[u8] = b"fio version 3 iolog";

/// Recognised by its first line.
pub(crate) const READER: Reader = Reader { knows, open };

fn knows(head: &[u8]) -> bool {
    [VERSION_2, VERSION_3]
        .iter()
        .any(|v| head.strip_prefix(*v).is_some_and(|rest| rest.first().is_none_or(|b| b"\r\n".contains(b))))
}

fn open(input: Input) -> Result<Opened, TraceError> {
    Ok(Opened::Blocks(Box::new(Rows::new(input, Log::default()))))
}

#[derive(Default)]
struct Log {
    version: u8,
    files: Vec<Vec<u8>>,
    numbers: FxHashMap<Vec<u8>, u32>,
    /// Start of this run, in microseconds.
    began: u64,
    /// Time of the last line, in microseconds.
    time: u64,
    /// True if a line had a time or a wait.
    timed: bool,
}

/// The text after the last space, and the text before it.
fn last(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memrchr(b' ', text)?;
    Some((&text[..at], &text[at + 1..]))
}

impl Log {
    fn moment(&mut self, since_began: u64) -> Result<(), String> {
        self.time = self
            .began
            .checked_add(since_began)
            .filter(|t| t.checked_mul(1000).is_some())
            .ok_or_else(|| format!("a time of {since_began}"))?;
        Ok(())
    }

    fn file(&self, name: &[u8]) -> Result<u32, String> {
        self.numbers.get(name).copied().ok_or_else(|| format!("{}, which was not added", wrong("the file", name)))
    }

    fn manage(&mut self, name: &[u8], action: &[u8]) -> Result<Read<'static>, String> {
        match action {
            b"add" => {
                if !self.numbers.contains_key(name) {
                    let number = u32::try_from(self.files.len()).map_err(|_| "one file too many".to_owned())?;
                    self.numbers.insert(name.to_vec(), number);
                    self.files.push(name.to_vec());
                }
                Ok(Read::Other("files added"))
            }
            b"open" => self.file(name).map(|_| Read::Other("opens of files")),
            _ => self.file(name).map(|_| Read::Other("closes of files")),
        }
    }
}

impl Row for Log {
    fn format(&self) -> Format {
        Format::FioIolog
    }

    fn read<'a>(&mut self, line: &'a [u8], others: &mut OtherCounts) -> Result<Read<'a>, String> {
        if line == VERSION_2 || line == VERSION_3 {
            let first = self.version == 0;
            self.version = if line == VERSION_2 { 2 } else { 3 };
            self.began = self.time;
            return Ok(if first { Read::Nothing } else { Read::Other("further runs") });
        }
        let mut rest = line;
        if self.version == 3 {
            let space = memchr::memchr(b' ', line).unwrap_or(line.len());
            let time = number(&line[..space]).ok_or_else(|| wrong("the time", &line[..space]))?;
            self.timed = true;
            self.moment(time)?;
            rest = line.get(space + 1..).unwrap_or_default();
        }
        let Some((before, end)) = last(rest) else {
            return Err(wrong("the line", rest));
        };
        if matches!(end, b"add" | b"open" | b"close") {
            return self.manage(before, end);
        }
        let Some((name, action, offset)) =
            last(before).and_then(|(before, offset)| last(before).map(|(name, action)| (name, action, offset)))
        else {
            return Err(wrong("the action", end));
        };
        let from = number(offset).ok_or_else(|| wrong("the offset", offset))?;
        let bytes = number(end).ok_or_else(|| wrong("the length", end))?;
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"sync" | b"datasync" | b"syncfs" => Op::Flush,
            b"trim" => Op::Discard,
            b"sync_file_range" => return self.file(name).map(|_| Read::Other("sync_file_range")),
            b"wait" if self.version == 2 => {
                self.file(name)?;
                // No wait if that time has passed.
                let until = from.checked_mul(1000).ok_or_else(|| wrong("the wait", offset))?;
                self.moment(until.max(self.time - self.began))?;
                self.timed = true;
                return Ok(Read::Other("waits"));
            }
            other => return Err(wrong("the action", other)),
        };
        let minor = self.file(name)?;
        let (sector, sectors) = match op {
            Op::Flush => (0, 0),
            _ => sectors(from, bytes, others).ok_or_else(|| format!("{from} and {bytes} have no sum"))?,
        };
        let event = Event {
            time: self.time * 1000,
            action: Action::Issue,
            op,
            flags: Flags::empty(),
            sector,
            sectors,
            device: DeviceId { major: 0, minor },
            cpu: 0,
            pid: 0,
            process: Process::default(),
            took: None,
            error: 0,
            writing: Default::default(),
            from: None,
        };
        Ok(Read::Event(event, b""))
    }

    fn timed(&self) -> bool {
        self.timed
    }

    fn device(&self, id: DeviceId) -> Option<String> {
        let name = self.files.get(usize::try_from(id.minor).ok()?)?;
        (id.major == 0).then(|| String::from_utf8_lossy(name).into_owned())
    }
}
