//! Which bases need not be read from the device?
//!
//! A page that changes a little is compared with its base on the device. Databases change the same pages repeatedly, so
//! this cache above the device keeps blocks that were read as bases, and blocks just written in small requests, because
//! they are the bases of their next changes.
//!
//! It does not know files. All writes of a mount pass through it, so it matches the device: when a write completes, the
//! old copy of the block is dropped. A block that is being read or written while another write of it completes is not
//! cached, because its bytes are unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::model::Remap;
use device::{BLOCK, BlockDevice, Lba, Tag};
use format::{Block, Ino};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cause::Cause;
use crate::replacement::Cache;

/// Cached blocks: 8 MiB.
const MOST: usize = 2048;
/// Larger writes are not cached: small changes seldom follow them.
const SMALL: usize = 16;

/// Limit of excluded files. Beyond it, further files are cached.
const MOST_STRANGERS: usize = 4096;
/// Blocks read ahead in one request: 256 KiB.
const LONGEST_RUN: usize = 64;

/// The cache.
pub(crate) struct Bases {
    below: Arc<dyn BlockDevice>,
    held: Mutex<Held>,
    tokens: AtomicU64,
}

struct Held {
    blocks: Cache<u64, Box<Block>>,
    /// Blocks being read or written, each with the number of the last request for it.
    coming: FxHashMap<u64, u64>,
    /// Excluded files, by inode number.
    strangers: FxHashSet<u64>,
    /// Buffer of an evicted block, for reuse.
    spare: Option<Box<Block>>,
}

impl Held {
    fn take_in(&mut self, at: u64, bytes: &[u8]) {
        if let Some(block) = self.blocks.peek_mut(&at) {
            block.copy_from_slice(bytes);
            return;
        }
        let mut block = self.spare.take().unwrap_or_else(|| Box::new([0; BLOCK]));
        block.copy_from_slice(bytes);
        self.blocks.insert(at, block);
        let gone = self.blocks.make_room(|_| false);
        self.spare = gone.into_iter().flatten().next();
    }
    /// Ends a request that announced the block. True if meanwhile no write of it completed and no other request
    /// announced it.
    fn arrives(&mut self, at: u64, token: u64) -> bool {
        self.coming.get(&at) == Some(&token) && self.coming.remove(&at).is_some()
    }
    /// The device may have other bytes at `at`.
    fn changed(&mut self, at: u64) {
        self.blocks.remove(&at);
        self.coming.remove(&at);
    }
}

impl Bases {
    /// A cache above a device.
    pub(crate) fn new(below: Arc<dyn BlockDevice>) -> Self {
        let held = Held {
            blocks: Cache::new(MOST, MOST / 8),
            coming: FxHashMap::default(),
            strangers: FxHashSet::default(),
            spare: None,
        };
        Bases { below, held: Mutex::new(held), tokens: AtomicU64::new(0) }
    }

    /// Excludes a file from the cache, or includes it again.
    pub(crate) fn estrange(&self, ino: Ino, stranger: bool) {
        let mut held = self.held.lock();
        if !stranger {
            held.strangers.remove(&ino.0.into());
        } else if held.strangers.len() < MOST_STRANGERS {
            held.strangers.insert(ino.0.into());
        }
    }

    /// Announces blocks about to be read or written so that they are cached, unless their owner is excluded.
    fn announce(&self, blocks: std::ops::Range<u64>, owner: u64) -> Option<u64> {
        let mut held = self.held.lock();
        if held.strangers.contains(&owner) {
            return None;
        }
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        held.coming.extend(blocks.map(|at| (at, token)));
        Some(token)
    }

    /// The blocks that are not in memory.
    pub(super) fn lacking(&self, at: impl Iterator<Item = u64>) -> Vec<u64> {
        let held = self.held.lock();
        at.filter(|at| held.blocks.peek(at).is_none()).collect()
    }

