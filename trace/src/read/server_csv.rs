//! How are widely used block traces of servers read? Microsoft Research Cambridge (Narayanan et al., FAST'08) and
//! enterprise virtual desktops (Lee et al., SYSTOR'17), both from SNIA's IOTTA repository.
//!
//! * `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: times in units of 100 ns since 1601, as in Windows;
//!   `Read` or `Write`; bytes. A host is a major number, in order of appearance.
//! * `Timestamp,Response,IOType,LUN,Offset,Size`: seconds since 1970; `R`, `W`, or empty if the answer was not seen,
//!   which is only counted. An invalid response time (packets were lost) is left out, and counted.
//!
//! The header is optional in both. A line is a request from its issue to its completion. Ranges that are not aligned to
//! sectors are widened, and counted.

use super::decimal::{nanoseconds, number, wrong};
use super::extent::sectors;
use super::rows::{Read, Row, Rows};
use crate::block::{Action, DeviceId, Event, Flags, Op};
use crate::names::count;
use crate::opened::Reader;
use crate::{Format, Input, Names, Opened, OtherCounts, Process, TraceError};

/// Recognised by header or first line.
pub(crate) const MSR: Reader =
    Reader { knows: |head| knows(&mut Msr::default(), head), open: |i| open(i, Msr::default()) };
/// Recognised by header or first line.
pub(crate) const SYSTOR: Reader = Reader { knows: |head| knows(&mut Systor, head), open: |i| open(i, Systor) };

trait Server: Row {
    const HEADER: &'static [u8];
}

fn first_line(head: &[u8]) -> &[u8] {
    let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn knows<R: Server>(row: &mut R, head: &[u8]) -> bool {
    let line = first_line(head);
    line == R::HEADER || row.read(line, &mut OtherCounts::new()).is_ok()
}

fn open<R: Server + 'static>(mut input: Input, row: R) -> Result<Opened, TraceError> {
    if first_line(input.peek(R::HEADER.len() + 2)?) == R::HEADER {
        input.line(R::FORMAT)?;
    }
    Ok(Opened::Blocks(Box::new(Rows::new(input, row))))
}

fn fields<const N: usize>(line: &[u8]) -> Option<[&[u8]; N]> {
    let mut out = [&[][..]; N];
    let mut rest = line;
    for field in &mut out[..N - 1] {
        let comma = memchr::memchr(b',', rest)?;
        *field = &rest[..comma];
        rest = &rest[comma + 1..];
    }
    out[N - 1] = rest;
    memchr::memchr(b',', rest).is_none().then_some(out)
}

/// First sector and number of sectors.
fn extent(offset: &[u8], size: &[u8], others: &mut OtherCounts) -> Result<(u64, u64), String> {
    let from = number(offset).ok_or_else(|| wrong("Offset", offset))?;
    let bytes = number(size).ok_or_else(|| wrong("Size", size))?;
    sectors(from, bytes, others).ok_or_else(|| format!("Offset and Size have no sum: {from} and {bytes}"))
}

/// Hosts by name.
#[derive(Default)]
struct Msr {
    hosts: Names,
}

impl Server for Msr {
    const HEADER: &'static [u8] = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
}

impl Row for Msr {
    const FORMAT: Format = Format::MsrCsv;

    fn read<'a>(&mut self, line: &'a [u8], others: &mut OtherCounts) -> Result<Read<'a>, String> {
        let Some([time, host, disk, op, offset, size, took]) = fields::<7>(line) else {
            return Err("it has not 7 columns".into());
        };
        let op = match op {
            b"Read" => Op::Read,
            b"Write" => Op::Write,
            other => return Err(wrong("Type", other)),
        };
        let hundreds = |name, text| number(text).and_then(|n: u64| n.checked_mul(100)).ok_or_else(|| wrong(name, text));
        let time = hundreds("Timestamp", time)?;
        let took = hundreds("ResponseTime", took)?;
        let minor = number(disk).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong("DiskNumber", disk))?;
        let (sector, sectors) = extent(offset, size, others)?;
        let major = self.hosts.number(host).0;
        Ok(Read::Event(request(time, op, (sector, sectors), DeviceId { major, minor }, Some(took)), b""))
    }

    fn device(&self, id: DeviceId) -> Option<String> {
        Some(self.hosts.name(Process(id.major))).filter(|n| !n.is_empty()).map(|host| format!("{host} {}", id.minor))
    }
}

struct Systor;

impl Server for Systor {
    const HEADER: &'static [u8] = b"Timestamp,Response,IOType,LUN,Offset,Size";
}

impl Row for Systor {
    const FORMAT: Format = Format::SystorCsv;

    fn read<'a>(&mut self, line: &'a [u8], others: &mut OtherCounts) -> Result<Read<'a>, String> {
        let Some([time, took, op, lun, offset, size]) = fields::<6>(line) else {
            return Err("it has not 6 columns".into());
        };
        let time = nanoseconds(time).ok_or_else(|| wrong("Timestamp", time))?;
        let op = match op {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"" => Op::Other,
            other => return Err(wrong("IOType", other)),
        };
        let took = match nanoseconds(took) {
            Some(took) => Some(took),
            // "irregular response times are included" (its README): negative or empty.
            None if took.is_empty() || took.strip_prefix(b"-").is_some_and(|t| nanoseconds(t).is_some()) => {
                count(others, "impossible times of response");
                None
            }
            None => return Err(wrong("Response", took)),
        };
        let minor = number(lun).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong("LUN", lun))?;
        let extent = extent(offset, size, others)?;
        if op == Op::Other {
            return Ok(Read::Other("requests whose answer was not seen"));
        }
        Ok(Read::Event(request(time, op, extent, DeviceId { major: 0, minor }, took), b""))
    }
}

fn request(time: u64, op: Op, extent: (u64, u64), device: DeviceId, took: Option<u64>) -> Event {
    Event {
        time,
        action: Action::Issue,
        op,
        flags: Flags::empty(),
        sector: extent.0,
        sectors: extent.1,
        device,
        cpu: 0,
        pid: 0,
        process: Process::default(),
        took,
        error: 0,
        writing: Default::default(),
        from: None,
    }
}
