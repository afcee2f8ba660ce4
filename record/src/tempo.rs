//! How much time passes between what is replayed?

use std::sync::Arc;
use std::time::Duration;

use device::clock::{Clock, RealClock, VirtualClock};

/// When a replay goes on to the next record.
#[derive(Debug, Clone)]
pub enum Tempo {
    /// At once.
    BackToBack,
    /// Not before the time that had passed when it was recorded has passed on this clock, which is moved
    /// forward for it.
    Virtual(Arc<VirtualClock>),
    /// The same by the host's clock: it sleeps.
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

    /// A replay that starts now.
    pub fn start(&self) -> Started<'_> {
        Started { tempo: self, began: self.now(), first: None }
    }
}

/// A replay under way: what arrives first is due when it started.
pub struct Started<'a> {
    tempo: &'a Tempo,
    began: Duration,
    first: Option<u64>,
}

impl Started<'_> {
    /// Waits until a record that arrived at `arrival` nanoseconds is due; returns when that was by the clock,
    /// or `None` where nothing is waited for.
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
