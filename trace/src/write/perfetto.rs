//! How are counters added to a Perfetto trace? The viewer draws them as lines above the kernel's events.
//!
//! A trace is a sequence of packets, so packets can be appended to another recording, and are shown on the same axis. A
//! line is a track with its own unit; tracks of a group are shown one below the other. Field numbers are those of
//! Perfetto's published protocol (`TracePacket`, `TrackDescriptor`, `CounterDescriptor`, `TrackEvent`); times use a
//! packet's default clock, `CLOCK_BOOTTIME`, which is that of the kernel's events.
//!
//! Left out: slices, flows, interning, and everything else that is not a number over time.

use std::io::{self, Write};

/// Field numbers.
mod field {
    pub const PACKET: u32 = 1;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const DESCRIPTOR_UUID: u32 = 1;
    pub const DESCRIPTOR_NAME: u32 = 2;
    pub const DESCRIPTOR_PARENT: u32 = 5;
    pub const DESCRIPTOR_COUNTER: u32 = 8;
    pub const COUNTER_UNIT_NAME: u32 = 6;
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_VALUE: u32 = 44;
}

/// `TrackEvent.TYPE_COUNTER`.
const TYPE_COUNTER: u64 = 4;
/// Packet sequence of JouleFS: any number that the recorder does not use; its own are small.
const OUR_SEQUENCE: u64 = 0x4a6f_756c;
/// First track number of JouleFS: other tools use hashes or small numbers.
const FIRST_TRACK: u64 = 0x4a6f_756c_6546_5300;

/// A track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Track(u64);

/// Writes packets of counters.
#[derive(Debug)]
pub struct Counters<W> {
    out: W,
    tracks: u64,
    inner: Vec<u8>,
    packet: Vec<u8>,
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(field: u32, n: u64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3, out);
    varint(n, out);
}

fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

impl<W: Write> Counters<W> {
    /// Appends to `out`, which must hold complete packets.
    pub fn new(out: W) -> Self {
        Counters { out, tracks: 0, inner: Vec::new(), packet: Vec::new() }
    }

    /// Creates a group, which contains tracks and has no values.
    ///
    /// # Errors
    /// Errors of the output; likewise below.
    pub fn group(&mut self, name: &str) -> io::Result<Track> {
        self.describe(name, None, None)
    }

    /// Creates a track in a group, with values in `unit`.
    pub fn track(&mut self, group: Track, name: &str, unit: &str) -> io::Result<Track> {
        self.describe(name, Some(group), Some(unit))
    }

    fn describe(&mut self, name: &str, group: Option<Track>, unit: Option<&str>) -> io::Result<Track> {
        let track = Track(FIRST_TRACK + self.tracks);
        self.tracks += 1;
        self.inner.clear();
        number(field::DESCRIPTOR_UUID, track.0, &mut self.inner);
        bytes(field::DESCRIPTOR_NAME, name.as_bytes(), &mut self.inner);
        if let Some(group) = group {
            number(field::DESCRIPTOR_PARENT, group.0, &mut self.inner);
        }
        if let Some(unit) = unit {
            let mut counter = Vec::new();
            bytes(field::COUNTER_UNIT_NAME, unit.as_bytes(), &mut counter);
            bytes(field::DESCRIPTOR_COUNTER, &counter, &mut self.inner);
        }
        self.packet(None, field::TRACK_DESCRIPTOR)?;
        Ok(track)
    }

    /// Sets a track's value from `time` on, in nanoseconds of the clock.
    pub fn value(&mut self, track: Track, time: u64, value: f64) -> io::Result<()> {
        self.inner.clear();
        number(field::EVENT_TYPE, TYPE_COUNTER, &mut self.inner);
        number(field::EVENT_TRACK, track.0, &mut self.inner);
        varint(u64::from(field::EVENT_VALUE) << 3 | 1, &mut self.inner);
        self.inner.extend_from_slice(&value.to_le_bytes());
        self.packet(Some(time), field::TRACK_EVENT)
    }

    /// Writes a packet that contains `inner`.
    fn packet(&mut self, time: Option<u64>, what: u32) -> io::Result<()> {
        self.packet.clear();
        if let Some(time) = time {
            number(field::TIMESTAMP, time, &mut self.packet);
        }
        number(field::SEQUENCE, OUR_SEQUENCE, &mut self.packet);
        bytes(what, &self.inner, &mut self.packet);
        let mut head = Vec::with_capacity(12);
        varint(u64::from(field::PACKET) << 3 | 2, &mut head);
        varint(self.packet.len() as u64, &mut head);
        self.out.write_all(&head)?;
        self.out.write_all(&self.packet)
    }

    /// Flushes and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same three packets, as written by Perfetto's published Python classes (`Trace.SerializeToString`).
    const THEIRS: &str = "0a1a50eceabdd304e203110880a699aac6adddb74a120577617474730a2750eceabdd304e2031e0881a699aac6add\
        db74a12034350552880a699aac6adddb74a42033201570a2540cb89ec8ff72350eceabdd3045a1648045881a699aac6adddb74ae1020000\
        00000000d03f";

    #[test]
    fn packets_are_those_that_perfettos_own_classes_write() {
        let mut counters = Counters::new(Vec::new());
        let group = counters.group("watts").unwrap();
        let track = counters.track(group, "CPU", "W").unwrap();
        counters.value(track, 1_234_567_890_123, 0.25).unwrap();
        let ours: String = counters.finish().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(ours, THEIRS);
    }
}
