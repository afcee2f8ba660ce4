//! Which file system is on this device, and how is it made and mounted, whichever it is?
//!
//! Who serves a volume, copies into it or counts what it spends gets a [`vfs::Volume`] from here, and options are names and
//! values ([`options`]). What only one file system has, such as F2FS's segments, is asked of it itself ([`Mounted`]).
//!
//! Left out: what may be asked of only one file system when a volume is made, and checking volumes, whose findings have
//! nothing in common; the crates of the file systems do that.
#![forbid(unsafe_code)]

mod kind;
mod make;
mod mount;
pub mod options;
pub mod size;

pub use kind::{Kind, probe};
pub use make::{MakeError, MakeOptions, make};
pub use mount::{MountError, Mounted, mount};
pub use options::{MountOptions, OptionError};
