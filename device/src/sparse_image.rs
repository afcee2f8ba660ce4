//! Reader of Android sparse images.
//!
//! Reads `simg` files in place as the expanded image, without writing it anywhere; images split by `simg2simg` are
//! combined if their files are in one directory. Format: the public header of Android's libsparse
//! (`sparse_format.h`), version 1. All numbers are little-endian.
//!
//! | header, 28 bytes or more | chunk header, 12 bytes or more |
//! |---|---|
//! | magic u32, major u16, minor u16, header size u16, chunk header size u16, block size u32, blocks u32, chunks u32, checksum u32 | type u16, reserved u16, blocks of output u32, bytes in the file with this header u32 |

mod error;
mod pieces;
mod write;

pub use error::SparseError;
pub use write::write_sparse;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bounds::check;
use crate::claim::{Claim, check_kind, claim};
use crate::{Access, BLOCK, BlockDevice, DeviceError, Lba, OpenError, Result, Tag};

/// First four bytes of a sparse image.
pub(crate) const MAGIC: u32 = 0xED26_FF3A;
const HEADER: u16 = 28;
const CHUNK_HEADER: u16 = 12;
const RAW: u16 = 0xCAC1;
const FILL: u16 = 0xCAC2;
const DONT_CARE: u16 = 0xCAC3;
const CRC32: u16 = 0xCAC4;
/// Most chunks accepted, which limits their table to 140 MiB. Real images have thousands.
const MAX_CHUNKS: u32 = 1 << 22;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Bytes from this offset of the file.
    Raw(u64),
    /// These bytes, repeated.
    Fill([u8; 4]),
    /// No contents ("don't care"): reads as zeroes.
    Absent,
}

/// A run of the expanded image, up to the start of the next.
#[derive(Debug)]
struct Run {
    /// First byte of the expanded image.
    start: u64,
    content: Content,
}

/// One file of a sparse image.
#[derive(Debug)]
struct Piece {
    file: File,
    /// The lock, held until the image is closed.
    _claim: Option<Claim>,
    /// Ascending; the first starts at 0.
    runs: Vec<Run>,
    /// (bytes covered, CRC-32) of the checksum chunks and the header.
    checksums: Vec<(u64, u32)>,
    /// Bytes of the expanded image.
    size: u64,
    /// Block size of its chunks in bytes.
    block: u64,
}

/// An Android sparse image, read-only. Absent blocks read as zeroes, or [fail](Self::refuse_absent).
#[derive(Debug)]
pub struct SparseImage {
    /// The files of the image.
    pieces: Vec<Piece>,
    /// Which piece holds what, by start in the image: ascending, the first starts at 0. Empty for a single piece.
    joined: Vec<(u64, usize)>,
    /// Bytes of the expanded image.
    size: u64,
    refuses_absent: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Reads `N` bytes; `what` names them in errors.
fn bytes_at<const N: usize>(
    file: &File,
    at: u64,
    end: u64,
    what: &'static str,
) -> std::result::Result<[u8; N], SparseError> {
    let mut bytes = [0; N];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(bytes),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SparseError::Truncated { what, end }),
        Err(source) => Err(SparseError::Io { at, source }),
    }
}

/// State of the parser during the walk over chunks.
#[derive(Default)]
struct Table {
    runs: Vec<Run>,
    checksums: Vec<(u64, u32)>,
}

impl Table {
    fn push(&mut self, start: u64, content: Content) {
        // Adjacent runs with the same fill are merged.
        if self.runs.last().is_none_or(|last| last.content != content || matches!(content, Content::Raw(_))) {
            self.runs.push(Run { start, content });
        }
    }
}

/// Opens one file, and checks its header and every chunk's header.
fn open_piece(path: &Path) -> std::result::Result<Piece, OpenError> {
    let access = Access::ReadOnly;
    let failed = |action, e| OpenError::from_io(path, access, action, e);
    check_kind(path, &std::fs::metadata(path).map_err(|e| failed("stat", e))?)?;
    let file = File::open(path).map_err(|e| failed("open", e))?;
    let claim = claim(path, &file, access)?;
    let mut piece = Piece::parse(file).map_err(|source| OpenError::Sparse { path: path.to_owned(), source })?;
    piece._claim = Some(claim);
    Ok(piece)
}

