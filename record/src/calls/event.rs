//! What is a call in a recording?

use vfs::{Error, Ino};

use super::MOST;
use super::call::{Call, OF_CONTENTS};
use crate::field::{Broken, Field, Input, encode_number, encode_signed, step, stepped};
use crate::{Kind, Reader, RecordError};

macro_rules! failures {
    ($($code:literal $name:ident: $pattern:pat,)*) => {
        /// Why a call failed: the variant of [`vfs::Error`], without its text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // As the variants of vfs::Error.
        pub enum Failure { $($name,)* /** None of the others. */ Other }
        impl Failure {
            /// The failure of an error.
            pub fn from_error(error: &Error) -> Self {
                match error { $($pattern => Failure::$name,)* _ => Failure::Other }
            }
            fn code(self) -> u8 {
                match self { $(Failure::$name => $code,)* Failure::Other => 0 }
            }
            fn from_code(code: u8) -> Result<Self, Broken> {
                match code {
                    $($code => Ok(Failure::$name),)*
                    0 => Ok(Failure::Other),
                    _ => Err("an unknown failure"),
                }
            }
        }
    };
}

failures! {
    1 NotFound: Error::NotFound,
    2 Exists: Error::Exists,
    3 NotDirectory: Error::NotDirectory,
    4 IsDirectory: Error::IsDirectory,
    5 NotEmpty: Error::NotEmpty,
    6 NameTooLong: Error::NameTooLong,
    7 Invalid: Error::Invalid(_),
    8 NotPermitted: Error::NotPermitted(_),
    9 TooManyLinks: Error::TooManyLinks,
    10 TooBig: Error::TooBig,
    11 NoAttribute: Error::NoAttribute,
    12 Range: Error::Range,
    13 PastEnd: Error::PastEnd,
    14 Busy: Error::Busy(_),
    15 Stale: Error::Stale,
    16 Unsupported: Error::Unsupported(_),
    17 ReadOnly: Error::ReadOnly,
    18 NoKey: Error::NoKey,
    19 NoSpace: Error::NoSpace,
    20 Corrupt: Error::Corrupt(_),
    21 Device: Error::Device(_),
    22 OtherProject: Error::OtherProject,
    23 AttributeTooLarge: Error::AttributeTooLarge,
}

/// A call with its time and result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds from the beginning of the recording.
    pub arrival: u64,
    /// Nanoseconds until it returned.
    pub took: u64,
    /// The call.
    pub call: Call,
    /// The number that the call returns (see [`Call`]), 0 if it returns none, or why it failed.
    pub answer: Result<u64, Failure>,
}

const FAILED: u8 = 1 << 7;

impl Event {
    pub(super) fn encode(&self, out: &mut Vec<u8>, before: &mut u64) {
        out.push(self.call.code() | if self.answer.is_err() { FAILED } else { 0 });
        encode_signed(out, step(*before, self.arrival));
        *before = self.arrival;
        encode_number(out, self.took);
        self.call.encode(out);
        match self.answer {
            Ok(n) => encode_number(out, n),
            Err(failure) => out.push(failure.code()),
        }
    }

    pub(super) fn decode(input: &mut Input<'_>, before: &mut u64, has_contents: bool) -> Result<Self, Broken> {
        let head = input.byte()?;
        if !has_contents && head & !FAILED >= OF_CONTENTS {
            return Err("an unknown call");
        }
        let arrival = stepped(*before, input.signed()?);
        *before = arrival;
        let took = input.number()?;
        let call = Call::decode(head & !FAILED, input)?;
        let answer = if head & FAILED == 0 { Ok(input.number()?) } else { Err(Failure::from_code(input.byte()?)?) };
        Ok(Event { arrival, took, call, answer })
    }
}

/// The calls of a recording, in the order of their returns.
pub struct Events {
    reader: Reader,
    before: u64,
    root: Ino,
    bytes: u64,
    /// The beginning of the next record's contents.
    parts: Vec<u8>,
}

impl Events {
    /// Reads the calls of an opened recording.
    pub fn new(reader: Reader) -> Result<Self, RecordError> {
        let (root, bytes) = reader.subject(Kind::Calls, |input| {
            let subject = (Ino::decode(input)?, u64::decode(input)?);
            if reader.has_contents() {
                // Skip the notice, which is for people.
                String::decode(input)?;
            }
            Ok(subject)
        })?;
        Ok(Events { reader, before: 0, root, bytes, parts: Vec::new() })
    }

    /// The recorded file system's root inode.
    pub fn root(&self) -> Ino {
        self.root
    }

    /// Capacity of the recorded file system for files, used and free; 0 if unknown.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if the recording has written contents and the state before.
    pub fn has_contents(&self) -> bool {
        self.reader.has_contents()
    }

    /// Joins contents that were split into parts; `None` if this event is a part.
    fn joined(&mut self, mut event: Event) -> Result<Option<Event>, Broken> {
        if let Call::Part { bytes } = &event.call {
            if (self.parts.len() + bytes.len()) as u64 > MOST {
                return Err("contents longer than a recording has");
            }
            self.parts.extend_from_slice(bytes);
            return Ok(None);
        }
        if !self.parts.is_empty() {
            let contents = event.call.contents_mut().ok_or("the beginning of contents that do not follow")?;
            let rest = std::mem::replace(contents, std::mem::take(&mut self.parts));
            contents.extend_from_slice(&rest);
        }
        Ok(Some(event))
    }
}

impl Iterator for Events {
    type Item = Result<Event, RecordError>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let has_contents = self.reader.has_contents();
            let before = &mut self.before;
            let event = self.reader.next(|input, first| {
                if first {
                    *before = 0;
                }
                Event::decode(input, before, has_contents)
            });
            let event = match event {
                Some(Ok(event)) => event,
                // The writer never stops between the parts of a record.
                None if !self.parts.is_empty() => {
                    self.parts.clear();
                    return Some(Err(self.reader.senseless("the beginning of contents that do not follow")));
                }
                end => {
                    self.parts.clear();
                    return end;
                }
            };
            match self.joined(event) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(what) => {
                    self.parts.clear();
                    return Some(Err(self.reader.senseless(what)));
                }
            }
        }
    }
}
