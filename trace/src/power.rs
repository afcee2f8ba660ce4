//! The words for what a meter saw: power or energy of one or several channels over time.
//!
//! Left out: what shares of it mean, which those say who compare runs.

use crate::{Format, Others, TraceError};

/// What a channel showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// The mean power since the channel's reading before, in watts.
    Watts(f64),
    /// Energy since a moment that is the same for all readings of the channel, in joules.
    Joules(f64),
}

/// One channel at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Nanoseconds since whatever the recording counts from.
    pub time: u64,
    /// The channel, by its place in [`Readings::channels`].
    pub channel: u16,
    /// What it showed.
    pub value: Value,
}

/// A recording of a meter. Times do not go back.
pub trait Readings: Send {
    /// What is read.
    fn format(&self) -> Format;
    /// The next reading; `None` at a complete end. After an error there is nothing more.
    fn next(&mut self) -> Result<Option<Reading>, TraceError>;
    /// Names of the channels in readings so far.
    fn channels(&self) -> &[String];
    /// What was seen so far and is no reading.
    fn others(&self) -> &Others;
    /// Bytes of the recording read so far, as they lie in the file, for who shows progress.
    fn consumed(&self) -> u64;
}
