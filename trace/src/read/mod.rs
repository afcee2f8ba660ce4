//! The readers, one file a format.
//!
//! Each takes an [`Input`](crate::Input), holds what it needs to know of one record or line, and gives
//! events or an error that names the place. None panics on any bytes.

pub(crate) mod blktrace;
mod decimal;
mod ftrace;
mod mobibench;
mod mobile_csv;
mod paths;
mod rows;
mod tracepoint;

use crate::recognise::Reader;

/// All readers; those whose mark cannot be mistaken come first.
pub(crate) const READERS: &[Reader] = &[blktrace::READER, mobile_csv::READER, mobibench::READER, ftrace::READER];