    /// Reads blocks (ascending) into the cache, adjacent ones in one request. A failed request caches nothing; reading
    /// its blocks one by one returns the error.
    pub(crate) fn bring(&self, at: &[u64], tag: Tag) {
        for run in at.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(LONGEST_RUN)).filter(|run| run.len() > 1) {
            let blocks = run[0]..run[0] + run.len() as u64;
            // They are needed next, whoever owns them.
            let token = self.announce(blocks.clone(), 0);
            let mut buf = vec![0; run.len() * BLOCK];
            let out = self.below.read(Lba(blocks.start), &mut buf, tag);
            let mut held = self.held.lock();
            for (at, bytes) in blocks.zip(buf.chunks_exact(BLOCK)) {
                if token.is_some_and(|token| held.arrives(at, token)) && out.is_ok() {
                    held.take_in(at, bytes);
                }
            }
        }
    }

    /// Writes blocks given in parts, and caches them if they are few and file contents.
    fn writing(
        &self,
        at: Lba,
        parts: &[&[u8]],
        tag: Tag,
        write: impl FnOnce() -> device::Result<()>,
    ) -> device::Result<()> {
        let count = parts.iter().map(|p| p.len() / BLOCK).sum::<usize>();
        let contents = [Cause::UserData, Cause::DeltaFold].iter().any(|c| c.tag().cause == tag.cause);
        let token = (contents && count <= SMALL).then(|| self.announce(at.0..at.0 + count as u64, tag.owner)).flatten();
        let out = write();
        let mut held = self.held.lock();
        let blocks = parts.iter().flat_map(|p| p.chunks_exact(BLOCK));
        for (at, bytes) in (at.0..).zip(blocks) {
            let arrives = token.is_some_and(|token| held.arrives(at, token));
            if arrives && out.is_ok() {
                held.take_in(at, bytes);
            } else {
                // Even if the write failed, the device may no longer have the cached bytes.
                held.changed(at);
            }
        }
        out
    }
}

