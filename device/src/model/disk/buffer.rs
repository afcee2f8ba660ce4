//! Which blocks are in the disk's track buffer, and which is it reading ahead?

use serde::{Deserialize, Serialize};

use super::platter::{Femto, Platter};

/// Read-ahead in progress.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Stream {
    /// The block that began to pass at `since`.
    from: u64,
    since: Femto,
    /// The first block it does not read.
    limit: u64,
}

/// The blocks read last, and those being read ahead.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Buffer {
    capacity: u64,
    /// The first block of the contiguous range up to the last.
    first: u64,
    /// The block after the last, if no read is in progress.
    end: u64,
    stream: Option<Stream>,
}

impl Buffer {
    /// An empty buffer of `capacity` blocks.
    pub fn new(capacity: u64) -> Self {
        Buffer { capacity, first: 0, end: 0, stream: None }
    }
    /// The block after the last buffered one at `now`.
    pub fn end(&self, now: Femto, platter: &Platter) -> u64 {
        match self.stream {
            Some(s) => s.from.saturating_add(platter.passed(s.from, now.saturating_sub(s.since))).min(s.limit),
            None => self.end,
        }
    }
    /// True if a range is buffered at `now`.
    pub fn holds(&self, at: u64, end: u64, now: Femto, platter: &Platter) -> bool {
        let last = self.end(now, platter);
        self.first.max(last.saturating_sub(self.capacity)) <= at && end <= last
    }
    /// When read-ahead stops because the buffer is full.
    pub fn stops(&self, platter: &Platter) -> Option<Femto> {
        self.stream.map(|s| s.since + platter.passing(s.from, s.limit))
    }
    /// When the last block of a range will be buffered if read-ahead continues from `begin`: `None` if it will have
    /// stopped before, or has passed the range.
    pub fn arrives(&self, at: u64, end: u64, begin: Femto, platter: &Platter) -> Option<Femto> {
        let s = self.stream?;
        let last = self.end(begin, platter);
        let kept = self.first.max(last.saturating_sub(self.capacity)) <= at;
        let goes_on = end <= s.limit || self.stops(platter)? >= begin;
        (kept && goes_on).then(|| s.since + platter.passing(s.from, end))
    }
    /// Extends read-ahead to a full buffer after a range requested at `begin` while being read ahead, unless it has
    /// stopped.
    pub fn extend(&mut self, end: u64, begin: Femto, blocks: u64, platter: &Platter) {
        let stopped = self.stops(platter).is_none_or(|t| t < begin);
        if let Some(s) = self.stream.as_mut().filter(|_| !stopped) {
            s.limit = s.limit.max(end.saturating_add(self.capacity).min(blocks)).max(end);
        }
    }
    /// Starts read-ahead to a full buffer after a range whose last block had passed at `passed`.
    pub fn start(&mut self, at: u64, end: u64, passed: Femto, blocks: u64) {
        self.first = at;
        let limit = end.saturating_add(self.capacity).min(blocks).max(end);
        self.stream = Some(Stream { from: end, since: passed, limit });
    }
    /// Stops read-ahead at `now`, since the arm is needed; returns the block under the head if it was reading.
    pub fn stop(&mut self, now: Femto, platter: &Platter) -> Option<u64> {
        let end = self.end(now, platter);
        self.end = end;
        self.stream.take().map(|_| end)
    }
    /// Drops buffered blocks of a range that changes on the platter.
    pub fn forget(&mut self, at: u64, end: u64) {
        if at < self.end && self.first < end {
            (self.first, self.end) = (0, 0);
        }
    }
}
