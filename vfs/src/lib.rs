//! The interface of a file system.
//!
//! The [`FileSystem`] trait is the only interface between a file system's core and its front ends (FUSE, a command
//! line, a test). Its terms are inode numbers, names and byte ranges; it knows neither F2FS nor FUSE nor any
//! device.
//!
//! Left out on purpose: permission checks (the caller's kernel does them, `default_permissions`), path walking (see
//! [`path`]), caching of names and pages, and errno values (see the `fuse` crate).
#![forbid(unsafe_code)]

pub mod asking;
mod commit;
mod error;
mod fragments;
mod fs;
pub mod path;
mod power;
pub mod state;
mod types;
mod volume;

pub use commit::Commit;
pub use error::{Error, Result};
pub use fragments::{CLASSES, FreeFragments, LEVELS};
pub use fs::FileSystem;
pub use power::Power;
pub use types::*;
pub use volume::{Accountant, Cleaned, Look, Owner, Reason, Reporter, Volume};
