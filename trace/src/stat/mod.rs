//! What is in a recording: how much, how large, in which order, how often the same, when?
//!
//! The statistics take one pass. They put sizes and times into histograms and places into compressed bitmaps. So
//! memory grows with the places that are touched and the files that are there at once, not with the recording's
//! length.

pub mod activity;
pub mod blocks;
pub mod calls;
pub mod distribution;
pub mod map_cache;
pub mod power;
pub mod randomness;

/// So much of `bytes` as `part` is of `all`.
fn share(bytes: u64, part: u64, all: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(all.max(1))) as u64
}
