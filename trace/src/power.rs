//! What does a meter measure? Power or energy of one or several channels over time.
//!
//! Left out: the meaning of differences, which the comparison of runs defines.

use crate::{Format, OtherCounts, TraceError};

/// Value of a channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Mean power since the channel's previous reading, in watts.
    Watts(f64),
    /// Energy since a fixed moment of the channel, in joules.
    Joules(f64),
}

/// A reading of one channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Nanoseconds since the start of the recording's clock.
    pub time: u64,
    /// Index of the channel in [`Readings::channels`].
    pub channel: u16,
    /// The value.
    pub value: Value,
}

/// A recording of a meter. Times never decrease.
pub trait Readings: Send {
    /// The format.
    fn format(&self) -> Format;
    /// The next reading; `None` at a complete end. After an error there is nothing more.
    fn next(&mut self) -> Result<Option<Reading>, TraceError>;
    /// Names of the channels in readings so far.
    fn channels(&self) -> &[String];
    /// Other contents seen so far.
    fn other_counts(&self) -> &OtherCounts;
    /// Bytes of the file read so far, for a progress bar.
    fn consumed(&self) -> u64;
}
