//! Which states does Linux let a device go to by itself, and after how long?
//!
//! The device is given a table (autonomous power state transitions): from which state it goes to which after how long
//! without a request. Since 5.13 Linux fills it as follows (`drivers/nvme/host/core.c`, `nvme_configure_apst`, read in 6.12;
//! the numbers are the defaults of parameters of `nvme_core`):
//!
//! * States are looked at from the last, of the least power, to the first. One counts if it is not operational and is left
//!   within the latency limit (100 ms, `default_ps_max_latency_us`; 0 turns the table off).
//! * Entering and leaving it together take at most 15 ms: states before it go there after 100 ms (`apst_primary_...`). There
//!   is one such state, the first that is found.
//! * They take more, and at most 100 ms: states before it go there after 2 s (`apst_secondary_...`). There is one such
//!   state, and only if no state was found before it, so that it is the deeper one.
//!
//! So there are at most two, and to the deeper one the device goes from the lighter one: 2 s after it came there.
//!
//! Left out: devices that Linux knows to be broken and keeps from their last state or from all; a host that sets another
//! table or none; other systems. Kernels before 5.13 went to each state after 50 times the time of entering and leaving it.

use super::Controller;
use crate::energy::units::Nanos;

/// How long leaving a state may take, unless another limit is given.
pub const LATENCY_LIMIT: Nanos = Nanos(100_000_000);

const PRIMARY_LIMIT: Nanos = Nanos(15_000_000);
const PRIMARY_AFTER: Nanos = Nanos(100_000_000);
const SECONDARY_LIMIT: Nanos = Nanos(100_000_000);
const SECONDARY_AFTER: Nanos = Nanos(2_000_000_000);

/// A state that is entered without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sleep {
    /// Its number.
    pub state: usize,
    /// How long without a request before it, from the last request on.
    pub after: Nanos,
}

impl Controller {
    /// The states Linux lets it sleep in, the lightest first. `limit` is how long leaving one may take.
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

    /// States that are not operational, by the microseconds of entering and leaving, after three that are.
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
