//! How is a recording written while it is made?

use std::io::{self, Write};

use crate::{CHUNK_HEAD, Kind, MAGIC, PLAIN, WITH_CONTENTS};

/// A chunk is written when it has this many bytes.
const FULL: usize = 48 << 10;
/// The same with contents: larger chunks compress better. One more record of the longest kind
/// ([`PART`](crate::calls::PART) bytes of contents) and the growth of an incompressible payload still fit.
const FULL_WITH_CONTENTS: usize = 640 << 10;
/// zstd's default: the recorded program waits while a chunk is compressed.
const LEVEL: i32 = 3;

/// Writes a recording incrementally; holds at most one chunk.
pub struct Writer {
    out: Box<dyn Write + Send>,
    chunk: Vec<u8>,
    /// Payloads are compressed.
    compressed: bool,
    in_chunk: u32,
    records: u64,
    /// The error that stopped the writing.
    failed: Option<io::Error>,
    ended: bool,
}

impl Writer {
    /// Begins a recording; the encoding of `subject` depends on the kind.
    pub(crate) fn new(out: Box<dyn Write + Send>, kind: Kind, subject: &[u8]) -> io::Result<Self> {
        Writer::begin(out, kind, subject, false)
    }

    /// The same for records with contents.
    pub(crate) fn with_contents(out: Box<dyn Write + Send>, kind: Kind, subject: &[u8]) -> io::Result<Self> {
        Writer::begin(out, kind, subject, true)
    }

    fn begin(mut out: Box<dyn Write + Send>, kind: Kind, subject: &[u8], compressed: bool) -> io::Result<Self> {
        let mut head = Vec::with_capacity(20 + subject.len());
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&if compressed { WITH_CONTENTS } else { PLAIN }.to_le_bytes());
        head.extend_from_slice(&kind.number().to_le_bytes());
        // Subjects are short.
        head.extend_from_slice(&(subject.len() as u32).to_le_bytes());
        head.extend_from_slice(subject);
        let crc = crc32fast::hash(&head);
        head.extend_from_slice(&crc.to_le_bytes());
        out.write_all(&head)?;
        let chunk = vec![0; CHUNK_HEAD];
        Ok(Writer { out, chunk, compressed, in_chunk: 0, records: 0, failed: None, ended: false })
    }

    /// Adds a record, which `record` appends to its buffer. The flag is true for the first record of a chunk, which
    /// must not refer to the record before.
    pub(crate) fn add(&mut self, record: impl FnOnce(&mut Vec<u8>, bool)) {
        if self.failed.is_some() || self.ended {
            return;
        }
        record(&mut self.chunk, self.in_chunk == 0);
        self.in_chunk += 1;
        self.records += 1;
        if self.chunk.len() >= if self.compressed { FULL_WITH_CONTENTS } else { FULL } {
            self.write_chunk();
        }
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    fn write_chunk(&mut self) {
        if self.compressed && self.in_chunk > 0 {
            match zstd::bulk::compress(&self.chunk[CHUNK_HEAD..], LEVEL) {
                Ok(payload) => {
                    self.chunk.truncate(CHUNK_HEAD);
                    self.chunk.extend_from_slice(&payload);
                }
                Err(e) => self.failed = Some(e),
            }
        }
        let length = (self.chunk.len() - CHUNK_HEAD) as u32;
        let first = self.records - u64::from(self.in_chunk);
        self.chunk[0..4].copy_from_slice(&length.to_le_bytes());
        self.chunk[4..8].copy_from_slice(&self.in_chunk.to_le_bytes());
        self.chunk[8..16].copy_from_slice(&first.to_le_bytes());
        let crc = checksum(&self.chunk);
        self.chunk[16..20].copy_from_slice(&crc.to_le_bytes());
        if self.failed.is_none()
            && let Err(e) = self.out.write_all(&self.chunk)
        {
            self.failed = Some(e);
        }
        self.chunk.truncate(CHUNK_HEAD);
        self.in_chunk = 0;
    }

    /// Writes the end; later records are ignored. Returns the first write error since the beginning.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if !self.ended {
            if self.in_chunk > 0 && self.failed.is_none() {
                self.write_chunk();
            }
            if self.failed.is_none() {
                self.write_chunk();
            }
            self.ended = true;
            if self.failed.is_none() {
                self.failed = self.out.flush().err();
            }
        }
        match self.failed.take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // An error cannot be reported here; the missing end shows it.
        let _ = self.finish();
    }
}

/// Checksum of a chunk without the checksum field.
pub(crate) fn checksum(chunk: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&chunk[..CHUNK_HEAD - 4]);
    crc.update(&chunk[CHUNK_HEAD..]);
    crc.finalize()
}
