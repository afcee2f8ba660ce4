//! Which columns of a table have a request's time, operation and place, and in which units?
//!
//! Written as `time=1:us,op=2,offset=3:sector,bytes=4`; columns count from 1. [`Columns`] is the parsed text.

use std::fmt;
use std::str::FromStr;

use crate::block::{Op, SECTOR};

/// Most columns of a table that can be used.
pub(crate) const MOST: usize = 32;

/// The unit of a column of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Of(u64),
    /// A date and time.
    Date,
}

/// The operation of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// That of all lines.
    All(Op),
    /// In this column, with words of its own; `None` for lines that are left out.
    In(usize, Vec<(Vec<u8>, Option<Op>)>),
}

/// The columns of a table with one request per line. Places count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    text: String,
    pub(crate) time: Option<(usize, Unit)>,
    /// The time is that of the request's end.
    pub(crate) at_end: bool,
    pub(crate) op: Operation,
    /// With the bytes of its unit.
    pub(crate) offset: (usize, u64),
    /// With the bytes of its unit.
    pub(crate) bytes: (usize, u64),
    pub(crate) took: Option<(usize, Unit)>,
    pub(crate) device: Option<usize>,
    /// The machine of a device, or the device's major number.
    pub(crate) host: Option<usize>,
    pub(crate) pid: Option<usize>,
    pub(crate) process: Option<usize>,
}

/// Names in the text.
const NAMES: &str = "time, end, op, offset, bytes, took, device, host, pid, process";

