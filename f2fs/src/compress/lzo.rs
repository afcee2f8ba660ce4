//! How is an LZO1X stream written, in both of Linux's dialects?
//!
//! After "LZO stream format as understood by Linux's LZO decompressor" (kernel documentation, `staging/lzo`): literals,
//! copies from at most 49,151 bytes back, and in version 1 runs of zeroes. Each position is looked up once, in a table
//! of the last positions of the same four bytes; after many misses, positions are skipped.
//!
//! No library under a compatible licence writes the newer dialect. Left out: the two instructions for copies of two and
//! three bytes that only a slower search finds, and levels.

/// Shortest match that is searched.
const FOUND: usize = 4;
/// Table size, as a power of two.
const TABLE: u32 = 13;
/// Shortest and longest run of zeroes in one instruction.
const RUN: std::ops::RangeInclusive<usize> = 4..=2051;
/// Longest distances of the three kinds of copies.
const NEAR: usize = 2048;
const MIDDLE: usize = 16_384;
const FAR: usize = 49_151;

/// A stream being written.
struct Output<'o> {
    bytes: &'o mut Vec<u8>,
    /// Position of the two bits of the last copy or run for the number of literals that follow it.
    count_at: Option<usize>,
}

impl Output<'_> {
    /// Writes the part of a length that exceeds the field of its instruction: each byte but the last stands for 255.
    fn rest(&mut self, mut n: usize) {
        while n > 255 {
            self.bytes.push(0);
            n -= 255;
        }
        self.bytes.push(n as u8);
    }

    fn literals(&mut self, from: &[u8]) {
        match (from.len(), self.count_at) {
            (0, _) => return,
            (n @ 1..=3, Some(at)) => self.bytes[at] |= n as u8,
            (n @ ..=238, None) => self.bytes.push(17 + n as u8),
            (n @ ..=18, _) => self.bytes.push(n as u8 - 3),
            (n, _) => {
                self.bytes.push(0);
                self.rest(n - 18);
            }
        }
        self.bytes.extend_from_slice(from);
        self.count_at = None;
    }

    /// Copies at least three bytes from `distance` back.
    fn copy(&mut self, distance: usize, length: usize) {
        let (field, most, far) = match distance {
            ..=NEAR if length <= 8 => {
                let d = distance - 1;
                self.count_at = Some(self.bytes.len());
                self.bytes.extend([((length - 1) << 5 | (d & 7) << 2) as u8, (d >> 3) as u8]);
                return;
            }
            ..=MIDDLE => (32, 33, distance - 1),
            _ => (16 | ((distance - MIDDLE) >> 11 & 8) as u8, 9, (distance - MIDDLE) & 0x3FFF),
        };
        if length <= most {
            self.bytes.push(field | (length - 2) as u8);
        } else {
            self.bytes.push(field);
            self.rest(length - most);
        }
        self.count_at = Some(self.bytes.len());
        self.bytes.extend(((far << 2) as u16).to_le_bytes());
    }

    /// A run of zeroes; [`RUN`] limits its length.
    fn run(&mut self, length: usize) {
        let n = length - RUN.start();
        self.count_at = Some(self.bytes.len() + 1);
        self.bytes.extend([0x18 | (n & 7) as u8, 0xFC, 0xFF, (n >> 3) as u8]);
    }
}

fn word(plain: &[u8], at: usize) -> Option<u32> {
    plain.get(at..at + FOUND).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
}

fn place(word: u32) -> usize {
    (word.wrapping_mul(0x9E37_79B1) >> (32 - TABLE)) as usize
}

/// A length that no reader of version 1 mistakes for a run of zeroes: such a run starts like a copy from the longest
/// distance, and like some long copies.
fn unmistakable(distance: usize, length: usize) -> usize {
    let far = distance.checked_sub(MIDDLE).is_some_and(|d| d & 0x403F == 0x403F);
    if far && (261..=264).contains(&length) { 260 } else { length }
}

/// Appends `plain` as a stream to `out`; if `runs`, as version 1.
pub(super) fn compress(plain: &[u8], runs: bool, out: &mut Vec<u8>) {
    let mut table = vec![0u32; 1 << TABLE];
    if runs {
        out.extend([17, 1]);
    }
    let mut out = Output { bytes: out, count_at: None };
    let farthest = if runs { FAR - 1 } else { FAR };
    // The first instruction must be literals: any other would be read as literals.
    let (mut at, mut done) = (FOUND, 0);
    while let Some(now) = word(plain, at) {
        if runs && now == 0 {
            let most = &plain[at..plain.len().min(at + RUN.end())];
            let n = most.iter().take_while(|b| **b == 0).count();
            out.literals(&plain[done..at]);
            out.run(n);
            at += n;
            done = at;
            continue;
        }
        // A table entry is its position plus one; 0 is none.
        let before = std::mem::replace(&mut table[place(now)], at as u32 + 1) as usize;
        let from = before.checked_sub(1).filter(|from| at - from <= farthest && word(plain, *from) == Some(now));
        let Some(from) = from else {
            at += 1 + (at - done) / 32;
            continue;
        };
        let same = plain[from + FOUND..].iter().zip(&plain[at + FOUND..]).take_while(|(a, b)| a == b).count();
        let mut length = FOUND + same;
        if runs {
            length = unmistakable(at - from, length);
        }
        out.literals(&plain[done..at]);
        out.copy(at - from, length);
        at += length;
        done = at;
    }
    out.literals(&plain[done..]);
    out.bytes.extend([17, 0, 0]);
}

#[cfg(test)]
mod tests {
    use device::Rng;
    use format::compress::{Algorithm, Method};

