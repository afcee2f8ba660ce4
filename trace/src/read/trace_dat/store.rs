//! How are the file's bytes read, by offset and in its byte order?

use std::io::{self, SeekFrom};
use std::path::PathBuf;

use crate::input::{Anywhere, LONGEST};
use crate::{At, Format, Input, TraceError};

const FORMAT: Format = Format::TraceDat;

/// The file.
pub(super) struct Store {
    path: PathBuf,
    inner: Box<dyn Anywhere>,
    length: u64,
    /// Bytes read so far.
    pub(super) read: u64,
    /// True if numbers are big-endian.
    pub(super) big: bool,
}

/// The number at an offset, in either byte order.
#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize, big: bool) -> Option<u16> {
    let b = bytes.get(at..)?.first_chunk()?;
    Some(if big { u16::from_be_bytes(*b) } else { u16::from_le_bytes(*b) })
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let b = bytes.get(at..)?.first_chunk()?;
    Some(if big { u32::from_be_bytes(*b) } else { u32::from_le_bytes(*b) })
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize, big: bool) -> Option<u64> {
    let b = bytes.get(at..)?.first_chunk()?;
    Some(if big { u64::from_be_bytes(*b) } else { u64::from_le_bytes(*b) })
}

impl Store {
    pub(super) fn new(input: Input) -> Result<Self, TraceError> {
        let path = input.path().to_owned();
        let mut inner = input.anywhere()?;
        let io = |source| TraceError::Io { path: path.clone(), source };
        let length = inner.seek(SeekFrom::End(0)).map_err(io)?;
        Ok(Store { path, inner, length, read: 0, big: false })
    }

    pub(super) fn damaged(&self, at: u64, what: impl Into<String>) -> TraceError {
        TraceError::Damaged { path: self.path.clone(), format: FORMAT, at: At::Byte(at), what: what.into() }
    }

    pub(super) fn unsupported(&self, at: u64, what: impl Into<String>) -> TraceError {
        TraceError::Unsupported { path: self.path.clone(), format: FORMAT, at: At::Byte(at), what: what.into() }
    }

    /// An error: the file ends before or within something that begins at `at`.
    pub(super) fn cut_short(&self, at: u64) -> TraceError {
        let at = at.min(self.length);
        TraceError::CutShort { path: self.path.clone(), format: FORMAT, at: At::Byte(at) }
    }

    /// Bytes from an offset to the end.
    pub(super) fn after(&self, at: u64) -> u64 {
        self.length.saturating_sub(at)
    }

    /// Fills `out` with the bytes at `at`.
    pub(super) fn fill(&mut self, at: u64, out: &mut [u8]) -> Result<(), TraceError> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > self.length) {
            return Err(self.cut_short(at));
        }
        let done = self.inner.seek(SeekFrom::Start(at)).and_then(|_| self.inner.read_exact(out));
        match done {
            Ok(()) => {
                self.read += out.len() as u64;
                Ok(())
            }
            // The file has been truncated.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut_short(at)),
            Err(source) => Err(TraceError::Io { path: self.path.clone(), source }),
        }
    }

    /// Reads `length` bytes at `at`; the caller limits the length.
    pub(super) fn bytes(&mut self, at: u64, length: u64) -> Result<Vec<u8>, TraceError> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(self.cut_short(at));
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(self.damaged(at, format!("a part of {length} bytes")));
        }
        let mut out = vec![0; length];
        self.fill(at, &mut out)?;
        Ok(out)
    }
}

/// Bytes to parse in order: the file, or a decompressed part of it.
pub(super) enum Bytes<'a> {
    File(&'a mut Store),
    /// A part, and its offset in the file.
    Part(&'a mut Store, Vec<u8>, u64),
}

/// Parses values from [`Bytes`].
pub(super) struct Taker<'a> {
    bytes: Bytes<'a>,
    pub(super) at: u64,
}

impl<'a> Taker<'a> {
    pub(super) fn new(bytes: Bytes<'a>, at: u64) -> Self {
        Taker { bytes, at }
    }

    fn store(&self) -> &Store {
        match &self.bytes {
            Bytes::File(store) | Bytes::Part(store, ..) => store,
        }
    }

    /// The offset for errors.
    pub(super) fn place(&self) -> u64 {
        match &self.bytes {
            Bytes::File(_) => self.at,
            Bytes::Part(.., place) => *place,
        }
    }

    pub(super) fn damaged(&self, what: impl Into<String>) -> TraceError {
        self.store().damaged(self.place(), what)
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> TraceError {
        self.store().unsupported(self.place(), what)
    }

    /// Returns the file.
    pub(super) fn into_store(self) -> &'a mut Store {
        match self.bytes {
            Bytes::File(store) | Bytes::Part(store, ..) => store,
        }
    }

    /// True at the end of a part.
    pub(super) fn is_empty(&self) -> bool {
        match &self.bytes {
            Bytes::File(store) => self.at >= store.length,
            Bytes::Part(_, part, _) => self.at >= part.len() as u64,
        }
    }

    pub(super) fn bytes(&mut self, length: u64) -> Result<Vec<u8>, TraceError> {
        let at = self.at;
        let out = match &mut self.bytes {
            Bytes::File(store) => store.bytes(at, length)?,
            Bytes::Part(store, part, place) => {
                let range =
                    usize::try_from(at).ok().zip(at.checked_add(length).and_then(|end| usize::try_from(end).ok()));
                match range.and_then(|(from, to)| part.get(from..to)) {
                    Some(bytes) => bytes.to_vec(),
                    None => return Err(store.damaged(*place, "a part that ends within what it has")),
                }
            }
        };
        self.at += length;
        Ok(out)
    }

    pub(super) fn skip(&mut self, length: u64) -> Result<(), TraceError> {
        self.at = self.at.checked_add(length).ok_or_else(|| self.damaged("a length beyond all files"))?;
        Ok(())
    }

    pub(super) fn u16(&mut self) -> Result<u16, TraceError> {
        let big = self.store().big;
        Ok(u16_at(&self.bytes(2)?, 0, big).unwrap_or_default())
    }

    pub(super) fn u32(&mut self) -> Result<u32, TraceError> {
        let big = self.store().big;
        Ok(u32_at(&self.bytes(4)?, 0, big).unwrap_or_default())
    }

    pub(super) fn u64(&mut self) -> Result<u64, TraceError> {
        let big = self.store().big;
        Ok(u64_at(&self.bytes(8)?, 0, big).unwrap_or_default())
    }

    /// The 8-byte number at the beginning of an option.
    pub(super) fn number_in(&self, bytes: &[u8]) -> Option<u64> {
        u64_at(bytes, 0, self.store().big)
    }

    /// Parses a zero-terminated string.
    pub(super) fn string(&mut self) -> Result<String, TraceError> {
        let mut out = Vec::new();
        loop {
            match self.bytes(1)?[0] {
                0 => return Ok(String::from_utf8_lossy(&out).into_owned()),
                b => out.push(b),
            }
            if out.len() > 4096 {
                return Err(self.damaged("a name of over 4096 bytes"));
            }
        }
    }

    /// Parses this zero-terminated string, which must be present.
    pub(super) fn literal(&mut self, text: &str) -> Result<(), TraceError> {
        let found = self.bytes(text.len() as u64 + 1)?;
        if found.strip_suffix(b"\0") == Some(text.as_bytes()) {
            return Ok(());
        }
        Err(self.damaged(format!("{:?} where {text:?} belongs", String::from_utf8_lossy(&found))))
    }
}
