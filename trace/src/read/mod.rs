//! Which reader handles which format? One file per format.
//!
//! Each takes an [`Input`](crate::Input), holds the state for one record or line, and returns events or an error with
//! its place. None panics on any input.

mod blkparse;
pub(crate) mod blktrace;
pub mod buffers;
mod by_time;
mod cache_traces;
mod decimal;
mod extent;
mod fio_iolog;
mod ftrace;
pub mod joules_csv;
mod measured;
mod mobibench;
mod mobile_csv;
pub mod monsoon;
mod paths;
pub(crate) mod perfetto;
pub mod recording;
mod rows;
pub(crate) mod strace;
pub(crate) mod table;
mod trace_dat;
mod tracepoint;

use crate::opened::Reader;

/// All readers, those with an unmistakable mark first.
pub(crate) fn readers() -> impl Iterator<Item = &'static Reader> {
    MARKED.iter().chain(table::READERS).chain(&[cache_traces::ORACLE_GENERAL])
}

/// Readers of formats with a mark, or with lines of their own.
const MARKED: &[Reader] = &[
    recording::READER,
    blktrace::READER,
    blkparse::READER,
    ftrace::READER,
    trace_dat::READER,
    perfetto::READER,
    mobile_csv::READER,
    cache_traces::VSCSI,
    fio_iolog::READER,
    mobibench::READER,
    strace::READER,
    joules_csv::READER,
    monsoon::READER,
];
