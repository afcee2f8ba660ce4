//! One bit per block of the image: 32 MiB per tebibyte.

/// Marked blocks.
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// A bitmap for `blocks` blocks, none of them marked.
    pub fn new(blocks: u64) -> Self {
        Bitmap { words: vec![0; blocks.div_ceil(64) as usize] }
    }
    /// True if a block is marked; one past the end is not.
    pub fn get(&self, at: u64) -> bool {
        self.words.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
    /// Marks a block; true if it was already marked.
    pub fn set(&mut self, at: u64) -> bool {
        let was = self.get(at);
        if let Some(word) = self.words.get_mut((at / 64) as usize) {
            *word |= 1 << (at % 64);
        }
        was
    }
}
