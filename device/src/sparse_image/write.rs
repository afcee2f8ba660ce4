//! Writes the contents of a device as an Android sparse image.
//!
//! Unneeded blocks are not stored, and flashing the image leaves them unchanged; needed zero blocks are stored as a
//! fill.

use std::io::{self, Seek, SeekFrom, Write};

use super::{CHUNK_HEADER, DONT_CARE, FILL, HEADER, MAGIC, RAW};
use crate::{BLOCK, BlockDevice, Lba, Tag};

/// Most blocks in a chunk with bytes, and in one read.
const STEP: u64 = 256;

/// Contents of a range of blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Raw,
    Fill([u8; 4]),
    DontCare,
}

fn what(block: &[u8]) -> What {
    let (words, _) = block.as_chunks::<4>();
    match words.split_first() {
        Some((first, rest)) if rest.iter().all(|w| w == first) => What::Fill(*first),
        _ => What::Raw,
    }
}

struct Writer<'o, W> {
    out: &'o mut W,
    chunks: u32,
}

impl<W: Write + Seek> Writer<'_, W> {
    fn chunk(&mut self, kind: u16, blocks: u64, bytes: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "too large for a sparse image");
        let count = u32::try_from(blocks).map_err(|_| too_long())?;
        let length = u32::try_from(bytes.len() + usize::from(CHUNK_HEADER)).map_err(|_| too_long())?;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&[0; 2])?;
        self.out.write_all(&count.to_le_bytes())?;
        self.out.write_all(&length.to_le_bytes())?;
        self.chunks += 1;
        self.out.write_all(bytes)
    }

    fn write_chunk(&mut self, what: What, blocks: u64, raw: &[u8]) -> io::Result<()> {
        match what {
            _ if blocks == 0 => Ok(()),
            What::Raw => self.chunk(RAW, blocks, raw),
            What::Fill(word) => self.chunk(FILL, blocks, &word),
            What::DontCare => self.chunk(DONT_CARE, blocks, &[]),
        }
    }

    fn header(&mut self, blocks: u64) -> io::Result<()> {
        let blocks = u32::try_from(blocks)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too large for a sparse image"))?;
        self.out.write_all(&MAGIC.to_le_bytes())?;
        for half in [1, 0, HEADER, CHUNK_HEADER] {
            self.out.write_all(&half.to_le_bytes())?;
        }
        for word in [BLOCK as u32, blocks, self.chunks, 0] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Writes a device to `out` from its start, except for unneeded blocks. `progress` receives the number of completed
/// blocks.
///
/// # Errors
/// If `out` cannot be written, or if the device cannot be read or has at least 2^32 blocks.
pub fn write_sparse(
    dev: &dyn BlockDevice,
    needed: impl Fn(u64) -> bool,
    out: &mut (impl Write + Seek),
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut writer = Writer { out, chunks: 0 };
    writer.header(dev.blocks())?;
    let (mut run, mut blocks, mut raw) = (What::DontCare, 0u64, Vec::new());
    let mut bytes = vec![0; STEP as usize * BLOCK];
    let mut at = 0;
    while at < dev.blocks() {
        let some = STEP.min(dev.blocks() - at);
        // Unneeded blocks are not read.
        let any = (at..at + some).any(&needed);
        if any {
            dev.read(Lba(at), &mut bytes[..some as usize * BLOCK], Tag::default()).map_err(io::Error::other)?;
        }
        for (n, block) in bytes.chunks_exact(BLOCK).take(some as usize).enumerate() {
            let now = if any && needed(at + n as u64) { what(block) } else { What::DontCare };
            if now != run || (now == What::Raw && blocks == STEP) {
                writer.write_chunk(run, blocks, &raw)?;
                (run, blocks) = (now, 0);
                raw.clear();
            }
            blocks += 1;
            if now == What::Raw {
                raw.extend_from_slice(block);
            }
        }
        at += some;
        progress(some);
    }
    writer.write_chunk(run, blocks, &raw)?;
    // The number of chunks is known now.
    writer.out.seek(SeekFrom::Start(0))?;
    writer.header(dev.blocks())?;
    writer.out.flush()
}
