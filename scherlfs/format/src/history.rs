//! Contents of hidden file 5: undoable transactions, and the blocks kept for them.
//!
//! 16 bytes (magic `SUND`, CRC-32 of everything that follows, number of transactions), then for each transaction a
//! head of 32 bytes, its changes of 16 bytes each, and its replaced runs of 12 bytes each.

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::extent::{EXTENT_BYTES, Extent, RawExtent};
use crate::lists::HEAD;
use crate::superblock::path_run;
use crate::{Addr, FormatError, Ino, Run, Seq, checksum};

const WHAT: &str = "history";
const MAGIC: u32 = u32::from_le_bytes(*b"SUND");

/// Head of a transaction.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawPast {
    /// The transaction.
    pub seq: U64,
    /// When it was written: seconds since 1970.
    pub secs: I64,
    /// Number of changes that follow.
    pub changes: U32,
    /// Number of runs after the changes.
    pub runs: U32,
    /// 1: blocks were moved, nothing else.
    pub flags: U32,
    /// Zero.
    pub spare: U32,
}
const PAST: usize = size_of::<RawPast>();
const _: () = assert!(PAST == 32);

/// Change of an inode by a transaction.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawChange {
    /// The inode.
    pub ino: U32,
    /// Its old address, lower 32 bits; 0 with the upper bits: it did not exist.
    pub was: U32,
    /// The upper 16 bits.
    pub was_upper: U16,
    /// Its new address, upper 16 bits.
    pub is_upper: U16,
    /// The lower 32 bits; 0 with the upper bits: it was deleted.
    pub is: U32,
}
const CHANGE: usize = size_of::<RawChange>();
const _: () = assert!(CHANGE == 16);

/// Change of an inode by a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The inode.
    pub ino: Ino,
    /// Its old address.
    pub was: Option<Addr>,
    /// Its new address.
    pub is: Option<Addr>,
}

/// An undoable transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// Its number.
    pub seq: Seq,
    /// When it was written, in seconds since 1970.
    pub secs: i64,
    /// True if it only moved blocks, for cleaning or defragmentation.
    pub moved: bool,
    /// Its changes.
    pub changes: Vec<Change>,
    /// Replaced blocks that are kept.
    pub runs: Vec<Run>,
}

impl Past {
    /// Its bytes in the list.
    pub fn bytes(&self) -> usize {
        PAST + self.changes.len() * CHANGE + self.runs.len() * EXTENT_BYTES
    }

    /// Merges a continuation of the transaction, whose old addresses stay.
    pub fn take_up(&mut self, more: Past) {
        self.secs = self.secs.max(more.secs);
        for change in more.changes {
            match self.changes.iter_mut().find(|c| c.ino == change.ino) {
                Some(known) => known.is = change.is,
                None => self.changes.push(change),
            }
        }
        self.runs.extend(more.runs);
        self.runs.sort_unstable_by_key(|r| r.start);
    }
}

/// Bytes of a list of these transactions.
pub fn bytes<'p>(all: impl IntoIterator<Item = &'p Past>) -> usize {
    HEAD + all.into_iter().map(Past::bytes).sum::<usize>()
}

fn addr(lower: U32, upper: U16) -> Option<Addr> {
    let at = u64::from(lower.get()) | u64::from(upper.get()) << 32;
    (at > 0).then_some(Addr(at))
}

fn halves(at: Option<Addr>) -> (U32, U16) {
    let at = at.unwrap_or_default().0;
    ((at as u32).into(), ((at >> 32) as u16).into())
}

