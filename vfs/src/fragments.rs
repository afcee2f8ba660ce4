//! Fragmentation of the free space.
//!
//! A piece is a maximal run of free blocks. It may cross the units into which a file system divides its blocks, and
//! includes blocks that only the next checkpoint frees. Pieces are sorted into the nine sizes of FAGC TACO'23,
//! Table 3.
//!
//! Left out: finding the pieces of a volume, and the cost of a piece for a log that writes into it.

/// Number of sizes.
pub const LEVELS: usize = 9;

/// Free space by size of piece. Level `n` (counted from 0: L1 is level 0) holds pieces of more than `2^(n-1)` and
/// at most `2^n` blocks: L1 those of 4 KiB, L2 of 8 KiB, L3 of up to 16 KiB and so on to L8 of up to 512 KiB; L9
/// holds all larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeFragments {
    /// Number of pieces.
    pub count: [u64; LEVELS],
    /// Number of blocks in them.
    pub blocks: [u64; LEVELS],
    /// Pieces by the classes of Table 5, see [`CLASSES`].
    pub pieces: [u64; CLASSES.len()],
    /// Number of blocks in them.
    pub capacity: [u64; CLASSES.len()],
}

/// Lower bounds of the classes in FAGC TACO'23, Table 5, in blocks (0, 128 KiB, 1 MiB, 2 MiB); each class ends
/// where the next begins.
pub const CLASSES: [u64; 4] = [0, 32, 256, 512];

impl FreeFragments {
    /// The level of a piece of `blocks` blocks.
    pub fn level(blocks: u64) -> usize {
        (blocks.max(1).next_power_of_two().trailing_zeros() as usize).min(LEVELS - 1)
    }
    /// Name of level `n`: `L1` to `L9`.
    pub fn name(level: usize) -> String {
        format!("L{}", level + 1)
    }
    /// Number of pieces.
    pub fn total(&self) -> u64 {
        self.count.iter().sum()
    }
    /// Number of blocks in all pieces.
    pub fn total_blocks(&self) -> u64 {
        self.blocks.iter().sum()
    }
    /// Pieces of at most 128 KiB and their blocks: the paper's fragments (section 5.1; it counts those of exactly
    /// 128 KiB as large enough, a distinction that Table 3 does not make).
    pub fn small(&self) -> (u64, u64) {
        (self.count[..6].iter().sum(), self.blocks[..6].iter().sum())
    }

    /// Pieces of less than 128 KiB and their blocks: the fragments of section 5.1.
    pub fn fragments(&self) -> (u64, u64) {
        (self.pieces[0], self.capacity[0])
    }

    /// Counts a piece of `run` blocks.
    pub fn add(&mut self, run: u64) {
        self.change(run, |n, by| *n += by);
    }
    /// Removes a counted piece of `run` blocks.
    pub fn remove(&mut self, run: u64) {
        self.change(run, |n, by| *n -= by);
    }
    fn change(&mut self, run: u64, by: impl Fn(&mut u64, u64)) {
        if run > 0 {
            let level = Self::level(run);
            by(&mut self.count[level], 1);
            by(&mut self.blocks[level], run);
            let class = CLASSES.iter().rposition(|&from| run >= from).unwrap_or(0);
            by(&mut self.pieces[class], 1);
            by(&mut self.capacity[class], run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_the_paper() {
        // Upper bounds of Table 3 in KiB.
        for (level, kib) in [4, 8, 16, 32, 64, 128, 256, 512].into_iter().enumerate() {
            assert_eq!(FreeFragments::level(kib / 4), level);
            assert_eq!(FreeFragments::level(kib / 4 + 1), level + 1);
        }
        assert_eq!(FreeFragments::level(1 << 30), 8);
    }
}
