//! What did another program or device do, as their tools wrote it down, and what would it have cost
//! here?
//!
//! A recording is opened by [`open`], whatever it is called: gzip and zstd are seen through, the format is
//! recognised by content. Readers turn it into one of three streams: [`block::Event`]s of block devices,
//! [`call::Call`]s of programs to a file system, [`power::Reading`]s of a meter. They hold a few buffers,
//! not the recording (MobiBench's excepted, whose threads stand one after the other). What they cannot read is an error that names line or byte; what they know and have no
//! use for is counted ([`Others`]), never dropped in silence.
//!
//! Our own recordings are the `record` crate's business; energy is the device's.
#![forbid(unsafe_code)]

pub mod block;
pub mod call;
pub mod differential;
mod error;
mod formats;
mod input;
mod letters;
mod names;
mod opened;
pub mod power;
pub mod rapl;
pub mod read;
mod recognise;
pub mod replay;
pub mod requests;
pub mod stat;
pub mod write;

pub use error::{At, TraceError};
pub use formats::{Format, Kind};
pub use input::Input;
pub use names::{Names, Others, Process};
pub use opened::Opened;
pub use recognise::{open, open_as, open_input, open_input_as};
