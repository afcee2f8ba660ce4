//! How fast is JouleFS, compared with other file systems?
//!
//! [`sides`] are the compared file systems, [`rows`] measures system calls on each, [`in_process`] the core without
//! FUSE, [`deltas`] the cost of small updates, [`metered`] the simulated flash, [`choosing`] the choice of victims,
//! [`memory`] the memory for a large volume, [`traces`] reading of recordings; [`report`] formats the tables. Every
//! number is a median of several passes; in each pass the sides alternate, because the machine's speed drifts.
//!
//! Left out: latency distributions, and slow media: images are in memory, so only software is compared.

pub mod choosing;
pub mod deltas;
pub mod images;
pub mod in_process;
pub mod memory;
pub mod metered;
pub mod phone;
pub mod report;
pub mod rows;
pub mod sides;
pub mod traces;

use std::time::Duration;

use device::{Clock, RealClock};

/// Measures how long something takes.
pub struct Stopwatch {
    clock: RealClock,
    since: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        let clock = RealClock::new();
        let since = clock.monotonic();
        Stopwatch { clock, since }
    }
    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.since)
    }
}

/// Errors as text: a benchmark has no caller that could handle types.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The middle value; for an even count the lower of the two middle ones.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
