//! How much energy have the power rails of a trace used since boot?
//!
//! Field numbers are those of protos/perfetto/trace/power/power_rails.proto and clock_snapshot.proto of Perfetto. Times
//! are those of `CLOCK_BOOTTIME`. Rails are read a few times per second, and not all at the same moment: readings are
//! sorted by time within a limited window.

use rustc_hash::FxHashMap;

use super::order::{Order, Timed};
use super::packets::Packets;
use super::wire::{Fields, Value};
use crate::names::count;
use crate::power::{Reading, Readings, Value as Shown};
use crate::{Format, OtherCounts, TraceError};

/// `BUILTIN_CLOCK_BOOTTIME`.
const BOOT_TIME: u64 = 6;
/// Clocks with these numbers differ between packet sequences.
const OF_SEQUENCE: std::ops::Range<u64> = 64..128;
/// Most remembered rails and clocks.
const MOST: usize = 1 << 14;

impl Timed for Reading {
    fn time(&self) -> u64 {
        self.time
    }
}

/// The power rails of a trace.
pub(super) struct Rails {
    packets: Packets,
    known: Known,
    others: OtherCounts,
    ended: bool,
}

/// State from earlier packets.
struct Known {
    order: Order<Reading>,
    channels: Vec<String>,
    /// Channel of a rail, by session and index.
    rails: FxHashMap<(u64, u64), u16>,
    /// Rails described and not read yet.
    described: FxHashMap<(u64, u64), String>,
    /// Offset from a sequence's clock to `CLOCK_BOOTTIME`.
    clocks: FxHashMap<(u64, u64), u64>,
    /// Default clock of a sequence's packets.
    defaults: FxHashMap<u64, u64>,
}

/// Relevance of a packet.
enum Content {
    /// Readings, names, or clock offsets.
    Rails,
    Nothing,
    OfAnotherMachine,
}

/// Timestamp of a packet.
#[derive(Default)]
struct Stamp {
    time: Option<u64>,
    clock: Option<u64>,
    sequence: u64,
}

impl Rails {
    pub(super) fn new(packets: Packets) -> Self {
        let known = Known {
            order: Order::new(),
            channels: Vec::new(),
            rails: FxHashMap::default(),
            described: FxHashMap::default(),
            clocks: FxHashMap::default(),
            defaults: FxHashMap::default(),
        };
        Rails { packets, known, others: OtherCounts::new(), ended: false }
    }
}

