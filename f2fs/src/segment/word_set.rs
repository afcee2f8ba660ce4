//! How is a set of segments or sections stored?

/// A set of small numbers as machine words, with fast search for the next member.
#[derive(Debug, Clone, Default)]
pub(super) struct WordSet {
    words: Vec<u64>,
    len: u32,
}

impl WordSet {
    pub(super) fn new(size: u32) -> Self {
        WordSet { words: vec![0; size.div_ceil(64) as usize], len: 0 }
    }
    pub(super) fn len(&self) -> u32 {
        self.len
    }
    /// Adds or removes a number; true if it was in the set.
    pub(super) fn put(&mut self, i: u32, on: bool) -> bool {
        let (w, m) = (&mut self.words[(i / 64) as usize], 1u64 << (i % 64));
        let was = *w & m != 0;
        if was != on {
            *w ^= m;
            self.len = if on { self.len + 1 } else { self.len - 1 };
        }
        was
    }
    pub(super) fn has(&self, i: u32) -> bool {
        self.words[(i / 64) as usize] & 1 << (i % 64) != 0
    }
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        let mut w = (from / 64) as usize;
        let mut word = *self.words.get(w)? & (!0u64 << (from % 64));
        while word == 0 {
            w += 1;
            word = *self.words.get(w)?;
        }
        Some(w as u32 * 64 + word.trailing_zeros())
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let i = self.next(from)?;
            from = i + 1;
            Some(i)
        })
    }
}
