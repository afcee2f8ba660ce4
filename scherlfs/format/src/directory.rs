//! Directory blocks: entries in ext2's format, and a checksum at the end.
//!
//! An entry is an inode number, its own length, the length of its name, a type, and the name, and begins at a
//! multiple of four. The entries fill the block: room behind a name belongs to the entry before it, and an entry
//! with inode 0 is only room. The last 12 bytes look like such an entry to ext2 code, and hold the checksum, which
//! covers the directory's number and the block's index in it.

use crate::{BLOCK, Block, FormatError, Ino, checksum};

const WHAT: &str = "directory block";
/// Bytes of an entry before its name.
pub const HEAD: usize = 8;
/// Bytes of entries; the checksum is behind them.
pub const ENTRIES: usize = BLOCK - TAIL;
const TAIL: usize = 12;
const TAIL_TYPE: u8 = 0xDE;

/// A decoded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its offset in the block.
    pub at: usize,
    /// Its length, including the room behind it.
    pub length: usize,
    /// Its inode; 0 if it is only room.
    pub ino: Ino,
    /// Kind of the inode, in ext2's numbers: 1 regular, 2 directory, 3 character device, 4 block device, 5 fifo, 6
    /// socket, 7 symlink.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

/// Bytes of an entry with a name of this length, without room.
pub fn least(name: usize) -> usize {
    (HEAD + name).next_multiple_of(4)
}

fn half(b: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([b[at], b[at + 1]]))
}

fn entry(block: &Block, at: usize) -> Option<Entry<'_>> {
    let head = block[..ENTRIES].get(at..at + HEAD)?;
    let ino = Ino(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
    let (length, name) = (half(head, 4), usize::from(head[6]));
    let fits = length.is_multiple_of(4) && length >= least(name) && at + length <= ENTRIES;
    let named = ino == Ino(0) || (name > 0 && (1..=7).contains(&head[7]));
    if !fits || !named {
        return None;
    }
    Some(Entry { at, length, ino, kind: head[7], name: &block[at + HEAD..at + HEAD + name] })
}

/// True if a block ends like a directory block; a hint only, nothing is checked.
pub fn looks_sealed(block: &Block) -> bool {
    block[ENTRIES..ENTRIES + 8] == tail_head()
}

/// A block with checked entries.
#[derive(Debug, Clone, Copy)]
pub struct Entries<'a> {
    block: &'a Block,
}

impl<'a> Entries<'a> {
    /// Checks block `index` of directory `ino`: the checksum, and that entries fill it.
    pub fn read(block: &'a Block, ino: Ino, index: u64) -> Result<Self, FormatError> {
        let tail = &block[ENTRIES..];
        let stored = u32::from_le_bytes([tail[8], tail[9], tail[10], tail[11]]);
        let computed = sum(block, ino, index);
        if stored != computed {
            return Err(FormatError::Checksum { what: WHAT, stored, computed });
        }
        if tail[..8] != tail_head() {
            return Err(FormatError::Field { what: WHAT, field: "end", value: tail[7].into() });
        }
        let mut at = 0;
        while at < ENTRIES {
            let entry =
                entry(block, at).ok_or(FormatError::Field { what: WHAT, field: "entry at", value: at as u64 })?;
            at += entry.length;
        }
        Ok(Entries { block })
    }

    /// Entries of a block that was checked earlier and was since changed only by this module: nothing is checked,
    /// and iteration stops at an invalid entry.
    pub fn unchecked(block: &'a Block) -> Self {
        Entries { block }
    }

    /// The entries with names, in order.
    pub fn named(self) -> impl Iterator<Item = Entry<'a>> {
        self.all().filter(|e| e.ino != Ino(0))
    }

    /// All entries, including those that are only room.
    pub fn all(self) -> impl Iterator<Item = Entry<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let next = entry(self.block, at)?;
            at += next.length;
            Some(next)
        })
    }
}

fn tail_head() -> [u8; 8] {
    [0, 0, 0, 0, TAIL as u8, 0, 0, TAIL_TYPE]
}

fn sum(block: &Block, ino: Ino, index: u64) -> u32 {
    checksum(&[&ino.0.to_le_bytes(), &index.to_le_bytes(), &block[..BLOCK - 4]])
}

