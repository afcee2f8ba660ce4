//! What time is it, and who says so?
//!
//! The only reader of the host's clocks. A mounted volume has a [`RealClock`]; tests and
//! simulations have a [`VirtualClock`] that moves when told.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

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
    /// From seconds and any number of nanoseconds, whole seconds among which are carried over.
    pub fn new(secs: i64, nanos: u32) -> Self {
        Self { secs: secs.saturating_add((nanos / NANOS).into()), nanos: nanos % NANOS }
    }

    /// This time later by `by`; the last representable second if that is too late.
    pub fn saturating_add(self, by: Duration) -> Self {
        let secs = self.secs.saturating_add_unsigned(by.as_secs());
        Self::new(secs, self.nanos + by.subsec_nanos())
    }
}

impl From<SystemTime> for Time {
    fn from(at: SystemTime) -> Self {
        match at.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self { secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), nanos: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let secs = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self { secs, nanos: 0 },
                    n => Self { secs: secs.saturating_sub(1), nanos: NANOS - n },
                }
            }
        }
    }
}

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, for time stamps. May jump.
    fn now(&self) -> Time;
    /// Time since some fixed moment, for intervals. Never goes back.
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

/// The host's clocks; `monotonic` counts from the making of the value.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose monotonic time is zero now.
    #[allow(clippy::disallowed_methods)] // The one place that may read the host's clock.
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
    #[allow(clippy::disallowed_methods)] // As above.
    fn now(&self) -> Time {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that stands still until moved.
#[derive(Debug, Default)]
pub struct VirtualClock {
    state: Mutex<(Time, Duration)>,
}

impl VirtualClock {
    /// Shows `now`; monotonic time is zero.
    pub fn new(now: Time) -> Self {
        Self { state: Mutex::new((now, Duration::ZERO)) }
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.0 = state.0.saturating_add(by);
        state.1 = state.1.saturating_add(by);
    }

    /// Sets the time of day, forward or back, as an administrator would; monotonic time stays.
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
    fn a_virtual_clock_moves_only_when_told() {
        let clock = VirtualClock::new(Time::new(100, 900_000_000));
        assert_eq!(clock.now(), Time { secs: 100, nanos: 900_000_000 });
        clock.advance(Duration::from_millis(200));
        assert_eq!(clock.now(), Time { secs: 101, nanos: 100_000_000 });
        clock.set(Time::new(5, 0));
        assert_eq!((clock.now(), clock.monotonic()), (Time::new(5, 0), Duration::from_millis(200)));
    }

    #[test]
    fn times_before_1970_round_down() {
        let at = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(Time::from(at), Time { secs: -1, nanos: 999_000_000 });
        assert_eq!(Time::from(SystemTime::UNIX_EPOCH - Duration::from_secs(2)), Time { secs: -2, nanos: 0 });
    }

    #[test]
    fn the_real_clock_never_goes_back() {
        let clock = RealClock::new();
        let (a, b) = (clock.monotonic(), clock.monotonic());
        assert!(a <= b);
        assert!(clock.now().secs > 1_600_000_000);
    }
}
