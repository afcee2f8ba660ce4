//! How are the contents of a device stored in a file?
//!
//! | bytes | what |
//! |---|---|
//! | 8 | blocks of the device |
//! | for each chunk that is not all zero, in order: 8 | its number |
//! | 24 | bitmaps of its generated blocks, of the heads among them, and of its other blocks |
//! | 12 for each head | its origin |
//! | for each other block: 8, and 64 for each set bit | bitmap of its nonzero lines, and these lines |
//! | 8 | `u64::MAX`: the end |
//!
//! Integers are little-endian. Left out: compression and a checksum.

use std::io::{self, Read, Write};
use std::sync::Arc;

use super::chunk::{Chunk, LINE, Lines, Packed};
use super::{CHUNK_BLOCKS, FANOUT, Fingerprint, Leaf, MAX_BLOCKS};

const END: u64 = u64::MAX;

fn put(out: &mut dyn Write, number: u64) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

fn number(from: &mut dyn Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("stored contents of a device: {what}"))
}

impl Chunk {
    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        [self.generated, self.heads, self.other].into_iter().try_for_each(|bits| put(out, bits))?;
        for word in self.origins.iter().flat_map(|origin| origin.0) {
            out.write_all(&word.to_le_bytes())?;
        }
        self.others.iter().try_for_each(|lines| out.write_all(&lines.0))
    }

    fn read_from(from: &mut dyn Read) -> io::Result<Self> {
        let [generated, heads, other] = [number(from)?, number(from)?, number(from)?];
        // A generated block after one that is not generated is a head.
        let must_be_heads = generated & !(generated << 1);
        if generated & other != 0 || heads & !generated != 0 || must_be_heads & !heads != 0 || generated | other == 0 {
            return Err(wrong("bitmaps of a chunk contradict each other"));
        }
        let mut origin = |_| {
            let mut words = [0; 12];
            from.read_exact(&mut words)?;
            let word = |n: usize| u32::from_le_bytes([words[n], words[n + 1], words[n + 2], words[n + 3]]);
            Ok(Packed([word(0), word(4), word(8)]))
        };
        let origins = (0..heads.count_ones()).map(&mut origin).collect::<io::Result<_>>()?;
        let mut lines = |_| {
            let bits = number(from)?;
            let mut bytes = vec![0; 8 + bits.count_ones() as usize * LINE];
            bytes[..8].copy_from_slice(&bits.to_le_bytes());
            from.read_exact(&mut bytes[8..])?;
            Ok(Lines(Arc::from(bytes)))
        };
        let others = (0..other.count_ones()).map(&mut lines).collect::<io::Result<_>>()?;
        Ok(Chunk { generated, heads, other, origins, others })
    }
}

impl Fingerprint {
    /// Writes the contents in a compact form, which [`read_from`](Self::read_from) reads.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        put(out, self.blocks)?;
        for (number, chunk) in self.chunks() {
            put(out, number)?;
            chunk.write_to(out)?;
        }
        put(out, END)
    }

    /// A device with stored contents. An error if they are damaged.
    pub fn read_from(from: &mut dyn Read) -> io::Result<Self> {
        let blocks = number(from)?;
        if blocks > MAX_BLOCKS {
            return Err(wrong("the device is over 256 TiB"));
        }
        let device = Self::new(blocks);
        loop {
            let at = number(from)?;
            if at == END {
                return Ok(device);
            }
            if at >= blocks.div_ceil(CHUNK_BLOCKS as u64) {
                return Err(wrong("a chunk is past the end"));
            }
            let middle =
                device.root[at as usize / FANOUT].get_or_init(|| (0..FANOUT).map(|_| Leaf::new(None)).collect());
            *middle[at as usize % FANOUT].write() = Some(Arc::new(Chunk::read_from(from)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK, BlockDevice, Lba, Rng, Tag, generate};

    #[test]
    fn stored_contents_come_back_and_cut_or_contradicting_ones_are_refused() {
        let (device, mut rng) = (Fingerprint::new(100_000), Rng::new(4));
        for n in 0..3_000 {
            let at = Lba(rng.below(99_000));
            let mut bytes = vec![0; BLOCK * (1 + rng.below(40) as usize)];
            match rng.below(4) {
                0 => rng.fill(&mut bytes),
                1 => bytes[rng.below(BLOCK as u64) as usize] = 1,
                2 => {}
                _ => generate(n, 0, &mut bytes),
            }
            device.write(at, &bytes, Tag::default()).unwrap();
        }
        let mut stored = Vec::new();
        device.write_to(&mut stored).unwrap();
        assert!(Fingerprint::read_from(&mut &stored[..]).unwrap().same_as(&device));
        for cut in [0, 7, 100, stored.len() / 2, stored.len() - 1] {
            assert!(Fingerprint::read_from(&mut &stored[..cut]).is_err(), "{cut}");
        }
        // Every block of the first chunk is generated and something else.
        stored[16..40].fill(255);
        assert!(Fingerprint::read_from(&mut &stored[..]).is_err());
    }
}
