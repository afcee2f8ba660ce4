//! The contents of a file: chunks of 1 MiB where it was written, nothing elsewhere.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use vfs::{Error, Result, Seek};

/// Size of a chunk. Large, so that a large request needs few.
const CHUNK: usize = 1 << 20;
/// The unit of space accounting.
const PAGE: u64 = 4096;

/// Total and used pages.
pub(super) struct Space {
    pages: u64,
    taken: AtomicU64,
}

impl Space {
    pub(super) fn new(bytes: u64) -> Self {
        Space { pages: bytes / PAGE, taken: AtomicU64::new(0) }
    }
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }
    pub(super) fn free(&self) -> u64 {
        self.pages.saturating_sub(self.taken.load(Ordering::Relaxed))
    }
    fn take(&self, pages: u64) -> Result<()> {
        if pages == 0 {
            return Ok(());
        }
        let before = self.taken.fetch_add(pages, Ordering::Relaxed);
        if before.saturating_add(pages) > self.pages {
            self.give_back(pages);
            return Err(Error::NoSpace);
        }
        Ok(())
    }
    fn give_back(&self, pages: u64) {
        self.taken.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// A file's bytes. A chunk ends at its last written byte; the rest reads as zero.
#[derive(Default)]
pub(super) struct Content {
    pub(super) size: u64,
    chunks: BTreeMap<u64, Vec<u8>>,
    pages: u64,
}

/// The parts of a range by chunk: chunk number, offset in it, length.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset.saturating_add(length);
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let within = (at % CHUNK as u64) as usize;
        let count = ((end - at).min((CHUNK - within) as u64)) as usize;
        let part = (at / CHUNK as u64, within, count);
        at += count as u64;
        Some(part)
    })
}

fn pages(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(PAGE)
}

impl Content {
    /// Space used in 512-byte units.
    pub(super) fn blocks512(&self) -> u64 {
        self.pages * (PAGE / 512)
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let length = (buf.len() as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut rest = &mut buf[..length];
        for (index, within, count) in parts(offset, length as u64) {
            let (here, after) = rest.split_at_mut(count);
            rest = after;
            let chunk = self.chunks.get(&index).map_or(&[][..], Vec::as_slice);
            let stored = chunk.get(within..).unwrap_or(&[]);
            let stored = &stored[..stored.len().min(count)];
            here[..stored.len()].copy_from_slice(stored);
            here[stored.len()..].fill(0);
        }
        length
    }

    pub(super) fn write(&mut self, space: &Space, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Error::TooBig)?;
        let grown = parts(offset, data.len() as u64)
            .map(|(index, within, count)| {
                let now = self.chunks.get(&index).map_or(0, Vec::len);
                pages(now.max(within + count)) - pages(now)
            })
            .sum();
        space.take(grown)?;
        self.pages += grown;
        let mut rest = data;
        for (index, within, count) in parts(offset, data.len() as u64) {
            let (here, after) = rest.split_at(count);
            rest = after;
            let chunk = self.chunks.entry(index).or_default();
            if chunk.len() < within {
                chunk.resize(within, 0);
            }
            let over = (chunk.len() - within).min(count);
            chunk[within..within + over].copy_from_slice(&here[..over]);
            chunk.extend_from_slice(&here[over..]);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    fn shorten(&mut self, space: &Space, index: u64, length: usize) {
        let Some(chunk) = self.chunks.get_mut(&index) else {
            return;
        };
        let freed = pages(chunk.len()).saturating_sub(pages(length));
        if length == 0 {
            self.chunks.remove(&index);
        } else if length < chunk.len() {
            chunk.truncate(length);
            chunk.shrink_to_fit();
        }
        self.pages -= freed;
        space.give_back(freed);
    }

    pub(super) fn truncate(&mut self, space: &Space, size: u64) {
        if size < self.size {
            let keep = size.div_ceil(CHUNK as u64);
            let gone: Vec<u64> = self.chunks.range(keep..).map(|(&index, _)| index).collect();
            for index in gone {
                self.shorten(space, index, 0);
            }
            let within = (size % CHUNK as u64) as usize;
            if within > 0 {
                self.shorten(space, size / CHUNK as u64, within);
            }
        }
        self.size = size;
    }

    /// Makes a range read as zeroes; frees whole chunks and chunk ends.
    pub(super) fn punch(&mut self, space: &Space, offset: u64, length: u64) {
        for (index, within, count) in parts(offset, length.min(self.size.saturating_sub(offset))) {
            let Some(chunk) = self.chunks.get_mut(&index) else {
                continue;
            };
            if within + count >= chunk.len() {
                self.shorten(space, index, within);
            } else {
                chunk[within..within + count].fill(0);
            }
        }
    }

    /// Everything stored at or after `offset`, as pieces with their offsets.
    fn stored_after(&self, offset: u64) -> Vec<(u64, Vec<u8>)> {
        self.chunks
            .range(offset / CHUNK as u64..)
            .filter_map(|(&index, chunk)| {
                let start = index * CHUNK as u64;
                let skip = offset.saturating_sub(start) as usize;
                chunk.get(skip..).filter(|c| !c.is_empty()).map(|c| (start + skip as u64, c.to_vec()))
            })
            .collect()
    }

    pub(super) fn collapse(&mut self, space: &Space, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).ok_or(Error::TooBig)?;
        if end >= self.size {
            return Err(Error::Invalid("collapse reaches the end of the file"));
        }
        let pieces = self.stored_after(end);
        let size = self.size - length;
        self.truncate(space, offset);
        self.put_back(space, pieces, |at| at - length)?;
        self.size = size;
        Ok(())
    }

    pub(super) fn insert(&mut self, space: &Space, offset: u64, length: u64) -> Result<()> {
        if offset >= self.size {
            return Err(Error::Invalid("insert at or after the end of the file"));
        }
        let size = self.size.checked_add(length).ok_or(Error::TooBig)?;
        let pieces = self.stored_after(offset);
        self.truncate(space, offset);
        self.put_back(space, pieces, |at| at + length)?;
        self.size = size;
        Ok(())
    }

    fn put_back(&mut self, space: &Space, pieces: Vec<(u64, Vec<u8>)>, place: impl Fn(u64) -> u64) -> Result<()> {
        for (at, bytes) in pieces {
            self.write(space, place(at), &bytes)?;
        }
        Ok(())
    }

    pub(super) fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        if offset >= self.size {
            return Err(Error::PastEnd);
        }
        let stored = |at: u64| {
            let chunk = self.chunks.get(&(at / CHUNK as u64))?;
            ((at % CHUNK as u64) < chunk.len() as u64).then_some(chunk.len() as u64)
        };
        match what {
            Seek::Data if stored(offset).is_some() => Ok(offset),
            Seek::Data => self
                .chunks
                .range(offset / CHUNK as u64 + 1..)
                .map(|(&index, _)| index * CHUNK as u64)
                .next()
                .filter(|&at| at < self.size)
                .ok_or(Error::PastEnd),
            Seek::Hole => {
                let mut at = offset;
                while let Some(length) = stored(at) {
                    at = at / CHUNK as u64 * CHUNK as u64 + length;
                    if at >= self.size {
                        return Ok(self.size);
                    }
                }
                Ok(at)
            }
        }
    }

