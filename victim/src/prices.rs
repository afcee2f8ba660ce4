//! What do operations cost on a device, and what does a flash copy inside for what it is given?
//!
//! The second is a closed form for a flash whose blocks are written at random (Agarwal and Marrow, A closed-form expression for
//! write amplification in NAND flash, GLOBECOM Workshops 2010): of `T` blocks, of which `U` have to be kept, it copies
//! `T / (2 (T - U)) - 1` for each block written. Left out: what that is worth to a policy ([`crate::joule`]), and which prices a
//! device has.

/// What operations cost, in picojoules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Reading 4 KiB.
    pub read_block: u64,
    /// Writing 4 KiB right behind the block before.
    pub write_block_sequential: u64,
    /// Writing 4 KiB anywhere.
    pub write_block_random: u64,
    /// A request of any size.
    pub request: u64,
    /// Copying 4 KiB inside the device, to make room for what is written; 0 for a device that overwrites in place.
    pub copy_inside: u64,
    /// Room that the device has beyond what the host sees, in 1/1024 of that.
    pub spare: u64,
}

impl Default for Prices {
    /// Those of the shipped profile `kirin9000-ufs31`, for a device of unknown prices.
    fn default() -> Self {
        Prices {
            read_block: 10_819_000,
            write_block_sequential: 12_614_000,
            write_block_random: 12_614_000,
            request: 121_949_000,
            copy_inside: 5_889_000,
            spare: 71,
        }
    }
}

/// The flash behind a volume, in blocks.
pub(crate) struct Flash {
    /// T: all it has.
    whole: u64,
    /// T - U: what it need not keep.
    erased: u64,
    copy_inside: u64,
}

impl Flash {
    /// Of a volume of `all` blocks, of which it was told to forget `free`.
    pub fn new(prices: &Prices, free: u64, all: u64) -> Flash {
        let spare = (u128::from(all) * u128::from(prices.spare) / 1024).min(u64::MAX.into()) as u64;
        let whole = all.saturating_add(spare);
        let kept = all.saturating_sub(free);
        Flash { whole, erased: (whole - kept.min(whole)).max(1), copy_inside: prices.copy_inside }
    }
    /// What it copies for a block that is written, in pJ.
    pub fn for_a_write(&self) -> u64 {
        let more = self.whole.saturating_sub(self.erased.saturating_mul(2));
        capped(u128::from(more) * u128::from(self.copy_inside) / u128::from(self.erased) / 2)
    }
    /// What one block less to keep saves it while so many are written, in pJ.
    pub fn saved(&self, writes: u64) -> u64 {
        if self.whole <= self.erased.saturating_mul(2) {
            return 0;
        }
        let copied = u128::from(writes) * u128::from(self.copy_inside);
        // Divided twice, as the square of a large device's blocks times a price may not fit.
        capped(copied.saturating_mul(self.whole.into()) / u128::from(self.erased) / (2 * u128::from(self.erased)))
    }
}

/// What fits into 64 bits.
pub(crate) fn capped(n: u128) -> u64 {
    n.min(u64::MAX.into()) as u64
}