    use super::*;

    /// Contents with copies of every length and distance, and with runs of zeroes.
    fn contents(rng: &mut Rng, bytes: usize) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        while out.len() < bytes {
            let n = [rng.range(1..9), rng.range(1..40), rng.range(200..700), rng.range(1..5000)][rng.index(4)] as usize;
            match rng.below(4) {
                0 => out.resize(out.len() + n, 0),
                1 if !out.is_empty() => {
                    let back = out.len().min(rng.range(1..60_000) as usize);
                    let from = out.len() - back;
                    (0..n).for_each(|i| out.push(out[from + i]));
                }
                _ => out.extend((0..n).map(|_| rng.below(256) as u8)),
            }
        }
        out.truncate(bytes);
        out
    }

    #[test]
    fn streams_of_both_dialects_are_read_as_what_was_written() {
        let mut rng = Rng::new(1);
        for round in 0..600 {
            for (runs, algorithm) in [(false, Algorithm::Lzo), (true, Algorithm::LzoRle)] {
                let log = 2 + (round % 7) as u8;
                let m = Method { algorithm, log_cluster_size: log, checksum: false, level: 0 };
                // The last half is zero, so that every stream saves a block.
                let mut plain = contents(&mut rng, m.cluster_bytes() / 2);
                plain.resize(m.cluster_bytes(), 0);
                let mut stream = Vec::new();
                compress(&plain, runs, &mut stream);
                let mut out = vec![1; plain.len()];
                m.decompress(m.pack(&stream).expect("smaller").as_flattened(), &mut out).expect("a stream");
                assert!(out == plain, "round {round}, {algorithm:?}, 2^{log} blocks");
                if !runs {
                    assert!(lzokay_native::decompress_all(&stream, None).expect("a stream") == plain, "round {round}");
                }
            }
        }
    }

    /// The end of a stream: a copy of `copied` bytes, then literals from `at` on, with runs for the zeroes after them.
    fn end_of(plain: &[u8], at: usize, copied: usize, far: usize) -> Vec<u8> {
        let zeroes = plain.iter().rposition(|b| *b != 0).unwrap() + 1;
        let literals = &plain[at..zeroes];
        let few = if literals.len() < 4 { literals.len() } else { 0 };
        let mut end = vec![16 | (far >> 14 << 3) as u8];
        match copied {
            ..=9 => end[0] |= copied as u8 - 2,
            10..=264 => end.push((copied - 9) as u8),
            _ => end.extend([0, (copied - 264) as u8]),
        }
        end.extend((((far & 0x3FFF) << 2 | few) as u16).to_le_bytes());
        end.extend((few == 0).then_some(literals.len() as u8 - 3));
        end.extend(literals);
        for run in plain[zeroes..].chunks(2051) {
            end.extend([0x18 | ((run.len() - 4) & 7) as u8, 0xFC, 0xFF, ((run.len() - 4) >> 3) as u8]);
        }
        end.extend([17, 0, 0]);
        end
    }

    #[test]
    fn long_copies_from_far_back_are_not_taken_for_runs_of_zeroes() {
        const FROM: usize = 7;
        let mut rng = Rng::new(2);
        let noise: Vec<u8> = (0..300).map(|_| rng.below(255) as u8 + 1).collect();
        let m = Method { algorithm: Algorithm::LzoRle, log_cluster_size: 5, checksum: false, level: 0 };
        for length in (5..10).chain(255..270) {
            // With the last of these, `FAR`, every short copy would be mistaken, so there is none.
            for far in [0x403E, 0x403F, 0x4040, 0x407F, 0x7FBF, 0x7FFD, 0x7FFE, 0x3FFF, 0x003F, 0x7FFF] {
                let at = FROM + MIDDLE + far;
                // Zeroes between: after a run of zeroes no position is skipped.
                let mut plain = noise.clone();
                plain.resize(at, 0);
                plain.extend_from_within(FROM..FROM + length);
                // Three literals that do not occur earlier: the copy's distance has all bits set that a run has.
                let other = plain[FROM + length] ^ 0x55;
                plain.extend([if other == 0 { 1 } else { other }, 251, 252]);
                plain.resize(m.cluster_bytes(), 0);
                let mut stream = Vec::new();
                compress(&plain, true, &mut stream);
                let mut out = vec![1; plain.len()];
                m.decompress(m.pack(&stream).expect("smaller").as_flattened(), &mut out).expect("a stream");
                assert!(out == plain, "{length} bytes from {} back", MIDDLE + far);
                // The copy is one instruction of full length unless it would be mistaken.
                let mistaken = far & 0x403F == 0x403F && (261..=264).contains(&length);
                let copied = if mistaken { 260 } else { length };
                let runs = (m.cluster_bytes() - at - length - 3) % RUN.end();
                if length - copied < FOUND && !(1..4).contains(&runs) && MIDDLE + far < FAR {
                    let end = end_of(&plain, at + copied, copied, far);
                    assert!(stream.ends_with(&end), "{length} bytes from {} back", MIDDLE + far);
                }
            }
        }
    }

    #[test]
    fn words_and_zeroes_become_much_smaller() {
        let text: Vec<u8> = b"the log cleans its segments and writes what is valid elsewhere "
            .iter()
            .copied()
            .cycle()
            .take(8192)
            .collect();
        let plain = [text, vec![0; 8192]].concat();
        for runs in [false, true] {
            let mut stream = Vec::new();
            compress(&plain, runs, &mut stream);
            assert!(stream.len() < 300, "{} bytes", stream.len());
        }
    }
}
