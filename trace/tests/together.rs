//! All tests of this crate in one program, which links once and keeps all cores busy; each file is a module.

extern crate joulefs_trace as trace;

mod text;

mod blkparse;
mod blkparse_writer;
mod blktrace;
mod blktrace_records;
mod blocks;
mod cache_traces;
mod fio_iolog;
mod ftrace;
mod invalid_lines;
mod joined;
mod long_recordings;
mod map_cache;
mod meters;
mod mobibench;
mod mobile_csv;
mod pauses;
mod perfetto;
mod replay;
mod shipped_recordings;
mod stacked;
mod strace;
mod tables;
mod trace_dat;
mod tracepoints;
mod write_fio_iolog;
mod write_parquet;
mod writeback;
