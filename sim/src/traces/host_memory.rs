//! What does a host keep in memory, and so does not read from its device again?
//!
//! The recorded programs ran above a kernel's page cache, which keeps read and written data and reads ahead for
//! sequential readers. So they repeat reads that never reached their device. Our volume leaves caching to the host, and
//! a replay without a cache would send all of them to the device. [`PageCache`] keeps blocks, [`ReadAhead`] reads
//! early. Left out: delaying writes, which the volume does itself.

use std::collections::BTreeMap;
use std::time::Duration;

use device::model::Remap;
use device::{BLOCK, BlockDevice, Lba, Result, Tag};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use trace::call::How;
use trace::replay::place::{FileRef, Place, PlaceError};

/// Blocks by their last use.
#[derive(Default)]
struct Kept {
    by_place: FxHashMap<u64, u64>,
    by_age: BTreeMap<u64, u64>,
    now: u64,
}

impl Kept {
    fn used(&mut self, block: u64, most: usize) {
        self.now += 1;
        if let Some(before) = self.by_place.insert(block, self.now) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.now, block);
        if self.by_age.len() > most
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_place.remove(&oldest);
        }
    }

    fn forget(&mut self, blocks: std::ops::Range<u64>) {
        // A discard may cover a whole device.
        let gone: Vec<u64> = if blocks.end - blocks.start < self.by_place.len() as u64 {
            blocks.filter(|b| self.by_place.contains_key(b)).collect()
        } else {
            self.by_age.values().copied().filter(|b| blocks.contains(b)).collect()
        };
        for block in gone {
            if let Some(age) = self.by_place.remove(&block) {
                self.by_age.remove(&age);
            }
        }
    }
}

/// A decorator that serves recently read or written blocks from `contents`, the contents of `inner`, without a request
/// to `inner`.
pub struct PageCache<D, C> {
    inner: D,
    contents: C,
    most: usize,
    kept: Mutex<Kept>,
}

impl<D: BlockDevice, C: BlockDevice> PageCache<D, C> {
    /// An empty cache for this many blocks.
    pub fn new(inner: D, contents: C, most: usize) -> Self {
        PageCache { inner, contents, most, kept: Mutex::default() }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.kept.lock() = Kept::default();
    }

    /// The blocks in memory, the least recently used first.
    pub fn blocks_kept(&self) -> Vec<u64> {
        self.kept.lock().by_age.values().copied().collect()
    }

    /// Puts these blocks in memory, the least recently used first.
    pub fn keep_blocks(&self, blocks: &[u64]) {
        let mut kept = self.kept.lock();
        blocks.iter().for_each(|block| kept.used(*block, self.most));
    }

    fn keep(&self, at: Lba, bytes: usize) {
        let mut kept = self.kept.lock();
        (at.0..at.0.saturating_add((bytes / BLOCK) as u64)).for_each(|b| kept.used(b, self.most));
    }
}

impl<D: BlockDevice, C: BlockDevice> BlockDevice for PageCache<D, C> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        let known: Vec<bool> = {
            let kept = self.kept.lock();
            (at.0..).take(buf.len() / BLOCK).map(|b| kept.by_place.contains_key(&b)).collect()
        };
        if !known.contains(&true) {
            self.inner.read(at, buf, tag)?;
        } else {
            // Runs of blocks that are all cached or all not cached.
            let mut from = 0;
            for run in known.chunk_by(|a, b| a == b) {
                let part = &mut buf[from * BLOCK..(from + run.len()) * BLOCK];
                let place = Lba(at.0 + from as u64);
                if run[0] {
                    self.contents.read(place, part, tag)?
                } else {
                    self.inner.read(place, part, tag)?
                }
                from += run.len();
            }
        }
        self.keep(at, buf.len());
        Ok(())
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        self.inner.write(at, data, tag)?;
        self.keep(at, data.len());
        Ok(())
    }
    fn write_gather(&self, at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        self.inner.write_gather(at, parts, tag)?;
        self.keep(at, parts.iter().map(|p| p.len()).sum());
        Ok(())
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        self.inner.write_for(at, data, owners, cause)?;
        self.keep(at, data.len());
        Ok(())
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.kept.lock().forget(at.0..at.0.saturating_add(blocks));
        self.inner.discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        {
            let mut kept = self.kept.lock();
            kept.forget(from.0..from.0.saturating_add(blocks));
            kept.forget(to.0..to.0.saturating_add(blocks));
        }
        self.inner.remap(from, to, blocks, how, tag)
    }
}

