//! A device that keeps a phone's whole disk in a laptop's memory.
//!
//! Simulations write contents that no program examines. If such contents come from [`generate`], the device
//! recognises a block when it is written, checks it up to its last byte, and stores only its origin: 12 bytes, or
//! almost nothing if it continues the previous block. Zero blocks take no space, other blocks only their nonzero
//! parts. A read returns exactly what was written, whichever program wrote it.
//!
//! * [`generator`]: blocks that a few bytes describe.
//! * `chunk`: 64 blocks.
//! * `stored`: all of them in a file.

mod chunk;
mod generator;
mod stored;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::bounds::{check, check_blocks, check_parts, check_remap};
use crate::model::Remap;
use crate::{BLOCK, BlockDevice, Lba, Result, Tag};
use chunk::{CHUNK_BLOCKS, Chunk, Entry};

pub use generator::{Origin, generate};

/// Chunks under one middle table: 256 MiB of device.
const FANOUT: usize = 1024;
/// Largest device: 256 TiB, as for [`Memory`](crate::Memory).
const MAX_BLOCKS: u64 = 1 << 36;

type Leaf = RwLock<Option<Arc<Chunk>>>;
type Middle = Box<[Leaf]>;

/// A device in memory whose generated blocks take a few bytes each. Unwritten and discarded blocks read as zeroes.
/// No data is volatile.
///
/// Each 256 KiB has its own lock. Bytes are generated and compared outside the lock.
pub struct Fingerprint {
    blocks: u64,
    root: Box<[OnceLock<Middle>]>,
}

/// Memory use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Blocks stored as their origin.
    pub generated: u64,
    /// Blocks that are neither generated nor zero.
    pub other: u64,
    /// Bytes of memory, tables included, allocator overhead excluded.
    pub bytes: u64,
}

/// The part of one request that falls into one chunk.
struct Piece {
    chunk: usize,
    /// First block inside the chunk.
    from: usize,
    blocks: usize,
}

/// Splits a checked run of blocks at chunk boundaries.
fn pieces(at: Lba, blocks: u64) -> impl Iterator<Item = Piece> {
    let (mut here, end) = (at.0, at.0 + blocks);
    std::iter::from_fn(move || {
        let from = (here % CHUNK_BLOCKS as u64) as usize;
        let blocks = ((CHUNK_BLOCKS - from) as u64).min(end - here) as usize;
        let piece = Piece { chunk: (here / CHUNK_BLOCKS as u64) as usize, from, blocks };
        here += blocks as u64;
        (blocks > 0).then_some(piece)
    })
}

impl Fingerprint {
    /// A device of `blocks` blocks, all zeroes.
    ///
    /// # Panics
    /// If `blocks` is over 2^36 (256 TiB).
    pub fn new(blocks: u64) -> Self {
        assert!(blocks <= MAX_BLOCKS, "a fingerprint device of {blocks} blocks: at most {MAX_BLOCKS}");
        let middles = blocks.div_ceil((CHUNK_BLOCKS * FANOUT) as u64) as usize;
        Self { blocks, root: (0..middles).map(|_| OnceLock::new()).collect() }
    }

    fn peek(&self, chunk: usize) -> Option<&Leaf> {
        self.root.get(chunk / FANOUT)?.get()?.get(chunk % FANOUT)
    }

    /// The leaf of a chunk on the device; creates its middle table if missing.
    fn leaf(&self, chunk: usize) -> &Leaf {
        let middle = self.root[chunk / FANOUT].get_or_init(|| (0..FANOUT).map(|_| Leaf::new(None)).collect());
        &middle[chunk % FANOUT]
    }

    /// The current state of a chunk; `None` if it is all zero.
    fn chunk(&self, chunk: usize) -> Option<Arc<Chunk>> {
        self.peek(chunk)?.read().clone()
    }

    /// Replaces a part of a chunk.
    fn replace(&self, chunk: usize, from: usize, entries: &mut Vec<Entry>) {
        if entries.iter().all(|e| *e == Entry::Zero) && self.peek(chunk).is_none_or(|l| l.read().is_none()) {
            entries.clear();
            return;
        }
        let mut slot = self.leaf(chunk).write();
        let held = Arc::make_mut(slot.get_or_insert_default());
        held.replace(from, entries);
        if held.is_empty() {
            *slot = None;
        }
    }

    fn store(&self, at: Lba, data: &[u8]) {
        let (blocks, _) = data.as_chunks::<BLOCK>();
        let mut done = 0;
        let mut entries = Vec::with_capacity(CHUNK_BLOCKS.min(blocks.len()));
        for piece in pieces(at, blocks.len() as u64) {
            entries.extend(blocks[done..done + piece.blocks].iter().map(Entry::from_block));
            self.replace(piece.chunk, piece.from, &mut entries);
            done += piece.blocks;
        }
    }

    fn entry(&self, at: Lba) -> Entry {
        let n = (at.0 % CHUNK_BLOCKS as u64) as usize;
        self.chunk((at.0 / CHUNK_BLOCKS as u64) as usize).map_or(Entry::Zero, |c| c.entry(n))
    }

    fn put_one(&self, at: Lba, entry: Entry) {
        let n = (at.0 % CHUNK_BLOCKS as u64) as usize;
        self.replace((at.0 / CHUNK_BLOCKS as u64) as usize, n, &mut vec![entry]);
    }

