//! Replaces SQLite's random numbers in files by reproducible ones.
//!
//! A rollback journal begins with a random number that is added to the checksum of each record; a write-ahead log with
//! two that go into each frame and its checksum. SQLite draws them from the system, and callers cannot change the
//! source. Deltas of such pages would differ in length between runs. So the numbers are replaced when they are written,
//! together with the checksums over them (<https://sqlite.org/fileformat2.html>, sections 3 and 4). SQLite reads them
//! back only after a crash, and then from the files.

use std::collections::BTreeMap;

use device::Rng;

/// SQLite's sector size if a power cut does not damage bytes next to a write.
const SECTOR: u32 = 512;
const PAGE: u32 = 4096;
/// A log's magic number, without the bit for the byte order of checksums.
const LOG: u32 = 0x377f_0682;
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// A checksum over a log's words.
type Sum = (u32, u32);

/// A rollback journal.
#[derive(Default)]
struct Journal {
    /// Added to checksums.
    shift: u32,
    /// Place of the checksum of the page just written.
    checksum_at: Option<u64>,
}

/// A write-ahead log.
struct Log {
    big: bool,
    salts: [u8; 8],
    /// The checksum up to each offset.
    sums: BTreeMap<u64, Sum>,
    /// The header of a frame whose page is not yet written.
    header: Option<(u64, Vec<u8>)>,
}

enum Kind {
    Journal(Journal),
    Log(Log),
}

/// State of the files that contain such numbers.
#[derive(Default)]
pub struct Salts {
    files: BTreeMap<u64, Kind>,
    drawn: u64,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    // OK to unwrap: callers pass at least four bytes after `at`.
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A journal's first sector as SQLite first writes it, before the magic number and the number of records.
fn begins_journal(bytes: &[u8]) -> bool {
    bytes.len() == SECTOR as usize && bytes[..12] == [0; 12] && (word(bytes, 20), word(bytes, 24)) == (SECTOR, PAGE)
}

fn sum(big: bool, (mut a, mut b): Sum, bytes: &[u8]) -> Sum {
    let number = |word: &[u8; 4]| if big { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) };
    for pair in bytes.as_chunks::<4>().0.as_chunks::<2>().0 {
        a = a.wrapping_add(number(&pair[0])).wrapping_add(b);
        b = b.wrapping_add(number(&pair[1])).wrapping_add(a);
    }
    (a, b)
}

fn put(bytes: &mut [u8], at: usize, (a, b): Sum) {
    bytes[at..at + 4].copy_from_slice(&a.to_be_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&b.to_be_bytes());
}

impl Log {
    /// A frame's header and page with replaced numbers.
    fn frame(&mut self, at: u64, mut header: Vec<u8>, page: &[u8]) -> Option<Vec<u8>> {
        let before = *self.sums.get(&at)?;
        header[8..16].copy_from_slice(&self.salts);
        let after = sum(self.big, sum(self.big, before, &header[..8]), page);
        put(&mut header, 16, after);
        self.sums.insert(at + (FRAME_HEADER + page.len()) as u64, after);
        Some(header)
    }
}

impl Salts {
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        Rng::new(self.drawn).next_u64()
    }

    /// What to write instead of these bytes at this offset: each piece with its offset.
    pub fn drawn_from_a_seed(&mut self, file: u64, at: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        if begins_journal(bytes) {
            let drawn = self.draw() as u32;
            let mut header = bytes.to_vec();
            header[12..16].copy_from_slice(&drawn.to_be_bytes());
            let shift = drawn.wrapping_sub(word(bytes, 12));
            self.files.insert(file, Kind::Journal(Journal { shift, checksum_at: None }));
            return vec![(at, header)];
        }
        if at == 0 && bytes.len() == LOG_HEADER && word(bytes, 0) & !1 == LOG {
            let (salts, big) = (self.draw().to_be_bytes(), word(bytes, 0) & 1 == 1);
            let mut header = bytes.to_vec();
            header[16..24].copy_from_slice(&salts);
            let sums = sum(big, (0, 0), &header[..24]);
            put(&mut header, 24, sums);
            let sums = [(LOG_HEADER as u64, sums)].into();
            self.files.insert(file, Kind::Log(Log { big, salts, sums, header: None }));
            return vec![(at, header)];
        }
        match self.files.get_mut(&file) {
            Some(Kind::Journal(journal)) => {
                let checksum = journal.checksum_at.take() == Some(at) && bytes.len() == 4;
                if bytes.len() > 28 {
                    journal.checksum_at = Some(at + bytes.len() as u64);
                }
                let shifted = || word(bytes, 0).wrapping_add(journal.shift).to_be_bytes().to_vec();
                vec![(at, if checksum { shifted() } else { bytes.to_vec() })]
            }
            Some(Kind::Log(log)) => match log.header.take() {
                None if bytes.len() == FRAME_HEADER => {
                    log.header = Some((at, bytes.to_vec()));
                    Vec::new()
                }
                Some((before, header)) if before + FRAME_HEADER as u64 == at => {
                    let header = log.frame(before, header.clone(), bytes).unwrap_or(header);
                    vec![(before, header), (at, bytes.to_vec())]
                }
                other => other.into_iter().chain([(at, bytes.to_vec())]).collect(),
            },
            None => vec![(at, bytes.to_vec())],
        }
    }
}
