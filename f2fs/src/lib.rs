//! How does the log work?
//!
//! F2FS as Linux lays it out: six logs, node and segment tables, checkpoints, roll-forward.
#![forbid(unsafe_code)]

pub mod compress;
pub mod fsck;
pub mod mkfs;
