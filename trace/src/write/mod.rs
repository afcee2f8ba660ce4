//! Which writers convert a recording for tools that read other formats? One file per format.

pub mod blkparse;
pub mod fio_iolog;
pub mod parquet;
pub mod perfetto;
