//! Generated block contents that a few bytes describe.
//!
//! A generated block is a function of a seed and an index. Its layout, integers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `JfG1` |
//! | 4..8 | index |
//! | 8..16 | seed |
//! | 16..4096 | words 2 to 511 of the stream |
//!
//! The stream is eight xorshift64 generators (Marsaglia, 2003; shifts 13, 7, 17) in turn: word `8 r + j`
//! is the state of generator `j` after `r + 1` steps. Generator `j` starts from the splitmix64 output
//! function of `seed + G * (8 * index + j + 1)` with its lowest bit set, `G` being `0x9e3779b97f4a7c15`;
//! sums and products modulo 2^64. To a compressor it is noise.

use crate::BLOCK;

const MAGIC: [u8; 4] = *b"JfG1";
/// Bytes with a block's seed and index.
const HEAD: usize = 16;
/// Parallel generators.
const LANES: usize = 8;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The parameters of a generated block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Chosen by the caller, for example one for each version of each file.
    pub seed: u64,
    /// Index in the seed's sequence, for example the block of a file.
    pub index: u32,
}

/// The output function of splitmix64 (Steele, Lea and Flood, OOPSLA'14).
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Origin {
    /// The origin `blocks` blocks later in the same sequence.
    pub fn later(self, blocks: u32) -> Self {
        Origin { seed: self.seed, index: self.index.wrapping_add(blocks) }
    }

    /// The generators at their start.
    fn lanes(self) -> Lanes {
        let first = GOLDEN.wrapping_mul(u64::from(self.index) * LANES as u64);
        Lanes(std::array::from_fn(|j| {
            let step = first.wrapping_add(GOLDEN.wrapping_mul(j as u64 + 1));
            mix(self.seed.wrapping_add(step)) | 1
        }))
    }

    /// The bytes with seed and index.
    fn head(self) -> [u8; HEAD] {
        let word = u128::from(self.seed) << 64 | u128::from(self.index) << 32 | u128::from(u32::from_le_bytes(MAGIC));
        word.to_le_bytes()
    }

    /// Generates the block.
    pub fn block(self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        self.fill(&mut block);
        block
    }

    /// Generates the block into `block`.
    pub fn fill(self, block: &mut [u8; BLOCK]) {
        let mut lanes = self.lanes();
        for row in block.as_chunks_mut::<ROW>().0 {
            for (word, x) in row.as_chunks_mut::<8>().0.iter_mut().zip(lanes.step()) {
                *word = x.to_le_bytes();
            }
        }
        block[..HEAD].copy_from_slice(&self.head());
    }

    /// The origin of a block, if it is generated up to its last byte.
    pub fn of_block(block: &[u8; BLOCK]) -> Option<Self> {
        let (head, _) = block.split_first_chunk::<HEAD>()?;
        if head[..4] != MAGIC {
            return None;
        }
        let word = u128::from_le_bytes(*head);
        let origin = Origin { seed: (word >> 64) as u64, index: (word >> 32) as u32 };
        let mut lanes = origin.lanes();
        // Differing bits by lane; the first row is separate because its first words are the head.
        let mut rows = block.as_chunks::<ROW>().0.iter();
        let mut wrong = differences(rows.next()?, lanes.step());
        (wrong[0], wrong[1]) = (0, 0);
        for row in rows {
            for (all, here) in wrong.iter_mut().zip(differences(row, lanes.step())) {
                *all |= here;
            }
        }
        (wrong == [0; LANES]).then_some(origin)
    }
}

/// Bytes from one step of the generators.
const ROW: usize = LANES * 8;

/// The generators' states.
struct Lanes([u64; LANES]);

impl Lanes {
    fn step(&mut self) -> [u64; LANES] {
        for x in &mut self.0 {
            *x ^= *x << 13;
            *x ^= *x >> 7;
            *x ^= *x << 17;
        }
        self.0
    }
}

/// Bits in which a row differs from its expected value.
fn differences(row: &[u8; ROW], should: [u64; LANES]) -> [u64; LANES] {
    let words = row.as_chunks::<8>().0;
    std::array::from_fn(|j| u64::from_le_bytes(words[j]) ^ should[j])
}

/// Fills `bytes` with consecutive blocks of the sequence of `seed`, from block `first` on. A partial block at the
/// end gets the beginning of its block.
pub fn generate(seed: u64, first: u32, bytes: &mut [u8]) {
    let mut origin = Origin { seed, index: first };
    let (blocks, part) = bytes.as_chunks_mut::<BLOCK>();
    for block in blocks {
        origin.fill(block);
        origin = origin.later(1);
    }
    if !part.is_empty() {
        part.copy_from_slice(&origin.block()[..part.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_block_is_what_its_description_says() {
        let origin = Origin { seed: 7, index: 3 };
        let block = origin.block();
        assert_eq!(&block[..16], b"JfG1\x03\0\0\0\x07\0\0\0\0\0\0\0");
        // Word 8 * 5 + 2 according to the description.
        let mut x = mix(7u64.wrapping_add(GOLDEN.wrapping_mul(8 * 3 + 2 + 1))) | 1;
        for _ in 0..6 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        assert_eq!(block[8 * 42..8 * 43], x.to_le_bytes());
        // The published first number of splitmix64 from state 0.
        assert_eq!(mix(GOLDEN), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn a_generated_block_is_known_again_and_one_with_a_changed_bit_is_not() {
        for origin in [Origin { seed: 0, index: 0 }, Origin { seed: u64::MAX, index: u32::MAX }] {
            let block = origin.block();
            assert_eq!(Origin::of_block(&block), Some(origin));
            for bit in [0, 4 * 8, 8 * 8 + 1, 16 * 8, 2048 * 8, 4095 * 8 + 7] {
                let mut changed = block;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Origin::of_block(&changed), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn sequences_continue_across_calls_and_end_anywhere() {
        let mut whole = vec![0; 3 * BLOCK];
        generate(9, 5, &mut whole);
        let mut rest = vec![0; BLOCK + 100];
        generate(9, 6, &mut rest);
        assert_eq!(rest, whole[BLOCK..2 * BLOCK + 100]);
    }
}