    /// Frees everything, when the file is deleted.
    pub(super) fn clear(&mut self, space: &Space) {
        self.truncate(space, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Rng;

    /// The same operations on plain bytes.
    fn apply(rng: &mut Rng, content: &mut Content, space: &Space, model: &mut Vec<u8>) {
        let mut below = |n: usize| rng.index(n);
        let offset = below(5 << 20);
        let length = 1 + below(3 << 20);
        let size = model.len();
        match below(6) {
            0 | 1 => {
                let data: Vec<u8> = (0..length).map(|i| (i + offset) as u8 | 1).collect();
                content.write(space, offset as u64, &data).unwrap();
                model.resize(size.max(offset + length), 0);
                model[offset..offset + length].copy_from_slice(&data);
            }
            2 => {
                content.truncate(space, offset as u64);
                model.resize(offset, 0);
            }
            3 => {
                content.punch(space, offset as u64, length as u64);
                model[offset.min(size)..(offset + length).min(size)].fill(0);
            }
            4 => {
                let done = content.collapse(space, offset as u64, length as u64);
                if offset + length < size {
                    done.unwrap();
                    model.drain(offset..offset + length);
                } else {
                    assert!(done.is_err());
                }
            }
            _ => {
                let done = content.insert(space, offset as u64, length as u64);
                if offset < size && size < 16 << 20 {
                    done.unwrap();
                    model.splice(offset..offset, std::iter::repeat_n(0, length));
                } else if offset >= size {
                    assert!(done.is_err());
                } else {
                    content.truncate(space, offset as u64);
                    model.truncate(offset);
                }
            }
        }
    }

    #[test]
    fn contents_are_those_of_plain_bytes_after_any_operations() {
        let space = Space::new(1 << 30);
        let mut rng = Rng::new(7);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for step in 0..150 {
            apply(&mut rng, &mut content, &space, &mut model);
            assert_eq!(content.size, model.len() as u64, "step {step}");
            let mut back = vec![0xee; model.len() + 10];
            assert_eq!(content.read(0, &mut back), model.len(), "step {step}");
            assert!(back[..model.len()] == model, "step {step}");
            assert_eq!(space.pages() - space.free(), content.pages, "step {step}");
            if let Ok(data) = content.seek(0, Seek::Data) {
                assert!(model[..data as usize].iter().all(|&b| b == 0), "step {step}");
            } else {
                assert!(model.iter().all(|&b| b == 0), "step {step}");
            }
            if let Ok(hole) = content.seek(0, Seek::Hole) {
                assert!(hole <= content.size, "step {step}");
            }
        }
        content.clear(&space);
        assert_eq!(space.free(), space.pages());
    }

    #[test]
    fn a_write_without_room_changes_nothing() {
        let space = Space::new(8192);
        let mut content = Content::default();
        content.write(&space, 0, &[1; 5000]).unwrap();
        assert_eq!(content.write(&space, 4000, &[2; 5000]), Err(Error::NoSpace));
        let mut back = [0; 6000];
        assert_eq!(content.read(0, &mut back), 5000);
        assert!(back[..5000].iter().all(|&b| b == 1));
        content.write(&space, 4000, &[2; 4192]).unwrap();
        assert_eq!(space.free(), 0);
    }
}
