//! How are write logs read? Linux's device-mapper target log-writes and QEMU's `blklogwrites` log all writes to a disk
//! in order, to test what survives a power loss.
//!
//! The first sector of the log has the sector size and the number of entries. Each entry takes one sector, followed by
//! the written sectors. All numbers are little-endian. An entry counts sectors of the log's size from the beginning of
//! the disk; there are no times, no processes, no reads.
//!
//! The number of entries is updated at intervals: with marks and FUA writes, by QEMU with flushes and every 4096th
//! entry. Data after the last counted entry may be from an earlier log, so it is not read, only counted.
//!
//! Left out: the contents, and the text of marks.

use crate::block::{Action, DeviceId, Event, Events, Flags, Op, SECTOR};
use crate::names::count;
use crate::opened::Reader;
use crate::{Format, Input, Names, Opened, OtherCounts, Process, TraceError};

/// The first eight bytes: `WRITE_LOG_MAGIC`.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// The only version.
const VERSION: u64 = 1;
/// Size of an entry's numbers, and of the first sector's numbers up to the sector size.
const HEAD: usize = 32;
/// QEMU's largest sector.
const LARGEST: u64 = 8 << 20;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const METADATA: u64 = 16;

pub(super) const READER: Reader = Reader {
    knows: |head| head.starts_with(&MAGIC.to_le_bytes()),
    open: |input| Ok(Opened::Blocks(Box::new(LogWrites::open(input)?))),
};

struct LogWrites {
    input: Input,
    /// Sector size of the log in bytes.
    sector: u64,
    /// Entries left.
    left: u64,
    /// True if the end was checked.
    ended: bool,
    names: Names,
    others: OtherCounts,
}

/// Decodes four 8-byte numbers.
fn numbers(bytes: &[u8]) -> Option<[u64; 4]> {
    let (words, _) = bytes.as_chunks::<8>();
    match *words {
        [a, b, c, d, ..] => Some([a, b, c, d].map(u64::from_le_bytes)),
        _ => None,
    }
}

impl LogWrites {
    fn open(mut input: Input) -> Result<Self, TraceError> {
        let at = input.at_byte();
        let Some([_, version, left, sector]) = numbers(input.peek(HEAD)?) else {
            return Err(input.cut_short(Format::LogWrites, at));
        };
        if version != VERSION {
            return Err(input.unsupported(Format::LogWrites, at, format!("version {version} of the log; 1 is read")));
        }
        // The sector size has four bytes.
        let sector = sector & 0xffff_ffff;
        if !sector.is_power_of_two() || !(SECTOR..=LARGEST).contains(&sector) {
            return Err(input.damaged(Format::LogWrites, at, format!("sectors of {sector} bytes")));
        }
        if input.skip(sector)? < sector {
            return Err(input.cut_short(Format::LogWrites, at));
        }
        Ok(LogWrites { input, sector, left, ended: false, names: Names::default(), others: OtherCounts::new() })
    }

    /// Checks for data after the last counted entry.
    fn look_behind(&mut self) -> Result<(), TraceError> {
        self.ended = true;
        if self.input.peek(HEAD)?.iter().any(|b| *b != 0) {
            count(&mut self.others, "more behind the last entry that the log counts");
        }
        Ok(())
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        while self.left > 0 {
            let at = self.input.at_byte();
            let Some([sector, sectors, flags, _]) = numbers(self.input.peek(HEAD)?) else {
                return Err(self.input.cut_short(Format::LogWrites, at));
            };
            if flags >= METADATA << 1 {
                return Err(self.input.damaged(Format::LogWrites, at, format!("an entry with flags {flags:#x}")));
            }
            let of_disk = |n: u64| n.checked_mul(self.sector / SECTOR).filter(|n| *n <= u64::MAX / SECTOR);
            let (Some(sector), Some(sectors)) = (of_disk(sector), of_disk(sectors)) else {
                let what = format!("an entry of {sectors} sectors at {sector}");
                return Err(self.input.damaged(Format::LogWrites, at, what));
            };
            // A discard has no contents.
            let contents = if flags & DISCARD != 0 { 0 } else { sectors * SECTOR };
            let length = contents.saturating_add(self.sector);
            if self.input.skip(length)? < length {
                return Err(self.input.cut_short(Format::LogWrites, at));
            }
            self.left -= 1;
            if flags & MARK != 0 {
                count(&mut self.others, "marks");
                continue;
            }
            return Ok(Some(event(sector, sectors, flags)));
        }
        if !self.ended {
            self.look_behind()?;
        }
        Ok(None)
    }
}

fn event(sector: u64, sectors: u64, flags: u64) -> Event {
    let op = match (flags & DISCARD != 0, sectors) {
        (true, _) => Op::Discard,
        (false, 0) => Op::Flush,
        (false, _) => Op::Write,
    };
    let mut how = Flags::empty();
    how.set(Flags::PREFLUSH, flags & FLUSH != 0 && op != Op::Flush);
    how.set(Flags::FUA, flags & FUA != 0);
    how.set(Flags::META, flags & METADATA != 0);
    Event {
        time: 0,
        action: Action::Complete,
        op,
        flags: how,
        sector: if sectors == 0 { 0 } else { sector },
        sectors,
        device: DeviceId::default(),
        cpu: 0,
        pid: 0,
        process: Process::default(),
        took: None,
        error: 0,
        writing: Default::default(),
        from: None,
    }
}

impl Events for LogWrites {
    fn format(&self) -> Format {
        Format::LogWrites
    }

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let next = self.event();
        if next.is_err() {
            (self.left, self.ended) = (0, true);
        }
        next
    }

    fn timed(&self) -> bool {
        false
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
