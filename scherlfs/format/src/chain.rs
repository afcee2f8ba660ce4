//! Log blocks other than inodes: paths, lists of deleted inodes, continuations and index blocks.
//!
//! All begin with the same header as inode blocks, so that a reader of the log recognizes the next block.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut};

use crate::extent::{Extent, RawExtent};
use crate::superblock::path_run;
use crate::{BLOCK, Block, COUNT_MAX, Epoch, FormatError, Ino, Run, Seq, check_seal, seal};

/// Kinds of log blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An inode; its other blocks follow.
    Inode,
    /// Further extents of an inode.
    Continuation,
    /// Addresses of an inode's continuations.
    Index,
    /// The next runs of the log.
    Path,
    /// Deleted inodes.
    Gone,
}

impl Kind {
    fn magic(self) -> u32 {
        u32::from_le_bytes(*match self {
            Kind::Inode => b"SINO",
            Kind::Continuation => b"SEXT",
            Kind::Index => b"SIDX",
            Kind::Path => b"SPTH",
            Kind::Gone => b"SDEL",
        })
    }
    fn what(self) -> &'static str {
        match self {
            Kind::Inode => "inode",
            Kind::Continuation => "continuation",
            Kind::Index => "index of continuations",
            Kind::Path => "path",
            Kind::Gone => "list of inodes that are gone",
        }
    }
}

/// Header of every log block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// The kind.
    pub magic: U32,
    /// CRC-32 of the block with this field as zero.
    pub crc: U32,
    /// The mount that wrote it.
    pub epoch: U32,
    /// Number of earlier failed attempts to write its transaction.
    pub attempt: u8,
    /// The mark of the mount, see [`Epoch`].
    pub mark: [u8; 3],
    /// Its transaction.
    pub seq: U64,
    /// The inode; 0 for a path and a list.
    pub ino: U32,
    /// Index of the piece in the transaction, from 0. For a continuation: its index in the inode when it was
    /// written.
    pub piece: U16,
    /// Number of pieces in the transaction. For a continuation: the inode's number of continuations.
    pub pieces: U16,
}

/// Bytes of the header.
pub const HEADER: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER == 32);

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of block.
    pub kind: Kind,
    /// The mount that wrote it.
    pub epoch: Epoch,
    /// Number of earlier failed attempts to write its transaction: pieces of different attempts do not form a
    /// transaction.
    pub attempt: u8,
    /// Its transaction.
    pub seq: Seq,
    /// The inode.
    pub ino: Ino,
    /// Index of the piece in the transaction, or of the continuation in the inode.
    pub piece: u16,
    /// Total number of these.
    pub pieces: u16,
}

fn mark([a, b, c]: [u8; 3]) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

impl Header {
    /// Decodes a log block and checks its checksum.
    pub fn read(block: &Block) -> Result<Self, FormatError> {
        let none = FormatError::Magic { what: "block of the log" };
        let (raw, _) = RawHeader::ref_from_prefix(block).map_err(|_| none)?;
        let kinds = [Kind::Inode, Kind::Continuation, Kind::Index, Kind::Path, Kind::Gone];
        let kind = kinds.into_iter().find(|k| k.magic() == raw.magic.get()).ok_or(none)?;
        check_seal(block, 4, kind.what())?;
        let (piece, pieces) = (raw.piece.get(), raw.pieces.get());
        if piece >= pieces {
            return Err(FormatError::Field { what: kind.what(), field: "piece", value: piece.into() });
        }
        if raw.seq.get() > COUNT_MAX {
            return Err(FormatError::Field { what: kind.what(), field: "seq", value: raw.seq.get() });
        }
        Ok(Header {
            kind,
            epoch: Epoch { count: raw.epoch.get(), mark: mark(raw.mark) },
            attempt: raw.attempt,
            seq: Seq(raw.seq.get()),
            ino: Ino(raw.ino.get()),
            piece,
            pieces,
        })
    }

    /// Decodes a header of the given kind.
    pub fn expect(block: &Block, kind: Kind) -> Result<Self, FormatError> {
        let header = Self::read(block)?;
        if header.kind == kind { Ok(header) } else { Err(FormatError::Magic { what: kind.what() }) }
    }

    /// Writes it at the beginning of a block, with the block's checksum: the rest must be complete.
    pub fn write(&self, block: &mut Block) {
        let [m0, m1, m2, _] = self.epoch.mark.to_le_bytes();
        let raw = RawHeader {
            magic: self.kind.magic().into(),
            crc: 0.into(),
            epoch: self.epoch.count.into(),
            attempt: self.attempt,
            mark: [m0, m1, m2],
            seq: self.seq.0.into(),
            ino: self.ino.0.into(),
            piece: self.piece.into(),
            pieces: self.pieces.into(),
        };
        block[..HEADER].copy_from_slice(raw.as_bytes());
        seal(block, 4);
    }
}

