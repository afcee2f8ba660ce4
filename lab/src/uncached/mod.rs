//! Which requests does a file system make without caches?
//!
//! Chapter 6 of Scherl 2004 compares file systems by their disk cost with cold caches: each call reads what it needs,
//! and its writes are on the disk when it returns. [`calls`] defines the calls. They are made either on a kernel's file
//! system, whose requests are recorded ([`recorded`]), or on ours, mounted by [`mounted`] on a [`partition`] of a disk,
//! whose buffer may have [`segments`] and whose host may be slow ([`paused`]). [`fill`] prepares the volume.

pub mod calls;
pub mod fill;
pub mod mounted;
pub mod partition;
pub mod paused;
pub mod recorded;
pub mod segments;
