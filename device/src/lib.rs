//! What does a block operation do, and what may a power cut leave of it?
//!
//! [`BlockDevice`] is a contract about failure; backings ([`Memory`], [`FileDevice`]) keep it,
//! decorators ([`Counting`], [`Overlay`], [`PowerCut`]) add powers a plain device knows nothing of.
//! Time and chance for everything above come from [`clock`] and [`rng`].
//!
//! Left out on purpose: any meaning of a block's bytes, and any meaning of a [`Tag`].
#![forbid(unsafe_code)]

mod contract;
mod error;

pub use contract::{BLOCK, BlockDevice, Lba, Tag};
pub use error::{DeviceError, Result};