impl SparseImage {
    /// Opens and checks an image: the header and every chunk's header, not the data. If it is a piece of a split
    /// image, the other pieces are searched in its directory by the number at the end of the name, and read with
    /// it.
    pub fn open(path: impl AsRef<Path>) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let piece = open_piece(path)?;
        let size = piece.size;
        if size < BLOCK as u64 {
            return Err(OpenError::TooSmall { path: path.to_owned(), bytes: size });
        }
        let (pieces, joined) = pieces::with_others(path, piece);
        Ok(Self { pieces, joined, size, refuses_absent: false })
    }

    /// Number of files.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Makes reads of absent blocks fail, where they must not be taken for zeroes.
    pub fn refuse_absent(&mut self) {
        self.refuses_absent = true;
    }

    /// Blocks that are partly or wholly absent, as ranges in ascending order.
    pub fn absent(&self) -> impl Iterator<Item = Range<u64>> {
        let block = BLOCK as u64;
        let whole = self.size / block;
        self.runs().filter(|(_, _, content)| *content == Content::Absent).filter_map(move |(start, end, _)| {
            let range = start / block..end.div_ceil(block).min(whole);
            (!range.is_empty()).then_some(range)
        })
    }

    /// Every run with start and end.
    fn runs(&self) -> impl Iterator<Item = (u64, u64, Content)> {
        let single = self.pieces.first().filter(|_| self.joined.is_empty());
        let alone = single.into_iter().flat_map(|piece| piece.within(0, self.size));
        let ends = self.joined.iter().skip(1).map(|(start, _)| *start).chain([self.size]);
        let stretches = self.joined.iter().zip(ends);
        let joined = stretches.filter_map(|((start, n), end)| Some(self.pieces.get(*n)?.within(*start, end)));
        alone.chain(joined.flatten())
    }

    /// Reads everything and compares with the checksums recorded in the files, if any.
    pub fn verify(&self) -> std::result::Result<(), SparseError> {
        self.pieces.iter().try_for_each(Piece::verify)
    }

    /// Fills `buf` with the expanded image from byte `at`; both must be inside it.
    fn fill(&self, mut at: u64, mut buf: &mut [u8]) -> io::Result<()> {
        let refuses = self.refuses_absent;
        if self.joined.is_empty() {
            return self.pieces.first().ok_or(io::ErrorKind::UnexpectedEof)?.fill(at, buf, refuses);
        }
        let mut index = self.joined.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        while !buf.is_empty() {
            let Some((_, piece)) = self.joined.get(index) else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            index += 1;
            let end = self.joined.get(index).map_or(self.size, |(next, _)| *next);
            let len = end.saturating_sub(at).min(buf.len() as u64) as usize;
            let (here, rest) = buf.split_at_mut(len);
            self.pieces.get(*piece).ok_or(io::ErrorKind::UnexpectedEof)?.fill(at, here, refuses)?;
            buf = rest;
            at += len as u64;
        }
        Ok(())
    }
}

impl Piece {
    fn parse(file: File) -> std::result::Result<Self, SparseError> {
        let end = file.metadata().map_err(|source| SparseError::Io { at: 0, source })?.len();
        let header: [u8; HEADER as usize] = bytes_at(&file, 0, end, "the header")?;
        let magic = u32_at(&header, 0);
        if magic != MAGIC {
            return Err(SparseError::Magic { found: magic });
        }
        let major = u16_at(&header, 4);
        if major != 1 {
            return Err(SparseError::Version { major });
        }
        let refuse = |field, value: u64, wanted| Err(SparseError::Header { field, value, wanted });
        let (header_size, chunk_header) = (u16_at(&header, 8), u16_at(&header, 10));
        if header_size < HEADER {
            return refuse("header size", header_size.into(), "28 or more");
        }
        if chunk_header < CHUNK_HEADER {
            return refuse("chunk header size", chunk_header.into(), "12 or more");
        }
        let block = u32_at(&header, 12);
        if block == 0 || !block.is_multiple_of(4) {
            return refuse("block size", block.into(), "a multiple of 4");
        }
        let (blocks, chunks) = (u32_at(&header, 16), u32_at(&header, 20));
        if chunks > MAX_CHUNKS {
            return refuse("chunk count", chunks.into(), "at most 4194304");
        }
        let (block, mut at, mut done) = (u64::from(block), u64::from(header_size), 0u64);
        let mut table = Table::default();
        for chunk in 0..chunks {
            done += read_chunk(&file, end, &mut at, chunk_header, block, done, chunk, &mut table)?;
            if done > blocks.into() {
                return Err(SparseError::BlockCount { chunk, found: done, wanted: blocks });
            }
        }
        if done != u64::from(blocks) {
            return Err(SparseError::BlockCount { chunk: chunks, found: done, wanted: blocks });
        }
        // Both factors are below 2^32.
        let size = done * block;
        let checksum = u32_at(&header, 24);
        if checksum != 0 {
            table.checksums.push((size, checksum));
        }
        Ok(Self { file, _claim: None, runs: table.runs, checksums: table.checksums, size, block })
    }

