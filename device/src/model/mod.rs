//! What does a request do inside a device, how long does it take and what does the device spend?
//!
//! A [`Model`] knows neither contents nor clocks: it is told when a request arrives and says when it is
//! done. [`Simulated`] puts one under the [`BlockDevice`](crate::BlockDevice) contract, with contents, a
//! meter and a clock.

pub mod disk;
pub mod flash;
mod flight;
mod simulated;

pub use simulated::{Pace, Simulated};

use crate::energy::profile::{DeviceSpec, Profile};
use crate::energy::{Bill, Nanos};
use crate::{Lba, Tag};

pub use crate::address::Remap;
pub use crate::queue::Ask;

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

/// The inside of a device. It has no lock of its own: a caller that shares one locks it.
///
/// Requests are within the device and arrive in order of time, and while [`queue`](Model::queue) are under way none
/// arrives; a later one may be done earlier. A model is deterministic: the same requests at the same times give the same
/// answers and bills.
pub trait Model: Send {
    /// Size in blocks.
    fn blocks(&self) -> u64;
    /// Requests it works on at once at most.
    fn queue(&self) -> usize {
        1
    }
    /// Serves a request that arrives at `now`, and returns when it is done. Puts on `bill` everything that the device
    /// spends because of it, from the request before to its end.
    fn serve(&mut self, now: Nanos, ask: Ask, tag: Tag, bill: &mut Bill) -> Nanos;
    /// Up to `now` no request came: puts the cost of waiting since the last call on `bill`.
    fn wait(&mut self, now: Nanos, bill: &mut Bill);
    /// The power goes off at `now`, announced, and comes back. The device first makes everything written durable, and
    /// puts the cost of that on `bill`. Then the contents of the controller's memory are gone (the cached part of the
    /// map, the write buffer, a disk's track buffer). The cost of starting up is left out. Returns when the device is
    /// back.
    fn power_cycle(&mut self, now: Nanos, bill: &mut Bill) -> Nanos;
    /// Before the first request: these runs of blocks, first block and number, hold data that was written
    /// in this order long ago. It costs no joule and counts nowhere, and none of it is in the controller's
    /// memory. A device whose costs do not depend on its contents may ignore this call.
    fn fill(&mut self, _now: Nanos, _runs: &[(Lba, u64)]) {}
    /// Writes to these blocks from now on belong to a reclaim unit of this handle
    /// ([`BlockDevice::place`](crate::BlockDevice::place)). A device without handles may ignore this call.
    fn place(&mut self, _at: Lba, _blocks: u64, _handle: u8) {}
    /// The power is cut at `now` and comes back: writes that were not durable are gone. Returns the blocks whose last
    /// write is lost, in order.
    fn cut(&mut self, now: Nanos) -> Vec<Lba>;
    /// False if the device has no command [`Ask::Remap`]; then it never gets one.
    fn remaps(&self) -> bool {
        true
    }
    /// What happened inside so far, by name, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
