//! When do changes become durable without a request to sync?
//!
//! A pure rule; each file system decides what a change is and what it writes. Times are those of a monotonic clock.

use std::time::Duration;

use crate::Power;

/// Time limits for making changes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Latest time after the first change that is not durable.
    pub after: Duration,
    /// Commit earlier if nothing changes for [`Commit::QUIET`].
    pub when_idle: bool,
    /// The limit on battery, idle or not: each commit costs energy, and a longer time gathers more changes for one.
    pub on_battery: Option<Duration>,
}

impl Commit {
    /// A volume without a change for this time is idle: `sync; sleep 1` then suffices if `sync` itself does not
    /// reach the file system.
    pub const QUIET: Duration = Duration::from_millis(300);
    /// Least time between two commits of an idle volume.
    pub const APART: Duration = Duration::from_secs(1);

    /// Commits within `after`, earlier if idle, with any power source.
    pub fn within(after: Duration) -> Self {
        Commit { after, when_idle: true, on_battery: None }
    }

    /// When changes are due that began at `first`, the last of them at `last`, if everything before `durable` is
    /// durable.
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
