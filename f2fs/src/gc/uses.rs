//! How many blocks will the next use of the volume need?
//!
//! A *use* lasts from one idle period to the next, as the cleaner sees them: uses between two of its checks count as
//! one. The last eight uses that wrote are remembered, and the next one is expected to be as large as the second
//! largest: a single large use, such as a restored backup, predicts nothing, nor does the first use after a mount. A
//! use in progress is expected to write at least as much again as it has written. Left out on purpose: when the volume
//! is idle (`pacer`), and what follows for cleaning (the `victim` crate).

/// How many uses are remembered.
const REMEMBERED: usize = 8;

/// Numbers of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amounts {
    /// Blocks for which logs allocated places.
    pub takes: u64,
    /// Blocks written to the device, including those written in place.
    pub writes: u64,
}

/// The last uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Totals at the start of the last idle period.
    at_rest: Amounts,
    /// True if there was a request since.
    used: bool,
    takes: [u64; REMEMBERED],
    writes: [u64; REMEMBERED],
}

impl Uses {
    /// No use yet, as at a mount; `so_far`: totals until now.
    pub fn none_after(so_far: Amounts) -> Self {
        Uses { at_rest: so_far, ..Uses::default() }
    }

    /// Notes a request.
    pub fn note(&mut self) {
        self.used = true;
    }

    /// The volume is idle; `so_far`: totals since the mount.
    pub fn rest(&mut self, so_far: Amounts) {
        // A use that only reads predicts nothing for the next write.
        if std::mem::take(&mut self.used) && so_far != self.at_rest {
            for (last, most, least) in [
                (&mut self.takes, so_far.takes, self.at_rest.takes),
                (&mut self.writes, so_far.writes, self.at_rest.writes),
            ] {
                last.rotate_right(1);
                last[0] = most.saturating_sub(least);
            }
        }
        self.at_rest = so_far;
    }

    /// The expected size of the next use, or of the rest of the current one; `so_far`: totals since the mount.
    pub fn next(&self, so_far: Amounts) -> Amounts {
        let of = |mut all: [u64; REMEMBERED], now: u64, at_rest: u64| {
            all.sort_unstable();
            let under_way = if self.used { now.saturating_sub(at_rest) } else { 0 };
            all[REMEMBERED - 2].max(under_way)
        };
        Amounts {
            takes: of(self.takes, so_far.takes, self.at_rest.takes),
            writes: of(self.writes, so_far.writes, self.at_rest.writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(uses: &[u64]) -> u64 {
        let (mut all, mut so_far) = (Uses::default(), Amounts::default());
        for n in uses {
            all.note();
            (so_far.takes, so_far.writes) = (so_far.takes + n, so_far.writes + 2 * n);
            all.rest(so_far);
            // Writes during idle time are no use.
            so_far.takes += 1_000_000;
            all.rest(so_far);
        }
        let next = all.next(so_far);
        assert_eq!(next.writes, 2 * next.takes);
        next.takes
    }

    #[test]
    fn one_under_way_goes_on_for_as_long_as_it_has_lasted_unless_the_last_ones_were_longer() {
        let mut all = Uses::default();
        let after = |all: &Uses, n| all.next(Amounts { takes: n, writes: n + 5 });
        // Without requests, only the cleaner writes.
        assert_eq!(after(&all, 100), Amounts::default());
        for end in [200, 400] {
            all.note();
            all.rest(Amounts { takes: end, writes: end });
        }
        assert_eq!(after(&all, 700), Amounts { takes: 200, writes: 200 });
        all.note();
        assert_eq!(after(&all, 500), Amounts { takes: 200, writes: 200 });
        assert_eq!(after(&all, 700), Amounts { takes: 300, writes: 305 });
    }

    #[test]
    fn uses_that_only_read_are_forgotten() {
        let mut all = Uses::default();
        for writes in [500, 600, 0, 0, 0, 0, 0, 0, 0, 0] {
            all.note();
            let so_far = Amounts { takes: all.at_rest.takes + writes, writes: all.at_rest.writes + writes };
            all.rest(so_far);
        }
        assert_eq!(all.next(all.at_rest), Amounts { takes: 500, writes: 500 });
    }

    #[test]
    fn the_largest_but_one_of_the_last_eight_is_expected() {
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&[5000]), 0);
        assert_eq!(after(&[5000, 10]), 10);
        assert_eq!(after(&[5000, 10, 30, 20]), 30);
        assert_eq!(after(&[5000, 4000, 1, 2, 3, 1, 2, 3, 2]), 3);
    }
}
