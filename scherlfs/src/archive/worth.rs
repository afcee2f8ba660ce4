//! Which file does a keep evict first? The one with the least worth per block.
//!
//! One block of a file suffices to wake the disk, so a kept file saves the same whatever its size, while it costs
//! its blocks. Its worth is therefore its uses per block, and it ages: the worth of the last evicted file is the
//! starting value of files that arrive or are used now (GreedyDual-Size with frequency: Cao and Irani, *Cost-Aware
//! WWW Proxy Caching Algorithms*, USITS 1997; Cherkasova, HP Labs HPL-98-69). Files are evicted whole, since half a
//! file saves nothing.
//!
//! Pure: numbers only. [`super::keep`] knows where the blocks are.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

/// One use of a one-block file.
const ONE: u128 = 1 << 40;

#[derive(Default)]
struct File {
    /// Its slots in fill order.
    slots: BTreeMap<u64, u32>,
    /// Number of its blocks read. Reading all of it once counts as a use, whatever the size of the calls.
    read: u64,
    /// The starting value when it arrived or was used last.
    floor: u128,
}

impl File {
    fn worth(&self) -> u128 {
        let blocks = self.slots.len().max(1) as u128;
        self.floor + ONE * (blocks + u128::from(self.read)) / (blocks * blocks)
    }
}

/// The files of a keep with their worth.
#[derive(Default)]
pub(crate) struct Files {
    files: FxHashMap<u32, File>,
    order: BTreeSet<(u128, u32)>,
    /// The worth of the last evicted file.
    floor: u128,
    filled: u64,
}

impl Files {
    fn change<T>(&mut self, ino: u32, change: impl FnOnce(&mut File) -> T) -> T {
        let file = self.files.entry(ino).or_insert_with(|| File { floor: self.floor, ..File::default() });
        self.order.remove(&(file.worth(), ino));
        let out = change(file);
        match file.slots.is_empty() {
            true => _ = self.files.remove(&ino),
            false => _ = self.order.insert((file.worth(), ino)),
        }
        out
    }

    /// Records that a slot was filled for a file. The returned number identifies the slot for [`Files::gone`].
    pub fn came(&mut self, ino: u32, slot: u32) -> u64 {
        self.filled += 1;
        let (number, floor) = (self.filled, self.floor);
        self.change(ino, |file| {
            file.slots.insert(number, slot);
            file.floor = floor;
        });
        number
    }

    /// Records that a slot of a file became empty.
    pub fn gone(&mut self, ino: u32, number: u64) {
        self.change(ino, |file| _ = file.slots.remove(&number));
    }

    /// Records that blocks of a file were read.
    pub fn used(&mut self, ino: u32, blocks: u64) {
        let floor = self.floor;
        if self.files.contains_key(&ino) {
            self.change(ino, |file| (file.read, file.floor) = (file.read + blocks, floor));
        }
    }

    /// Number of kept blocks of a file.
    pub fn blocks(&self, ino: u32) -> usize {
        self.files.get(&ino).map_or(0, |file| file.slots.len())
    }

    /// The first filled slot of a file.
    pub fn first(&self, ino: u32) -> Option<u32> {
        self.files.get(&ino)?.slots.values().next().copied()
    }

    /// The slots of the file with the least worth, other than `but`. With `less`, only if its worth is below that
    /// of `but` with one more block.
    pub fn least(&mut self, but: u32, less: bool) -> Option<Vec<u32>> {
        let (worth, ino) = *self.order.iter().find(|(_, ino)| *ino != but)?;
        if less {
            let blocks = self.blocks(but) as u128 + 1;
            let read = self.files.get(&but).map_or(0, |file| file.read);
            if worth >= self.floor + ONE * (blocks + u128::from(read)) / (blocks * blocks) {
                return None;
            }
        }
        self.floor = self.floor.max(worth);
        Some(self.files.get(&ino)?.slots.values().copied().collect())
    }

    /// Number of files with kept blocks.
    pub fn count(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(files: &mut Files, ino: u32, blocks: u32) {
        (0..blocks).for_each(|n| _ = files.came(ino, ino * 100 + n));
    }

    fn leaves(files: &mut Files) -> u32 {
        let slots = files.least(0, false).unwrap();
        let ino = slots[0] / 100;
        files.files.remove(&ino).map(|f| files.order.remove(&(f.worth(), ino)));
        ino
    }

    #[test]
    fn of_files_that_were_used_alike_the_largest_leaves_first() {
        let mut files = Files::default();
        [(1, 2), (2, 50), (3, 10)].into_iter().for_each(|(ino, blocks)| keep(&mut files, ino, blocks));
        assert_eq!([(); 3].map(|()| leaves(&mut files)), [2, 3, 1]);
    }

    #[test]
    fn uses_count_by_what_was_read_not_by_calls() {
        let mut files = Files::default();
        [1, 2].into_iter().for_each(|ino| keep(&mut files, ino, 10));
        (0..10).for_each(|_| files.used(1, 1));
        files.used(2, 20);
        assert_eq!(leaves(&mut files), 1, "read once in ten calls against twice in one");
    }

    #[test]
    fn what_was_used_long_ago_leaves_before_what_comes_now() {
        let mut files = Files::default();
        keep(&mut files, 1, 4);
        files.used(1, 40);
        let mut rounds = 0;
        for ino in 2.. {
            keep(&mut files, ino, 4);
            rounds += 1;
            if leaves(&mut files) == 1 {
                break;
            }
        }
        assert!((5..20).contains(&rounds), "{rounds}");
    }

    #[test]
    fn a_file_of_the_least_worth_evicts_no_other() {
        let mut files = Files::default();
        keep(&mut files, 1, 2);
        keep(&mut files, 9, 3);
        assert_eq!(files.least(9, true), None);
        assert_eq!(files.least(8, true), Some(vec![900, 901, 902]), "a file of one block is worth more");
    }
}
