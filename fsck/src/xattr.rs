//! Is a list of extended attributes valid: entries inside the area, an end, zeros behind it?

use format::xattr::MAGIC;

use super::report::XattrFault;

/// Header: magic, reference count, reserved.
pub const HEADER: usize = 24;
const ENTRY: usize = 4;

/// Checks the concatenated parts in the inode and in the xattr node.
pub fn check(list: &[u8]) -> Result<(), XattrFault> {
    if list.len() <= HEADER {
        return Ok(());
    }
    let word = |at: usize| list.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let (stored, first) = (word(0), word(HEADER));
    if stored != MAGIC && (stored, first) != (0, 0) {
        return Err(XattrFault::Magic { stored });
    }
    let end = end(list)?;
    match list[end..].iter().position(|&b| b != 0) {
        Some(_) => Err(XattrFault::StaleTail { at: end }),
        None => Ok(()),
    }
}

/// End of the list: the offset of its terminating zero word.
pub fn end(list: &[u8]) -> Result<usize, XattrFault> {
    let size = list.len();
    let mut at = HEADER;
    loop {
        let Some(&[index, name_len, v0, v1]) = list.get(at..at + ENTRY).and_then(|b| b.first_chunk()) else {
            return Err(XattrFault::Unterminated);
        };
        if [index, name_len, v0, v1] == [0; 4] {
            return Ok(at);
        }
        let value = usize::from(u16::from_le_bytes([v0, v1]));
        let next = at + (ENTRY + usize::from(name_len) + value).next_multiple_of(4);
        if next > size {
            return Err(XattrFault::Overrun { at, size });
        }
        // Linux lets a list fill its area to the last byte, without a terminator.
        if next == size {
            return Ok(size);
        }
        at = next;
    }
}

/// Start of the last entry of a list without an end.
pub fn last_entry(list: &[u8]) -> usize {
    let mut at = HEADER;
    loop {
        let Some(&[_, name_len, v0, v1]) = list.get(at..at + ENTRY).and_then(|b| b.first_chunk()) else {
            return at.min(list.len());
        };
        let value = usize::from(u16::from_le_bytes([v0, v1]));
        let next = at + (ENTRY + usize::from(name_len) + value).next_multiple_of(4);
        if next > list.len() {
            return at;
        }
        at = next;
    }
}
