//! What did another program or device do, as their tools wrote it down, and what would it have cost here?
//!
//! [`open`] opens a recording, whatever it is called: it sees through gzip and zstd, and recognises the format by
//! content. A reader turns the recording into one of three streams: [`block::Event`]s of block devices,
//! [`call::Call`]s of programs to a file system, [`power::Reading`]s of a meter. Readers hold a few buffers, not the
//! recording. (MobiBench's is the exception: it has one thread after the other.) If a reader cannot read something, it
//! gives an error that names the line or byte. What it knows and has no use for it counts ([`Others`]); it never drops
//! anything in silence.
//!
//! Left out: how our own recordings are written, which is the `record` crate's business, and energy, which is the device's.
#![forbid(unsafe_code)]

pub mod askers;
pub mod block;
pub mod call;
mod error;
mod formats;
mod input;
mod letters;
mod names;
pub mod only;
mod opened;
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

pub use error::{At, TraceError};
pub use formats::{Format, Kind};
pub use input::Input;
pub use names::files::{Files, Place, Writeback, Writing, Written};
pub use names::{NOT_TOLD, Names, Others, Process, not_told};
pub use opened::Opened;
pub use recognise::{files_of, open, open_as, open_input, open_input_as};