    /// The runs within a part of the image.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, Content)> {
        let first = self.runs.partition_point(|run| run.start <= from).saturating_sub(1);
        let runs = self.runs.get(first..).unwrap_or(&[]);
        let ends = runs.iter().skip(1).map(|run| run.start).chain([self.size]);
        runs.iter()
            .zip(ends)
            .take_while(move |(run, _)| run.start < to)
            .map(move |(run, end)| (run.start.max(from), end.min(to), run.content))
            .filter(|(start, end, _)| start < end)
    }

    /// Reads everything and compares with the checksums recorded in the file, if any.
    fn verify(&self) -> std::result::Result<(), SparseError> {
        let mut crc = crc32fast::Hasher::new();
        let mut buf = vec![0; 1 << 20];
        let mut at = 0;
        for &(bytes, recorded) in &self.checksums {
            while at < bytes {
                let len = (bytes - at).min(buf.len() as u64) as usize;
                self.fill(at, &mut buf[..len], false).map_err(|source| SparseError::Io { at, source })?;
                crc.update(&buf[..len]);
                at += len as u64;
            }
            let found = crc.clone().finalize();
            if found != recorded {
                return Err(SparseError::Checksum { bytes, found, recorded });
            }
        }
        Ok(())
    }

    /// Fills `buf` with the expanded image from byte `at`; both must be inside it.
    fn fill(&self, mut at: u64, mut buf: &mut [u8], refuses_absent: bool) -> io::Result<()> {
        let mut index = self.runs.partition_point(|run| run.start <= at).saturating_sub(1);
        while !buf.is_empty() {
            let Some(run) = self.runs.get(index) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            index += 1;
            let end = self.runs.get(index).map_or(self.size, |next| next.start);
            let len = end.saturating_sub(at).min(buf.len() as u64) as usize;
            let (here, rest) = buf.split_at_mut(len);
            let inside = at.saturating_sub(run.start);
            match run.content {
                Content::Raw(from) => self.file.read_exact_at(here, from + inside)?,
                Content::Fill(word) => {
                    // Runs start at multiples of 4, and so do requests.
                    here.chunks_mut(4).for_each(|b| b.copy_from_slice(&word[..b.len()]));
                }
                Content::Absent if refuses_absent => {
                    return Err(io::Error::other("no chunk of the sparse image stores it"));
                }
                Content::Absent => here.fill(0),
            }
            buf = rest;
            at += len as u64;
        }
        Ok(())
    }
}

/// Reads chunk `chunk` at `at`, advances `at` past it, and returns its number of output blocks.
#[allow(clippy::too_many_arguments)] // the state of one loop, split out for length
fn read_chunk(
    file: &File,
    end: u64,
    at: &mut u64,
    chunk_header: u16,
    block: u64,
    done: u64,
    chunk: u32,
    table: &mut Table,
) -> std::result::Result<u64, SparseError> {
    let here = *at;
    let header: [u8; CHUNK_HEADER as usize] = bytes_at(file, here, end, "a chunk")?;
    let (kind, blocks, found) = (u16_at(&header, 0), u64::from(u32_at(&header, 4)), u64::from(u32_at(&header, 8)));
    let data = here + u64::from(chunk_header);
    let (start, bytes) = (done * block, blocks * block);
    let payload = match kind {
        RAW => bytes,
        FILL | CRC32 => 4,
        DONT_CARE => 0,
        _ => {
            return Err(SparseError::ChunkType { chunk, at: here, kind });
        }
    };
    let needed = payload.saturating_add(chunk_header.into());
    if found != needed {
        return Err(SparseError::ChunkSize { chunk, at: here, found, needed });
    }
    if data.checked_add(payload).is_none_or(|after| after > end) {
        return Err(SparseError::Truncated { what: "a chunk", end });
    }
    *at = data + payload;
    match kind {
        CRC32 => {
            let word: [u8; 4] = bytes_at(file, data, end, "a chunk")?;
            table.checksums.push((start, u32::from_le_bytes(word)));
            return Ok(0);
        }
        _ if blocks == 0 => {}
        RAW => table.push(start, Content::Raw(data)),
        FILL => table.push(start, Content::Fill(bytes_at(file, data, end, "a chunk")?)),
        _ => table.push(start, Content::Absent),
    }
    Ok(blocks)
}

impl BlockDevice for SparseImage {
    fn blocks(&self) -> u64 {
        self.size / BLOCK as u64
    }

    fn read_only(&self) -> bool {
        true
    }

    fn read(&self, at: Lba, buf: &mut [u8], _: Tag) -> Result<()> {
        check("read", at, buf.len(), self.blocks())?;
        self.fill(at.0 * BLOCK as u64, buf).map_err(|source| DeviceError::Io { op: "read", at, source })
    }

    fn write(&self, _: Lba, _: &[u8], _: Tag) -> Result<()> {
        Err(DeviceError::ReadOnly { op: "write" })
    }

    fn write_gather(&self, _: Lba, _: &[&[u8]], _: Tag) -> Result<()> {
        Err(DeviceError::ReadOnly { op: "write" })
    }

    fn flush(&self, _: Tag) -> Result<()> {
        Err(DeviceError::ReadOnly { op: "flush" })
    }

    fn discard(&self, _: Lba, _: u64, _: Tag) -> Result<()> {
        Err(DeviceError::ReadOnly { op: "discard" })
    }
}
