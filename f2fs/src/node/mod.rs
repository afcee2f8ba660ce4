//! Nodes: the blocks that hold inodes and addresses.
//!
//! * [`cache`]: nodes in memory, clean and dirty.
//! * [`index`]: which entry in delta nodes counts.
//! * [`map`]: from a file block to its address; nodes are made and freed.
//! * [`free`]: from addresses back again to nothing (truncate), step by step.
//! * [`mod@write`]: how a dirty node reaches its log.

pub mod cache;
pub mod free;
pub(crate) mod index;
pub mod map;
pub mod write;
