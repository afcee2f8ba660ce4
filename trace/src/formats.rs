//! Which formats are supported, and what kinds of recordings are there?

use std::fmt;

/// A supported format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// JouleFS recordings of a block device.
    JouleRec,
    /// Linux blktrace, binary, version 7 (48-byte records) and 8 (`blk_io_trace2`, 64-byte records).
    Blktrace,
    /// Output of blkparse.
    Blkparse,
    /// The kernel's trace file (`/sys/kernel/tracing/trace`), `trace-cmd report`, Android systrace.
    Ftrace,
    /// Output of `trace-cmd record`.
    TraceDat,
    /// A Perfetto trace: block, UFS and file system events.
    Perfetto,
    /// The power rails of a Perfetto trace.
    PerfettoPower,
    /// fio's iolog, version 2 and 3.
    FioIolog,
    /// Microsoft Research Cambridge traces (SNIA IOTTA): `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
    MsrCsv,
    /// SYSTOR'17 traces (SNIA IOTTA): `Timestamp,Response,IOType,LUN,Offset,Size`.
    SystorCsv,
    /// Mobile block traces (SYSTOR'24): `proces,device,rw_flag,sector,size,timestamp`.
    MobileCsv,
    /// MobiBench's recordings of an app's system calls.
    Mobibench,
    /// `strace -f -ttt`.
    Strace,
    /// Monsoon power monitor, as PyMonsoon writes it.
    MonsoonCsv,
    /// `joulefs energy measure`.
    JoulesCsv,
    /// Alibaba's block traces (IISWC'20): `device_id,opcode,offset,length,timestamp`.
    Alibaba,
    /// Tencent's cloud block storage (ATC'20): timestamp, offset, size, type, volume.
    Tencent,
    /// Storage Performance Council, as in the UMass Trace Repository: unit, address, size, opcode, time.
    Spc,
    /// Florida International University (FAST'10): time, process, address, size, operation, device, digest.
    Fiu,
    /// DiskSim's ASCII traces.
    DiskSim,
    /// MQSim's traces: the columns of DiskSim, with times in nanoseconds.
    MqSim,
    /// fio's logs of latency and bandwidth with `log_offset`.
    FioLog,
    /// `biosnoop` of bcc.
    Biosnoop,
    /// `iosnoop` of perf-tools.
    Iosnoop,
    /// VMware's vscsi traces, binary.
    Vscsi,
    /// libCacheSim's oracleGeneral, binary.
    OracleGeneral,
    /// Any table, by [`Columns`](crate::Columns).
    Columns,
}

impl Format {
    /// All that are recognised by content.
    pub const ALL: &[Format] = &[
        Format::Blktrace,
        Format::Blkparse,
        Format::Ftrace,
        Format::TraceDat,
        Format::Perfetto,
        Format::Biosnoop,
        Format::Iosnoop,
        Format::FioIolog,
        Format::FioLog,
        Format::MsrCsv,
        Format::SystorCsv,
        Format::MobileCsv,
        Format::Alibaba,
        Format::Tencent,
        Format::Spc,
        Format::Fiu,
        Format::DiskSim,
        Format::MqSim,
        Format::Vscsi,
        Format::OracleGeneral,
        Format::Strace,
        Format::Mobibench,
        Format::JouleRec,
        Format::MonsoonCsv,
        Format::JoulesCsv,
    ];

    /// Text for errors and tables.
    pub fn text(self) -> &'static str {
        match self {
            Format::JouleRec => "recording",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse text",
            Format::Ftrace => "ftrace text",
            Format::TraceDat => "trace.dat",
            Format::Perfetto => "Perfetto",
            Format::PerfettoPower => "Perfetto power rails",
            Format::FioIolog => "fio iolog",
            Format::MsrCsv => "MSR Cambridge CSV",
            Format::SystorCsv => "SYSTOR'17 CSV",
            Format::MobileCsv => "mobile block CSV",
            Format::Mobibench => "MobiBench",
            Format::Strace => "strace",
            Format::MonsoonCsv => "Monsoon CSV",
            Format::JoulesCsv => "CSV of joules",
            Format::Alibaba => "Alibaba CSV",
            Format::Tencent => "Tencent CBS CSV",
            Format::Spc => "SPC",
            Format::Fiu => "FIU",
            Format::DiskSim => "DiskSim ASCII",
            Format::MqSim => "MQSim",
            Format::FioLog => "fio log with offsets",
            Format::Biosnoop => "biosnoop text",
            Format::Iosnoop => "iosnoop text",
            Format::Vscsi => "vscsi",
            Format::OracleGeneral => "oracleGeneral",
            Format::Columns => "table",
        }
    }
}

impl Format {
    /// True if it uses Linux's device numbers.
    pub fn has_the_kernels_numbers(self) -> bool {
        use Format::{Blkparse, Blktrace, Ftrace, Iosnoop, MobileCsv, Perfetto, TraceDat};
        matches!(self, Blktrace | Blkparse | Ftrace | TraceDat | Perfetto | MobileCsv | Iosnoop)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Subject of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Requests to block devices.
    Blocks,
    /// Calls to a file system.
    Calls,
    /// A meter.
    Power,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Blocks => "block devices",
            Kind::Calls => "calls to a file system",
            Kind::Power => "a meter",
        })
    }
}
