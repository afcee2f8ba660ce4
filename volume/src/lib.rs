//! Creates and mounts volumes of any kind.
//!
//! Programs that serve a volume, copy into it or account for it get a [`vfs::Volume`] from here; options are names
//! and values ([`options`]). Functions of only one file system, such as F2FS's segments, are accessed through
//! [`Mounted`].
//!
//! Left out: options of a single file system when a volume is created, and checks of volumes, whose findings have
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
