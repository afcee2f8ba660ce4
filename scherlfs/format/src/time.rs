//! Times in inodes and superblocks.

use zerocopy::byteorder::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A time on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawTime {
    /// Seconds since 1970.
    pub secs: I64,
    /// Nanoseconds.
    pub nanos: U32,
}

/// A time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds below 10^9.
    pub nanos: u32,
}

impl RawTime {
    pub(crate) fn time(&self) -> Time {
        Time { secs: self.secs.get(), nanos: self.nanos.get() }
    }
}

impl Time {
    pub(crate) fn raw(self) -> RawTime {
        RawTime { secs: self.secs.into(), nanos: self.nanos.into() }
    }
}
