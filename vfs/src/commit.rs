//! When do changes become durable though nobody asks for it?
//!
//! A pure rule; what is written then, and what a change is, each file system knows for itself. Times are those of a
//! monotonic clock.

use std::time::Duration;

use crate::Power;

/// Within which time a change becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// At the latest so long after the first change that is not durable.
    pub after: Duration,
    /// Sooner if nothing changes for [`Commit::QUIET`].
    pub when_idle: bool,
    /// On a battery instead so long after the first change, idle or not: each commit costs energy, and a longer time
    /// gathers more changes for one.
    pub on_battery: Option<Duration>,
}

impl Commit {
    /// A volume without a change for so long is idle: `sync; sleep 1` then suffices where `sync` itself does not reach the
    /// file system.
    pub const QUIET: Duration = Duration::from_millis(300);
    /// What is written because nothing changes is written at most once in this time.
    pub const APART: Duration = Duration::from_secs(1);

    /// Within `after`, and sooner when idle, wherever the power comes from.
    pub fn within(after: Duration) -> Self {
        Commit { after, when_idle: true, on_battery: None }
    }

    /// When changes are due that began at `first`, of which the last came at `last`, if everything before `durable` is durable.
    pub fn due(&self, first: Duration, last: Duration, durable: Duration, power: Power) -> Duration {
        match self.on_battery {
            Some(after) if power == Power::Battery => first + after,
            _ if self.when_idle => {
                let idle = (last + Self::QUIET.min(self.after)).max(durable + Self::APART.min(self.after));
                idle.min(first + self.after)
            }
            _ => first + self.after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_due_when_idle_and_at_the_latest_after_the_time() {
        let ms = Duration::from_millis;
        let due = |commit: Commit, first, last, durable, power| {
            commit.due(ms(first), ms(last), ms(durable), power).as_millis() as u64
        };
        let five = Commit::within(ms(5000));
        assert_eq!(due(five, 10_000, 10_000, 0, Power::Battery), 10_300);
        assert_eq!(due(five, 10_000, 14_900, 0, Power::Battery), 15_000, "never idle");
        assert_eq!(due(five, 10_000, 10_000, 9_900, Power::Battery), 10_900, "one was just written");
        assert_eq!(due(Commit::within(ms(100)), 10_000, 10_000, 9_990, Power::Battery), 10_100);
        assert_eq!(due(Commit { when_idle: false, ..five }, 10_000, 10_000, 0, Power::Battery), 15_000);
        let careful = Commit { on_battery: Some(ms(15_000)), ..five };
        assert_eq!(due(careful, 10_000, 10_000, 0, Power::Battery), 25_000);
        assert_eq!(due(careful, 10_000, 10_000, 0, Power::Powered), 10_300);
    }
}
