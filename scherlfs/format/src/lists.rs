//! Contents of the hidden files with free runs and orphans.
//!
//! A list begins with 16 bytes: magic, CRC-32 of everything that follows, and the number of entries. Runs are in
//! address order, and do not touch.

use crate::extent::{EXTENT_BYTES, Extent, RawExtent};
use crate::superblock::path_run;
use crate::{FormatError, Ino, Run, checksum};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const HEAD: usize = 16;
const FREE: u32 = u32::from_le_bytes(*b"SFRE");
const ORPHANS: u32 = u32::from_le_bytes(*b"SORP");

/// Bytes of a list of `runs` free runs.
pub fn free_bytes(runs: usize) -> usize {
    HEAD + runs * EXTENT_BYTES
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn entries<'a>(bytes: &'a [u8], magic: u32, size: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
    if word(bytes, 0) != magic {
        return Err(FormatError::Magic { what });
    }
    let count = u64::from(word(bytes, 8)) | u64::from(word(bytes, 12)) << 32;
    let long = usize::try_from(count).ok().and_then(|n| n.checked_mul(size)).and_then(|n| n.checked_add(HEAD));
    let all = long.and_then(|n| bytes.get(HEAD..n)).ok_or(FormatError::Field { what, field: "count", value: count })?;
    let (stored, computed) = (word(bytes, 4), checksum(&[&count.to_le_bytes(), all]));
    if stored != computed {
        return Err(FormatError::Checksum { what, stored, computed });
    }
    Ok(all)
}

fn list(magic: u32, count: u64, entries: &[u8]) -> Vec<u8> {
    let crc = checksum(&[&count.to_le_bytes(), entries]);
    [&magic.to_le_bytes()[..], &crc.to_le_bytes(), &count.to_le_bytes(), entries].concat()
}

/// Decodes a list of free runs.
pub fn read_free(bytes: &[u8]) -> Result<Vec<Run>, FormatError> {
    let what = "free list";
    let all = entries(bytes, FREE, EXTENT_BYTES, what)?;
    let mut runs: Vec<Run> = Vec::with_capacity(all.len() / EXTENT_BYTES);
    for raw in all.chunks_exact(EXTENT_BYTES) {
        let raw = RawExtent::read_from_bytes(raw).map_err(|_| FormatError::Magic { what })?;
        let run = path_run(&raw, what)?;
        if runs.last().is_some_and(|last| last.end() >= run.start) {
            return Err(FormatError::Field { what, field: "order of runs", value: run.start.0 });
        }
        runs.push(run);
    }
    Ok(runs)
}

/// Encodes a list of free runs.
pub fn write_free(runs: &[Run]) -> Vec<u8> {
    let all: Vec<u8> = runs
        .iter()
        .flat_map(|r| {
            let raw = Extent::Stored { start: r.start, blocks: r.blocks }.raw();
            <[u8; EXTENT_BYTES]>::try_from(raw.as_bytes()).unwrap_or_default()
        })
        .collect();
    list(FREE, runs.len() as u64, &all)
}

/// Decodes a list of orphans.
pub fn read_orphans(bytes: &[u8]) -> Result<Vec<Ino>, FormatError> {
    let all = entries(bytes, ORPHANS, 4, "list of orphans")?;
    Ok(all.chunks_exact(4).map(|b| Ino(word(b, 0))).collect())
}

/// Encodes a list of orphans.
pub fn write_orphans(inodes: &[Ino]) -> Vec<u8> {
    let all: Vec<u8> = inodes.iter().flat_map(|i| i.0.to_le_bytes()).collect();
    list(ORPHANS, inodes.len() as u64, &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addr;

    #[test]
    fn lists_read_as_they_were_written_and_no_changed_bit_goes_unseen() {
        let runs = [(2, 1), (4, 7), (1 << 40, u32::MAX)].map(|(a, blocks)| Run { start: Addr(a), blocks });
        let mut bytes = write_free(&runs);
        assert_eq!(bytes.len(), free_bytes(3));
        assert_eq!(read_free(&bytes).unwrap(), runs);
        let orphans = write_orphans(&[Ino(9), Ino(u32::MAX)]);
        assert_eq!(read_orphans(&orphans).unwrap(), [Ino(9), Ino(u32::MAX)]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read_free(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!((0..bytes.len()).all(|cut| read_free(&bytes[..cut]).is_err()));
        assert!(read_free(&write_free(&[runs[1], runs[0]])).is_err());
    }
}
