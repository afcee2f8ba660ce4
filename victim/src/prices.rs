//! What do operations cost on a device, and how much does a flash copy inside per block written?
//!
//! The copying follows a closed form for a flash whose blocks are written at random (Agarwal and Marrow, A
//! closed-form expression for write amplification in NAND flash, GLOBECOM Workshops 2010): a flash of `T`
//! blocks that must keep `U` copies `T / (2 (T - U)) - 1` blocks for each block written. Left out: its effect
//! on policies ([`crate::joule`]), and the prices of a device.

/// Costs of operations, in picojoules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Reading 4 KiB.
    pub read_block: u64,
    /// Writing 4 KiB that follow the previous block.
    pub write_block_sequential: u64,
    /// Writing 4 KiB anywhere.
    pub write_block_random: u64,
    /// A request of any size.
    pub request: u64,
    /// A flush, with what it makes the device write.
    pub flush: u64,
    /// Copying 4 KiB inside the device to make room for writes; 0 for a device that overwrites in place.
    pub copy_inside: u64,
    /// Spare room of the device beyond its visible size, in 1/1024 of that size.
    pub spare: u64,
    /// Blocks that a flush pads on average: half a page of the flash.
    pub padding: u64,
}

impl Default for Prices {
    /// The prices of the shipped profile `kirin9000-ufs31`, for a device without known prices.
    fn default() -> Self {
        Prices {
            read_block: 10_819_000,
            write_block_sequential: 12_614_000,
            write_block_random: 12_614_000,
            request: 121_949_000,
            flush: 202_651_000,
            copy_inside: 5_889_000,
            spare: 71,
            padding: 2,
        }
    }
}

impl Prices {
    /// The same prices with `wear`, in pJ, on each block that a flash programs: written, padded, or copied inside.
    pub fn with_wear(self, wear: u64) -> Prices {
        if self.copy_inside == 0 {
            return self;
        }
        Prices {
            write_block_sequential: self.write_block_sequential.saturating_add(wear),
            write_block_random: self.write_block_random.saturating_add(wear),
            flush: self.flush.saturating_add(wear.saturating_mul(self.padding)),
            copy_inside: self.copy_inside.saturating_add(wear),
            ..self
        }
    }

    /// Extra cost of a block that does not follow the one before it, in pJ.
    pub fn far(&self) -> u64 {
        self.request.saturating_add(self.write_block_random.saturating_sub(self.write_block_sequential))
    }
}

/// The flash behind a volume, in blocks.
pub(crate) struct Flash {
    /// T: all blocks.
    whole: u64,
    /// T - U: blocks it need not keep.
    erased: u64,
    copy_inside: u64,
}

impl Flash {
    /// The flash behind a volume of `all` blocks, `free` of them discarded.
    pub fn new(prices: &Prices, free: u64, all: u64) -> Flash {
        let spare = (u128::from(all) * u128::from(prices.spare) / 1024).min(u64::MAX.into()) as u64;
        let whole = all.saturating_add(spare);
        let kept = all.saturating_sub(free);
        Flash { whole, erased: (whole - kept.min(whole)).max(1), copy_inside: prices.copy_inside }
    }
    /// Copying caused by one written block, in pJ.
    pub fn copying_per_write(&self) -> u64 {
        let more = self.whole.saturating_sub(self.erased.saturating_mul(2));
        capped(u128::from(more) * u128::from(self.copy_inside) / u128::from(self.erased) / 2)
    }
    /// What one block less to keep saves during `writes` written blocks, in pJ.
    pub fn saved(&self, writes: u64) -> u64 {
        if self.whole <= self.erased.saturating_mul(2) {
            return 0;
        }
        let copied = u128::from(writes) * u128::from(self.copy_inside);
        // Two divisions, since the square of a large device's blocks times a price may overflow.
        capped(copied.saturating_mul(self.whole.into()) / u128::from(self.erased) / (2 * u128::from(self.erased)))
    }
}

/// Saturates to 64 bits.
pub(crate) fn capped(n: u128) -> u64 {
    n.min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_on_every_block_that_a_flash_programs_and_on_no_disk() {
        let (phone, worn) = (Prices::default(), Prices::default().with_wear(1000));
        assert_eq!(worn.write_block_sequential - phone.write_block_sequential, 1000);
        assert_eq!(worn.copy_inside - phone.copy_inside, 1000);
        assert_eq!(worn.flush - phone.flush, 2000);
        assert_eq!((worn.read_block, worn.far()), (phone.read_block, phone.far()));
        let disk = Prices { copy_inside: 0, ..phone };
        assert_eq!(disk.with_wear(1000), disk);
    }
}
