//! The interface of a file system.
//!
//! The [`FileSystem`] trait is the only interface between a file system's core and its front ends (FUSE, a command
//! line, a test). Its terms are inode numbers, names and byte ranges; it knows neither F2FS nor FUSE nor any
//! device.
//!
//! Left out on purpose: permission checks (the caller's kernel does them, `default_permissions`), path walking (see
//! [`path`]), caching of names and pages, and errno values (see the `fuse` crate).
//!
//! ```
//! use std::time::Duration;
//!
//! use joulefs_vfs::{Commit, Power};
//!
//! // One change at 10 s: it is due soon, since the volume is idle then, and at the latest at 15 s.
//! let (changed, durable) = (Duration::from_secs(10), Duration::ZERO);
//! let due = Commit::within(Duration::from_secs(5)).due(changed, changed, durable, Power::Powered);
//! assert!(due <= Duration::from_secs(15));
//! ```
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

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
