//! What does a block operation do, and what may a power cut leave of it?
//!
//! [`BlockDevice`] is a contract about failure; backings ([`Memory`], [`FileDevice`]) keep it,
//! decorators ([`Counting`], [`Overlay`], [`PowerCut`]) add powers a plain device knows nothing of.
//! Time and chance for everything above come from [`clock`] and [`rng`].
//!
//! Left out on purpose: any meaning of a block's bytes, and any meaning of a [`Tag`].
#![forbid(unsafe_code)]

mod bounds;
mod claim;
pub mod clock;
mod contract;
mod counting;
mod error;
mod file;
mod memory;
mod overlay;
pub mod rng;
mod stripes;

pub use claim::OpenError;
pub use clock::{Clock, RealClock, Time, VirtualClock};
pub use contract::{BLOCK, BlockDevice, Lba, Tag};
pub use counting::{CountSnapshot, Counting, Counts};
pub use error::{DeviceError, Result};
pub use file::{Access, FileDevice};
pub use memory::Memory;
pub use overlay::Overlay;
pub use rng::Rng;
