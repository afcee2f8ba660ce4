//! Sources of time.
//!
//! The only reader of the host's clocks. A mounted volume has a [`RealClock`]; tests and simulations have a
//! [`VirtualClock`], which advances only on request.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

const NANOS: u32 = 1_000_000_000;

/// Time since 1970-01-01 UTC: seconds (negative before it) plus nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 10^9.
    pub nanos: u32,
}

impl Time {
    /// From seconds and any number of nanoseconds, carrying whole seconds.
    pub fn new(secs: i64, nanos: u32) -> Self {
        Self { secs: secs.saturating_add((nanos / NANOS).into()), nanos: nanos % NANOS }
    }

    /// This time plus `by`; saturates at the last representable second.
    pub fn saturating_add(self, by: Duration) -> Self {
        let secs = self.secs.saturating_add_unsigned(by.as_secs());
        Self::new(secs, self.nanos + by.subsec_nanos())
    }
}

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Time of day, for time stamps. May jump.
    fn now(&self) -> Time;
    /// Time since some fixed moment, for intervals. Never decreases.
    fn monotonic(&self) -> Duration;
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }
    fn monotonic(&self) -> Duration {
        (**self).monotonic()
    }
}

/// The host's clocks; `monotonic` counts from the creation of the value.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose monotonic time starts at zero.
    #[allow(clippy::disallowed_methods)] // the only place that may read the host's clock
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    /// Only as fine as the kernel's own time stamps (a tick, 1 to 10 ms). A kernel with a writeback cache stamps
    /// some files itself; with a finer clock, our stamps would look younger than kernel stamps up to a tick later.
    fn now(&self) -> Time {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Time::new(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that advances only on request.
#[derive(Debug, Default)]
pub struct VirtualClock {
    state: Mutex<(Time, Duration)>,
}

impl VirtualClock {
    /// Starts at `now`, with monotonic time zero.
    pub fn new(now: Time) -> Self {
        Self { state: Mutex::new((now, Duration::ZERO)) }
    }

    /// Advances both times.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.0 = state.0.saturating_add(by);
        state.1 = state.1.saturating_add(by);
    }

    /// Sets the time of day, forward or back, like an administrator; monotonic time is unaffected.
    pub fn set(&self, now: Time) {
        self.state.lock().0 = now;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        self.state.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_on_request() {
        let clock = VirtualClock::new(Time::new(100, 900_000_000));
        assert_eq!(clock.now(), Time { secs: 100, nanos: 900_000_000 });
        clock.advance(Duration::from_millis(200));
        assert_eq!(clock.now(), Time { secs: 101, nanos: 100_000_000 });
        clock.set(Time::new(5, 0));
        assert_eq!((clock.now(), clock.monotonic()), (Time::new(5, 0), Duration::from_millis(200)));
    }

    #[test]
    fn the_real_clock_never_goes_back() {
        let clock = RealClock::new();
        let (a, b) = (clock.monotonic(), clock.monotonic());
        assert!(a <= b);
        assert!(clock.now().secs > 1_600_000_000);
    }
}
