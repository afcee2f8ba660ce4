//! A sparse in-memory device that can be copied at almost no cost.
//!
//! A two-level table of 64 KiB chunks, allocated on first write, so a 1 TiB device needs less than a megabyte until
//! it is written. Each chunk has its own lock. Chunks are reference-counted and copied on write while shared, so
//! [`Memory::fork`] is cheap enough for a crash test to fork at every write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::bounds::{check, check_blocks, check_parts, check_remap};
use crate::model::Remap;
use crate::{BLOCK, BlockDevice, Lba, Result, Tag};

/// Bytes in a chunk. Small enough that a lone 4 KiB write costs little, and large enough that a sequential megabyte
/// takes only 16 locks.
const CHUNK: usize = 64 * 1024;
const CHUNK_BLOCKS: u64 = (CHUNK / BLOCK) as u64;
/// Chunks under one middle table: 64 MiB of device.
const FANOUT: usize = 1024;
/// The largest device, 256 TiB: sixteen times what F2FS can address, and its root table is 64 MiB.
const MAX_BLOCKS: u64 = 1 << 36;

static ZEROES: [u8; CHUNK] = [0; CHUNK];

type Leaf = RwLock<Option<Arc<[u8]>>>;
type Middle = Box<[Leaf]>;

/// A device in memory. Unwritten and discarded blocks read as zeroes.
///
/// No data is volatile: a flush does nothing. [`PowerCut`](crate::PowerCut) adds loss.
pub struct Memory {
    blocks: u64,
    root: Box<[OnceLock<Middle>]>,
    allocated: AtomicU64,
}

/// The part of one request that falls into one chunk.
struct Piece {
    /// Index of the chunk on the device.
    chunk: usize,
    /// First byte inside the chunk.
    from: usize,
    /// Bytes.
    len: usize,
}

/// Splits a checked byte range at chunk boundaries.
fn pieces(at: Lba, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut chunk = (at.0 / CHUNK_BLOCKS) as usize;
    let mut from = (at.0 % CHUNK_BLOCKS) as usize * BLOCK;
    let mut left = bytes;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let len = left.min(CHUNK - from);
        let piece = Piece { chunk, from, len };
        left -= len;
        chunk += 1;
        from = 0;
        Some(piece)
    })
}

impl Memory {
    /// A device of `blocks` blocks, all zeroes.
    ///
    /// # Panics
    /// If `blocks` is over 2^36 (256 TiB).
    pub fn new(blocks: u64) -> Self {
        assert!(blocks <= MAX_BLOCKS, "a memory device of {blocks} blocks: at most {MAX_BLOCKS}");
        let middles = blocks.div_ceil(CHUNK_BLOCKS * FANOUT as u64) as usize;
        Self { blocks, root: (0..middles).map(|_| OnceLock::new()).collect(), allocated: AtomicU64::new(0) }
    }

    /// The leaf of a chunk if its middle table exists.
    fn peek(&self, chunk: usize) -> Option<&Leaf> {
        self.root.get(chunk / FANOUT)?.get()?.get(chunk % FANOUT)
    }

    /// The leaf of a chunk on the device; creates its middle table if missing.
    fn leaf(&self, chunk: usize) -> &Leaf {
        let middle = self.root[chunk / FANOUT].get_or_init(|| (0..FANOUT).map(|_| Leaf::new(None)).collect());
        &middle[chunk % FANOUT]
    }

    fn store(&self, at: Lba, data: &[u8]) {
        let mut rest = data;
        for Piece { chunk, from, len } in pieces(at, data.len()) {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            let mut slot = self.leaf(chunk).write();
            match slot.as_mut() {
                // A chunk shared with a fork is replaced as a whole, so copying it first would be wasted.
                Some(shared) if len == CHUNK && Arc::strong_count(shared) > 1 => *shared = Arc::from(head),
                Some(bytes) => Arc::make_mut(bytes)[from..from + len].copy_from_slice(head),
                None => {
                    *slot = Some(if len == CHUNK {
                        Arc::from(head)
                    } else {
                        let mut bytes: Arc<[u8]> = Arc::from(&ZEROES[..]);
                        Arc::make_mut(&mut bytes)[from..from + len].copy_from_slice(head);
                        bytes
                    });
                    self.allocated.fetch_add(CHUNK as u64, Ordering::Relaxed);
                }
            }
        }
    }

