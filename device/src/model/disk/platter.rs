//! Where on the platter is a block, and when does it pass under the head?
//!
//! The blocks lie on one spiral: a block's angle and track follow from how much media time lies before it,
//! so a transfer that goes on never waits, whichever track it crosses. This stands for the skew between
//! tracks of a real disk, whose cost is in its media rate already. Heads and zones are left out.

use crate::BLOCK;
use crate::energy::Nanos;
use crate::energy::profile::DiskSpec;

/// Femtoseconds, so that thousands of blocks and revolutions add up without rounding.
pub type Femto = u128;

/// A moment in femtoseconds.
pub fn femto(t: Nanos) -> Femto {
    u128::from(t.0) * 1_000_000
}

/// The first nanosecond that is not before.
pub fn nanos(t: Femto) -> Nanos {
    Nanos(u64::try_from(t.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// The turning platter.
#[derive(Debug, Clone)]
pub struct Platter {
    block: Femto,
    turn: Femto,
}

impl Platter {
    /// The platter of `spec`.
    pub fn new(spec: &DiskSpec) -> Self {
        Platter {
            block: (u128::from(spec.media.value.0) * BLOCK as u128).max(1),
            turn: (60_000_000_000_000_000 / u128::from(spec.rpm.value.max(1))).max(1),
        }
    }
    /// The time in which so many blocks pass.
    pub fn passing(&self, blocks: u64) -> Femto {
        self.block.saturating_mul(u128::from(blocks))
    }
    /// How many whole blocks pass in a time.
    pub fn passed(&self, time: Femto) -> u64 {
        u64::try_from(time / self.block).unwrap_or(u64::MAX)
    }
    /// The track a block begins on.
    pub fn track(&self, block: u64) -> u64 {
        u64::try_from(self.passing(block) / self.turn).unwrap_or(u64::MAX)
    }
    /// How long after `at` a block begins to pass. The angle at a moment follows from the moment.
    pub fn until(&self, block: u64, at: Femto) -> Femto {
        (self.passing(block) % self.turn + self.turn - at % self.turn) % self.turn
    }
}
