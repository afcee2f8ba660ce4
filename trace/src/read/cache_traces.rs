//! How are the binary recordings of block devices read that simulators of caches use? Their records have a fixed size and
//! the low byte first (libCacheSim, `traceReader/customizedReader/vscsi.h` and `oracle/oracleGeneralBin.h`).
//!
//! * VMware's vscsi traces, in two versions: command, length in bytes, first sector, microseconds. A command is a SCSI
//!   command; reads and writes are requests, the others are counted.
//! * oracleGeneral, 24 bytes: seconds, an object, its size in bytes, and when it is requested next. Traces of block
//!   devices have the first sector as object. They have no operation, so each request is taken as a read. Objects that
//!   are no sectors (hashes) belong to caches of other things: such a trace is refused.

use super::extent::sectors;
use crate::block::{Action, DeviceId, Event, Events, Flags, Op, SECTOR};
use crate::names::count;
use crate::opened::Reader;
use crate::{Format, Input, Names, Opened, OtherCounts, Process, TraceError};

/// Records looked at.
const FIRST: usize = 32;
/// Largest request, and first sector that no device has.
const LONGEST: u32 = 1 << 28;
const END: u64 = 1 << 42;

/// A vscsi trace: recognised by the version in its first records.
pub(crate) const VSCSI: Reader = Reader {
    knows: |head| vscsi(head).is_some(),
    open: |mut input| {
        let form = vscsi(input.peek(FIRST * Form::Vscsi2.size())?);
        Ok(open(input, form.unwrap_or(Form::Vscsi2)))
    },
};
/// An oracleGeneral trace, which has no mark: the fields of its first records must make sense.
pub(crate) const ORACLE_GENERAL: Reader =
    Reader { knows: is_oracle, open: |input| Ok(open(input, Form::OracleGeneral)) };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Vscsi1,
    Vscsi2,
    OracleGeneral,
}

impl Form {
    fn size(self) -> usize {
        match self {
            Form::Vscsi1 => 32,
            Form::Vscsi2 => 40,
            Form::OracleGeneral => 24,
        }
    }

    fn format(self) -> Format {
        if self == Form::OracleGeneral { Format::OracleGeneral } else { Format::Vscsi }
    }
}

/// The bytes at this place, or zeroes.
fn bytes<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

fn small(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(record, at))
}

fn large(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(record, at))
}

fn short(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(record, at))
}

fn vscsi(head: &[u8]) -> Option<Form> {
    [(Form::Vscsi2, 2, 2_u16), (Form::Vscsi1, 14, 1)].into_iter().find_map(|(form, place, version)| {
        let mut records = head.chunks_exact(form.size()).take(FIRST).map(|record| short(record, place) >> 8 == version);
        (head.len() >= 2 * form.size() && records.all(|fits| fits)).then_some(form)
    })
}

fn is_oracle(head: &[u8]) -> bool {
    let mut before = 0;
    let fits = |(n, record): (usize, &[u8])| {
        let (time, size, next) = (small(record, 0), small(record, 12), large(record, 16) as i64);
        let in_order = time >= std::mem::replace(&mut before, time);
        in_order
            && (1..LONGEST).contains(&size)
            && (next == -1 || next == i64::MAX || (next > n as i64 && next < 1 << 40))
    };
    let mut records = head.chunks_exact(Form::OracleGeneral.size()).take(FIRST).enumerate();
    head.len() >= 2 * Form::OracleGeneral.size() && records.all(fits)
}

struct Records {
    input: Input,
    form: Form,
    names: Names,
    others: OtherCounts,
    ended: bool,
}

fn open(input: Input, form: Form) -> Opened {
    let (names, others) = (Names::default(), OtherCounts::new());
    Opened::Blocks(Box::new(Records { input, form, names, others, ended: false }))
}

/// A SCSI command.
fn command(code: u16) -> Option<Op> {
    Some(match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
        0x35 | 0x91 => Op::Flush,
        _ => return None,
    })
}

/// A record; `Ok(None)` for one that is counted.
fn read(form: Form, record: &[u8], others: &mut OtherCounts) -> Result<Option<Event>, String> {
    let (time, op, first, length) = match form {
        Form::Vscsi1 => (large(record, 24), command(short(record, 12)), large(record, 16), small(record, 4)),
        Form::Vscsi2 => (large(record, 24), command(short(record, 0)), large(record, 16), small(record, 8)),
        Form::OracleGeneral => {
            (u64::from(small(record, 0)) * 1_000_000, Some(Op::Read), large(record, 4), small(record, 12))
        }
    };
    let Some(op) = op else {
        count(others, "other SCSI commands");
        return Ok(None);
    };
    if first >= END {
        return Err(format!("sector {first} is on no device; objects of other caches are not read"));
    }
    let time = time.checked_mul(1000).ok_or_else(|| format!("the time is {time} us"))?;
    if form == Form::OracleGeneral {
        count(others, "requests without an operation, taken as reads");
    }
    let bytes = if op == Op::Flush { 0 } else { u64::from(length) };
    let (sector, sectors) = sectors(first * SECTOR, bytes, others).ok_or("a range without an end")?;
    Ok(Some(Event {
        time,
        action: Action::Issue,
        op,
        flags: Flags::empty(),
        sector: if op == Op::Flush { 0 } else { sector },
        sectors,
        device: DeviceId::default(),
        cpu: 0,
        pid: 0,
        process: Process::default(),
        took: None,
        error: 0,
        writing: Default::default(),
        from: None,
    }))
}

impl Events for Records {
    fn format(&self) -> Format {
        self.form.format()
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let format = self.form.format();
        // After an error below, nothing follows.
        while !std::mem::replace(&mut self.ended, true) {
            let (size, at) = (self.form.size(), self.input.at_byte());
            let record = self.input.peek(size)?;
            if record.is_empty() {
                break;
            }
            if record.len() < size {
                return Err(self.input.cut_short(format, at));
            }
            let event = read(self.form, record, &mut self.others);
            self.input.take(size);
            let event = event.map_err(|what| self.input.damaged(format, at, what))?;
            self.ended = false;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