    /// Bytes in chunks of this device. Chunks shared with forks count in each.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// An independent device with the same contents. Costs a reference per allocated chunk; a chunk is copied when
    /// either side writes to it. Concurrent writes may be included in some chunks and not in others.
    pub fn fork(&self) -> Self {
        let copy = Self::new(self.blocks);
        let mut allocated = 0;
        for (from, to) in self.root.iter().zip(&copy.root) {
            let Some(middle) = from.get() else { continue };
            let leaves: Middle = middle.iter().map(|leaf| Leaf::new(leaf.read().clone())).collect();
            allocated += leaves.iter().filter(|leaf| leaf.read().is_some()).count() as u64 * CHUNK as u64;
            // The cell is new and not shared, so it is empty.
            let _ = to.set(leaves);
        }
        copy.allocated.store(allocated, Ordering::Relaxed);
        copy
    }

    /// True if both have the same contents.
    pub fn same_as(&self, other: &Self) -> bool {
        self.first_difference(other).is_none()
    }

    /// The first block that differs, or the end of the shorter one if the sizes differ.
    pub fn first_difference(&self, other: &Self) -> Option<Lba> {
        for chunk in 0..self.blocks.min(other.blocks).div_ceil(CHUNK_BLOCKS) as usize {
            let of = |m: &Self| m.peek(chunk).and_then(|leaf| leaf.read().clone());
            let (a, b) = match (of(self), of(other)) {
                (None, None) => continue,
                (Some(a), Some(b)) if Arc::ptr_eq(&a, &b) => continue,
                pair => pair,
            };
            let bytes = |c: &Option<Arc<[u8]>>, i: usize| -> [u8; BLOCK] {
                let mut block = [0; BLOCK];
                if let Some(c) = c {
                    block.copy_from_slice(&c[i * BLOCK..(i + 1) * BLOCK]);
                }
                block
            };
            for i in 0..CHUNK_BLOCKS as usize {
                if bytes(&a, i) != bytes(&b, i) {
                    let at = chunk as u64 * CHUNK_BLOCKS + i as u64;
                    return (at < self.blocks.min(other.blocks)).then_some(Lba(at)).or(self.end_of_shorter(other));
                }
            }
        }
        self.end_of_shorter(other)
    }

    fn end_of_shorter(&self, other: &Self) -> Option<Lba> {
        (self.blocks != other.blocks).then_some(Lba(self.blocks.min(other.blocks)))
    }

    /// Calls `see` for everything that may be nonzero, in order, in pieces of one chunk.
    pub fn each_piece(&self, mut see: impl FnMut(Lba, &[u8])) {
        for (at, _) in self.allocated_runs(Lba(0), self.blocks) {
            if let Some(leaf) = self.peek((at / CHUNK_BLOCKS) as usize)
                && let Some(bytes) = leaf.read().as_ref()
            {
                see(Lba(at), bytes);
            }
        }
    }

    /// The runs of blocks that may be nonzero, in order: start and length.
    pub(crate) fn allocated_runs(&self, at: Lba, blocks: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let end = at.0.saturating_add(blocks).min(self.blocks);
        let mut here = at.0;
        while here < end {
            let chunk = (here / CHUNK_BLOCKS) as usize;
            let next = if self.root.get(chunk / FANOUT).is_some_and(|m| m.get().is_some()) {
                let next = ((chunk as u64 + 1) * CHUNK_BLOCKS).min(end);
                if self.peek(chunk).is_some_and(|leaf| leaf.read().is_some()) {
                    runs.push((here, next - here));
                }
                next
            } else {
                (chunk as u64 / FANOUT as u64 + 1) * FANOUT as u64 * CHUNK_BLOCKS
            };
            here = next;
        }
        runs
    }

