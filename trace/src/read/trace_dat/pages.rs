//! How are the pages of one CPU read, directly or from compressed chunks?

use std::io::Read;

use super::store::{Store, u32_at};
use crate::TraceError;
use crate::input::LONGEST;

/// Bytes per read, at least a page.
const STEP: u64 = 256 << 10;

/// Compression of parts of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Zstd,
    Zlib,
}

impl Compression {
    /// By its name in the file; `None` if unknown.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "zstd" => Some(Compression::Zstd),
            "zlib" => Some(Compression::Zlib),
            _ => None,
        }
    }

    /// Decompresses `bytes` to `length` bytes, as given in the file.
    pub(super) fn undo(self, bytes: &[u8], length: u32, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        let length = length as usize;
        if length > LONGEST {
            return Err(format!("a compressed part of {length} bytes"));
        }
        let most = length as u64 + 1;
        let done = match self {
            Compression::Zstd => {
                zstd::stream::read::Decoder::with_buffer(bytes).and_then(|d| d.take(most).read_to_end(out))
            }
            Compression::Zlib => flate2::bufread::ZlibDecoder::new(bytes).take(most).read_to_end(out),
        };
        match done {
            Ok(n) if n == length => Ok(()),
            Ok(_) => Err("a compressed part of another length than it says".into()),
            Err(e) => Err(format!("a compressed part: {e}")),
        }
    }
}

/// Location of a CPU's pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) processor: u32,
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) page: usize,
    pub(super) compression: Option<Compression>,
}

/// Reads pages one after the other.
pub(super) struct Pages {
    stretch: Stretch,
    /// Next offset to read in the file, and the end.
    next: u64,
    end: u64,
    /// Chunks left.
    chunks: u32,
    held: Vec<u8>,
    /// Start of the current page in `held`.
    from: usize,
    /// Offset of `held` in the file.
    place: u64,
    raw: Vec<u8>,
}

impl Pages {
    pub(super) fn new(stretch: Stretch, store: &mut Store) -> Result<Self, TraceError> {
        let end = stretch
            .at
            .checked_add(stretch.length)
            .ok_or_else(|| store.damaged(stretch.at, "a length beyond all files"))?;
        let mut pages = Pages {
            stretch,
            next: stretch.at,
            end,
            chunks: 0,
            held: Vec::new(),
            from: 0,
            place: stretch.at,
            raw: Vec::new(),
        };
        if stretch.compression.is_some() && stretch.length > 0 {
            let count = store.bytes(stretch.at, 4)?;
            pages.chunks = u32_at(&count, 0, store.big).unwrap_or_default();
            pages.next += 4;
            // The stretch's length does not include the 4 bytes of the chunk count.
            pages.end = pages.end.saturating_add(4);
        }
        Ok(pages)
    }

    /// Advances to the next page; false at the end.
    pub(super) fn advance(&mut self, store: &mut Store) -> Result<bool, TraceError> {
        self.from += self.stretch.page;
        while self.from >= self.held.len() {
            self.from = 0;
            self.place = self.next;
            self.held.clear();
            match self.stretch.compression {
                Some(_) if self.chunks == 0 => return Ok(false),
                None if self.next == self.end => return Ok(false),
                Some(compression) => self.chunk(compression, store)?,
                None => {
                    let page = self.stretch.page as u64;
                    let there = store.after(self.next);
                    let step = STEP.max(page).next_multiple_of(page).min(self.end - self.next);
                    // If the file ends early, use its complete pages.
                    let step = if step > there { there / page * page } else { step };
                    if step == 0 {
                        return Err(store.cut_short(self.next));
                    }
                    self.held.resize(step as usize, 0);
                    store.fill(self.next, &mut self.held)?;
                    self.next += step;
                }
            }
            if !self.held.len().is_multiple_of(self.stretch.page) {
                return Err(store.damaged(self.place, "pages that do not end where they should"));
            }
        }
        Ok(true)
    }

    fn chunk(&mut self, compression: Compression, store: &mut Store) -> Result<(), TraceError> {
        self.chunks -= 1;
        let header = store.bytes(self.next, 8)?;
        let (packed, length) =
            (u32_at(&header, 0, store.big).unwrap_or_default(), u32_at(&header, 4, store.big).unwrap_or_default());
        let after = self.next + 8 + u64::from(packed);
        if after > self.end {
            return Err(store.damaged(self.next, "a chunk that is longer than all of them"));
        }
        self.raw = store.bytes(self.next + 8, u64::from(packed))?;
        self.next = after;
        compression.undo(&self.raw, length, &mut self.held).map_err(|what| store.damaged(self.place, what))
    }

    pub(super) fn processor(&self) -> u32 {
        self.stretch.processor
    }

    /// The current page.
    #[inline]
    pub(super) fn page(&self) -> &[u8] {
        &self.held[self.from..self.from + self.stretch.page]
    }

    /// Its offset in the file; if compressed, that of its chunk.
    pub(super) fn place(&self) -> u64 {
        if self.stretch.compression.is_some() { self.place } else { self.place + self.from as u64 }
    }
}
