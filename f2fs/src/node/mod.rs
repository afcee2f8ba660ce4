//! Nodes: the blocks that hold inodes and addresses.
//!
//! * [`cache`]: nodes in memory, clean and dirty.
//! * [`map`]: from a file block to its address and back again to nothing (truncate).
//! * [`write`]: how a dirty node reaches its log.

pub mod cache;
pub mod map;
pub mod write;
