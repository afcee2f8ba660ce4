//! Block devices: their contract, backings, decorators and simulated models.
//!
//! [`BlockDevice`] is a contract about failure. Backings ([`Memory`], [`Fingerprint`], [`FileDevice`],
//! [`SparseImage`], [`Blank`]) implement it; decorators ([`Counting`], [`Overlay`], [`Faulty`], [`Gate`],
//! [`Zoned`], [`Retained`]) and the test device [`PowerCut`] add abilities that a plain device lacks.
//! [`open_image`] selects the backing for a file. A simulated device is a [`model`] under the same contract;
//! [`energy`] counts its joules, users access it through a [`gauge`], and a [`queue`] takes several requests
//! concurrently. A [`HostRoom`] monitors the room for a sparse image. Time and random numbers for all crates above
//! come from [`clock`] and [`rng`].
//!
//! Left out on purpose: the meaning of a block's bytes and of a [`Tag`].
//!
//! ```
//! use joulefs_device::{BLOCK, BlockDevice, Lba, Memory, Tag};
//!
//! # fn main() -> joulefs_device::Result<()> {
//! let disk = Memory::new(16);
//! disk.write(Lba(3), &[7; BLOCK], Tag::default())?;
//! disk.flush(Tag::default())?; // until then a power cut might have lost it
//! let mut block = [0; BLOCK];
//! disk.read(Lba(3), &mut block, Tag::default())?;
//! assert_eq!(block, [7; BLOCK]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod address;
mod blank;
mod bounds;
mod claim;
pub mod clock;
mod contract;
mod counting;
pub mod energy;
mod error;
mod fault;
mod file;
mod fingerprint;
mod gate;
pub mod gauge;
pub mod host_room;
mod loss;
mod memory;
pub mod model;
mod open;
mod overlay;
mod power_cut;
pub mod queue;
mod retained;
pub mod rng;
mod sparse_image;
mod stripes;
mod zoned;

pub use address::{BLOCK, Lba, Remap, Tag};
pub use blank::Blank;
pub use claim::{Access, OpenError};
pub use clock::{Clock, RealClock, Time, VirtualClock};
pub use contract::{BlockDevice, Zones};
pub use counting::{CountSnapshot, Counting, Counts};
pub use error::{DeviceError, Result};
pub use fault::{Fault, Faulty, Op};
pub use file::FileDevice;
pub use fingerprint::{Fingerprint, Held, Origin, generate};
pub use gate::Gate;
pub use host_room::HostRoom;
pub use loss::{Loss, SECTOR, UnknownLoss};
pub use memory::Memory;
pub use open::{Opened, open_any, open_image, open_to_write};
pub use overlay::Overlay;
pub use power_cut::PowerCut;
pub use retained::Retained;
pub use rng::Rng;
pub use sparse_image::{SparseError, SparseImage, write_sparse};
pub use zoned::Zoned;

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