    /// Reads an image file; its holes stay unallocated. The size is rounded down to whole blocks.
    pub fn load(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        let blocks = file.metadata()?.len() / BLOCK as u64;
        if blocks > MAX_BLOCKS {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "image over 256 TiB"));
        }
        let memory = Self::new(blocks);
        let end = blocks * BLOCK as u64;
        let mut buf = vec![0u8; CHUNK];
        let mut at = 0u64;
        while at < end {
            let data = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data,
                // No data from here to the end.
                Err(Errno::NXIO) => break,
                // The host cannot find holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                Err(e) => return Err(e.into()),
            };
            at = data - data % CHUNK as u64;
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap_or(end).min(end);
            while at < hole {
                let len = (CHUNK as u64).min(end - at) as usize;
                let bytes = &mut buf[..len];
                file.read_exact_at(bytes, at)?;
                if bytes.iter().any(|b| *b != 0) {
                    memory.store(Lba(at / BLOCK as u64), bytes);
                }
                at += len as u64;
            }
        }
        Ok(memory)
    }

    /// Writes an image file of the device's size, replacing an old file's contents; zero blocks become holes.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.blocks * BLOCK as u64)?;
        for (at, blocks) in self.allocated_runs(Lba(0), self.blocks) {
            let Some(bytes) = self.peek((at / CHUNK_BLOCKS) as usize).and_then(|l| l.read().clone()) else {
                continue;
            };
            for (i, block) in bytes.chunks_exact(BLOCK).take(blocks as usize).enumerate() {
                if block != &ZEROES[..BLOCK] {
                    file.write_all_at(block, (at + i as u64) * BLOCK as u64)?;
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("blocks", &self.blocks)
            .field("allocated_bytes", &self.allocated_bytes())
            .finish()
    }
}

impl BlockDevice for Memory {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, at: Lba, buf: &mut [u8], _: Tag) -> Result<()> {
        check("read", at, buf.len(), self.blocks)?;
        let mut rest = &mut *buf;
        for Piece { chunk, from, len } in pieces(at, rest.len()) {
            let (head, tail) = rest.split_at_mut(len);
            rest = tail;
            match self.peek(chunk).map(|leaf| leaf.read()).as_ref().and_then(|slot| slot.as_ref()) {
                Some(bytes) => head.copy_from_slice(&bytes[from..from + len]),
                None => head.fill(0),
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
        check_parts("write", at, parts, self.blocks)?;
        let mut at = at;
        for part in parts {
            self.store(at, part);
            at.0 += (part.len() / BLOCK) as u64;
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<()> {
        Ok(())
    }

    /// Frees the chunks wholly inside the range and zeroes the rest of it.
    fn discard(&self, at: Lba, blocks: u64, _: Tag) -> Result<()> {
        check_blocks("discard", at, blocks, self.blocks)?;
        for (start, len) in self.allocated_runs(at, blocks) {
            let Some(leaf) = self.peek((start / CHUNK_BLOCKS) as usize) else {
                continue;
            };
            let mut slot = leaf.write();
            if len == CHUNK_BLOCKS {
                if slot.take().is_some() {
                    self.allocated.fetch_sub(CHUNK as u64, Ordering::Relaxed);
                }
            } else if let Some(bytes) = slot.as_mut() {
                let from = (start % CHUNK_BLOCKS) as usize * BLOCK;
                Arc::make_mut(bytes)[from..from + len as usize * BLOCK].fill(0);
            }
        }
        Ok(())
    }

    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        check_remap(from, to, blocks, self.blocks)?;
        let (mut a, mut b) = ([0; BLOCK], [0; BLOCK]);
        for i in 0..blocks {
            let (x, y) = (Lba(from.0 + i), Lba(to.0 + i));
            self.read(x, &mut a, tag)?;
            if how == Remap::Exchange {
                self.read(y, &mut b, tag)?;
                self.store(x, &b);
            }
            self.store(y, &a);
        }
        match how {
            Remap::Exchange | Remap::Share => Ok(()),
            Remap::Move => self.discard(from, blocks, tag),
        }
    }
}
