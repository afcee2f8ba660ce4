//! What does a file system ask of a disk if nothing is kept in memory?
//!
//! Chapter 6 of Scherl 2004 compares file systems by what they cost a disk where data and metadata are in no cache:
//! each call reads what it needs, and what it wrote is on the disk when it returns. [`calls`] are its calls, for whoever
//! makes them: a kernel's file system, whose requests are recorded ([`recorded`]), or one of ours, mounted by
//! [`mounted`] on a [`partition`] of a disk, whose buffer may have [`segments`] and whose host may be slow ([`paused`]); and [`fill`] is what is there before them.

pub mod calls;
pub mod fill;
pub mod mounted;
pub mod partition;
pub mod paused;
pub mod recorded;
pub mod segments;
