//! What is a request in a recording?

use std::collections::BTreeMap;

use device::model::Remap;
use device::{Lba, Tag};

use crate::field::{Broken, Field, Input, encode_number, encode_signed, step, stepped};
use crate::{Kind, Reader, RecordError};

/// A request to a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A read.
    Read {
        /// The first block.
        at: Lba,
        /// Number of blocks.
        blocks: u64,
    },
    /// A write.
    Write {
        /// The first block.
        at: Lba,
        /// Number of blocks.
        blocks: u64,
        /// CRC-32 of the data written. It represents the contents: equal contents have equal fingerprints.
        fingerprint: u32,
    },
    /// A flush.
    Flush,
    /// A discard.
    Discard {
        /// The first block.
        at: Lba,
        /// Number of blocks.
        blocks: u64,
    },
    /// A remap.
    Remap {
        /// One address.
        from: Lba,
        /// The other address.
        to: Lba,
        /// Number of blocks.
        blocks: u64,
        /// Effect on the two addresses.
        how: Remap,
    },
}

/// A request with its time and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds from the beginning of the recording.
    pub arrival: u64,
    /// Nanoseconds until it completed.
    pub took: u64,
    /// Cause and owner.
    pub tag: Tag,
    /// The request.
    pub request: Request,
    /// True if it failed.
    pub failed: bool,
}

const SAME_TAG: u8 = 1 << 3;
const CONTINUES: u8 = 1 << 4;
const SAME_LENGTH: u8 = 1 << 5;
const FAILED: u8 = 1 << 6;
const UNUSED: u8 = 1 << 7;

/// What a record may refer to in earlier records of its chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    arrival: u64,
    /// The block after the end of the last request.
    end: u64,
    blocks: u64,
    tag: Tag,
}

impl Event {
    pub(super) fn encode(&self, out: &mut Vec<u8>, before: &mut Before) {
        let (code, place) = match self.request {
            Request::Read { at, blocks } => (0, Some((at.0, blocks))),
            Request::Write { at, blocks, .. } => (1, Some((at.0, blocks))),
            Request::Flush => (2, None),
            Request::Discard { at, blocks } => (3, Some((at.0, blocks))),
            Request::Remap { from, blocks, how: Remap::Exchange, .. } => (4, Some((from.0, blocks))),
            Request::Remap { from, blocks, how: Remap::Move, .. } => (5, Some((from.0, blocks))),
            Request::Remap { from, blocks, how: Remap::Share, .. } => (6, Some((from.0, blocks))),
        };
        let mut head = code;
        let mut flag = |bit, set: bool| head |= if set { bit } else { 0 };
        flag(SAME_TAG, self.tag == before.tag);
        flag(CONTINUES, place.is_some_and(|(at, _)| at == before.end));
        flag(SAME_LENGTH, place.is_some_and(|(_, blocks)| blocks == before.blocks));
        flag(FAILED, self.failed);
        out.push(head);
        encode_signed(out, step(before.arrival, self.arrival));
        encode_number(out, self.took);
        if let Some((at, blocks)) = place {
            if head & CONTINUES == 0 {
                encode_signed(out, step(before.end, at));
            }
            if head & SAME_LENGTH == 0 {
                encode_number(out, blocks);
            }
            before.end = at.wrapping_add(blocks);
            before.blocks = blocks;
        }
        if let Request::Remap { from, to, .. } = self.request {
            encode_signed(out, step(from.0, to.0));
        }
        if head & SAME_TAG == 0 {
            out.push(self.tag.cause);
            encode_number(out, self.tag.owner);
        }
        if let Request::Write { fingerprint, .. } = self.request {
            out.extend_from_slice(&fingerprint.to_le_bytes());
        }
        before.arrival = self.arrival;
        before.tag = self.tag;
    }

    pub(super) fn decode(input: &mut Input<'_>, before: &mut Before) -> Result<Self, Broken> {
        let head = input.byte()?;
        if head & UNUSED != 0 {
            return Err("an unknown kind of record");
        }
        let arrival = stepped(before.arrival, input.signed()?);
        let took = input.number()?;
        let code = head & 7;
        let (mut at, mut blocks) = (0, 0);
        if code != 2 {
            at = if head & CONTINUES == 0 { stepped(before.end, input.signed()?) } else { before.end };
            blocks = if head & SAME_LENGTH == 0 { input.number()? } else { before.blocks };
            before.end = at.wrapping_add(blocks);
            before.blocks = blocks;
        } else if head & (CONTINUES | SAME_LENGTH) != 0 {
            return Err("a flush with a place");
        }
        let to = if matches!(code, 4..=6) { stepped(at, input.signed()?) } else { 0 };
        let tag =
            if head & SAME_TAG == 0 { Tag { cause: input.byte()?, owner: u64::decode(input)? } } else { before.tag };
        let (at, to) = (Lba(at), Lba(to));
        let request = match code {
            0 => Request::Read { at, blocks },
            1 => {
                let mut fingerprint = [0; 4];
                fingerprint.copy_from_slice(input.bytes(4)?);
                Request::Write { at, blocks, fingerprint: u32::from_le_bytes(fingerprint) }
            }
            2 => Request::Flush,
            3 => Request::Discard { at, blocks },
            4 => Request::Remap { from: at, to, blocks, how: Remap::Exchange },
            5 => Request::Remap { from: at, to, blocks, how: Remap::Move },
            6 => Request::Remap { from: at, to, blocks, how: Remap::Share },
            _ => return Err("an unknown kind of record"),
        };
        before.arrival = arrival;
        before.tag = tag;
        Ok(Event { arrival, took, tag, request, failed: head & FAILED != 0 })
    }
}

/// The requests of a recording, in completion order.
pub struct Events {
    reader: Reader,
    before: Before,
    blocks: u64,
    causes: BTreeMap<u8, String>,
}

impl Events {
    /// Reads the requests of an opened recording.
    pub fn new(reader: Reader) -> Result<Self, RecordError> {
        let (blocks, causes) = reader.subject(Kind::Blocks, |input| {
            let (blocks, mut causes) = (u64::decode(input)?, BTreeMap::new());
            for _ in 0..u64::decode(input)? {
                causes.insert(input.byte()?, String::decode(input)?);
            }
            Ok((blocks, causes))
        })?;
        Ok(Events { reader, before: Before::default(), blocks, causes })
    }

    /// Size of the recorded device in blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Meanings of [`Tag::cause`], as far as they were recorded.
    pub fn causes(&self) -> &BTreeMap<u8, String> {
        &self.causes
    }
}

impl Iterator for Events {
    type Item = Result<Event, RecordError>;
    fn next(&mut self) -> Option<Self::Item> {
        let before = &mut self.before;
        self.reader.next(|input, first| {
            if first {
                *before = Before::default();
            }
            Event::decode(input, before)
        })
    }
}
