//! What must be known about a recording's times before its numbers can be trusted?
//!
//! [`crate::session`] counts it.

use serde::Serialize;

/// Properties of a recording's times, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Timing {
    /// Events or calls before the session, skipped.
    pub before: u64,
    /// Events or calls after it, skipped.
    pub after: u64,
    /// Number of shortened pauses.
    pub pauses: u64,
    /// Their total original length in nanoseconds.
    pub pauses_ns: u64,
    /// The length that each of them counts.
    pub pause_counts_ns: Option<u64>,
    /// Events with an earlier time than a previous one; for calls, than a previous one of the same thread. Includes
    /// events that the reader itself has sorted.
    pub late: u64,
    /// Largest such difference in nanoseconds.
    pub late_ns: u64,
    /// Files opened before the session and used in it: their opens are inserted at their first use.
    pub opened_before: u64,
}

impl Timing {
    /// Counts a time that is earlier than `latest`, or advances `latest`; both in units of `unit` nanoseconds.
    pub(crate) fn in_order(&mut self, latest: &mut u64, time: u64, unit: u64) {
        if let Some(by) = latest.checked_sub(time).filter(|by| *by > 0) {
            self.late += 1;
            self.late_ns = self.late_ns.max(by.saturating_mul(unit));
        }
        *latest = time.max(*latest);
    }

    /// Adds the counts of a reader that sorts.
    pub(crate) fn with_reader(self, reader: Timing) -> Timing {
        Timing { late: self.late + reader.late, late_ns: self.late_ns.max(reader.late_ns), ..self }
    }
}
