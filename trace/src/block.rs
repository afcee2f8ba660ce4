//! Which events happen at a block device?

use std::fmt;

use crate::names::files::Writing;
use crate::timing::Timing;
use crate::{Format, Names, OtherCounts, Process, TraceError};

/// Bytes of a sector, the unit of every block trace.
pub const SECTOR: u64 = 512;

/// What happened to a request; the letters are blkparse's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// `Q`: a file system or a program queued it.
    Queue,
    /// `G`: it got a request structure.
    Get,
    /// `I`: it was passed to the scheduler.
    Insert,
    /// `D`: it was issued to the device.
    Issue,
    /// `C`: the device has completed it.
    Complete,
    /// `R`: it was returned to the queue.
    Requeue,
    /// `M`: it was merged to the end of an earlier one.
    BackMerge,
    /// `F`: it was merged to the beginning of an earlier one.
    FrontMerge,
    /// `A`: it moved from a partition or stacked device to the device underneath.
    Remap,
    /// `X`: it was split in two.
    Split,
    /// All others: plugging, bouncing, sleeping, aborting.
    Other,
}

impl Action {
    /// All, in order.
    pub const ALL: [Action; 11] = [
        Action::Queue,
        Action::Get,
        Action::Insert,
        Action::Issue,
        Action::Complete,
        Action::Requeue,
        Action::BackMerge,
        Action::FrontMerge,
        Action::Remap,
        Action::Split,
        Action::Other,
    ];
    /// blkparse's letter; `?` for others.
    pub fn letter(self) -> char {
        match self {
            Action::Queue => 'Q',
            Action::Get => 'G',
            Action::Insert => 'I',
            Action::Issue => 'D',
            Action::Complete => 'C',
            Action::Requeue => 'R',
            Action::BackMerge => 'M',
            Action::FrontMerge => 'F',
            Action::Remap => 'A',
            Action::Split => 'X',
            Action::Other => '?',
        }
    }
}

/// Type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Read sectors.
    Read,
    /// Write sectors.
    Write,
    /// Make written data durable; has no sectors.
    Flush,
    /// Discard sectors.
    Discard,
    /// Discard sectors irrevocably.
    SecureErase,
    /// Make sectors read as zeroes.
    WriteZeroes,
    /// Anything else: zone management, commands passed through.
    Other,
}

impl Op {
    /// All, in order.
    pub const ALL: [Op; 7] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::SecureErase, Op::WriteZeroes, Op::Other];
    /// Its name.
    pub fn text(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::SecureErase => "secure erase",
            Op::WriteZeroes => "write zeroes",
            Op::Other => "other",
        }
    }
}

bitflags::bitflags! {
    /// Flags of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Flags: u8 {
        /// A process waits for it.
        const SYNC = 1;
        /// Read-ahead.
        const AHEAD = 2;
        /// Metadata of a file system.
        const META = 4;
        /// Durable when done.
        const FUA = 8;
        /// All earlier writes are made durable first.
        const PREFLUSH = 16;
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceId {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.major, self.minor)
    }
}

/// An event at a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the start of the recording's clock.
    pub time: u64,
    /// What happened.
    pub action: Action,
    /// Type of the request.
    pub op: Op,
    /// Its flags.
    pub flags: Flags,
    /// The first sector.
    pub sector: u64,
    /// Number of sectors; 0 for a flush.
    pub sectors: u64,
    /// The device.
    pub device: DeviceId,
    /// The CPU; 0 if unknown.
    pub cpu: u32,
    /// The process number; 0 if unknown.
    pub pid: u32,
    /// The process name, in [`Events::names`].
    pub process: Process,
    /// Nanoseconds that the device took, in recordings with one line per request (CSV); `None` if a
    /// [`Complete`](Action::Complete) event follows, or if unknown.
    pub took: Option<u64>,
    /// Error of a completion, as a positive errno; 0 if none.
    pub error: u32,
    /// The inode whose pages are written, in [`Names::files`], if known.
    pub writing: Writing,
    /// For a [`Remap`](Action::Remap): the original partition or stacked device, and the first sector there.
    pub from: Option<(DeviceId, u64)>,
}

impl Event {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR)
    }
}

/// A recording of block devices.
///
/// Events come in the order of the recording, which is almost that of time: per-CPU buffers are merged if a format
/// keeps them apart.
pub trait Events: Send {
    /// The format.
    fn format(&self) -> Format;
    /// The next event; `None` at a complete end. After an error there is nothing more.
    fn next(&mut self) -> Result<Option<Event>, TraceError>;
    /// False if the recording has no times so far: all are 0, and only the order means something.
    fn timed(&self) -> bool {
        true
    }
    /// Names of processes in events so far.
    fn names(&self) -> &Names;
    /// Other contents seen so far.
    fn other_counts(&self) -> &OtherCounts;
    /// Bytes of the file read so far, for a progress bar.
    fn consumed(&self) -> u64;
    /// The recording's name for a device, if it has names (files, hosts).
    fn device(&self, _: DeviceId) -> Option<String> {
        None
    }
    /// Timing so far, if it is read as a [`Session`](crate::session::Session).
    fn timing(&self) -> Timing {
        Timing::default()
    }
}

/// Forwards methods to the inner recording, inside an `impl Events`. The methods are listed, so that a missing one is
/// visible; `all` stands for those about the recording rather than its next event.
#[macro_export]
macro_rules! passes_on {
    ($inner:ident: all) => {
        $crate::passes_on!($inner: format, timed, names, other_counts, consumed, device, timing);
    };
    ($inner:ident: $($what:ident),+) => {
        $($crate::passes_on!(@ $inner $what);)+
    };
    (@ $inner:ident format) => {
        fn format(&self) -> $crate::Format {
            self.$inner.format()
        }
    };
    (@ $inner:ident timed) => {
        fn timed(&self) -> bool {
            self.$inner.timed()
        }
    };
    (@ $inner:ident names) => {
        fn names(&self) -> &$crate::Names {
            self.$inner.names()
        }
    };
    (@ $inner:ident other_counts) => {
        fn other_counts(&self) -> &$crate::OtherCounts {
            self.$inner.other_counts()
        }
    };
    (@ $inner:ident consumed) => {
        fn consumed(&self) -> u64 {
            self.$inner.consumed()
        }
    };
    (@ $inner:ident device) => {
        fn device(&self, id: $crate::block::DeviceId) -> Option<String> {
            self.$inner.device(id)
        }
    };
    (@ $inner:ident timing) => {
        fn timing(&self) -> $crate::timing::Timing {
            self.$inner.timing()
        }
    };
}
