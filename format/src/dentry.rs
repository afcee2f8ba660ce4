//! Directory entries: the area of a dentry block or of an inline directory, and the geometry of a directory's hash
//! levels.
//!
//! An area is a bitmap, fixed entries and 8-byte name slots. A name takes consecutive slots, and only its first
//! entry is meaningful.

use std::ops::Range;

use crate::bits;

/// Name slots in a dentry block.
pub const SLOTS_PER_BLOCK: usize = 214;
/// Bytes of name in one slot.
pub const SLOT_LEN: usize = 8;
/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Bytes of one entry: hash, inode number, name length (2), type (1).
const ENTRY: usize = 11;
/// Deepest hash level plus one.
pub const MAX_DEPTH: u32 = 63;

/// Offsets of the parts of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of slots.
    pub slots: usize,
    entries: usize,
    names: usize,
}

impl Layout {
    /// A whole dentry block.
    pub const BLOCK: Layout = Layout { slots: SLOTS_PER_BLOCK, entries: 30, names: 2384 };

    /// An inline directory of `bytes` bytes: the number of slots that fit, with the slack after the bitmap. An area
    /// is at most one block long: further bytes are not used.
    pub fn inline(bytes: usize) -> Layout {
        let bytes = bytes.min(crate::BLOCK);
        let slots = bytes * 8 / ((ENTRY + SLOT_LEN) * 8 + 1);
        let names = bytes - slots * SLOT_LEN;
        Layout { slots, entries: names - slots * ENTRY, names }
    }
    fn entry(&self, i: usize) -> usize {
        self.entries + i * ENTRY
    }
    fn name(&self, i: usize, len: usize) -> Range<usize> {
        let at = self.names + i * SLOT_LEN;
        at..at + len
    }
    /// Bytes from the area's start to the end of the last name slot.
    pub fn len(&self) -> usize {
        self.names + self.slots * SLOT_LEN
    }
    /// True if no slot fits.
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }
    /// Where the entries begin.
    pub fn entries_at(&self) -> usize {
        self.entries
    }
    /// Where the name slots begin.
    pub fn names_at(&self) -> usize {
        self.names
    }
    /// Bytes of bitmap.
    pub fn bitmap_len(&self) -> usize {
        self.slots.div_ceil(8)
    }
}

/// Number of slots for a name of `len` bytes.
#[inline]
pub fn slots_for(len: usize) -> usize {
    len.div_ceil(SLOT_LEN)
}

/// One entry of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// First slot.
    pub slot: usize,
    /// Name hash as stored.
    pub hash: u32,
    /// Inode number, unchecked.
    pub ino: u32,
    /// Type number as stored (1 file .. 7 symlink).
    pub kind: u8,
    /// The name; never empty, inside the area.
    pub name: &'a [u8],
}

fn u32_at(area: &[u8], at: usize) -> u32 {
    area.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn name_len(l: &Layout, area: &[u8], i: usize) -> usize {
    let at = l.entry(i) + 8;
    area.get(at..at + 2).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])))
}

/// The entry at slot `i`, if a valid entry begins there.
pub fn at<'a>(l: &Layout, area: &'a [u8], i: usize) -> Option<Dentry<'a>> {
    if i >= l.slots || !bits::lsb_test(area, i) {
        return None;
    }
    let len = name_len(l, area, i);
    if len == 0 || len > NAME_MAX || i + slots_for(len) > l.slots {
        return None;
    }
    let e = l.entry(i);
    Some(Dentry {
        slot: i,
        hash: u32_at(area, e),
        ino: u32_at(area, e + 4),
        kind: *area.get(e + 10)?,
        name: area.get(l.name(i, len))?,
    })
}

/// Hash and inode number stored at slot `i`, even if no valid entry begins there.
pub fn raw_hash_and_ino(l: &Layout, area: &[u8], i: usize) -> (u32, u32) {
    if i >= l.slots {
        return (0, 0);
    }
    let e = l.entry(i);
    (u32_at(area, e), u32_at(area, e + 4))
}

/// The entry for `name` (with hash `hash`).
pub fn find<'a>(l: &Layout, area: &'a [u8], name: &[u8], hash: u32) -> Option<Dentry<'a>> {
    find_where(l, area, hash, |entry| entry == name)
}

/// The entry under `hash` for which `is` accepts the name.
pub fn find_where<'a>(l: &Layout, area: &'a [u8], hash: u32, is: impl Fn(&[u8]) -> bool) -> Option<Dentry<'a>> {
    // One comparison per slot in the common case; the bitmap is read only for slots with a matching hash. Eight
    // slots share one branch.
    let entries = area.get(l.entries..l.names)?.as_chunks::<ENTRY>().0;
    let same = |e: &[u8; ENTRY]| u32::from_le_bytes([e[0], e[1], e[2], e[3]]) == hash;
    for (group, eight) in entries.chunks(8).enumerate() {
        let any = match <&[_; 8]>::try_from(eight) {
            Ok(eight) => eight.iter().fold(false, |any, e| any | same(e)),
            Err(_) => true,
        };
        if any {
            for (k, _) in eight.iter().enumerate().filter(|(_, e)| same(e)) {
                if let Some(d) = at(l, area, group * 8 + k).filter(|d| is(d.name)) {
                    return Some(d);
                }
            }
        }
    }
    None
}

