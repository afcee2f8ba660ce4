//! Reproducible random numbers.
//!
//! [`Rng`] is xoshiro256** (Blackman and Vigna, 2018), with its 256-bit state filled from a 64-bit seed by
//! splitmix64, as its authors recommend: the same seed gives the same numbers on every machine and in every
//! version. Not for secrets. [`entropy`] is the only source of the operating system's randomness.

use std::ops::Range;

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A small, fast, reproducible generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(Xoshiro256StarStar);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256StarStar::seed_from_u64(seed))
    }

    /// A separate generator for a part of the work, so that the parts' numbers are independent.
    pub fn split(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// 64 uniformly distributed bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number from `0..n`; 0 if `n` is 0. Lemire's multiplication, unbiased.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        // Values under 2^64 mod n would favour some results.
        let unfair = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            if wide as u64 >= unfair {
                return (wide >> 64) as u64;
            }
        }
    }

    /// A uniform number from the range; its start if it is empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// A uniform index from `0..len`; 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with probability `num / den`; never if `den` is 0.
    pub fn chance(&mut self, num: u64, den: u64) -> bool {
        self.below(den) < num && den != 0
    }

    /// A uniform number from `[0, 1)`, a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles `items`; every order is equally likely (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// A random UUID, version 4 (RFC 9562), from these bytes.
pub fn uuid(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

/// Sixteen unpredictable bytes from the operating system: for volume identifiers.
pub fn entropy() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut got = 0;
    while got < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[got..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => got += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_forever() {
        // splitmix64 of 0 fills the state with the published e220a8397b1dcdaf, 6e789e6aa1b965f4,
        // 06c45d188009454f, f88bb8a8724c81ec; the first output is rotl(s1 * 5, 7) * 9.
        let first = 0x6e78_9e6a_a1b9_65f4_u64.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        assert_eq!(Rng::new(0).next_u64(), first);
        let mut rng = Rng::new(7);
        let numbers: Vec<u64> = (0..4).map(|_| rng.below(1000)).collect();
        assert_eq!(numbers, vec![700, 278, 839, 981]);
    }

    #[test]
    fn every_number_below_n_comes_and_none_other() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0, 5) && rng.chance(5, 5) && !rng.chance(1, 0));
        assert_eq!(rng.range(9..9), 9);
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_system_does_not_repeat_itself() {
        assert_ne!(entropy().unwrap(), entropy().unwrap());
    }
}
