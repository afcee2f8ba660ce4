//! How fragmented is the free space of one segment?
//!
//! The factor f of fragmented free space (FAGC TACO'23, Algorithm 1) is the sum of 126 x 127 / X over all
//! runs of X free or invalid blocks shorter than 32 (128 KiB). Longer runs are no fragments. f is 0 for a
//! segment without fragments, and 4,096,512 at worst, where every second block is free.
//!
//! A changed bit of the valid map changes one run, so f is updated without reading the rest of the map. Left
//! out on purpose: what f is used for (the policies), and runs across segments (a file system's business).

use format::sit::MAP_BYTES;

/// Runs of at least this many free blocks are no fragments (Algorithm 1: m / 4 with m = 128 KiB).
pub const FRAGMENT_LIMIT: u32 = 32;
/// (m - 1) x (m - 2).
const SCALE: u64 = 127 * 126;
/// The least common denominator of 16,002 / X for X = 1 to 31, which keeps sums exact.
const UNIT: u64 = 573_029_971_800;

/// The factor f of a segment, or of several together, exactly. A segment has at most 256 fragments and needs less
/// than 2^62. A section of several segments may need more, so it sums the integers that [`Factor::value`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Factor(u64);

/// Contribution of a run, by its number of blocks.
const SHARES: [u64; FRAGMENT_LIMIT as usize] = {
    let mut shares = [0; FRAGMENT_LIMIT as usize];
    let mut x = 1;
    while x < FRAGMENT_LIMIT as usize {
        // Exact: UNIT contains every factor of X that 16,002 lacks.
        shares[x] = (UNIT as u128 * SCALE as u128 / x as u128) as u64;
        x += 1;
    }
    shares
};

impl Factor {
    /// f as in the paper, rounded down once at the end: 0 to 4,096,512 for a segment.
    pub fn value(self) -> u32 {
        (self.0 / UNIT) as u32
    }
    fn share(run: u32) -> u64 {
        SHARES.get(run as usize).copied().unwrap_or(0)
    }
}

/// Per-segment data about free runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fragmentation {
    /// The factor f.
    pub factor: Factor,
    /// Free or invalid blocks in fragments.
    pub loose: u16,
}

impl Fragmentation {
    /// Runs Algorithm 1 over the whole valid map (most significant bit first, 1 is valid).
    pub fn scan(map: &[u8; MAP_BYTES]) -> Self {
        let mut out = Self::default();
        each_run(map, |_, run| out.add(run));
        out
    }
    fn add(&mut self, run: u32) {
        if run < FRAGMENT_LIMIT {
            self.factor.0 += Factor::share(run);
            self.loose += run as u16;
        }
    }
    fn remove(&mut self, run: u32) {
        if run < FRAGMENT_LIMIT {
            self.factor.0 -= Factor::share(run);
            self.loose -= run as u16;
        }
    }
    /// Updates for a block that becomes valid, with `before` free blocks before it and `after` behind it.
    pub fn split(&mut self, before: u32, after: u32) {
        self.remove(before + 1 + after);
        self.add(before);
        self.add(after);
    }
    /// Updates for a block that becomes free, with `before` free blocks before it and `after` behind it.
    pub fn join(&mut self, before: u32, after: u32) {
        self.remove(before);
        self.remove(after);
        self.add(before + 1 + after);
    }
}

fn word(map: &[u8; MAP_BYTES], n: usize) -> u64 {
    u64::from_be_bytes(map.as_chunks::<8>().0[n])
}

/// Calls `each(start, length)` for every run of free blocks, in order.
pub fn each_run(map: &[u8; MAP_BYTES], mut each: impl FnMut(u32, u32)) {
    let mut run = 0;
    for n in 0..MAP_BYTES / 8 {
        let mut rest = word(map, n);
        let mut at = n as u32 * 64;
        let end = at + 64;
        while at < end {
            let free = rest.leading_zeros().min(end - at);
            run += free;
            at += free;
            if at == end {
                break;
            }
            if run > 0 {
                each(at - run, std::mem::take(&mut run));
            }
            rest <<= free;
            let used = rest.leading_ones().min(end - at);
            at += used;
            rest = rest.checked_shl(used).unwrap_or(0);
        }
    }
    if run > 0 {
        each(512 - run, run);
    }
}