impl Known {
    /// Reads a packet.
    fn packet(&mut self, packet: &[u8]) -> Result<Content, String> {
        let mut stamp = Stamp::default();
        let (mut rails, mut snapshot) = (None, None);
        let mut fields = Fields(packet);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (6, Value::Bytes(b)) => snapshot = Some(b),
                (8, Value::Number(n)) => stamp.time = Some(n),
                (10, Value::Number(n)) => stamp.sequence = n,
                (40, Value::Bytes(b)) => rails = Some(b),
                (58, Value::Number(n)) => stamp.clock = Some(n),
                (98, Value::Number(1..)) => return Ok(Content::OfAnotherMachine),
                (59, Value::Bytes(b)) => {
                    let mut defaults = Fields(b);
                    while let Some((number, value)) = defaults.next()? {
                        if let (58, Value::Number(clock)) = (number, value)
                            && self.defaults.len() < MOST
                        {
                            self.defaults.insert(stamp.sequence, clock);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(snapshot) = snapshot {
            self.snapshot(snapshot, stamp.sequence)?;
        }
        match rails {
            Some(rails) => self.rails(rails, &stamp).map(|()| Content::Rails),
            None if snapshot.is_some() => Ok(Content::Rails),
            None => Ok(Content::Nothing),
        }
    }

    /// `ClockSnapshot`: times of several clocks at one moment.
    fn snapshot(&mut self, snapshot: &[u8], sequence: u64) -> Result<(), String> {
        let (mut seen, mut boot) = (Vec::new(), None);
        let mut fields = Fields(snapshot);
        while let Some((number, value)) = fields.next()? {
            let (1, Value::Bytes(clock)) = (number, value) else { continue };
            let (mut id, mut time, mut plain) = (0, 0, true);
            let mut clock = Fields(clock);
            while let Some((number, value)) = clock.next()? {
                match (number, value) {
                    (1, Value::Number(n)) => id = n,
                    (2, Value::Number(n)) => time = n,
                    // Incremental times, or a unit other than nanoseconds.
                    (3, Value::Number(n)) => plain &= n == 0,
                    (4, Value::Number(n)) => plain &= n <= 1,
                    _ => {}
                }
            }
            if id == BOOT_TIME {
                boot = Some(time);
            } else if plain {
                seen.push((id, time));
            }
        }
        for (id, time) in seen {
            if let Some(boot) = boot
                && self.clocks.len() < MOST
            {
                self.clocks.insert((clock_owner(id, sequence), id), boot.wrapping_sub(time));
            }
        }
        Ok(())
    }

    /// Converts to nanoseconds of `CLOCK_BOOTTIME`.
    fn time(&self, stamp: &Stamp) -> Result<u64, String> {
        let time = stamp.time.ok_or("readings of rails without a time")?;
        let clock = stamp.clock.or_else(|| self.defaults.get(&stamp.sequence).copied()).unwrap_or(BOOT_TIME);
        if clock == BOOT_TIME {
            return Ok(time);
        }
        match self.clocks.get(&(clock_owner(clock, stamp.sequence), clock)) {
            Some(difference) => Ok(time.wrapping_add(*difference)),
            None => Err(format!("readings of rails by clock {clock}, which nothing says how it runs")),
        }
    }

    /// `PowerRails`.
    fn rails(&mut self, rails: &[u8], stamp: &Stamp) -> Result<(), String> {
        let (mut session, mut data) = (0, Vec::new());
        let mut descriptors = Vec::new();
        let mut fields = Fields(rails);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Bytes(b)) => descriptors.push(b),
                (2, Value::Bytes(b)) => data.push(b),
                (3, Value::Number(n)) => session = n,
                _ => {}
            }
        }
        for descriptor in descriptors {
            let (mut index, mut name) = (0, String::new());
            let mut fields = Fields(descriptor);
            while let Some((number, value)) = fields.next()? {
                match (number, value) {
                    (1, Value::Number(n)) => index = n,
                    (2, Value::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
                    _ => {}
                }
            }
            if self.described.len() < MOST {
                self.described.insert((session, index), name);
            }
        }
        for reading in data {
            let (mut index, mut time, mut energy) = (0, None, 0);
            let mut fields = Fields(reading);
            while let Some((number, value)) = fields.next()? {
                match (number, value) {
                    (1, Value::Number(n)) => index = n,
                    (2, Value::Number(ms)) => time = Some(ms),
                    (3, Value::Number(n)) => energy = n,
                    _ => {}
                }
            }
            let time = match time {
                Some(ms) => ms.checked_mul(1_000_000).ok_or("a time beyond all times")?,
                None => self.time(stamp)?,
            };
            let channel = self.channel(session, index)?;
            // Microwatt-seconds.
            self.order.push(Reading { time, channel, value: Shown::Joules(energy as f64 / 1e6) });
        }
        Ok(())
    }

    fn channel(&mut self, session: u64, index: u64) -> Result<u16, String> {
        if let Some(known) = self.rails.get(&(session, index)) {
            return Ok(*known);
        }
        let new = u16::try_from(self.channels.len()).map_err(|_| "over 65,536 rails")?;
        let name = self.described.get(&(session, index)).filter(|name| !name.is_empty());
        self.channels.push(name.cloned().unwrap_or_else(|| format!("rail {index}")));
        self.rails.insert((session, index), new);
        Ok(new)
    }
}

/// Owner of a clock: a sequence, or 0 for all.
fn clock_owner(clock: u64, sequence: u64) -> u64 {
    if OF_SEQUENCE.contains(&clock) { sequence } else { 0 }
}

impl Readings for Rails {
    fn format(&self) -> Format {
        Format::PerfettoPower
    }

    fn next(&mut self) -> Result<Option<Reading>, TraceError> {
        loop {
            if let Some(reading) = self.known.order.pop() {
                return Ok(Some(reading));
            }
            // After an error below, nothing follows.
            if std::mem::replace(&mut self.ended, true) {
                return Ok(None);
            }
            match self.packets.next()? {
                Some(packet) => match self.known.packet(packet) {
                    Ok(Content::Rails) => {}
                    Ok(Content::OfAnotherMachine) => count(&mut self.others, super::OTHER_MACHINES),
                    Ok(Content::Nothing) => count(&mut self.others, "packets of other kinds"),
                    Err(what) => return Err(self.packets.damaged(what)),
                },
                None if self.known.channels.is_empty() => {
                    return Err(self.packets.unsupported("a trace without power rails"));
                }
                None => {
                    self.known.order.end();
                    continue;
                }
            }
            self.ended = false;
        }
    }

    fn channels(&self) -> &[String] {
        &self.known.channels
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn consumed(&self) -> u64 {
        self.packets.consumed()
    }
}
