//! How much time passes between replayed records?

use std::sync::Arc;
use std::time::Duration;

use device::clock::{Clock, RealClock, VirtualClock};

/// When a replay proceeds to the next record.
#[derive(Debug, Clone)]
pub enum Tempo {
    /// Immediately.
    BackToBack,
    /// When the recorded time has passed on this clock; the replay advances the clock.
    Virtual(Arc<VirtualClock>),
    /// The same by the host's clock: the replay sleeps.
    Real(Arc<RealClock>),
}

impl Tempo {
    fn now(&self) -> Duration {
        match self {
            Tempo::BackToBack => Duration::ZERO,
            Tempo::Virtual(c) => c.monotonic(),
            Tempo::Real(c) => c.monotonic(),
        }
    }

    /// Starts a replay now.
    pub fn start(&self) -> Started<'_> {
        Started { tempo: self, began: self.now(), first: None }
    }
}

/// A running replay: its first record is due at the start.
pub struct Started<'a> {
    tempo: &'a Tempo,
    began: Duration,
    first: Option<u64>,
}

impl Started<'_> {
    /// Waits until a record with this `arrival` (in nanoseconds) is due. Returns that time, or `None` if the tempo
    /// never waits.
    pub fn due(&mut self, arrival: u64) -> Option<Duration> {
        let first = *self.first.get_or_insert(arrival);
        let at = self.began.saturating_add(Duration::from_nanos(arrival.saturating_sub(first)));
        let left = at.saturating_sub(self.tempo.now());
        match self.tempo {
            Tempo::BackToBack => return None,
            Tempo::Virtual(c) => c.advance(left),
            Tempo::Real(_) if left.is_zero() => {}
            Tempo::Real(_) => std::thread::sleep(left),
        }
        Some(at)
    }
}
