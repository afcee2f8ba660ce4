//! Which names can be in a directory block in memory?
//!
//! A name can be in one bucket on each level of its directory, so most blocks that a search visits do not have it. A
//! Bloom filter with each block shows that in one word; without it the search reads the hashes of all 214 slots.

use std::sync::OnceLock;

use format::Block;
use format::casefold::Sought;
use format::dentry::{self, Dentry, Layout, SLOTS_PER_BLOCK};

/// Words in a filter: with two bits for each slot, in one word, about one block in thirty is read in vain.
const WORDS: usize = 32;

/// Additions after which a filter is rebuilt from the block: bits of removed names accumulate.
const WORN: usize = 2 * SLOTS_PER_BLOCK;

/// Hashes that may be in a block. A removed one may still seem present.
struct Hashes([u64; WORDS]);

impl Hashes {
    fn place(hash: u32) -> (usize, u64) {
        // Names in one bucket share their low bits. A multiplication by the golden ratio spreads the others upwards.
        let spread = hash.wrapping_mul(0x9E37_79B9);
        let bit = |shift: u32| 1 << (spread >> shift & 63);
        ((spread >> 27) as usize, bit(21) | bit(15))
    }
    fn of(bytes: &Block) -> Self {
        let mut hashes = Hashes([0; WORDS]);
        // Free slots too: an old hash in them is harmless.
        (0..SLOTS_PER_BLOCK).for_each(|i| hashes.add(dentry::raw_hash_and_ino(&Layout::BLOCK, &bytes[..], i).0));
        hashes
    }
    fn add(&mut self, hash: u32) {
        let (word, bits) = Self::place(hash);
        self.0[word] |= bits;
    }
    fn may_have(&self, hash: u32) -> bool {
        let (word, bits) = Self::place(hash);
        self.0[word] & bits == bits
    }
}

/// A directory's block in memory.
pub struct DirBlock {
    bytes: Box<Block>,
    // Boxed, so that a directory's table of blocks stays small.
    hashes: Box<Hashes>,
    /// Names added since the filter was built.
    added: usize,
    /// Cached result of [`Self::is_folded`].
    folded: OnceLock<bool>,
    /// The block must be written.
    pub dirty: bool,
}

impl DirBlock {
    /// A clean block with these bytes.
    pub fn of(bytes: Box<Block>) -> Self {
        let hashes = Box::new(Hashes::of(&bytes));
        DirBlock { bytes, hashes, added: 0, folded: OnceLock::new(), dirty: false }
    }

    /// A block without entries.
    pub fn empty() -> Self {
        let (bytes, hashes) = (Box::new([0; 4096]), Box::new(Hashes([0; WORDS])));
        DirBlock { bytes, hashes, added: 0, folded: OnceLock::new(), dirty: false }
    }

    /// The block's bytes.
    pub fn bytes(&self) -> &Block {
        &self.bytes
    }

    /// The block's bytes, to remove or redirect an entry. Entries are added only by [`Self::insert`]: otherwise no
    /// search finds them.
    pub fn edit(&mut self) -> &mut Block {
        &mut self.bytes
    }

    /// The entry under `hash` whose name satisfies `is`.
    pub fn find(&self, hash: u32, is: impl Fn(&[u8]) -> bool) -> Option<Dentry<'_>> {
        self.hashes.may_have(hash).then(|| dentry::find_where(&Layout::BLOCK, &self.bytes[..], hash, is))?
    }

    /// True if every entry is under the hash of its folded name. Then no name is under another hash, and a search need
    /// not fold all names.
    pub fn is_folded(&self) -> bool {
        *self.folded.get_or_init(|| {
            dentry::entries(&Layout::BLOCK, &self.bytes[..], 0).all(|d| d.hash == Sought::new(d.name).hash)
        })
    }

    /// Adds an entry at `slot`, where it fits.
    pub fn insert(&mut self, slot: usize, name: &[u8], hash: u32, ino: u32, kind: u8) {
        if self.folded.get() == Some(&true) && Sought::new(name).hash != hash {
            self.folded = OnceLock::from(false);
        }
        dentry::insert(&Layout::BLOCK, &mut self.bytes[..], slot, name, hash, ino, kind);
        self.hashes.add(hash);
        self.added += 1;
        if self.added >= WORN {
            *self.hashes = Hashes::of(&self.bytes);
            self.added = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::hash::name_hash;

    fn name(i: usize) -> Vec<u8> {
        format!("f{i:05}").into_bytes()
    }

    #[test]
    fn names_that_come_and_go_do_not_fill_the_filter() {
        let mut block = DirBlock::empty();
        for i in 0..5000 {
            let n = name(i);
            block.insert(i % SLOTS_PER_BLOCK, &n, name_hash(&n), 4, 1);
            assert!(block.find(name_hash(&n), |e| e == n).is_some());
            dentry::remove(&Layout::BLOCK, block.edit(), i % SLOTS_PER_BLOCK);
        }
        let seem = (10_000..20_000).filter(|i| block.hashes.may_have(name_hash(&name(*i)))).count();
        assert!(seem < 6000, "{seem} of 10000");
    }

    #[test]
    fn every_name_is_found_and_few_others_seem_to_be_there() {
        // As in a deep bucket: all hashes share their low bits.
        let (here, others): (Vec<_>, Vec<_>) =
            (0..200_000).map(name).filter(|n| name_hash(n) % 64 == 17).enumerate().partition(|(i, _)| i % 10 == 0);
        let mut block = DirBlock::empty();
        for (slot, (_, n)) in here.iter().take(SLOTS_PER_BLOCK).enumerate() {
            block.insert(slot, n, name_hash(n), slot as u32 + 4, 1);
        }
        for block in [&block, &DirBlock::of(Box::new(*block.bytes()))] {
            for (slot, (_, n)) in here.iter().take(SLOTS_PER_BLOCK).enumerate() {
                assert_eq!(block.find(name_hash(n), |e| e == n).map(|d| d.slot), Some(slot));
            }
            let seem = others.iter().filter(|(_, n)| block.hashes.may_have(name_hash(n))).count();
            assert!(seem * 20 < others.len(), "{seem} of {}", others.len());
            assert!(others.iter().all(|(_, n)| block.find(name_hash(n), |e| e == n).is_none()));
        }
    }
}
