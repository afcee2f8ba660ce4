//! What is an opened recording, and which interface does a reader implement?

use crate::formats::{Format, Kind};
use crate::{Input, TraceError, block, call, power};

/// An opened recording.
pub enum Opened {
    /// A recording of block devices.
    Blocks(Box<dyn block::Events>),
    /// A recording of file system calls.
    Calls(Box<dyn call::Calls>),
    /// A recording of a meter.
    Power(Box<dyn power::Readings>),
}

impl Opened {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Opened::Blocks(_) => Kind::Blocks,
            Opened::Calls(_) => Kind::Calls,
            Opened::Power(_) => Kind::Power,
        }
    }

    /// Its format.
    pub fn format(&self) -> Format {
        match self {
            Opened::Blocks(blocks) => blocks.format(),
            Opened::Calls(calls) => calls.format(),
            Opened::Power(power) => power.format(),
        }
    }
}

/// The reader of a format.
pub(crate) struct Reader {
    /// True if the beginning of a recording (up to 64 KiB) has this format and no other.
    pub(crate) knows: fn(&[u8]) -> bool,
    /// Opens the recording at its beginning.
    pub(crate) open: fn(Input) -> Result<Opened, TraceError>,
}
