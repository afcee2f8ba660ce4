//! Which power states does Linux let a device enter by itself, and after how long?
//!
//! The device gets a table (autonomous power state transitions): for each state the next one, and the time without
//! requests before the transition. Since 5.13 Linux fills it as follows (`drivers/nvme/host/core.c`,
//! `nvme_configure_apst`, read in 6.12; the numbers are the defaults of parameters of `nvme_core`):
//!
//! * States are examined from the last, with the least power, to the first. A state is usable if it is not
//!   operational and its exit latency is within the limit (100 ms, `default_ps_max_latency_us`; 0 disables the
//!   table).
//! * If entry and exit together take at most 15 ms, earlier states enter it after 100 ms (`apst_primary_...`). Only
//!   the first such state is used.
//! * If they take at most 100 ms, earlier states enter it after 2 s (`apst_secondary_...`). Only one such state is
//!   used, and only if no state was found before it, so it is the deeper one.
//!
//! So there are at most two, and the device enters the deeper one from the lighter one, 2 s after it entered that.
//!
//! Left out: devices that Linux knows to be broken and whose last or all states it disables; hosts with another
//! table or none; other systems. Kernels before 5.13 entered each state after 50 times its entry and exit time.

use super::Controller;
use crate::energy::units::Nanos;

/// Default limit of the exit latency of a state.
pub const LATENCY_LIMIT: Nanos = Nanos(100_000_000);

const PRIMARY_LIMIT: Nanos = Nanos(15_000_000);
const PRIMARY_AFTER: Nanos = Nanos(100_000_000);
const SECONDARY_LIMIT: Nanos = Nanos(100_000_000);
const SECONDARY_AFTER: Nanos = Nanos(2_000_000_000);

/// A state that the device enters by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sleep {
    /// Its number.
    pub state: usize,
    /// Time without requests before it, from the last request on.
    pub after: Nanos,
}

impl Controller {
    /// The states that Linux lets the device sleep in, the lightest first. `limit` is the maximum exit latency.
    pub fn sleeps(&self, limit: Nanos) -> Vec<Sleep> {
        if !self.autonomous || limit == Nanos(0) {
            return Vec::new();
        }
        let (mut primary, mut secondary) = (None, None);
        for (n, state) in self.states.iter().enumerate().rev() {
            if state.operational || state.exit > limit {
                continue;
            }
            match state.entry + state.exit {
                both if both <= PRIMARY_LIMIT => primary = primary.or(Some(n)),
                both if both <= SECONDARY_LIMIT && primary.is_none() => secondary = secondary.or(Some(n)),
                _ => {}
            }
        }
        let lighter = primary.map(|state| Sleep { state, after: PRIMARY_AFTER });
        let before = lighter.map_or(Nanos(0), |s| s.after);
        let deeper = secondary.map(|state| Sleep { state, after: before + SECONDARY_AFTER });
        lighter.into_iter().chain(deeper).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    /// A controller with three operational states, then non-operational ones with these entry and exit times in
    /// microseconds.
    fn controller(latencies: &[(u64, u64)]) -> Controller {
        let state = |operational, (entry, exit): (u64, u64)| State {
            most: None,
            operational,
            entry: Nanos(entry * 1000),
            exit: Nanos(exit * 1000),
            idle: None,
            active: None,
        };
        let mut states = vec![state(true, (0, 0)); 3];
        states.extend(latencies.iter().map(|l| state(false, *l)));
        Controller { model: "m".into(), firmware: "f".into(), capacity: None, autonomous: true, states }
    }

    fn sleeps(latencies: &[(u64, u64)]) -> Vec<(usize, u64)> {
        let all = controller(latencies).sleeps(LATENCY_LIMIT);
        all.into_iter().map(|s| (s.state, s.after.0 / 1_000_000)).collect()
    }

    #[test]
    fn the_deepest_state_within_15_ms_comes_after_100_ms_and_none_before_it() {
        // Samsung 970 EVO Plus; 980 PRO; Intel 660p.
        assert_eq!(sleeps(&[(210, 1_200), (2_000, 8_000)]), [(4, 100)]);
        assert_eq!(sleeps(&[(2_000, 1_200), (500, 9_500)]), [(4, 100)]);
        assert_eq!(sleeps(&[(5_000, 5_000), (5_000, 9_000)]), [(4, 100)]);
        assert_eq!(sleeps(&[(5_000, 10_000)]), [(3, 100)]);
    }

    #[test]
    fn a_slower_one_comes_2_s_after_the_lighter_one_or_alone() {
        assert_eq!(sleeps(&[(5_000, 5_000), (5_000, 45_000)]), [(3, 100), (4, 2_100)]);
        // Toshiba XG4: its last state takes 170 ms.
        assert_eq!(sleeps(&[(5_000, 25_000), (100_000, 70_000)]), [(3, 2_000)]);
        assert_eq!(sleeps(&[(5_000, 10_001), (5_000, 95_000)]), [(4, 2_000)], "one slower state at most, the deepest");
        assert_eq!(sleeps(&[(5_000, 45_000), (1_000, 1_000)]), [(4, 100)], "none lighter than the one of 100 ms");
    }

    #[test]
    fn what_takes_too_long_or_is_not_allowed_is_never_entered() {
        assert_eq!(sleeps(&[(1, 100_000), (0, 100_001)]), [] as [(usize, u64); 0]);
        assert_eq!(sleeps(&[]), []);
        let long = controller(&[(1_000, 5_000), (5_000, 45_000)]);
        let of = |limit: u64| long.sleeps(Nanos(limit * 1000)).iter().map(|s| s.state).collect::<Vec<_>>();
        assert_eq!((of(44_999), of(45_000), of(4_999), of(0)), (vec![3], vec![3, 4], vec![], vec![]));
        assert_eq!(Controller { autonomous: false, ..long }.sleeps(LATENCY_LIMIT), []);
    }
}
