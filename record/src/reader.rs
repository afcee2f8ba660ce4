//! How is a recording read, even if damaged?

use std::io::{self, Read};

use crate::field::{Broken, Input};
use crate::writer::checksum;
use crate::{CHUNK_HEAD, Kind, MAGIC, MAX_CHUNK, MAX_SUBJECT, PLAIN, RecordError, WITH_CONTENTS};

/// Bytes before the subject: magic, version, kind, length.
const HEAD: usize = 16;

/// Reads a recording chunk by chunk, and holds one chunk. An open reader knows the recording's kind; the records are
/// read by [`blocks::Events`](crate::blocks::Events) or [`calls::Events`](crate::calls::Events).
pub struct Reader {
    input: Box<dyn Read + Send>,
    kind: Kind,
    version: u16,
    subject: Vec<u8>,
    /// Offset of the next byte of `input` in the recording.
    at: u64,
    /// Offset of the chunk in the recording.
    start: u64,
    /// The chunk's header and decompressed payload.
    chunk: Vec<u8>,
    /// Position of the next byte to decode.
    next: usize,
    left: u32,
    records: u64,
    ended: bool,
}

impl Reader {
    /// Reads the recording's header.
    pub fn new(input: impl Read + Send + 'static) -> Result<Self, RecordError> {
        let mut input: Box<dyn Read + Send> = Box::new(input);
        let mut head = vec![0; HEAD];
        let got = fill(&mut input, &mut head, 0)?;
        if head[..8] != MAGIC {
            return Err(RecordError::NotARecording);
        }
        let cut = |at| RecordError::CutShort { at, records: 0 };
        let damaged = |at, what| RecordError::Damaged { at, what, records: 0 };
        if got < HEAD {
            return Err(cut(got as u64));
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if !(PLAIN..=WITH_CONTENTS).contains(&version) {
            return Err(RecordError::Version { found: version, known: WITH_CONTENTS });
        }
        let length = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        if length > MAX_SUBJECT {
            return Err(damaged(12, "the subject's length"));
        }
        let length = length as usize;
        head.resize(HEAD + length + 4, 0);
        let got = HEAD + fill(&mut input, &mut head[HEAD..], HEAD as u64)?;
        if got < head.len() {
            return Err(cut(got as u64));
        }
        let crc = head.split_off(HEAD + length);
        if crc != crc32fast::hash(&head).to_le_bytes() {
            return Err(damaged(0, "the checksum of the beginning"));
        }
        let kind = u16::from_le_bytes([head[10], head[11]]);
        let kind = Kind::from_number(kind).ok_or(damaged(10, "the kind of recording"))?;
        if kind == Kind::Blocks && version != PLAIN {
            return Err(damaged(8, "a version that recordings of block devices do not have"));
        }
        let subject = head.split_off(HEAD);
        let at = got as u64;
        let (chunk, next, left, records, ended) = (Vec::new(), 0, 0, 0, false);
        Ok(Reader { input, kind, version, subject, at, start: at, chunk, next, left, records, ended })
    }

    /// The recording's kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// True if it has written contents.
    pub fn has_contents(&self) -> bool {
        self.version == WITH_CONTENTS
    }

    /// Decodes the header of the subject, if the recording is of this kind.
    pub(crate) fn subject<T>(
        &self,
        asked: Kind,
        decode: impl FnOnce(&mut Input<'_>) -> Result<T, Broken>,
    ) -> Result<T, RecordError> {
        if self.kind != asked {
            return Err(RecordError::Kind { found: self.kind, asked });
        }
        let mut input = Input::new(&self.subject);
        let damaged = |what| RecordError::Damaged { at: HEAD as u64, what, records: 0 };
        let subject = decode(&mut input).map_err(damaged)?;
        if input.left() > 0 { Err(damaged("more about the subject than there is to say")) } else { Ok(subject) }
    }

    /// The next record, decoded by `decode`, whose flag is true for the first of a chunk. After an error the reader
    /// returns nothing more.
    pub(crate) fn next<T>(
        &mut self,
        decode: impl FnOnce(&mut Input<'_>, bool) -> Result<T, Broken>,
    ) -> Option<Result<T, RecordError>> {
        if self.left == 0 {
            match self.next_chunk() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(e) => {
                    self.ended = true;
                    return Some(Err(e));
                }
            }
        }
        let mut input = Input::new(&self.chunk[self.next..]);
        let first = self.next == CHUNK_HEAD;
        let decoded = decode(&mut input, first);
        let here = self.chunk.len() - input.left();
        match decoded {
            Ok(record) => {
                self.next = here;
                self.left -= 1;
                self.records += 1;
                Some(Ok(record))
            }
            Err(what) => Some(Err(self.broken(here, what))),
        }
    }

    /// The records read so far contradict each other; the reader returns nothing more.
    pub(crate) fn senseless(&mut self, what: Broken) -> RecordError {
        self.broken(self.next, what)
    }

    fn broken(&mut self, in_chunk: usize, what: Broken) -> RecordError {
        self.ended = true;
        self.left = 0;
        self.damaged(in_chunk, what)
    }

    /// An error in the chunk, with its offset in the file. In compressed payloads a record's bytes have no offset in
    /// the file, so the chunk's first byte is reported.
    fn damaged(&self, in_chunk: usize, what: Broken) -> RecordError {
        let in_chunk = if self.has_contents() && in_chunk > CHUNK_HEAD { 0 } else { in_chunk };
        RecordError::Damaged { at: self.start + in_chunk as u64, what, records: self.records }
    }

    /// Reads the next chunk; false after the last.
    fn next_chunk(&mut self) -> Result<bool, RecordError> {
        if self.ended {
            return Ok(false);
        }
        if self.next < self.chunk.len() {
            return Err(self.damaged(self.next, "bytes after the chunk's last record"));
        }
        self.chunk.clear();
        self.start = self.at;
        self.take(CHUNK_HEAD)?;
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| self.chunk[i + k]));
        let (length, records, crc) = (word(0), word(4), word(16));
        let first = u64::from(word(8)) | u64::from(word(12)) << 32;
        if length > MAX_CHUNK {
            return Err(self.damaged(0, "a chunk's length"));
        }
        self.take(length as usize)?;
        if checksum(&self.chunk) != crc {
            return Err(self.damaged(16, "a chunk's checksum"));
        }
        if first != self.records {
            return Err(self.damaged(8, "a chunk is missing or there twice"));
        }
        if records > 0 && self.has_contents() {
            // The output limit holds whatever size the frame declares.
            let payload = zstd::bulk::decompress(&self.chunk[CHUNK_HEAD..], MAX_CHUNK as usize);
            let payload = payload.map_err(|_| self.damaged(CHUNK_HEAD, "a chunk's compression"))?;
            self.chunk.truncate(CHUNK_HEAD);
            self.chunk.extend_from_slice(&payload);
        }
        self.next = CHUNK_HEAD;
        self.left = records;
        if records > 0 {
            return Ok(true);
        }
        if length > 0 {
            return Err(self.damaged(4, "a chunk with bytes and no records"));
        }
        self.ended = true;
        let end = self.at;
        let mut more = [0];
        match fill(&mut self.input, &mut more, end)? {
            0 => Ok(false),
            _ => Err(RecordError::Damaged { at: end, what: "bytes after the end", records: self.records }),
        }
    }

    /// Appends `n` bytes to the chunk.
    fn take(&mut self, n: usize) -> Result<(), RecordError> {
        let from = self.chunk.len();
        self.chunk.resize(from + n, 0);
        let got = fill(&mut self.input, &mut self.chunk[from..], self.at)?;
        self.at += got as u64;
        if got < n {
            return Err(RecordError::CutShort { at: self.at, records: self.records });
        }
        Ok(())
    }
}

/// Reads until `buf` is full or the input ends; returns the number of bytes.
fn fill(input: &mut dyn Read, buf: &mut [u8], at: u64) -> Result<usize, RecordError> {
    let mut got = 0;
    while got < buf.len() {
        match input.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(n) => got += n.min(buf.len() - got),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(RecordError::Io { at: at + got as u64, source }),
        }
    }
    Ok(got)
}
