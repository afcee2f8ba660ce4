//! What did another program or device do, according to a recording, and what would it have cost here?
//!
//! [`open`] opens a recording with any name: it decompresses gzip and zstd, and recognises the format by content. A
//! reader turns the recording into one of three streams: [`block::Event`]s of block devices, [`call::Call`]s of
//! programs to a file system, [`power::Reading`]s of a meter. Readers hold a few buffers, not the recording.
//! (MobiBench's reader is an exception, because that format has one thread after the other.) A few lines that a reader
//! cannot parse are skipped and counted ([`Input::strict`]); more of them, or an invalid record, are an error with line or
//! byte. Input that it knows and does not use is counted ([`OtherCounts`]); nothing is dropped silently. [`open_with`]
//! reads any table by its [`Columns`], and several files as one recording.
//!
//! Left out: writing JouleFS recordings, which the crate `record` does, and energy, which the device computes.
//!
//! ```
//! use std::path::Path;
//!
//! use joulefs_trace::{Input, Opened, open_input, requests::Requests, stat};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "8,0 0 1 0.000000000 119 D R 2048 + 8 [cat]\n8,0 0 2 0.500000000 120 D WS 4096 + 16 [sqlite3]\n";
//! let Opened::Blocks(events) = open_input(Input::new(Path::new("by hand"), text.as_bytes())?)? else { panic!() };
//! let (counts, read_to_the_end) = stat::blocks::count(&mut Requests::new(events), |_| {});
//! read_to_the_end?;
//! assert_eq!((counts.requests, counts.span_ns), (2, 500_000_000));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod askers;
pub mod block;
pub mod call;
mod columns;
mod error;
mod formats;
mod input;
mod joined;
mod letters;
mod names;
pub mod only;
mod opened;
mod opening;
pub mod power;
pub mod rapl;
pub mod read;
mod recognise;
pub mod replay;
pub mod requests;
pub mod session;
pub mod stacks;
pub mod stat;
pub mod timing;
pub mod together;
pub mod write;
mod writeback;

/// The device on which requests are replayed.
pub use ::device;
/// The file system on which calls are replayed.
pub use ::vfs;
pub use columns::Columns;
pub use error::{At, TraceError};
pub use formats::{Format, Kind};
pub use input::Input;
pub use names::files::{Files, Place, Writeback, Writing, Written};
pub use names::{INVALID, NOT_RECORDED, Names, OtherCounts, Process, invalid_lines, missing_details};
pub use opened::Opened;
pub use opening::{open, open_as, open_with};
pub use recognise::{Options, files_of, open_columns, open_input, open_input_as};

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
