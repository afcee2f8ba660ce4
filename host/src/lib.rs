//! What can be learned only from the Linux host, not from an image or a recording?
//!
//! * [`kernel`]: requests to its disks as they happen, through tracefs [`instance`]s; [`paths`], [`who`], [`mod@disk`]:
//!   the names of files, threads and disks in them; [`by_number`]: a path by inode number; [`mod@line`]: an event queue.
//! * [`fiemap`]: file extents and free space; [`zoned`]: disks with write pointers; [`power`]: battery or external
//!   power.
//!
//! Three modules make kernel calls that no library offers, each with its safety proof: `by_number`, `fiemap`,
//! `zoned::report`.
//! Left out: the mount itself (`fuse`) and the use of the results.
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

/// Something the host does not provide: one line that names it, and the next step.
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
