//! What does a recording contain: how much, how large, in which order, how often repeated, when?
//!
//! The statistics take one pass, with histograms for sizes and times, and compressed bitmaps for addresses. So memory
//! grows with the touched addresses and the files that exist at the same time, not with the recording's length.

pub mod activity;
pub mod blocks;
pub mod calls;
pub mod distribution;
pub mod map_cache;
pub mod power;
pub mod randomness;

/// `bytes` times `part` divided by `all`.
fn share(bytes: u64, part: u64, all: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(all.max(1))) as u64
}
