//! In how many pieces is the free space?
//!
//! A piece is the longest possible run of neighbouring blocks that hold nothing. It may cross whatever units a file system
//! divides its blocks into, and it includes what only the next checkpoint sets free. Pieces are sorted into the nine sizes
//! of FAGC TACO'23, Table 3.
//!
//! Left out: how the pieces of a volume are found, and what a piece costs the log that writes into it.

/// Number of sizes.
pub const LEVELS: usize = 9;

/// Free space by size of piece. Level `n` (counted from 0: L1 is level 0) has the pieces of more than
/// `2^(n-1)` and at most `2^n` blocks, so L1 those of 4 KiB, L2 of 8 KiB, L3 of up to 16 KiB and so on to L8
/// of up to 512 KiB; the last, L9, has all that are larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeFragments {
    /// Pieces.
    pub count: [u64; LEVELS],
    /// Blocks in them.
    pub blocks: [u64; LEVELS],
    /// Pieces by the classes of Table 5, see [`CLASSES`].
    pub pieces: [u64; CLASSES.len()],
    /// Blocks in them.
    pub capacity: [u64; CLASSES.len()],
}

/// The classes of FAGC TACO'23, Table 5: each begins at so many blocks and ends where the next begins (0,
/// 128 KiB, 1 MiB, 2 MiB).
pub const CLASSES: [u64; 4] = [0, 32, 256, 512];

impl FreeFragments {
    /// The level of a piece of `blocks` blocks.
    pub fn level(blocks: u64) -> usize {
        (blocks.max(1).next_power_of_two().trailing_zeros() as usize).min(LEVELS - 1)
    }
    /// Level `n` as people call it: `L1` to `L9`.
    pub fn name(level: usize) -> String {
        format!("L{}", level + 1)
    }
    /// All pieces.
    pub fn total(&self) -> u64 {
        self.count.iter().sum()
    }
    /// All blocks in them.
    pub fn total_blocks(&self) -> u64 {
        self.blocks.iter().sum()
    }
    /// Pieces of at most 128 KiB and the blocks in them: what the paper calls fragments (section 5.1; it counts
    /// those of exactly 128 KiB as large enough, which Table 3 does not tell apart).
    pub fn small(&self) -> (u64, u64) {
        (self.count[..6].iter().sum(), self.blocks[..6].iter().sum())
    }

    /// Pieces of less than 128 KiB and the blocks in them: what counts as fragments (section 5.1).
    pub fn fragments(&self) -> (u64, u64) {
        (self.pieces[0], self.capacity[0])
    }

    /// Counts a piece of so many blocks.
    pub fn add(&mut self, run: u64) {
        self.change(run, |n, by| *n += by);
    }
    /// Forgets a piece that was counted.
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
        // Upper bounds in KiB of Table 3.
        for (level, kib) in [4, 8, 16, 32, 64, 128, 256, 512].into_iter().enumerate() {
            assert_eq!(FreeFragments::level(kib / 4), level);
            assert_eq!(FreeFragments::level(kib / 4 + 1), level + 1);
        }
        assert_eq!(FreeFragments::level(1 << 30), 8);
    }
}
