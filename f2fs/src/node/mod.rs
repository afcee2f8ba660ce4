//! How are nodes (inodes and blocks of addresses) stored and used?
//!
//! * [`cache`]: nodes in memory, clean and dirty.
//! * [`index`]: which entries in delta nodes are live.
//! * [`map`]: finding the address of a file block; creating and freeing nodes.
//! * [`free`]: freeing addresses (truncate), step by step.
//! * [`mod@write`]: writing dirty nodes to their logs.

pub mod cache;
pub mod free;
pub(crate) mod index;
pub mod map;
pub mod write;
