//! How fast is it, beside what else there is?
//!
//! [`sides`] are the file systems that are compared, [`rows`] what is done to each through system
//! calls, [`in_process`] what the core does without FUSE, [`deltas`] what small updates
//! cost it, [`metered`] what the simulated flash does, [`choosing`] how fast victims are found, [`memory`] what a large
//! volume takes, [`traces`] how fast recordings are read, [`report`] the tables. Every number is a
//! median of several passes; in each the sides take turns, for the machine's own speed drifts.
//!
//! Left out: latency distributions, and media that take their time: images lie in memory, so what
//! is compared is software.

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
    /// The time since then.
    pub fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.since)
    }
}

/// What went wrong, in words: a bench has nobody who could act on a type.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The middle value; of an even count the lower of both middle ones.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
