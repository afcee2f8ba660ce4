//! How are Perfetto's traces read? They contain kernel events of block devices, UFS and file systems, and the phone's
//! power rails.
//!
//! A trace is a chain of packets from several kinds of recordings; [`READER`] returns the block devices, [`open_power`]
//! the rails. Other packets and other kernel events are counted. Times are those of the clock of the kernel's events,
//! mostly `CLOCK_BOOTTIME`. A process gets its name from any event of a block device, for its other events too.
//!
//! Left out: other machines in the same trace, process trees, and bundles that contain only `sched_switch`.

mod bundle;
mod names;
mod order;
mod packets;
mod rails;
mod wire;

use bundle::Bundles;
use packets::Packets;
use wire::{Fields, Value, Wrong};

use crate::names::{count, count_many};
use crate::opened::Reader;
use crate::read::tracepoint::Heard;
use crate::read::tracepoint::layers::{Layered, Source};
use crate::{Format, Input, Names, Opened, OtherCounts, TraceError};

/// Recognised by complete packets with fields that every trace has.
pub(crate) const READER: Reader = Reader { knows, open };

/// Usual fields, one of which is in the first packets: kernel events, clocks, time, sequence, writer, configuration and
/// number of the recording, compressed packets, marks.
const USUAL: [u32; 13] = [1, 2, 3, 6, 8, 10, 33, 36, 40, 50, 79, 89, 133];

fn knows(head: &[u8]) -> bool {
    let mut rest = head;
    let mut usual = false;
    loop {
        match packets::first(rest) {
            Ok(Some((packet, after))) => {
                let mut fields = Fields(packet);
                loop {
                    match fields.next() {
                        Ok(Some((number, _))) => usual |= USUAL.contains(&number),
                        Ok(None) => break,
                        Err(Wrong) => return false,
                    }
                }
                rest = after;
            }
            // The first packet may be longer than the available bytes.
            Ok(None) => return usual || rest.len() == head.len() && begins_packet(head),
            Err(Wrong) => return false,
        }
    }
}

/// True if an incomplete packet has a valid beginning.
fn begins_packet(head: &[u8]) -> bool {
    let Some((length, rest)) = head.get(1..).and_then(wire::varint) else { return false };
    // A short packet would be complete.
    let long = length > 16 << 10 && head.len() > 16 << 10;
    long && wire::varint(rest).is_some_and(|(tag, _)| USUAL.contains(&((tag >> 3) as u32)) && matches!(tag & 7, 0 | 2))
}

fn open(input: Input) -> Result<Opened, TraceError> {
    let packets = Packets::new(input, Format::Perfetto);
    let trace = Trace { packets, bundles: Bundles::new(), rails: 0, end: None };
    Ok(Opened::Blocks(Box::new(Layered::new(trace))))
}

/// The power rails of a trace.
pub(crate) fn open_power(input: Input) -> Opened {
    Opened::Power(Box::new(rails::Rails::new(Packets::new(input, Format::PerfettoPower))))
}

struct Trace {
    packets: Packets,
    bundles: Bundles,
    /// Number of power rail packets.
    rails: u64,
    /// How the trace ended, after all earlier events have been returned.
    end: Option<Option<TraceError>>,
}

/// Name under which packets of virtual machines are counted.
const OTHER_MACHINES: &str = "packets of other machines";

/// True for a packet (`machine_id`) of a machine with its own CPUs, devices and clocks.
fn of_another_machine(packet: &[u8]) -> Result<bool, Wrong> {
    let mut fields = Fields(packet);
    while let Some((number, value)) = fields.next()? {
        if let (98, Value::Number(1..)) = (number, value) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads a packet's kernel events; counts its other contents.
fn packet(packet: &[u8], bundles: &mut Bundles, rails: &mut u64) -> Result<(), String> {
    if of_another_machine(packet)? {
        count(&mut bundles.others, OTHER_MACHINES);
        return Ok(());
    }
    let mut fields = Fields(packet);
    let mut known = false;
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(bundle)) => {
                bundles.read(bundle)?;
                known = true;
            }
            (40, Value::Bytes(_)) => {
                *rails += 1;
                known = true;
                count(&mut bundles.others, "packets of power rails");
            }
            _ => {}
        }
    }
    if !known {
        count(&mut bundles.others, "packets of other kinds");
    }
    Ok(())
}

impl Trace {
    /// Reads one more packet; returns how the trace ended, if it did.
    fn step(&mut self) -> Option<Option<TraceError>> {
        match self.packets.next() {
            Ok(Some(bytes)) => match packet(bytes, &mut self.bundles, &mut self.rails) {
                Ok(()) => None,
                Err(what) => Some(Some(self.packets.damaged(what))),
            },
            Ok(None) if self.bundles.heard == 0 && self.rails > 0 => Some(Some(
                self.packets.unsupported("no events of block devices, only power rails: a meter's recording"),
            )),
            Ok(None) => Some(None),
            Err(e) => Some(Some(e)),
        }
    }
}

impl Trace {
    /// Reads on when nothing more can be returned; returns how the trace ended, if it did.
    #[inline(never)]
    fn more(&mut self) -> Option<Option<TraceError>> {
        let late = self.bundles.order.late();
        if late > 0 {
            count_many(&mut self.bundles.others, "events that are told too late for their order", late);
        }
        if let Some(end) = &mut self.end {
            return Some(end.take());
        }
        self.end = self.step();
        if self.end.is_some() {
            self.bundles.tell();
            self.bundles.order.end();
        }
        None
    }
}

impl Source for Trace {
    fn format(&self) -> Format {
        Format::Perfetto
    }

    #[inline]
    fn pull(&mut self) -> Result<Option<Heard>, TraceError> {
        loop {
            if let Some(heard) = self.bundles.order.pop() {
                return Ok(Some(heard));
            }
            if let Some(end) = self.more() {
                return end.map_or(Ok(None), Err);
            }
        }
    }

    fn names(&self) -> &Names {
        &self.bundles.names
    }

    fn names_mut(&mut self) -> &mut Names {
        &mut self.bundles.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.bundles.others
    }

    fn other_counts_mut(&mut self) -> &mut OtherCounts {
        &mut self.bundles.others
    }

    fn consumed(&self) -> u64 {
        self.packets.consumed()
    }
}
