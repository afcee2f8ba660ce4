//! What does the Linux host say that no image and no recording says?
//!
//! * [`kernel`]: requests to its disks as they happen, by [`instance`]s of tracefs; [`paths`], [`who`], [`mod@disk`]: the names of
//!   files, threads and disks in them; [`by_number`]: a path by an inode's number; [`line`]: events that wait.
//! * [`fiemap`]: where a file lies and what is free; [`zoned`]: disks that are written at pointers; [`power`]: battery or not.
//!
//! Three modules call the kernel in ways that no library offers, each with its proof: `by_number`, `fiemap`, `zoned::report`.
//! Left out: the mount itself (`fuse`) and what is done with the answers.
#![deny(unsafe_code)]

use std::fmt;

pub mod by_number;
pub mod disk;
pub mod fiemap;
pub mod instance;
pub mod kernel;
pub mod line;
pub mod paths;
pub mod power;
pub mod who;
pub mod zoned;

/// What the host does not give: one line that names it, and what to do.
#[derive(Debug)]
pub struct HostError(String);

impl From<String> for HostError {
    fn from(text: String) -> Self {
        HostError(text)
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostError {}