impl BlockDevice for Bases {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }
    fn read_only(&self) -> bool {
        self.below.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        if buf.len() != BLOCK {
            return self.below.read(at, buf, tag);
        }
        if let Some(block) = self.held.lock().blocks.get(&at.0) {
            buf.copy_from_slice(&block[..]);
            return Ok(());
        }
        if tag.cause != Cause::DeltaBase.tag().cause {
            return self.below.read(at, buf, tag);
        }
        let Some(token) = self.announce(at.0..at.0 + 1, tag.owner) else { return self.below.read(at, buf, tag) };
        let out = self.below.read(at, buf, tag);
        let mut held = self.held.lock();
        if held.arrives(at.0, token) && out.is_ok() {
            held.take_in(at.0, buf);
        }
        out
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.writing(at, &[data], tag, || self.below.write(at, data, tag))
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> device::Result<()> {
        self.writing(at, parts, tag, || self.below.write_gather(at, parts, tag))
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> device::Result<()> {
        // No single owner: of contents written this way, no file is excluded.
        self.writing(at, &[data], Tag { cause, owner: 0 }, || self.below.write_for(at, data, owners, cause))
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.below.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.below.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        let out = self.below.discard(at, blocks, tag);
        let mut held = self.held.lock();
        (at.0..at.0 + blocks).for_each(|at| held.changed(at));
        out
    }
    fn zones(&self) -> Option<&dyn device::Zones> {
        // Blocks removed by a reset are not read before they are written again.
        self.below.zones()
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> device::Result<()> {
        let out = self.below.remap(from, to, blocks, how, tag);
        let mut held = self.held.lock();
        (from.0..from.0 + blocks).chain(to.0..to.0 + blocks).for_each(|at| held.changed(at));
        out
    }
}

#[cfg(test)]
mod tests {
    use device::{Faulty, Gate, Memory, Op};

    use super::*;

    fn block(byte: u8) -> [u8; BLOCK] {
        [byte; BLOCK]
    }
    fn read(dev: &dyn BlockDevice, at: u64, cause: Cause) -> u8 {
        let mut b = block(0);
        dev.read(Lba(at), &mut b, cause.tag()).unwrap();
        b[7]
    }

    #[test]
    fn a_base_is_read_once_and_never_after_other_bytes_were_written_there() {
        let below = Arc::new(Faulty::new(Memory::new(4096)));
        let dev = Bases::new(below.clone());
        let requests = || below.requests(Op::Read);
        let write = |at: u64, byte: u8, cause: Cause| dev.write(Lba(at), &block(byte), cause.tag()).unwrap();
        dev.write(Lba(5), &[block(1); 40].concat(), Cause::UserData.tag()).unwrap();
        assert_eq!((read(&dev, 6, Cause::DeltaBase), requests()), (1, 1), "of a large write nothing is kept");
        assert_eq!((read(&dev, 6, Cause::DeltaBase), read(&dev, 6, Cause::UserData), requests()), (1, 1, 1));
        write(6, 2, Cause::UserData);
        assert_eq!((read(&dev, 6, Cause::DeltaBase), requests()), (2, 1));
        for change in [
            &|| write(6, 3, Cause::Node),
            &|| dev.write_gather(Lba(5), &[&block(3), &block(3)], Cause::BackgroundGcData.tag()).unwrap(),
            &|| dev.write_for(Lba(6), &block(3), &[1], Cause::Node.tag().cause).unwrap(),
        ] as [&dyn Fn(); 3]
        {
            write(6, 9, Cause::UserData);
            let before = requests();
            change();
            assert_eq!((read(&dev, 6, Cause::DeltaBase), requests()), (3, before + 1));
        }
        write(6, 9, Cause::UserData);
        dev.discard(Lba(0), 512, Cause::Checkpoint.tag()).unwrap();
        let before = requests();
        read(&dev, 6, Cause::DeltaBase);
        assert_eq!(requests(), before + 1);
    }

    #[test]
    fn what_was_read_before_a_write_ended_is_not_kept() {
        let gate = Arc::new(Gate::new(Memory::new(4096)));
        let dev = Bases::new(gate.clone());
        dev.write(Lba(6), &block(1), Cause::Node.tag()).unwrap();
        gate.stop(Op::Read, None);
        std::thread::scope(|s| {
            let reader = s.spawn(|| read(&dev, 6, Cause::DeltaBase));
            assert!(gate.await_one());
            dev.write(Lba(6), &block(2), Cause::Node.tag()).unwrap();
            gate.go_on();
            reader.join().unwrap();
        });
        // Whatever that reader got, none of it is cached.
        assert!(dev.held.lock().blocks.peek(&6).is_none());
        assert_eq!(read(&dev, 6, Cause::DeltaBase), 2);
    }

    #[test]
    fn adjacent_bases_come_in_one_request_and_only_what_is_lacking_is_named() {
        let below = Arc::new(Faulty::new(Memory::new(4096)));
        let dev = Bases::new(below.clone());
        dev.write(Lba(5), &(1..=40).flat_map(block).collect::<Vec<u8>>(), Cause::UserData.tag()).unwrap();
        assert_eq!(read(&dev, 7, Cause::DeltaBase), 3);
        let lacks = dev.lacking([5, 6, 7, 8, 9, 10, 20].into_iter());
        assert_eq!(lacks, [5, 6, 8, 9, 10, 20]);
        let before = below.requests(Op::Read);
        dev.bring(&lacks, Cause::DeltaBase.tag());
        assert_eq!(below.requests(Op::Read), before + 2, "one alone is read when it is asked for");
        assert_eq!([5, 6, 8, 9, 10].map(|at| read(&dev, at, Cause::DeltaBase)), [1, 2, 4, 5, 6]);
        assert_eq!(below.requests(Op::Read), before + 2);
        assert_eq!(dev.lacking([5, 10, 20].into_iter()), [20]);
        below.add(device::Fault::Place { op: Op::Read, blocks: 21..22 });
        dev.bring(&[20, 21, 22], Cause::DeltaBase.tag());
        assert_eq!(dev.lacking(20..23), [20, 21, 22]);
    }

    #[test]
    fn of_a_stranger_nothing_is_kept_and_nothing_stale() {
        let below = Arc::new(Faulty::new(Memory::new(4096)));
        let dev = Bases::new(below.clone());
        let write = |at: u64, byte: u8, ino: u32| dev.write(Lba(at), &block(byte), Cause::UserData.of(Ino(ino)));
        let base = |at: u64, ino: u32| {
            let (mut b, before) = (block(0), below.requests(Op::Read));
            dev.read(Lba(at), &mut b, Cause::DeltaBase.of(Ino(ino))).unwrap();
            (b[7], below.requests(Op::Read) - before)
        };
        write(6, 1, 9).unwrap();
        dev.estrange(Ino(9), true);
        assert_eq!(base(6, 9), (1, 0), "what was kept before is good");
        write(6, 2, 9).unwrap();
        assert_eq!([base(6, 9), base(6, 9)], [(2, 1); 2]);
        write(7, 3, 8).unwrap();
        assert_eq!(base(7, 8), (3, 0), "another file is none");
        dev.estrange(Ino(9), false);
        assert_eq!([base(6, 9), base(6, 9)], [(2, 1), (2, 0)]);
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_here() {
        let below = Arc::new(Faulty::new(Memory::new(4096)));
        let dev = Bases::new(below.clone());
        dev.write(Lba(6), &block(1), Cause::UserData.tag()).unwrap();
        assert!(dev.held.lock().blocks.peek(&6).is_some());
        below.add(device::Fault::Place { op: Op::Write, blocks: 6..7 });
        assert!(dev.write(Lba(6), &block(2), Cause::UserData.tag()).is_err());
        assert!(dev.held.lock().blocks.peek(&6).is_none());
    }
}
