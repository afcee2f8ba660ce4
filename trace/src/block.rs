//! The words for what happens at a block device.

use std::fmt;

use crate::names::files::Writing;
use crate::timing::Timing;
use crate::{Format, Names, Others, Process, TraceError};

/// Bytes of a sector, the unit of every block trace.
pub const SECTOR: u64 = 512;

/// What happened to a request; the letters are blkparse's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// `Q`: a file system or a program asked for it.
    Queue,
    /// `G`: it got a request structure.
    Get,
    /// `I`: it was given to the scheduler.
    Insert,
    /// `D`: it was given to the device.
    Issue,
    /// `C`: the device is done.
    Complete,
    /// `R`: given back to the queue.
    Requeue,
    /// `M`: added to the end of one before.
    BackMerge,
    /// `F`: added to the beginning of one before.
    FrontMerge,
    /// `A`: from a partition or stacked device to the one below.
    Remap,
    /// `X`: divided in two.
    Split,
    /// Everything else that has an extent or none: plugging, bouncing, sleeping, aborting.
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

/// A kind of request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Read sectors.
    Read,
    /// Write sectors.
    Write,
    /// Make durable what was written; without sectors.
    Flush,
    /// Forget sectors.
    Discard,
    /// Forget sectors for good: they cannot be read again.
    SecureErase,
    /// Make sectors read as zeroes.
    WriteZeroes,
    /// Anything else: zone management, commands passed through.
    Other,
}

impl Op {
    /// All, in order.
    pub const ALL: [Op; 7] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::SecureErase, Op::WriteZeroes, Op::Other];
    /// In words.
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
    /// How it is asked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Flags: u8 {
        /// A process waits for it.
        const SYNC = 1;
        /// Read ahead of who will ask.
        const AHEAD = 2;
        /// Of a file system's own structures.
        const META = 4;
        /// Durable when done.
        const FUA = 8;
        /// Everything written before is made durable first.
        const PREFLUSH = 16;
    }
}

/// A device by its numbers.
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

/// Something that happened at a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since whatever the recording counts from.
    pub time: u64,
    /// What happened.
    pub action: Action,
    /// To what.
    pub op: Op,
    /// How it was asked.
    pub flags: Flags,
    /// The first sector.
    pub sector: u64,
    /// How many; 0 for a flush.
    pub sectors: u64,
    /// Where.
    pub device: DeviceId,
    /// On which processor; 0 where it is not told.
    pub cpu: u32,
    /// Who; 0 where it is not told.
    pub pid: u32,
    /// Who by name, in [`Events::names`].
    pub process: Process,
    /// Nanoseconds the device took, where the recording has one line for a request from its beginning to its
    /// end (CSV); `None` where there is a [`Complete`](Action::Complete) event for that, or nothing.
    pub took: Option<u64>,
    /// What a completion says went wrong, a positive errno; 0 if nothing.
    pub error: u32,
    /// That it is part of the writing of an inode's pages, in [`Names::files`], where that is told.
    pub writing: Writing,
    /// Of a [`Remap`](Action::Remap), from where: the partition or stacked device, and the first sector there.
    pub from: Option<(DeviceId, u64)>,
}

impl Event {
    /// Bytes asked for.
    pub fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR)
    }
}

/// A recording of block devices.
///
/// Events come in the order of the recording, which is nearly that of time: buffers of processors are merged
/// where a format keeps them apart.
pub trait Events: Send {
    /// What is read.
    fn format(&self) -> Format;
    /// The next event; `None` at a complete end. After an error there is nothing more.
    fn next(&mut self) -> Result<Option<Event>, TraceError>;
    /// False if the recording tells no times, as far as it was read: all are 0, and only the order means something.
    fn timed(&self) -> bool {
        true
    }
    /// Names of processes in events so far.
    fn names(&self) -> &Names;
    /// What was seen so far and is no event of a block device.
    fn others(&self) -> &Others;
    /// Bytes of the recording read so far, as they lie in the file, for who shows progress.
    fn consumed(&self) -> u64;
    /// What the recording calls a device, where it has names for them (files, hosts).
    fn device(&self, _: DeviceId) -> Option<String> {
        None
    }
    /// What is to be known of its times so far, if it is read as a [`Session`](crate::session::Session).
    fn timing(&self) -> Timing {
        Timing::default()
    }
}

/// In an `impl Events` of a recording that holds another: what that one answers is passed on. Named are the methods, so
/// that one that is left out is left out before the reader's eyes; `all` are those that tell of the recording and not of its
/// next event.
#[macro_export]
macro_rules! passes_on {
    ($inner:ident: all) => {
        $crate::passes_on!($inner: format, timed, names, others, consumed, device, timing);
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
    (@ $inner:ident others) => {
        fn others(&self) -> &$crate::Others {
            self.$inner.others()
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
