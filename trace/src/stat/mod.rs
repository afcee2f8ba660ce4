//! What is in a recording: how much, how large, in which order, how often the same, when.
//!
//! One pass, bounded memory: sizes and times go into histograms, places into compressed bitmaps.

pub mod activity;
pub mod blocks;
pub mod calls;
pub mod distribution;
pub mod power;
pub mod randomness;