/// Lengths of the free runs right before block `off` and right after it.
pub fn around(map: &[u8; MAP_BYTES], off: u16) -> (u32, u32) {
    let (n, bit) = (usize::from(off / 64), u32::from(off % 64));
    let here = word(map, n);
    // The bits before `off`, moved to the low end.
    let before = match bit {
        0 => 0,
        _ => (here >> (64 - bit)).trailing_zeros().min(bit),
    };
    let before = match before == bit {
        false => before,
        true => {
            let mut run = before;
            for m in (0..n).rev() {
                let zeros = word(map, m).trailing_zeros();
                run += zeros;
                if zeros < 64 {
                    break;
                }
            }
            run
        }
    };
    let left = 63 - bit;
    let after = match left {
        0 => 0,
        _ => (here << (bit + 1)).leading_zeros().min(left),
    };
    let after = match after == left {
        false => after,
        true => {
            let mut run = after;
            for m in n + 1..MAP_BYTES / 8 {
                let zeros = word(map, m).leading_zeros();
                run += zeros;
                if zeros < 64 {
                    break;
                }
            }
            run
        }
    };
    (before, after)
}

/// Lengths of the free runs at the start and at the end of a segment; `None` if all blocks are free.
pub fn edges(map: &[u8; MAP_BYTES]) -> Option<(u32, u32)> {
    let mut lead = 0;
    for n in 0..MAP_BYTES / 8 {
        let zeros = word(map, n).leading_zeros();
        lead += zeros;
        if zeros < 64 {
            break;
        }
    }
    if lead == 512 {
        return None;
    }
    let mut trail = 0;
    for n in (0..MAP_BYTES / 8).rev() {
        let zeros = word(map, n).trailing_zeros();
        trail += zeros;
        if zeros < 64 {
            break;
        }
    }
    Some((lead, trail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::bits;

    /// A segment whose first 16 blocks have the given map (1: valid) and whose other blocks are valid: the
    /// paper's examples are segments of 64 KiB.
    fn sixteen(head: u16) -> [u8; MAP_BYTES] {
        let mut map = [0xFF; MAP_BYTES];
        map[..2].copy_from_slice(&head.to_be_bytes());
        map
    }

    fn f(map: &[u8; MAP_BYTES]) -> u32 {
        Fragmentation::scan(map).factor.value()
    }

    #[test]
    fn the_three_segments_of_figure_10_have_the_factors_the_paper_gives() {
        assert_eq!(f(&sixteen(0b1010_1010_1010_1010)), 128_016);
        assert_eq!(f(&sixteen(0b1100_1100_1100_1100)), 32_004);
        assert_eq!(f(&sixteen(0b1111_0000_1111_0000)), 8_001);
    }

    #[test]
    fn the_worst_segment_has_the_greatest_factor_and_a_run_of_128_kib_none() {
        assert_eq!(f(&[0xAA; MAP_BYTES]), 4_096_512);
        assert_eq!(f(&[0; MAP_BYTES]), 0);
        assert_eq!(f(&[0xFF; MAP_BYTES]), 0);
        let mut map = [0xFF; MAP_BYTES];
        map[8..12].fill(0);
        assert_eq!(f(&map), 0);
        map[8] = 0x80;
        assert_eq!(Fragmentation::scan(&map), Fragmentation { factor: Factor(SHARES[31]), loose: 31 });
        assert_eq!(f(&map), 16_002 / 31);
    }

    #[test]
    fn shares_are_exact() {
        for x in 1..u128::from(FRAGMENT_LIMIT) {
            assert_eq!(u128::from(SHARES[x as usize]) * x, u128::from(UNIT) * u128::from(SCALE));
        }
    }

    /// Algorithm 1 block by block, with fractions.
    fn plainly(map: &[u8; MAP_BYTES]) -> (u32, u16) {
        let (mut sum, mut loose, mut run) = (0u128, 0, 0u128);
        let end = u128::from(UNIT);
        for off in 0..=512 {
            if off < 512 && !bits::msb_test(map, off) {
                run += 1;
                continue;
            }
            if (1..32).contains(&run) {
                sum += end * 16_002 / run;
                loose += run as u16;
            }
            run = 0;
        }
        ((sum / end) as u32, loose)
    }

    #[test]
    fn following_changed_bits_gives_what_a_scan_gives() {
        let mut rng = device::Rng::new(10);
        for density in [1, 4, 16, 60] {
            let mut map = [0; MAP_BYTES];
            let mut kept = Fragmentation::default();
            for _ in 0..6000 {
                let off = rng.below(512) as u16;
                let on = rng.chance(density, 64);
                if bits::msb_test(&map, off.into()) == on {
                    continue;
                }
                let (before, after) = around(&map, off);
                bits::msb_put(&mut map, off.into(), on);
                if on {
                    kept.split(before, after)
                } else {
                    kept.join(before, after)
                }
                assert_eq!(kept, Fragmentation::scan(&map));
                assert_eq!((kept.factor.value(), kept.loose), plainly(&map));
                let lead = (0..512).take_while(|&i| !bits::msb_test(&map, i)).count() as u32;
                let trail = (0..512).rev().take_while(|&i| !bits::msb_test(&map, i)).count() as u32;
                assert_eq!(edges(&map), (lead < 512).then_some((lead, trail)));
            }
        }
    }
}
