//! What does a request do inside a device, how long does it take and what does the device spend?
//!
//! A [`Model`] knows neither contents nor clocks: it is told when a request arrives and says when it is
//! done. [`Simulated`] puts one under the [`BlockDevice`](crate::BlockDevice) contract, with contents, a
//! meter and a clock.

pub mod disk;
pub mod flash;
mod simulated;

pub use simulated::{Pace, Simulated};

use crate::energy::profile::{DeviceSpec, Profile};
use crate::energy::{Bill, Nanos};
use crate::{Lba, Tag};

pub use crate::address::Remap;

/// A device that cannot be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a device of {blocks} blocks is too large to simulate: at most {most}")]
pub struct TooLarge {
    /// Blocks asked for.
    pub blocks: u64,
    /// Blocks there may be.
    pub most: u64,
}

/// The device of a profile, with so many blocks.
pub fn build(profile: &Profile, blocks: u64) -> Result<Box<dyn Model>, TooLarge> {
    // Flash counts its blocks of data, spare included, in 32 bits.
    let spare = match &profile.device {
        DeviceSpec::Flash(spec) => spec.nand.spare.value,
        DeviceSpec::Disk(_) => 0.0,
    };
    let most = (f64::from(1_u32 << 31) / (1.0 + spare)) as u64;
    if blocks > most {
        return Err(TooLarge { blocks, most });
    }
    Ok(match &profile.device {
        DeviceSpec::Flash(spec) => Box::new(flash::Flash::new(spec, blocks)),
        DeviceSpec::Disk(spec) => Box::new(disk::Disk::new(spec, blocks)),
    })
}

/// What is asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Read so many blocks.
    Read {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
    /// Write so many blocks.
    Write {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
    /// Make everything written durable.
    Flush,
    /// Forget so many blocks.
    Discard {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
    /// Change which data lies where, without moving it.
    Remap {
        /// One place.
        from: Lba,
        /// The other; the two do not overlap.
        to: Lba,
        /// How many blocks.
        blocks: u64,
        /// What becomes of the two.
        how: Remap,
    },
}

/// The inside of a device. Not shared: who shares one locks it.
///
/// Requests are within the device and arrive in order of time; a later one may be done earlier. A model
/// is deterministic: the same requests at the same times give the same answers and bills.
pub trait Model: Send {
    /// Size in blocks.
    fn blocks(&self) -> u64;
    /// Serves a request that arrives at `now` and says when it is done. What the device spends between
    /// the request before and the end of this one and is caused by it, goes on `bill`.
    fn serve(&mut self, now: Nanos, ask: Ask, tag: Tag, bill: &mut Bill) -> Nanos;
    /// Time has come to `now` and nothing was asked: puts what waiting cost since the last call on `bill`.
    fn wait(&mut self, now: Nanos, bill: &mut Bill);
    /// The power goes off at `now`, announced, and comes back: everything written is durable first, and
    /// what only the controller's memory held (the cached part of the map, the write buffer, a disk's track
    /// buffer) is gone. What it takes to be ready for that goes on `bill`; starting up is left out. Returns
    /// when the device is back.
    fn power_cycle(&mut self, now: Nanos, bill: &mut Bill) -> Nanos;
    /// Before the first request: these runs of blocks, first block and number, hold data that was written
    /// in this order long ago. No joule and no counter knows of it, and nothing of it is in the
    /// controller's memory. A device whose costs do not depend on what it holds needs not be told.
    fn fill(&mut self, _now: Nanos, _runs: &[(Lba, u64)]) {}
    /// The power is cut at `now` and comes back: what was not durable is gone. Returns the blocks whose
    /// last write is lost, in order.
    fn cut(&mut self, now: Nanos) -> Vec<Lba>;
    /// False if it has no such command as [`Ask::Remap`], which is then never asked.
    fn remaps(&self) -> bool {
        true
    }
    /// What happened inside so far, by name, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