impl Columns {
    /// Number of columns that a line needs.
    pub(crate) fn least(&self) -> usize {
        let op = if let Operation::In(at, _) = self.op { Some(at) } else { None };
        let some = [self.time.map(|t| t.0), op, self.took.map(|t| t.0), self.device, self.host, self.pid, self.process];
        let all = some.into_iter().flatten().chain([self.offset.0, self.bytes.0]);
        all.max().map_or(0, |at| at + 1)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A column's number.
fn place(name: &str, text: &str) -> Result<usize, String> {
    let n: usize = text.parse().map_err(|_| format!("{name}={text}: give the number of a column"))?;
    if !(1..=MOST).contains(&n) {
        return Err(format!("{name}={text}: columns are numbered from 1 to {MOST}"));
    }
    Ok(n - 1)
}

fn time(name: &str, text: &str) -> Result<Unit, String> {
    Ok(Unit::Of(match text {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        "100ns" => 100,
        "datetime" => return Ok(Unit::Date),
        _ => return Err(format!("{name}: unit {text:?} is unknown; there are s, ms, us, 100ns, ns and datetime")),
    }))
}

fn size(name: &str, text: &str) -> Result<u64, String> {
    Ok(match text {
        "byte" => 1,
        "sector" => SECTOR,
        "KiB" => 1024,
        "block" => 4096,
        _ => {
            return Err(format!(
                "{name}: unit {text:?} is unknown; there are byte, sector, KiB and block (4096 bytes)"
            ));
        }
    })
}

/// `None` for `skip`.
fn operation(text: &str) -> Result<Option<Op>, String> {
    Ok(Some(match text {
        "read" => Op::Read,
        "write" => Op::Write,
        "discard" => Op::Discard,
        "flush" => Op::Flush,
        "skip" => return Ok(None),
        _ => return Err(format!("op: {text:?} is unknown; there are read, write, discard, flush and skip")),
    }))
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut stamp, mut at_end, mut op, mut offset, mut bytes) = (None, false, None, None, None);
        let (mut took, mut device, mut host, mut pid, mut process) = (None, None, None, None, None);
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?}: give NAME=COLUMN"))?;
            let (at, rest) = value.split_once(':').map_or((value, None), |(at, rest)| (at, Some(rest)));
            let unit = rest.unwrap_or_default();
            let plain = || match rest {
                Some(unit) => Err(format!("{name}: it has no unit, but {unit:?} is given")),
                None => place(name, at),
            };
            let taken = match name {
                "time" | "end" => {
                    at_end |= name == "end";
                    let unit = if rest.is_none() { Unit::Of(1_000_000_000) } else { time(name, unit)? };
                    stamp.replace((place(name, at)?, unit)).is_some()
                }
                "took" => {
                    let unit = if rest.is_none() { Unit::Of(1_000_000_000) } else { time(name, unit)? };
                    if unit == Unit::Date {
                        return Err("took: it is a duration, not a date".into());
                    }
                    took.replace((place(name, at)?, unit)).is_some()
                }
                "offset" => {
                    let unit = if rest.is_none() { 1 } else { size(name, unit)? };
                    offset.replace((place(name, at)?, unit)).is_some()
                }
                "bytes" => {
                    let unit = if rest.is_none() { 1 } else { size(name, unit)? };
                    bytes.replace((place(name, at)?, unit)).is_some()
                }
                "op" if at.parse::<usize>().is_err() && rest.is_none() => {
                    let all = operation(at)?.ok_or("op=skip: nothing would be left")?;
                    op.replace(Operation::All(all)).is_some()
                }
                "op" => {
                    let mut words = Vec::new();
                    for word in rest.into_iter().flat_map(|rest| rest.split(':')) {
                        let (text, meaning) = word
                            .split_once('=')
                            .ok_or_else(|| format!("op: {word:?}: give TEXT=OPERATION, e.g. 0=read"))?;
                        words.push((text.as_bytes().to_vec(), operation(meaning)?));
                    }
                    op.replace(Operation::In(place(name, at)?, words)).is_some()
                }
                "device" => device.replace(plain()?).is_some(),
                "host" => host.replace(plain()?).is_some(),
                "pid" => pid.replace(plain()?).is_some(),
                "process" => process.replace(plain()?).is_some(),
                _ => return Err(format!("{name:?} is unknown; there are {NAMES}")),
            };
            if taken {
                return Err(format!("{name}: it is given twice"));
            }
        }
        let missing = |name| format!("{name} is missing; e.g. time=1:us,op=2,offset=3:sector,bytes=4");
        if at_end && took.is_none() {
            return Err("end: the start is end less took, so took is needed, too".into());
        }
        Ok(Columns {
            text: text.to_owned(),
            time: stamp,
            at_end,
            op: op.ok_or_else(|| missing("op"))?,
            offset: offset.ok_or_else(|| missing("offset"))?,
            bytes: bytes.ok_or_else(|| missing("bytes"))?,
            took,
            device,
            host,
            pid,
            process,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_places_and_units() {
        let all: Columns = "time=3:us,op=4:0=read:x=skip,offset=5:sector,bytes=6,device=1,pid=2".parse().unwrap();
        assert_eq!((all.time, all.offset, all.bytes), (Some((2, Unit::Of(1000))), (4, 512), (5, 1)));
        assert_eq!((all.device, all.pid, all.process, all.least()), (Some(0), Some(1), None, 6));
        let words = vec![(b"0".to_vec(), Some(Op::Read)), (b"x".to_vec(), None)];
        assert_eq!(all.op, Operation::In(3, words));
        let some: Columns = "op=write,offset=1:block,bytes=2:KiB".parse().unwrap();
        assert_eq!(
            (some.time, some.op, some.offset, some.bytes),
            (None, Operation::All(Op::Write), (0, 4096), (1, 1024))
        );
        assert!("end=1:s,took=2:ms,op=3,offset=4,bytes=5".parse::<Columns>().unwrap().at_end);
    }

    #[test]
    fn an_error_names_what_is_wrong() {
        for (text, what) in [
            ("", "NAME=COLUMN"),
            ("time=1", "op is missing"),
            ("time=1,op=2,offset=3", "bytes is missing"),
            ("op=2,op=3,offset=3,bytes=4", "op: it is given twice"),
            ("op=2,offset=0,bytes=4", "offset=0"),
            ("op=2,offset=33,bytes=4", "from 1 to 32"),
            ("op=2,offset=x,bytes=4", "offset=x"),
            ("op=2,offset=3:page,bytes=4", "byte, sector, KiB and block"),
            ("time=1:h,op=2,offset=3,bytes=4", "datetime"),
            ("op=2:0,offset=3,bytes=4", "TEXT=OPERATION"),
            ("op=2:0=reed,offset=3,bytes=4", "reed"),
            ("op=skip,offset=3,bytes=4", "nothing"),
            ("op=2,offset=3,bytes=4,device=1:x", "no unit"),
            ("lba=2", "there are time, end"),
            ("end=1,op=2,offset=3,bytes=4", "took"),
            ("took=1:datetime,op=2,offset=3,bytes=4", "duration"),
        ] {
            let error = text.parse::<Columns>().unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
