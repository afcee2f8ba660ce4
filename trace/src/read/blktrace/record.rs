//! How is one record after the other read?

use rustc_hash::FxHashMap;

use super::Named;
use crate::block::{Action, DeviceId, Event, Flags, Op, SECTOR};
use crate::letters::judged;
use crate::names::{count, count_many};
use crate::{Format, Input, Process, TraceError};

/// The upper three bytes of the first word; the lowest is the version.
const MAGIC: u32 = 0x6561_7400;
/// Limit on CPUs and devices, above any real recording.
const MOST_LANES: usize = 1 << 16;

// The upper half of an action, from bit 16 on: categories.
const WRITE: u64 = 1 << 1;
const FLUSH: u64 = 1 << 2;
const SYNC: u64 = 1 << 3;
const PC: u64 = 1 << 9;
const NOTIFY: u64 = 1 << 10;
const AHEAD: u64 = 1 << 11;
const META: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const DRIVER: u64 = 1 << 14;
const FUA: u64 = 1 << 15;
// Only in version 8.
const ZONE_APPEND: u64 = 1 << 16;
/// Resetting one or all, finishing, opening, closing.
const ZONES: u64 = 0b11111 << 17;
const WRITE_ZEROES: u64 = 1 << 22;

/// In the lower half of an action: an eight-byte cgroup number precedes the data.
const CGROUP: u64 = 1 << 8;

/// Byte order (true for big-endian) and version of a record.
pub(super) fn magic(head: &[u8]) -> Option<(bool, u8)> {
    match *head {
        [version, b't', b'a', b'e', ..] if version < 32 => Some((false, version)),
        // Text may begin with `eat` and white space.
        [b'e', b'a', b't', version, ..] if version < 9 => Some((true, version)),
        _ => None,
    }
}

/// An event with its sort key.
#[derive(Clone, Copy)]
pub(super) struct Keyed {
    pub(super) event: Event,
    /// The kernel's number of the device.
    pub(super) device: u32,
    pub(super) sequence: u32,
    /// Index of the CPU and device in the stream.
    pub(super) lane: u32,
}

impl Keyed {
    /// The sort key of blkparse.
    pub(super) fn key(&self) -> (u64, u32, u32) {
        (self.event.time, self.device, self.sequence)
    }
}

/// The fields common to both versions.
struct Record {
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    pid: u32,
    device: u32,
    cpu: u32,
    error: u16,
    data: u16,
}