/// All valid entries from slot `from` on. Used slots without a valid entry are skipped.
pub fn entries<'a>(l: &Layout, area: &'a [u8], from: usize) -> impl Iterator<Item = Dentry<'a>> {
    let l = *l;
    let mut i = from;
    std::iter::from_fn(move || {
        while i < l.slots {
            match at(&l, area, i) {
                Some(d) => {
                    i += slots_for(d.name.len());
                    return Some(d);
                }
                None => i += 1,
            }
        }
        None
    })
}

/// The first run of `n` free slots; `None` for `n` 0.
pub fn free_run(l: &Layout, area: &[u8], n: usize) -> Option<usize> {
    let slots = l.slots.min(SLOTS_PER_BLOCK);
    if n == 0 || n > slots {
        return None;
    }
    // Bit i: slot i is free. A missing byte of the bitmap and slots past the end count as used.
    let mut free = [0u64; 4];
    for (i, &byte) in area.iter().take(slots.div_ceil(8)).enumerate() {
        free[i / 8] |= u64::from(!byte) << (i % 8 * 8);
    }
    for (w, word) in free.iter_mut().enumerate() {
        let here = slots.saturating_sub(w * 64);
        if here < 64 {
            *word &= (1 << here) - 1;
        }
    }
    // Then bit i means that a run of `have` free slots begins at i. Two overlapping runs make a longer one.
    let mut have = 1;
    while have < n {
        let by = have.min(n - have).min(63);
        for w in 0..4 {
            let next = free.get(w + 1).copied().unwrap_or(0);
            free[w] &= free[w] >> by | next << (64 - by);
        }
        have += by;
    }
    let (w, word) = free.iter().enumerate().find(|&(_, &word)| word != 0)?;
    Some(w * 64 + word.trailing_zeros() as usize)
}

/// Writes an entry at `slot`, which [`free_run`] returned. An empty name, one past 255 bytes, or one past the area
/// is a caller's bug and is not written.
pub fn insert(l: &Layout, area: &mut [u8], slot: usize, name: &[u8], hash: u32, ino: u32, kind: u8) {
    let n = slots_for(name.len());
    let fits = (1..=NAME_MAX).contains(&name.len()) && slot < l.slots && slot + n <= l.slots;
    debug_assert!(fits, "a name of {} bytes does not fit at slot {slot}", name.len());
    if !fits || area.len() < l.len() {
        return;
    }
    let entries = &mut area[l.entry(slot)..l.entry(slot + n)];
    // Linux reads the name length of every slot: only the first may be set.
    entries.fill(0);
    entries[..4].copy_from_slice(&hash.to_le_bytes());
    entries[4..8].copy_from_slice(&ino.to_le_bytes());
    entries[8..10].copy_from_slice(&(name.len() as u16).to_le_bytes());
    entries[10] = kind;
    for k in slot..slot + n {
        bits::lsb_put(area, k, true);
    }
    area[l.name(slot, name.len())].copy_from_slice(name);
}

/// Frees the slots of the entry at `slot`.
pub fn remove(l: &Layout, area: &mut [u8], slot: usize) {
    if let Some(n) = at(l, area, slot).map(|d| slots_for(d.name.len())) {
        for k in 0..n {
            bits::lsb_put(area, slot + k, false);
        }
    }
}

/// Points the entry at `slot` at another inode.
pub fn redirect(l: &Layout, area: &mut [u8], slot: usize, ino: u32, kind: u8) {
    let e = l.entry(slot.min(l.slots));
    if let Some(entry) = area.get_mut(e..e + ENTRY).filter(|_| slot < l.slots) {
        entry[4..8].copy_from_slice(&ino.to_le_bytes());
        entry[10] = kind;
    }
}

/// True if no slot is in use.
pub fn is_empty(l: &Layout, area: &[u8]) -> bool {
    area.iter().take(l.bitmap_len()).all(|&b| b == 0)
}

/// Hash buckets at `level` of a directory whose `i_dir_level` is `dir_level`
/// (kernel `dir_buckets`, at most 2^30).
pub fn buckets(level: u32, dir_level: u8) -> u64 {
    1 << level.saturating_add(u32::from(dir_level)).min(30)
}

/// Blocks in a bucket at `level` (kernel `bucket_blocks`).
pub fn bucket_blocks(level: u32) -> u64 {
    if level < MAX_DEPTH / 2 { 2 } else { 4 }
}

/// The blocks of the bucket for names with `hash` at `level` (0..[`MAX_DEPTH`]; a deeper level counts as the
/// deepest).
pub fn bucket(level: u32, dir_level: u8, hash: u32) -> Range<u64> {
    let level = level.min(MAX_DEPTH - 1);
    let before: u64 = (0..level).map(|l| buckets(l, dir_level) * bucket_blocks(l)).sum();
    let n = bucket_blocks(level);
    let start = before + (u64::from(hash) % buckets(level, dir_level)) * n;
    start..start + n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inline_directory_of_a_plain_inode_has_182_slots() {
        assert_eq!(Layout::inline(3488).slots, 182);
    }

    #[test]
    fn a_dentry_block_is_an_area_of_exactly_4096_bytes() {
        let l = Layout::BLOCK;
        assert_eq!(l.name(l.slots - 1, 8).end, 4096);
        assert_eq!(l.entry(l.slots), l.names);
    }
}
