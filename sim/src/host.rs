//! How large are a host's requests?
//!
//! A file system passes on contiguous runs as one request; a host splits them: a program that writes 4 KiB directly
//! makes requests of 4 KiB wherever they land. [`Host`] splits requests of file contents, and passes on the file
//! system's own unchanged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::model::Remap;
use device::{BLOCK, BlockDevice, Lba, Result, Tag};

use crate::contents::Contents;

/// A device whose host limits requests of file contents to a number of blocks.
pub struct Host<D> {
    inner: D,
    contents: Contents,
    most: AtomicU64,
}

impl<D: BlockDevice> Host<D> {
    /// A host without a limit.
    pub fn new(inner: D, contents: Contents) -> Self {
        Host { inner, contents, most: AtomicU64::new(u64::MAX) }
    }

    /// The device underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// From now on requests of file contents have at most this many blocks; `None` removes the limit.
    pub fn cut_at(&self, blocks: Option<u64>) {
        self.most.store(blocks.map_or(u64::MAX, |b| b.max(1)), Relaxed);
    }

    /// Largest request in bytes for this tag, if limited.
    fn longest(&self, tag: Tag) -> Option<usize> {
        let most = self.most.load(Relaxed);
        let cut = self.contents.has(tag.cause) && most != u64::MAX;
        cut.then(|| usize::try_from(most).unwrap_or(usize::MAX).saturating_mul(BLOCK))
    }
}

impl<D: BlockDevice> BlockDevice for Host<D> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn read(&self, mut at: Lba, buf: &mut [u8], tag: Tag) -> Result<()> {
        let Some(longest) = self.longest(tag) else { return self.inner.read(at, buf, tag) };
        for piece in buf.chunks_mut(longest) {
            self.inner.read(at, piece, tag)?;
            at.0 += (piece.len() / BLOCK) as u64;
        }
        Ok(())
    }
    fn write(&self, mut at: Lba, data: &[u8], tag: Tag) -> Result<()> {
        let Some(longest) = self.longest(tag) else { return self.inner.write(at, data, tag) };
        for piece in data.chunks(longest) {
            self.inner.write(at, piece, tag)?;
            at.0 += (piece.len() / BLOCK) as u64;
        }
        Ok(())
    }
    fn write_gather(&self, mut at: Lba, parts: &[&[u8]], tag: Tag) -> Result<()> {
        let Some(longest) = self.longest(tag) else { return self.inner.write_gather(at, parts, tag) };
        let (mut run, mut bytes) = (Vec::new(), 0);
        for piece in parts.iter().flat_map(|p| p.chunks(BLOCK)) {
            if bytes + piece.len() > longest {
                self.inner.write_gather(at, &run, tag)?;
                at.0 += (bytes / BLOCK) as u64;
                run.clear();
                bytes = 0;
            }
            run.push(piece);
            bytes += piece.len();
        }
        if run.is_empty() { Ok(()) } else { self.inner.write_gather(at, &run, tag) }
    }
    fn write_for(&self, at: Lba, data: &[u8], owners: &[u64], cause: u8) -> Result<()> {
        match self.longest(Tag { cause, owner: 0 }) {
            None => self.inner.write_for(at, data, owners, cause),
            Some(longest) => {
                let pieces = data.chunks(longest).zip(owners.chunks(longest / BLOCK));
                pieces
                    .zip((at.0..).step_by(longest / BLOCK))
                    .try_for_each(|((piece, owners), at)| self.inner.write_for(Lba(at), piece, owners, cause))
            }
        }
    }
    fn place(&self, at: Lba, blocks: u64, handle: u8) {
        self.inner.place(at, blocks, handle);
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.inner.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> Result<()> {
        self.inner.discard(at, blocks, tag)
    }
    fn remap(&self, from: Lba, to: Lba, blocks: u64, how: Remap, tag: Tag) -> Result<()> {
        self.inner.remap(from, to, blocks, how, tag)
    }
}

#[cfg(test)]
mod tests {
    use device::{Counting, Memory};
    use f2fs::cause::Cause;

    use super::*;

    #[test]
    fn contents_are_cut_and_arrive_whole_and_nodes_are_not_cut() {
        let host = Host::new(Counting::new(Memory::new(64)), Contents::from_reasons(&Cause::reasons()));
        host.cut_at(Some(3));
        let data: Vec<u8> = (0..8 * BLOCK).map(|i| (i / BLOCK) as u8 + 1).collect();
        let parts: Vec<&[u8]> = data.chunks(2 * BLOCK).collect();
        host.write_gather(Lba(4), &parts, Cause::UserData.tag()).unwrap();
        host.write(Lba(20), &data, Cause::UserData.tag()).unwrap();
        host.write_gather(Lba(40), &parts, Cause::Node.tag()).unwrap();
        for at in [4, 20, 40] {
            let mut back = vec![0; data.len()];
            host.read(Lba(at), &mut back, Cause::UserData.tag()).unwrap();
            assert!(back == data, "at {at}");
        }
        let counts = host.inner.snapshot();
        let contents = counts[Cause::UserData as u8];
        assert_eq!((contents.writes, contents.blocks_written, contents.reads), (6, 16, 9));
        assert_eq!(counts[Cause::Node as u8].blocks_written, 8);
        host.cut_at(None);
        host.write(Lba(20), &data, Cause::UserData.tag()).unwrap();
        assert_eq!(host.inner.snapshot()[Cause::UserData as u8].writes, 7);
    }
}