/// Largest read-ahead window: 128 KiB, Linux's `read_ahead_kb`.
const FURTHEST: u64 = 128 << 10;
/// Smallest window: four pages.
const LEAST: u64 = 16 << 10;

/// Read state of a file.
#[derive(Default, Clone, Copy)]
struct Reading {
    /// End of the last read.
    end: u64,
    /// End of the range already read ahead.
    ahead: u64,
    /// Bytes in the last window.
    window: u64,
}

/// A place with read-ahead for files that are read in order, like Linux: the window doubles up to 128 KiB.
pub struct ReadAhead<'a> {
    inner: &'a mut dyn Place,
    files: FxHashMap<FileRef, Reading>,
    buf: Vec<u8>,
}

type Done<T> = std::result::Result<T, PlaceError>;

impl<'a> ReadAhead<'a> {
    /// No file has been read yet.
    pub fn new(inner: &'a mut dyn Place) -> Self {
        ReadAhead { inner, files: FxHashMap::default(), buf: Vec::new() }
    }
}

impl Place for ReadAhead<'_> {
    fn open(&mut self, path: &[u8], how: How) -> Done<FileRef> {
        self.inner.open(path, how)
    }
    fn close(&mut self, file: FileRef) {
        self.files.remove(&file);
        self.inner.close(file);
    }
    fn length(&mut self, file: FileRef) -> Done<u64> {
        self.inner.length(file)
    }
    fn read(&mut self, file: FileRef, at: u64, buf: &mut [u8]) -> Done<u64> {
        let bytes = buf.len() as u64;
        let mut reading = self.files.get(&file).copied().unwrap_or_default();
        let in_order = at == reading.end;
        if !in_order {
            reading = Reading::default();
        } else if at.saturating_add(bytes) > reading.ahead {
            let from = reading.ahead.max(at);
            // A single read of a program stays a single request.
            reading.window = (reading.window * 2).max(bytes * 2).clamp(LEAST, FURTHEST.max(bytes));
            let window = reading.window as usize;
            if self.buf.len() < window {
                self.buf.resize(window, 0);
            }
            self.inner.read(file, from, &mut self.buf[..window])?;
            reading.ahead = from.saturating_add(reading.window);
        }
        let got = self.inner.read(file, at, buf)?;
        reading.end = at.saturating_add(got);
        reading.ahead = reading.ahead.max(reading.end);
        self.files.insert(file, reading);
        Ok(got)
    }
    fn write(&mut self, file: FileRef, at: u64, data: &[u8]) -> Done<()> {
        self.inner.write(file, at, data)
    }
    fn sync(&mut self, file: FileRef, data_only: bool) -> Done<()> {
        self.inner.sync(file, data_only)
    }
    fn sync_all(&mut self) -> Done<()> {
        self.inner.sync_all()
    }
    fn truncate(&mut self, file: FileRef, length: u64) -> Done<()> {
        self.inner.truncate(file, length)
    }
    fn allocate(&mut self, file: FileRef, at: u64, bytes: u64, punch: bool, keep_size: bool) -> Done<()> {
        self.inner.allocate(file, at, bytes, punch, keep_size)
    }
    fn unlink(&mut self, path: &[u8]) -> Done<()> {
        self.inner.unlink(path)
    }
    fn remove_dir(&mut self, path: &[u8]) -> Done<()> {
        self.inner.remove_dir(path)
    }
    fn make_dir(&mut self, path: &[u8]) -> Done<()> {
        self.inner.make_dir(path)
    }
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Done<()> {
        self.inner.rename(from, to)
    }
    fn link(&mut self, from: &[u8], to: &[u8]) -> Done<()> {
        self.inner.link(from, to)
    }
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Done<()> {
        self.inner.symlink(path, target)
    }
    fn stat(&mut self, path: &[u8]) -> Done<()> {
        self.inner.stat(path)
    }
    fn list(&mut self, dir: FileRef) -> Done<()> {
        self.inner.list(dir)
    }
    fn tick(&mut self) -> Done<Option<Duration>> {
        self.inner.tick()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{Counting, Memory};
    use f2fs::cause::Cause;
    use f2fs::{MountOptions, Volume};
    use trace::replay::place::OnVolume;
    use vfs::FileSystem as _;

    use super::*;
    use crate::aging;

    fn tag() -> Tag {
        Tag::default()
    }

    #[test]
    fn cached_blocks_are_not_requested_again_and_have_the_right_contents() {
        let memory = std::sync::Arc::new(Memory::new(64));
        let counting = std::sync::Arc::new(Counting::new(memory.clone()));
        let cache = PageCache::new(counting.clone(), memory, 16);
        let data: Vec<u8> = (0..4 * BLOCK).map(|n| (n / 7) as u8).collect();
        cache.write(Lba(8), &data, tag()).unwrap();
        let mut back = vec![1; 8 * BLOCK];
        // Two blocks before and two after are not cached: two requests.
        cache.read(Lba(6), &mut back, tag()).unwrap();
        assert!(back[2 * BLOCK..6 * BLOCK] == data && back[..2 * BLOCK].iter().all(|b| *b == 0));
        let read = |n: &Counting<_>| (n.snapshot().total().reads, n.snapshot().total().blocks_read);
        assert_eq!(read(&counting), (2, 4));
        cache.read(Lba(6), &mut back, tag()).unwrap();
        assert_eq!(read(&counting), (2, 4));
        cache.discard(Lba(8), 1, tag()).unwrap();
        cache.read(Lba(8), &mut back[..BLOCK], tag()).unwrap();
        assert_eq!(read(&counting), (3, 5));
        // Sixteen other blocks replace them.
        cache.read(Lba(30), &mut vec![0; 16 * BLOCK], tag()).unwrap();
        cache.read(Lba(8), &mut back[..BLOCK], tag()).unwrap();
        assert_eq!(read(&counting), (5, 22));
        cache.clear();
        cache.read(Lba(8), &mut back[..BLOCK], tag()).unwrap();
        assert_eq!(read(&counting), (6, 23));
    }

    #[test]
    fn a_sequential_read_is_read_ahead_and_a_backward_read_is_not() {
        const FILE: u64 = 1 << 20;
        let memory = Arc::new(Memory::new(64 << 8));
        let counting = Arc::new(Counting::new(memory.clone()));
        let cache = Arc::new(PageCache::new(counting.clone(), memory, 4096));
        let clock = aging::clock();
        aging::format(::volume::Kind::F2fs, cache.clone(), &*clock, 1, true).unwrap();
        let mount = || Volume::mount(cache.clone(), clock.clone(), MountOptions::default()).unwrap();
        let data: Vec<u8> = (0..FILE).map(|n| (n / 1000) as u8).collect();
        let mut volume = mount();
        let mut place = OnVolume::new(&*volume);
        let file = place.open(b"/file", How::WRITE | How::CREATE).unwrap();
        place.write(file, 0, &data).unwrap();
        let mut requests = |backwards: bool| {
            volume.unmount().unwrap();
            cache.clear();
            volume = mount();
            let before = counting.snapshot();
            let mut place = OnVolume::new(&*volume);
            let mut ahead = ReadAhead::new(&mut place);
            let file = ahead.open(b"/file", How::READ).unwrap();
            let mut buf = vec![0; BLOCK];
            let mut places: Vec<u64> = (0..FILE).step_by(BLOCK).collect();
            if backwards {
                places.reverse();
            }
            for at in places {
                assert_eq!(ahead.read(file, at, &mut buf).unwrap(), BLOCK as u64);
                assert!(buf == data[at as usize..at as usize + BLOCK], "at {at}");
            }
            let seen = (&counting.snapshot() - &before)[Cause::UserData as u8];
            (seen.reads, seen.blocks_read)
        };
        // 16, 32, 64 KiB, then 128 each.
        assert_eq!(requests(false), (3 + 8, 256));
        assert_eq!(requests(true), (256, 256));
    }
}
