//! Models of devices: internal work, duration and energy of requests.
//!
//! A [`Model`] knows neither contents nor clocks: it receives the arrival time of a request and returns its end.
//! [`Simulated`] provides the [`BlockDevice`](crate::BlockDevice) contract for one, with contents, a meter and a
//! clock.

pub mod disk;
pub mod flash;
mod flight;
mod simulated;

pub use simulated::{Pace, Simulated};

use serde::{Deserialize, Serialize};

use crate::energy::profile::{DeviceSpec, Profile};
use crate::energy::{Bill, Nanos};
use crate::{Lba, Tag};

pub use crate::address::Remap;
pub use crate::queue::Ask;

/// The device is too large to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a device of {blocks} blocks is too large to simulate: at most {most}")]
pub struct TooLarge {
    /// Requested blocks.
    pub blocks: u64,
    /// Most blocks.
    pub most: u64,
}

/// Builds the device of a profile with `blocks` blocks.
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

/// The whole state of a shipped model, with its profile's numbers: a copy that goes on exactly as the model would have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ModelState {
    /// Of a flash device.
    Flash(Box<flash::Flash>),
    /// Of a disk.
    Disk(Box<disk::Disk>),
}

impl ModelState {
    /// The model in this state.
    pub fn into_model(self) -> Box<dyn Model> {
        match self {
            ModelState::Flash(flash) => flash,
            ModelState::Disk(disk) => disk,
        }
    }
}

/// The model of a device. It has no lock of its own: callers that share one must lock it.
///
/// Requests are within the device and arrive in order of time, and none arrives while [`queue`](Model::queue) are
/// under way; a later one may end earlier. A model is deterministic: the same requests at the same times give the
/// same results and bills.
pub trait Model: Send {
    /// Size in blocks.
    fn blocks(&self) -> u64;
    /// Most concurrent requests.
    fn queue(&self) -> usize {
        1
    }
    /// Serves a request that arrives at `now` and returns its end. Adds to `bill` all energy that the device spends
    /// for it, from the end of the previous request on.
    fn serve(&mut self, now: Nanos, ask: Ask, tag: Tag, bill: &mut Bill) -> Nanos;
    /// Adds the cost of waiting from the last call until `now` to `bill`.
    fn wait(&mut self, now: Nanos, bill: &mut Bill);
    /// Announced power-off at `now`, and power-on. The device first makes all writes durable and adds the cost to
    /// `bill`. Then the controller's memory is empty (the cached part of the map, the write buffer, a disk's track
    /// buffer). The cost of starting up is left out. Returns when the device is ready again.
    fn power_cycle(&mut self, now: Nanos, bill: &mut Bill) -> Nanos;
    /// Before the first request: declares that these runs of blocks (first block and number) hold data written in
    /// this order long ago. This costs no energy, is not counted, and leaves nothing in the controller's memory. A
    /// device whose costs do not depend on its contents may ignore this call.
    fn fill(&mut self, _now: Nanos, _runs: &[(Lba, u64)]) {}
    /// Assigns later writes to these blocks to a reclaim unit of this handle
    /// ([`BlockDevice::place`](crate::BlockDevice::place)). A device without handles may ignore this call.
    fn place(&mut self, _at: Lba, _blocks: u64, _handle: u8) {}
    /// Power cut at `now`, and power-on: writes that were not durable are lost. Returns the blocks whose last write
    /// is lost, in order.
    fn cut(&mut self, now: Nanos) -> Vec<Lba>;
    /// False if the device lacks [`Ask::Remap`]; then it never receives one.
    fn remaps(&self) -> bool {
        true
    }
    /// A copy of its whole state; `None` if the model cannot be stored.
    fn state(&self) -> Option<ModelState> {
        None
    }
    /// Internal event counters by name, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
