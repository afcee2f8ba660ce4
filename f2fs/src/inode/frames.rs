//! Where are the pages of a database in its journal or log?
//!
//! SQLite's rollback journal and its write-ahead log hold whole pages of a database, each with a few bytes around it
//! (sqlite.org, "Database File Format", sections 3 and 4). So a page begins in the middle of a file block. The same
//! pages recur, slightly changed, each time at another place.
//!
//! Pure. The result is a hint that makes deltas short: callers compare it with the actual contents. Only pages of 4
//! KiB; a second header within a journal is not searched.

use format::Block;

/// The layout of records in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Start of the first record.
    first: u64,
    /// Bytes before the page; the first four are its number in the database.
    head: u64,
    /// Bytes after the page.
    tail: u64,
}

/// The part of one record's page in one block of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The record.
    pub(crate) record: u64,
    /// Start in the block.
    pub(crate) at: usize,
    /// Start in the page.
    pub(crate) from: usize,
    /// Length in bytes.
    pub(crate) len: usize,
}

const PAGE: u64 = 4096;

fn be32(block: &Block, at: usize) -> u32 {
    u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// True if a file of this name may be a journal or a log.
pub(crate) fn may_have_records(name: &[u8]) -> bool {
    name.ends_with(b"-wal") || name.ends_with(b"-journal")
}

impl Layout {
    /// The layout, from a file's name and its first block.
    pub(crate) fn of(name: &[u8], block: &Block) -> Option<Layout> {
        if name.ends_with(b"-wal") {
            let magic = be32(block, 0) & !1 == 0x377F_0682;
            return (magic && u64::from(be32(block, 8)) == PAGE).then_some(Layout { first: 32, head: 24, tail: 0 });
        }
        // The magic number is zero while the journal is invalid, as at its first sync.
        let sector = be32(block, 20);
        let lawful = (512..=65536).contains(&sector) && sector.is_power_of_two();
        let journal = name.ends_with(b"-journal") && lawful && u64::from(be32(block, 24)) == PAGE;
        journal.then_some(Layout { first: sector.into(), head: 4, tail: 4 })
    }

    fn stride(&self) -> u64 {
        self.head + PAGE + self.tail
    }

    /// Start of a record's page.
    fn page_at(&self, record: u64) -> u64 {
        self.first + record * self.stride() + self.head
    }

    /// The parts of pages in a block, in order.
    pub(crate) fn pieces(&self, block: u64) -> Vec<Piece> {
        let (start, end) = (block * PAGE, (block + 1) * PAGE);
        let mut record = start.saturating_sub(self.first) / self.stride();
        let mut out = Vec::new();
        while self.page_at(record) < end {
            let page = self.page_at(record);
            let (from, to) = (page.max(start), (page + PAGE).min(end));
            if from < to {
                let (at, inside) = ((from - start) as usize, (from - page) as usize);
                out.push(Piece { record, at, from: inside, len: (to - from) as usize });
            }
            record += 1;
        }
        out
    }

    /// A record's page and its number in the database, if `get` returns all of its blocks.
    pub(crate) fn page<'b>(&self, record: u64, get: impl Fn(u64) -> Option<&'b Block>) -> Option<(u32, Box<Block>)> {
        let copy = |at: u64, to: &mut [u8]| {
            let mut done = 0;
            while done < to.len() {
                let here = at + done as u64;
                let inside = (here % PAGE) as usize;
                let n = (4096 - inside).min(to.len() - done);
                to[done..done + n].copy_from_slice(&get(here / PAGE)?[inside..inside + n]);
                done += n;
            }
            Some(())
        };
        let (mut number, mut page) = ([0; 4], Box::new([0; 4096]));
        let at = self.page_at(record);
        copy(at - self.head, &mut number)?;
        copy(at, &mut page[..])?;
        Some((u32::from_be_bytes(number), page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wal_head() -> Block {
        let mut b = [0; 4096];
        b[..4].copy_from_slice(&0x377F_0683_u32.to_be_bytes());
        b[8..12].copy_from_slice(&4096_u32.to_be_bytes());
        b
    }

    #[test]
    fn the_frames_of_a_log_are_found_in_its_blocks() {
        let wal = Layout::of(b"chat.db-wal", &wal_head()).unwrap();
        assert_eq!(wal.pieces(0), [Piece { record: 0, at: 56, from: 0, len: 4040 }]);
        let (tail, head) =
            (Piece { record: 0, at: 0, from: 4040, len: 56 }, Piece { record: 1, at: 80, from: 0, len: 4016 });
        assert_eq!(wal.pieces(1), [tail, head]);
        // Over 171 blocks the frames shift by a whole frame.
        for block in 0..400 {
            let pieces = wal.pieces(block);
            let covered: usize = pieces.iter().map(|p| p.len).sum();
            assert!(covered >= 4096 - 56 && pieces.len() <= 2, "{block}: {pieces:?}");
            assert!(pieces.windows(2).all(|w| w[0].at + w[0].len + 24 == w[1].at));
        }
        assert_eq!(Layout::of(b"chat.db", &wal_head()), None);
        let mut other = wal_head();
        other[10] = 4;
        assert_eq!(Layout::of(b"chat.db-wal", &other), None, "pages of another size");
    }

    #[test]
    fn a_journal_is_known_without_its_magic_number_and_gives_its_pages() {
        let mut b = [0; 4096];
        b[20..24].copy_from_slice(&512_u32.to_be_bytes());
        b[24..28].copy_from_slice(&4096_u32.to_be_bytes());
        let journal = Layout::of(b"x-journal", &b).unwrap();
        let mut blocks = [b, [0; 4096], [0; 4096]];
        let mut put = |at: usize, bytes: &[u8]| {
            for (i, byte) in bytes.iter().enumerate() {
                blocks[(at + i) / 4096][(at + i) % 4096] = *byte;
            }
        };
        put(512 + 4104, &77_u32.to_be_bytes());
        put(512 + 4104 + 4, &[9; 4096]);
        let (number, page) = journal.page(1, |block| blocks.get(block as usize)).unwrap();
        assert!(number == 77 && *page == [9; 4096]);
        assert!(journal.page(1, |block| blocks.get(block as usize).filter(|_| block != 2)).is_none());
        assert_eq!(journal.pieces(0), [Piece { record: 0, at: 516, from: 0, len: 3580 }]);
    }
}