impl Record {
    fn version_7<const BIG: bool>(b: &[u8; 48]) -> Self {
        let w = |at: usize| word::<BIG>([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at: usize| long::<BIG>(w(at), w(at + 4));
        let half = |at: usize| half::<BIG>([b[at], b[at + 1]]);
        Record {
            sequence: w(4),
            time: long(8),
            sector: long(16),
            bytes: w(24),
            action: u64::from(w(28)),
            pid: w(32),
            device: w(36),
            cpu: w(40),
            error: half(44),
            data: half(46),
        }
    }

    fn version_8<const BIG: bool>(b: &[u8; 64]) -> Self {
        let w = |at: usize| word::<BIG>([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |at: usize| long::<BIG>(w(at), w(at + 4));
        let half = |at: usize| half::<BIG>([b[at], b[at + 1]]);
        Record {
            sequence: w(4),
            time: long(8),
            sector: long(16),
            bytes: w(24),
            pid: w(28),
            action: long(32),
            device: w(40),
            cpu: w(44),
            error: half(48),
            data: half(50),
        }
    }
}

fn word<const BIG: bool>(b: [u8; 4]) -> u32 {
    if BIG { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
}

fn long<const BIG: bool>(first: u32, second: u32) -> u64 {
    let (low, high) = if BIG { (second, first) } else { (first, second) };
    u64::from(high) << 32 | u64::from(low)
}

fn half<const BIG: bool>(b: [u8; 2]) -> u16 {
    if BIG { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) }
}

/// A file or a pipe.
pub(super) struct Stream {
    pub(super) input: Input,
    /// Byte order of the first record, and so of all.
    big: Option<bool>,
    /// Lane of each device and CPU.
    lanes: FxHashMap<(u32, u32), u32>,
    /// The last event's device, CPU and lane.
    last: Option<(u32, u32, u32)>,
    /// The last sequence number of each lane.
    sequences: Vec<u32>,
}

impl Stream {
    pub(super) fn new(input: Input) -> Self {
        Stream { input, big: None, lanes: FxHashMap::default(), last: None, sequences: Vec::new() }
    }

    /// Number of lanes so far.
    pub(super) fn lanes(&self) -> usize {
        self.sequences.len()
    }

    fn damaged(&self, what: String) -> TraceError {
        self.input.damaged(Format::Blktrace, self.input.at_byte(), what)
    }

    fn cut_short(&self) -> TraceError {
        self.input.cut_short(Format::Blktrace, self.input.at_byte())
    }

    /// The next event; other records are counted, names are learned.
    pub(super) fn next(&mut self, known: &mut Named) -> Result<Option<Keyed>, TraceError> {
        loop {
            let Some((record, length)) = self.record()? else { return Ok(None) };
            let data = usize::from(record.data);
            if (record.action >> 16) & (NOTIFY | DRIVER) != 0 {
                let whole = self.input.peek(length + data)?;
                let Some(data) = whole.get(length..).filter(|d| d.len() == data) else {
                    return Err(self.cut_short());
                };
                noted(&record, data, known);
                self.input.take(length + usize::from(record.data));
                continue;
            }
            let (mut device, mut from) = (record.device, None);
            if data > 0 {
                let whole = self.input.peek(length + data)?;
                if whole.len() < length + data {
                    return Err(self.cut_short());
                }
                let data = &whole[length..];
                let data = if record.action & CGROUP != 0 { data.get(8..).unwrap_or_default() } else { data };
                // From one device to another; big-endian on every machine.
                if let (15, [a, b, c, d, e, f, g, h, rest @ ..]) = (record.action & 0xff, data) {
                    device = u32::from_be_bytes([*e, *f, *g, *h]);
                    let sector = rest.first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
                    from = Some((numbers(u32::from_be_bytes([*a, *b, *c, *d])), sector));
                }
            }
            let lane = self.lane(&record, known)?;
            self.input.take(length + data);
            let event = Event { from, ..event(&record, device, known) };
            return Ok(Some(Keyed { event, device: record.device, sequence: record.sequence, lane }));
        }
    }

    /// The next record's fields and length, without its data. It is not consumed.
    fn record(&mut self) -> Result<Option<(Record, usize)>, TraceError> {
        let head = self.input.peek(64)?;
        if head.is_empty() {
            return Ok(None);
        }
        let read = match (magic(head), self.big) {
            (Some((big, _)), Some(first)) if big != first => None,
            (Some((big, 7)), _) => {
                let Some((head, _)) = head.split_first_chunk() else { return Err(self.cut_short()) };
                let record = if big { Record::version_7::<true>(head) } else { Record::version_7::<false>(head) };
                self.big = Some(big);
                Some((record, 48))
            }
            (Some((big, 8)), _) => {
                let Some((head, _)) = head.split_first_chunk() else { return Err(self.cut_short()) };
                let record = if big { Record::version_8::<true>(head) } else { Record::version_8::<false>(head) };
                self.big = Some(big);
                Some((record, 64))
            }
            (Some((_, version)), None) => {
                let what = format!("version {version} of the records; 7 and 8 are read");
                return Err(self.input.unsupported(Format::Blktrace, self.input.at_byte(), what));
            }
            _ => None,
        };
        match read {
            Some(read) => Ok(Some(read)),
            None => Err(self.strange()),
        }
    }

    /// The error for bytes without the magic number: less than a word, zeroes of a preallocated file (as an interrupted
    /// blktrace leaves it), or damage.
    fn strange(&mut self) -> TraceError {
        let (cut, at) = (self.cut_short(), self.input.at_byte());
        let head = match self.input.peek(48) {
            Ok(head) => head.to_vec(),
            Err(e) => return e,
        };
        let begins = |b: &[u8]| MAGIC.to_le_bytes()[1..].starts_with(b.get(1..).unwrap_or_default());
        if head.len() < 4 && (begins(&head) || b"eat".starts_with(&head)) {
            return cut;
        }
        while let Ok(part) = self.input.peek(1 << 16) {
            if part.is_empty() {
                return cut;
            }
            if part.iter().any(|b| *b != 0) {
                break;
            }
            let n = part.len();
            self.input.take(n);
        }
        let hex: Vec<String> = head.iter().take(4).map(|b| format!("{b:02x}")).collect();
        self.input.damaged(Format::Blktrace, at, format!("a record begins with the bytes {}", hex.join(" ")))
    }

    /// The lane of a record; checks its sequence number.
    fn lane(&mut self, record: &Record, known: &mut Named) -> Result<u32, TraceError> {
        let lane = match self.last {
            Some((device, cpu, lane)) if (device, cpu) == (record.device, record.cpu) => lane,
            _ => {
                let next = self.sequences.len() as u32;
                let lane = *self.lanes.entry((record.device, record.cpu)).or_insert(next);
                if lane == next {
                    if self.sequences.len() == MOST_LANES {
                        return Err(self.damaged(format!("over {MOST_LANES} processors")));
                    }
                    self.sequences.push(record.sequence.wrapping_sub(1));
                }
                self.last = Some((record.device, record.cpu, lane));
                lane
            }
        };
        let before = &mut self.sequences[lane as usize];
        let missing = record.sequence.wrapping_sub(*before).wrapping_sub(1);
        if missing != 0 {
            if missing < 1 << 31 {
                count_many(&mut known.others, "events the kernel lost", u64::from(missing));
            } else {
                count(&mut known.others, "events whose numbers go back");
            }
        }
        *before = record.sequence;
        Ok(lane)
    }
}

/// Decodes the kernel's device number.
fn numbers(device: u32) -> DeviceId {
    DeviceId { major: device >> 20, minor: device & 0xf_ffff }
}

/// Handles records that are not events.
fn noted(record: &Record, data: &[u8], known: &mut Named) {
    let what = record.action & 0xff;
    let data = if record.action & CGROUP != 0 { data.get(8..).unwrap_or_default() } else { data };
    if (record.action >> 16) & DRIVER != 0 {
        return count(&mut known.others, "data of drivers");
    }
    match what {
        0 => {
            let name = data.split(|b| *b == 0).next().unwrap_or_default();
            known.learn(record.pid, name);
            count(&mut known.others, "names of processes");
        }
        1 => count(&mut known.others, "wall-clock times"),
        2 => count(&mut known.others, "messages"),
        _ => count(&mut known.others, "notes of an unknown kind"),
    }
}

fn event(record: &Record, device: u32, known: &mut Named) -> Event {
    let about = record.action >> 16;
    let action = match record.action & 0xff {
        1 => Action::Queue,
        2 => Action::BackMerge,
        3 => Action::FrontMerge,
        4 => Action::Get,
        6 => Action::Requeue,
        7 => Action::Issue,
        8 => Action::Complete,
        12 => Action::Insert,
        13 => Action::Split,
        15 => Action::Remap,
        // Sleeping, plugging, unplugging by its end and by a timer, bouncing, aborting, data of a driver, plugging and
        // unplugging a zone.
        5 | 9..=11 | 14 | 16..=19 => Action::Other,
        _ => {
            count(&mut known.others, "events of an unknown kind");
            Action::Other
        }
    };
    let sectors = u64::from(record.bytes) / SECTOR;
    let op = if about & (PC | ZONES) != 0 {
        Op::Other
    } else if about & DISCARD != 0 {
        Op::Discard
    } else if about & WRITE_ZEROES != 0 {
        Op::WriteZeroes
    } else if about & (WRITE | ZONE_APPEND) != 0 {
        Op::Write
    } else if record.bytes > 0 {
        Op::Read
    } else {
        Op::Other
    };
    let mut flags = Flags::empty();
    let bits =
        [(FLUSH, Flags::PREFLUSH), (SYNC, Flags::SYNC), (AHEAD, Flags::AHEAD), (META, Flags::META), (FUA, Flags::FUA)];
    for (bit, flag) in bits {
        flags.set(flag, about & bit != 0);
    }
    let (op, flags) = judged(op, flags, sectors);
    Event {
        time: record.time,
        action,
        op,
        flags,
        // Without sectors the address is meaningless.
        sector: if sectors == 0 { 0 } else { record.sector },
        sectors,
        device: numbers(device),
        cpu: record.cpu,
        pid: record.pid,
        process: Process::default(),
        took: None,
        // A negative errno in 16 bits.
        error: u32::from((record.error as i16).unsigned_abs()),
        writing: Default::default(),
        from: None,
    }
}
