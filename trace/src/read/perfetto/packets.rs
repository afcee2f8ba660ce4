//! How are the packets of a trace read, including compressed ones?

use std::io::{self, Read};

use super::wire::{Fields, Value, Wrong, varint};
use crate::input::LONGEST;
use crate::{At, Format, Input, TraceError};

/// Tag of `Trace.packet`, a bytes field.
const PACKET: u8 = 0x0a;
/// `TracePacket.compressed_packets`, with zlib.
const ZLIB: u32 = 50;
/// `TracePacket.zstd_compressed_packets`.
const ZSTD: u32 = 133;
/// Longest header of a packet: its tag and length.
const HEADER: usize = 11;

pub(super) struct Packets {
    input: Input,
    format: Format,
    /// Input bytes of the last returned packet.
    given: usize,
    /// Packets from a compressed one, and the position in them.
    inflated: Vec<u8>,
    at: usize,
}

/// A packet, and the rest.
pub(super) type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits off the first packet; `None` if it is incomplete.
pub(super) fn first(bytes: &[u8]) -> Result<Option<Split<'_>>, Wrong> {
    match bytes.first() {
        None => return Ok(None),
        Some(&PACKET) => {}
        Some(_) => return Err(Wrong),
    }
    match varint(&bytes[1..]) {
        Some((length, rest)) => Ok(usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))),
        None if bytes.len() < HEADER => Ok(None),
        None => Err(Wrong),
    }
}

/// Compression method and bytes of a compressed packet.
fn compressed(packet: &[u8]) -> Result<Option<(u32, &[u8])>, Wrong> {
    let mut fields = Fields(packet);
    while let Some((number, value)) = fields.next()? {
        if let (ZLIB | ZSTD, Value::Bytes(bytes)) = (number, value) {
            return Ok(Some((number, bytes)));
        }
    }
    Ok(None)
}

fn inflate(how: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    out.clear();
    let most = LONGEST as u64 + 1;
    let done: io::Result<usize> = match how {
        ZLIB => flate2::bufread::ZlibDecoder::new(bytes).take(most).read_to_end(out),
        _ => zstd::stream::read::Decoder::with_buffer(bytes).and_then(|d| d.take(most).read_to_end(out)),
    };
    match done {
        Ok(length) if length <= LONGEST => Ok(()),
        Ok(_) => Err(format!("compressed packets of over {LONGEST} bytes")),
        Err(e) => Err(format!("compressed packets: {e}")),
    }
}

impl Packets {
    pub(super) fn new(input: Input, format: Format) -> Self {
        Packets { input, format, given: 0, inflated: Vec::new(), at: 0 }
    }

    /// Place of the last returned packet, or of the compressed one around it.
    pub(super) fn place(&self) -> At {
        self.input.at_byte()
    }

    /// An error in the last returned packet.
    pub(super) fn damaged(&self, what: impl Into<String>) -> TraceError {
        self.input.damaged(self.format, self.place(), what)
    }

    /// An error about the whole trace.
    pub(super) fn unsupported(&self, what: impl Into<String>) -> TraceError {
        self.input.unsupported(self.format, self.place(), what)
    }

    pub(super) fn consumed(&self) -> u64 {
        self.input.consumed()
    }

    /// The next packet.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        loop {
            if self.at < self.inflated.len() {
                let from = self.at;
                let (skipped, length) = match first(&self.inflated[from..]) {
                    Ok(Some((packet, rest))) => (self.inflated.len() - from - packet.len() - rest.len(), packet.len()),
                    Ok(None) | Err(Wrong) => return Err(self.damaged("compressed packets that are none")),
                };
                self.at = from + skipped + length;
                return Ok(Some(&self.inflated[from + skipped..self.at]));
            }
            // The full name, because every reader also has a `take`.
            Input::take(&mut self.input, std::mem::take(&mut self.given));
            let Some((header, length)) = self.header()? else { return Ok(None) };
            let whole = header + length;
            if self.input.peek(whole)?.len() < whole {
                return Err(self.input.cut_short(self.format, self.place()));
            }
            self.given = whole;
            let packet = &self.input.peek(whole)?[header..];
            match compressed(packet) {
                Ok(Some((how, bytes))) => {
                    self.at = 0;
                    if let Err(what) = inflate(how, bytes, &mut self.inflated) {
                        return Err(self.damaged(what));
                    }
                }
                Ok(None) => return Ok(Some(&self.input.peek(whole)?[header..])),
                Err(wrong) => return Err(self.damaged(wrong)),
            }
        }
    }

    /// Lengths of the next packet's header and contents.
    fn header(&mut self) -> Result<Option<(usize, usize)>, TraceError> {
        let bytes = self.input.peek(HEADER)?;
        let Some(first) = bytes.first() else { return Ok(None) };
        if *first != PACKET {
            return Err(self.damaged("no packet begins here"));
        }
        let Some((length, rest)) = varint(&bytes[1..]) else {
            let cut = bytes.len() < HEADER;
            return Err(if cut { self.input.cut_short(self.format, self.place()) } else { self.damaged(Wrong) });
        };
        let header = bytes.len() - rest.len();
        match usize::try_from(length) {
            Ok(length) if length <= LONGEST => Ok(Some((header, length))),
            _ => Err(self.damaged(format!("a packet of {length} bytes"))),
        }
    }
}
