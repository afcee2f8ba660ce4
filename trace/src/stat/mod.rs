//! What is in a recording: how much, how large, in which order, how often the same, when.
//!
//! One pass: sizes and times go into histograms, places into compressed bitmaps. Memory grows with the places that are
//! touched and the files that are there at once, not with the recording's length.

pub mod activity;
pub mod blocks;
pub mod calls;
pub mod distribution;
pub mod power;
pub mod randomness;

/// So much of `bytes` as `part` is of `all`.
fn share(bytes: u64, part: u64, all: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(all.max(1))) as u64
}
