//! At which pace does Linux clean in the background, version by version?
//!
//! The constants of the kernel's thread (`gc_thread_func`), so that its cleaning can be repeated and its cost measured.
//! Without zones they are the same in 6.1, 6.12 and 6.19: 30 to 60 seconds between two sections, 5 minutes if no
//! section was found. Since 6.12 a zoned volume has others: the thread checks every 10 to 20 milliseconds, does nothing
//! while more than 60 percent of the sections are free, runs urgently from 25 percent down, and skips sections with a
//! valid share of at least `valid_thresh_ratio`: 95 percent, in 6.19 ("f2fs: set default valid_thresh_ratio to 80 for
//! zoned devices") 80.
//!
//! Left out on purpose: which section is cleaned (the `victim` crate); zones: a simulated volume can be cleaned at this
//! pace without their write rule.

use std::time::Duration;

use super::settings::{Intervals, Settings, Zoned};

/// A kernel version with known constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 6.1.
    V6_1,
    /// 6.12.
    V6_12,
    /// 6.19.
    V6_19,
}

impl Version {
    /// All versions, by name.
    pub const ALL: [(&str, Version); 3] = [("6.1", Version::V6_1), ("6.12", Version::V6_12), ("6.19", Version::V6_19)];

    /// The settings with this version's pace.
    pub fn pace(self, zoned: bool, settings: Settings) -> Settings {
        let ms = Duration::from_millis;
        let thresh = match self {
            // 6.1 has no settings for zoned volumes.
            Version::V6_1 => return Settings { zoned: None, intervals: Intervals::default(), ..settings },
            Version::V6_12 => 95,
            Version::V6_19 => 80,
        };
        if !zoned {
            return Settings { zoned: None, intervals: Intervals::default(), ..settings };
        }
        Settings {
            // DEF_GC_THREAD_MIN_SLEEP_TIME_ZONED and related constants.
            intervals: Intervals { min: ms(10), max: ms(20), none: ms(60_000), ..Intervals::default() },
            // LIMIT_NO_ZONED_GC, LIMIT_BOOST_ZONED_GC, DEF_GC_THREAD_VALID_THRESH_RATIO.
            zoned: Some(Zoned { enough_free: 60, few_free: 25, too_full: thresh }),
            ..settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_not_zoned_is_cleaned_at_one_pace_in_all_versions() {
        for (_, v) in Version::ALL {
            assert_eq!(v.pace(false, Settings::default()), Settings::default());
        }
    }

    #[test]
    fn a_zoned_volume_is_looked_at_fifty_times_a_second_since_6_12_and_left_alone_sooner_since_6_19() {
        let of = |v: Version| v.pace(true, Settings::default());
        assert_eq!(of(Version::V6_1), Settings::default());
        for (v, full) in [(Version::V6_12, 95), (Version::V6_19, 80)] {
            let s = of(v);
            assert_eq!((s.intervals.min.as_millis(), s.intervals.max.as_millis()), (10, 20));
            assert_eq!(s.zoned, Some(Zoned { enough_free: 60, few_free: 25, too_full: full }));
        }
    }
}