/// Encodes the hidden file.
pub fn write<'p>(all: impl IntoIterator<Item = &'p Past>) -> Vec<u8> {
    let mut out = vec![0; HEAD];
    let mut count: u64 = 0;
    for past in all {
        count += 1;
        let head = RawPast {
            seq: past.seq.0.into(),
            secs: past.secs.into(),
            changes: (past.changes.len() as u32).into(),
            runs: (past.runs.len() as u32).into(),
            flags: u32::from(past.moved).into(),
            spare: 0.into(),
        };
        out.extend_from_slice(head.as_bytes());
        for c in &past.changes {
            let mut raw = RawChange::new_zeroed();
            raw.ino = c.ino.0.into();
            (raw.was, raw.was_upper) = halves(c.was);
            (raw.is, raw.is_upper) = halves(c.is);
            out.extend_from_slice(raw.as_bytes());
        }
        for r in &past.runs {
            out.extend_from_slice(Extent::Stored { start: r.start, blocks: r.blocks }.raw().as_bytes());
        }
    }
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[8..16].copy_from_slice(&count.to_le_bytes());
    let crc = checksum(&[&out[8..]]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Decodes the hidden file. Transactions are in order.
///
/// # Errors
/// Anything that a writer does not produce.
pub fn read(bytes: &[u8]) -> Result<Vec<Past>, FormatError> {
    let short = FormatError::Magic { what: WHAT };
    let word = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).ok_or(short);
    if word(0)? != MAGIC {
        return Err(short);
    }
    let count = u64::from(word(8)?) | u64::from(word(12)?) << 32;
    let (stored, computed) = (word(4)?, checksum(&[&bytes[8..]]));
    if stored != computed {
        return Err(FormatError::Checksum { what: WHAT, stored, computed });
    }
    let wrong = |field, value| FormatError::Field { what: WHAT, field, value };
    let mut rest = &bytes[HEAD..];
    let mut all: Vec<Past> = Vec::new();
    for _ in 0..count {
        let (head, more) = RawPast::ref_from_prefix(rest).map_err(|_| wrong("transactions", count))?;
        let (changes, runs) = (head.changes.get() as usize, head.runs.get() as usize);
        // In 64 bits, which 2^32 entries of 16 bytes do not overflow.
        let (change_bytes, run_bytes) = (changes as u64 * CHANGE as u64, runs as u64 * EXTENT_BYTES as u64);
        if change_bytes + run_bytes > more.len() as u64 {
            return Err(wrong("changes", changes as u64));
        }
        let (c, more) = more.split_at(changes * CHANGE);
        let (r, more) = more.split_at(runs * EXTENT_BYTES);
        let seq = Seq(head.seq.get());
        if all.last().is_some_and(|last| last.seq >= seq) {
            return Err(wrong("order of transactions", seq.0));
        }
        let changes = c.chunks_exact(CHANGE).map(|raw| {
            let raw = RawChange::read_from_bytes(raw).map_err(|_| short)?;
            Ok(Change { ino: Ino(raw.ino.get()), was: addr(raw.was, raw.was_upper), is: addr(raw.is, raw.is_upper) })
        });
        let runs = r.chunks_exact(EXTENT_BYTES).map(|raw| {
            let raw = RawExtent::read_from_bytes(raw).map_err(|_| short)?;
            path_run(&raw, WHAT)
        });
        all.push(Past {
            seq,
            secs: head.secs.get(),
            moved: head.flags.get() & 1 != 0,
            changes: changes.collect::<Result<_, _>>()?,
            runs: runs.collect::<Result<_, _>>()?,
        });
        rest = more;
    }
    match rest.is_empty() {
        true => Ok(all),
        false => Err(wrong("bytes behind the last transaction", rest.len() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_reads_as_it_was_written_and_no_changed_bit_goes_unseen() {
        let change = |ino, was, is| Change { ino: Ino(ino), was, is };
        let all = [
            Past {
                seq: Seq(3),
                secs: -7,
                moved: true,
                changes: vec![change(9, None, Some(Addr(1 << 40))), change(10, Some(Addr(77)), None)],
                runs: vec![Run { start: Addr(1 << 33), blocks: 4 }],
            },
            Past { seq: Seq(8), ..Past::default() },
        ];
        let mut found = write(&all);
        assert_eq!((found.len(), read(&found).unwrap()), (bytes(&all), all.to_vec()));
        for bit in 0..found.len() * 8 {
            found[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&found).is_err(), "bit {bit}");
            found[bit / 8] ^= 1 << (bit % 8);
        }
        assert!((0..found.len()).all(|cut| read(&found[..cut]).is_err()));
        assert!(read(&write([&all[1], &all[0]])).is_err(), "out of order");
        // A valid checksum over invalid counts.
        for at in [8, HEAD + 16, HEAD + 20] {
            let mut forged = write(&all);
            forged[at] = forged[at].wrapping_add(200);
            let crc = checksum(&[&forged[8..]]);
            forged[4..8].copy_from_slice(&crc.to_le_bytes());
            assert!(read(&forged).is_err(), "byte {at}");
        }
    }
}
