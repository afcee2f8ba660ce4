//! The writers, one file a format: what was read in one format for tools that read another.

pub mod blkparse;
pub mod fio_iolog;
pub mod parquet;
pub mod perfetto;