    /// Chunks that are not all zero, in order.
    fn chunks(&self) -> impl Iterator<Item = (u64, Arc<Chunk>)> + '_ {
        let middles = self.root.iter().enumerate().filter_map(|(m, cell)| Some((m, cell.get()?)));
        middles.flat_map(|(m, middle)| {
            let of = move |(n, leaf): (usize, &Leaf)| Some(((m * FANOUT + n) as u64, leaf.read().clone()?));
            middle.iter().enumerate().filter_map(of)
        })
    }

    /// Computes the memory use by examining all chunks.
    pub fn held(&self) -> Held {
        let middles = self.root.iter().filter(|m| m.get().is_some()).count();
        let tables = size_of_val(&*self.root) + middles * FANOUT * size_of::<Leaf>();
        let mut held = Held { bytes: tables as u64, ..Held::default() };
        for (_, chunk) in self.chunks() {
            let (generated, other, bytes) = chunk.weight();
            held.generated += generated;
            held.other += other;
            held.bytes += bytes;
        }
        held
    }

    /// An independent device with the same contents. Costs a reference per used 256 KiB; a chunk is copied when
    /// either side writes to it.
    pub fn fork(&self) -> Self {
        let copy = Self::new(self.blocks);
        for (from, to) in self.root.iter().zip(&copy.root) {
            if let Some(middle) = from.get() {
                // The cell is new and not shared, so it is empty.
                let _ = to.set(middle.iter().map(|leaf| Leaf::new(leaf.read().clone())).collect());
            }
        }
        copy
    }

    /// True if both have the same contents.
    pub fn same_as(&self, other: &Self) -> bool {
        self.blocks == other.blocks && self.chunks().eq(other.chunks())
    }

    /// Writes an image file of the device's size, replacing an old file's contents; zero blocks become holes.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.save_but(path, |entry| *entry == Entry::Zero)
    }

    /// The same, but generated blocks become holes, too, which leaves only the file system's own metadata.
    pub fn save_hollow(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.save_but(path, |entry| !matches!(entry, Entry::Other(_)))
    }

    fn save_but(&self, path: impl AsRef<Path>, is_hole: impl Fn(&Entry) -> bool) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.blocks * BLOCK as u64)?;
        let mut bytes = vec![[0; BLOCK]; CHUNK_BLOCKS];
        for (at, chunk) in self.chunks() {
            let at = at * CHUNK_BLOCKS as u64;
            for (n, block) in bytes.iter_mut().enumerate() {
                chunk.read(n, block);
            }
            let mut n = 0;
            while n < CHUNK_BLOCKS {
                let hole = is_hole(&chunk.entry(n));
                let end = (n + 1..CHUNK_BLOCKS).find(|&i| is_hole(&chunk.entry(i)) != hole);
                let end = end.unwrap_or(CHUNK_BLOCKS);
                if !hole {
                    file.write_all_at(bytes[n..end].as_flattened(), (at + n as u64) * BLOCK as u64)?;
                }
                n = end;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fingerprint").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl BlockDevice for Fingerprint {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, at: Lba, buf: &mut [u8], _: Tag) -> Result<()> {
        let blocks = check("read", at, buf.len(), self.blocks)?;
        let (mut rest, _) = buf.as_chunks_mut::<BLOCK>();
        for piece in pieces(at, blocks) {
            let (head, tail) = rest.split_at_mut(piece.blocks);
            rest = tail;
            match self.chunk(piece.chunk) {
                Some(chunk) => (piece.from..).zip(head).for_each(|(n, block)| chunk.read(n, block)),
                None => head.as_flattened_mut().fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], _: Tag) -> Result<()> {
        check("write", at, data.len(), self.blocks)?;
        self.store(at, data);
        Ok(())
    }

    fn write_gather(&self, at: Lba, parts: &[&[u8]], _: Tag) -> Result<()> {
        let total = check_parts("write", at, parts, self.blocks)?;
        let mut blocks = parts.iter().flat_map(|part| part.as_chunks::<BLOCK>().0);
        let mut entries = Vec::with_capacity(CHUNK_BLOCKS);
        for piece in pieces(at, total) {
            entries.extend(blocks.by_ref().take(piece.blocks).map(Entry::from_block));
            self.replace(piece.chunk, piece.from, &mut entries);
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<()> {
        Ok(())
    }

    fn discard(&self, at: Lba, blocks: u64, _: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks)?;
        let mut entries = Vec::new();
        let (mut here, end) = (at.0, at.0 + blocks);
        while here < end {
            let middle = here / (CHUNK_BLOCKS * FANOUT) as u64;
            let next = ((middle + 1) * (CHUNK_BLOCKS * FANOUT) as u64).min(end);
            if self.root[middle as usize].get().is_some() {
                for piece in pieces(Lba(here), next - here) {
                    let Some(leaf) = self.peek(piece.chunk) else { continue };
                    if piece.blocks == CHUNK_BLOCKS {
                        *leaf.write() = None;
                    } else {
                        entries.resize(piece.blocks, Entry::Zero);
                        self.replace(piece.chunk, piece.from, &mut entries);
                    }
                }
            }
            here = next;
        }
        Ok(())
    }

    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, _: Tag) -> Result<()> {
        check_remap(from, to, blocks, self.blocks)?;
        for n in 0..blocks {
            let (from, to) = (Lba(from.0 + n), Lba(to.0 + n));
            let moved = self.entry(from);
            let left = match how {
                Remap::Exchange => self.entry(to),
                Remap::Move => Entry::Zero,
                Remap::Share => self.entry(from),
            };
            self.put_one(from, left);
            self.put_one(to, moved);
        }
        Ok(())
    }
}