/// Writes a block's tail and checksum.
pub fn seal(block: &mut Block, ino: Ino, index: u64) {
    block[ENTRIES..ENTRIES + 8].copy_from_slice(&tail_head());
    let crc = sum(block, ino, index);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// A block without names.
pub fn empty() -> Box<Block> {
    let mut block = Box::new([0; BLOCK]);
    write_entry(&mut block, 0, ENTRIES, Ino(0), 0, b"");
    block
}

fn write_entry(block: &mut Block, at: usize, length: usize, ino: Ino, kind: u8, name: &[u8]) {
    block[at..at + 4].copy_from_slice(&ino.0.to_le_bytes());
    block[at + 4..at + 6].copy_from_slice(&(length as u16).to_le_bytes());
    block[at + 6] = name.len() as u8;
    block[at + 7] = kind;
    block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
}

/// Largest entry that could be added.
pub fn largest_room(entries: Entries<'_>) -> usize {
    entries.all().map(|e| if e.ino == Ino(0) { e.length } else { e.length - least(e.name.len()) }).max().unwrap_or(0)
}

/// Adds an entry if there is room, and returns its offset; otherwise `None`. The block must have been checked. The
/// name must have 1 to 255 bytes.
pub fn insert(block: &mut Block, ino: Ino, kind: u8, name: &[u8]) -> Option<usize> {
    let need = least(name.len());
    let place = Entries { block }.all().find_map(|e| {
        let used = if e.ino == Ino(0) { 0 } else { least(e.name.len()) };
        (e.length - used >= need).then_some((e.at, e.length, used))
    });
    let (at, length, used) = place?;
    if used > 0 {
        block[at + 4..at + 6].copy_from_slice(&(used as u16).to_le_bytes());
    }
    write_entry(block, at + used, length - used, ino, kind, name);
    Some(at + used)
}

/// Removes the entry at offset `at`: its room goes to the entry before it, or remains as room. False if no entry
/// begins there.
pub fn remove(block: &mut Block, at: usize) -> bool {
    let mut before: Option<(usize, usize)> = None;
    let mut found = None;
    for e in (Entries { block }).all() {
        if e.at == at && e.ino != Ino(0) {
            found = Some((e.length, before));
            break;
        }
        before = Some((e.at, e.length));
    }
    match found {
        None => return false,
        Some((length, Some((before, its)))) => {
            block[before + 4..before + 6].copy_from_slice(&((its + length) as u16).to_le_bytes());
        }
        Some((length, None)) => write_entry(block, at, length, Ino(0), 0, b""),
    }
    true
}

/// Points the entry at offset `at` at another inode.
pub fn redirect(block: &mut Block, at: usize, ino: Ino, kind: u8) {
    if entry(block, at).is_some_and(|e| e.ino != Ino(0)) {
        block[at..at + 4].copy_from_slice(&ino.0.to_le_bytes());
        block[at + 7] = kind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(block: &Block) -> Vec<(u32, Vec<u8>)> {
        Entries::read(block, Ino(2), 5).unwrap().named().map(|e| (e.ino.0, e.name.to_vec())).collect()
    }

    #[test]
    fn names_come_and_go_and_their_room_is_used_again() {
        let mut block = empty();
        let mut n = 8;
        while insert(&mut block, Ino(n), 1, format!("name-{n}").as_bytes()).is_some() {
            n += 1;
        }
        seal(&mut block, Ino(2), 5);
        let full = names(&block);
        assert_eq!(full.len(), n as usize - 8);
        assert!(full.len() > 240, "{}", full.len());
        // First every second entry, then those next to a hole.
        for round in [0, 1] {
            let places: Vec<_> = Entries::read(&block, Ino(2), 5).unwrap().named().map(|e| e.at).collect();
            places.iter().skip(round).step_by(2).for_each(|at| assert!(remove(&mut block, *at)));
            seal(&mut block, Ino(2), 5);
        }
        let left = names(&block);
        assert!(left.iter().all(|name| full.contains(name)) && left.len() * 4 <= full.len() + 4);
        assert!(
            insert(&mut block, Ino(7), 2, &[b'x'; 255]).is_some()
                || largest_room(Entries { block: &block }) < least(255)
        );
        seal(&mut block, Ino(2), 5);
        assert!(Entries::read(&block, Ino(3), 5).is_err() && Entries::read(&block, Ino(2), 4).is_err());
    }

    #[test]
    fn no_changed_bit_of_a_directory_goes_unseen() {
        let mut block = empty();
        assert!(insert(&mut block, Ino(9), 1, b"a").is_some() && insert(&mut block, Ino(10), 2, b"bc").is_some());
        seal(&mut block, Ino(2), 0);
        for bit in 0..BLOCK * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Entries::read(&block, Ino(2), 0).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn entries_that_lead_out_of_the_block_are_refused() {
        for (at, value) in [(4, 5u16), (4, 0), (4, 4092), (6, 0x0801), (6, 0x0100)] {
            let mut block = empty();
            insert(&mut block, Ino(9), 1, b"a");
            block[at..at + 2].copy_from_slice(&value.to_le_bytes());
            seal(&mut block, Ino(2), 0);
            let read = Entries::read(&block, Ino(2), 0);
            assert!(read.is_err(), "{at} {value}: {:?}", read.map(|e| e.named().count()));
        }
    }
}
