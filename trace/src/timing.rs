//! What is to be known of a recording's times before its numbers are believed?
//!
//! [`crate::session`] counts it.

use serde::Serialize;

/// What is to be known of the times of a recording, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Timing {
    /// Events or calls before the session, left out.
    pub before: u64,
    /// Those after it, left out.
    pub after: u64,
    /// Pauses that were shortened.
    pub pauses: u64,
    /// How long they were in all, in nanoseconds.
    pub pauses_ns: u64,
    /// How long each of them counts.
    pub pause_counts_ns: Option<u64>,
    /// Events with an earlier time than one told before; of calls, than one told before of the same thread. So are those that
    /// are given in order because their reader sorts.
    pub late: u64,
    /// By how many nanoseconds at most.
    pub late_ns: u64,
    /// Files that were opened before the session and are used in it: their opens are made up at their first use.
    pub opened_before: u64,
}

impl Timing {
    /// Something that is told later than what was at `latest`, which it moves on; both in so many nanoseconds.
    pub(crate) fn in_order(&mut self, latest: &mut u64, time: u64, unit: u64) {
        if let Some(by) = latest.checked_sub(time).filter(|by| *by > 0) {
            self.late += 1;
            self.late_ns = self.late_ns.max(by.saturating_mul(unit));
        }
        *latest = time.max(*latest);
    }

    /// The same with what a reader put in order itself.
    pub(crate) fn beside(self, reader: Timing) -> Timing {
        Timing { late: self.late + reader.late, late_ns: self.late_ns.max(reader.late_ns), ..self }
    }
}
