//! A recording that was opened, and what a reader of one format must be able to do.

use crate::formats::{Format, Kind};
use crate::{Input, TraceError, block, call, power};

/// A recording that was opened.
pub enum Opened {
    /// Of block devices.
    Blocks(Box<dyn block::Events>),
    /// Of a file system.
    Calls(Box<dyn call::Calls>),
    /// Of a meter.
    Power(Box<dyn power::Readings>),
}

impl Opened {
    /// What it is of.
    pub fn kind(&self) -> Kind {
        match self {
            Opened::Blocks(_) => Kind::Blocks,
            Opened::Calls(_) => Kind::Calls,
            Opened::Power(_) => Kind::Power,
        }
    }

    /// What it is read as.
    pub fn format(&self) -> Format {
        match self {
            Opened::Blocks(blocks) => blocks.format(),
            Opened::Calls(calls) => calls.format(),
            Opened::Power(power) => power.format(),
        }
    }
}

/// How a format is recognised and opened.
pub(crate) struct Reader {
    /// True if the beginning of a recording (up to 64 KiB of it) is of this format, and of no other.
    pub(crate) knows: fn(&[u8]) -> bool,
    /// Reads from the beginning.
    pub(crate) open: fn(Input) -> Result<Opened, TraceError>,
}