/// Most runs in a path block, and most extents in a continuation.
pub const RUNS_MAX: usize = (BLOCK - HEADER - 4) / crate::extent::EXTENT_BYTES;
const _: () = assert!(RUNS_MAX == 338);
/// Most numbers in a list of deleted inodes.
pub const GONE_MAX: usize = (BLOCK - HEADER - 4) / 4;

/// A list of runs or extents on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawRuns {
    /// Header of every log block.
    pub header: [u8; HEADER],
    /// Number of valid entries.
    pub count: U32,
    /// The entries.
    pub runs: [RawExtent; RUNS_MAX],
    /// For a continuation: the lower half of the number of its first file block. Otherwise zero.
    pub first: U32,
}

/// A list of inodes on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawGone {
    /// Header of every log block.
    pub header: [u8; HEADER],
    /// Number of valid entries.
    pub count: U32,
    /// The entries.
    pub inodes: [U32; GONE_MAX],
}

const _: () = assert!(size_of::<RawRuns>() == BLOCK && size_of::<RawGone>() == BLOCK);

fn runs_of(block: &Block, kind: Kind) -> Result<&[RawExtent], FormatError> {
    Header::expect(block, kind)?;
    let raw = RawRuns::ref_from_bytes(block).map_err(|_| FormatError::Magic { what: kind.what() })?;
    let count = raw.count.get();
    raw.runs.get(..count as usize).ok_or(FormatError::Field { what: kind.what(), field: "count", value: count.into() })
}

fn put_runs(header: &Header, first: u32, runs: impl ExactSizeIterator<Item = RawExtent>) -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    let raw: &mut RawRuns = transmute_mut!(&mut *block);
    raw.first = first.into();
    raw.count = (runs.len().min(RUNS_MAX) as u32).into();
    raw.runs.iter_mut().zip(runs).for_each(|(to, run)| *to = run);
    header.write(&mut block);
    block
}

/// The runs of a path block, where the log continues behind it, or of an index block.
pub fn read_runs(block: &Block, kind: Kind) -> Result<Vec<Run>, FormatError> {
    runs_of(block, kind)?.iter().map(|r| path_run(r, kind.what())).collect()
}

/// Encodes a path block or an index block with at most [`RUNS_MAX`] runs.
pub fn write_runs(header: &Header, runs: &[Run]) -> Box<Block> {
    put_runs(header, 0, runs.iter().map(|r| Extent::Stored { start: r.start, blocks: r.blocks }.raw()))
}

/// A decoded continuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// Lower half of the number of its first file block.
    pub first: u32,
    /// Further extents of the inode.
    pub extents: Vec<Extent>,
}

/// Decodes a continuation.
pub fn read_continuation(block: &Block) -> Result<Continuation, FormatError> {
    let extents = runs_of(block, Kind::Continuation)?.iter().map(Extent::try_from).collect::<Result<_, _>>()?;
    let [.., a, b, c, d] = *block;
    Ok(Continuation { first: u32::from_le_bytes([a, b, c, d]), extents })
}

/// Encodes a continuation with at most [`RUNS_MAX`] extents, whose first file block is `first`.
pub fn write_continuation(header: &Header, first: u64, extents: &[Extent]) -> Box<Block> {
    put_runs(header, first as u32, extents.iter().map(|e| e.raw()))
}

/// The same for extents that are already in on-disk form.
pub fn write_raw_continuation(header: &Header, first: u64, extents: &[RawExtent]) -> Box<Block> {
    put_runs(header, first as u32, extents.iter().copied())
}

/// Decodes a list of inodes.
pub fn read_gone(block: &Block) -> Result<Vec<Ino>, FormatError> {
    Header::expect(block, Kind::Gone)?;
    let what = Kind::Gone.what();
    let raw = RawGone::ref_from_bytes(block).map_err(|_| FormatError::Magic { what })?;
    let count = raw.count.get();
    let all =
        raw.inodes.get(..count as usize).ok_or(FormatError::Field { what, field: "count", value: count.into() })?;
    Ok(all.iter().map(|i| Ino(i.get())).collect())
}

/// Encodes a list of at most [`GONE_MAX`] inodes.
pub fn write_gone(header: &Header, inodes: &[Ino]) -> Box<Block> {
    let mut raw = RawGone::new_zeroed();
    raw.count = (inodes.len().min(GONE_MAX) as u32).into();
    raw.inodes.iter_mut().zip(inodes).for_each(|(to, ino)| *to = ino.0.into());
    let mut block = Box::new([0; BLOCK]);
    block.copy_from_slice(raw.as_bytes());
    header.write(&mut block);
    block
}
