//! Sleep states of the device, and the costs of sleeping and waking.
//!
//! A device is idle if it has neither requests nor work of its own. The request that wakes the device pays the
//! energy of entering and leaving a state; only the deepest state reached is paid. Bytes in the write buffer are
//! kept in every state.

use serde::{Deserialize, Serialize};

use crate::energy::profile::IdleSpec;
use crate::energy::{Bill, Energy, Nanos, Part, Power};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    after: Nanos,
    power: Power,
    wake: Nanos,
    energy: Energy,
}

/// State of an idle device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Idle {
    ready: Power,
    /// Power while a request is under way, if the prices do not contain it.
    busy: Option<Power>,
    states: Vec<State>,
    /// The time up to which energy is booked.
    paid: Nanos,
    /// Fractions of a picojoule, so that waiting in pieces costs the same as in one.
    femto: u128,
    /// Number of wakes.
    pub wakes: u64,
}

impl Idle {
    /// Awake at time 0.
    pub fn new(ready: Power, busy: Option<Power>, states: &[IdleSpec]) -> Self {
        let state = |s: &IdleSpec| State {
            after: s.after.value,
            power: s.power.value,
            wake: s.wake.value,
            energy: s.wake_energy.value,
        };
        Idle { ready, busy, states: states.iter().map(state).collect(), paid: Nanos(0), femto: 0, wakes: 0 }
    }

    /// Books waiting until `until`; `rest` is when the device finished its last work.
    pub fn pay(&mut self, until: Nanos, rest: Nanos, bill: &mut Bill) {
        if until <= self.paid {
            return;
        }
        bill.rested(until.since(rest), false);
        let ends = |i: usize| self.states.get(i).map_or(Nanos(u64::MAX), |s| Nanos(rest.0.saturating_add(s.after.0)));
        let (mut paid, mut femto) = (self.paid, self.femto);
        let mut pay = |part, power: Power, to: Nanos| {
            if to > paid {
                femto += u128::from(power.0) * u128::from(to.since(paid).0);
                bill.add(part, Energy(u64::try_from(femto / 1000).unwrap_or(u64::MAX)));
                (paid, femto) = (to, femto % 1000);
            }
        };
        pay(Part::Idle, self.ready, until.min(ends(0)));
        for (i, s) in self.states.iter().enumerate() {
            pay(Part::Sleep, s.power, until.min(ends(i + 1)));
        }
        (self.paid, self.femto) = (until, femto);
    }

    /// Wakes the device for a request at `now`; returns when it is awake.
    pub fn wake(&mut self, now: Nanos, rest: Nanos, bill: &mut Bill) -> Nanos {
        let slept = now.since(rest);
        bill.rested(slept, true);
        match self.states.iter().rfind(|s| s.after <= slept && now > rest) {
            None => now,
            Some(s) => {
                bill.add(Part::Sleep, s.energy);
                self.wakes += 1;
                // Its energy includes all power during the wake.
                self.paid = self.paid.max(now + s.wake);
                now + s.wake
            }
        }
    }

    /// Books the power of requests under way up to `until` that is in no price, for time that no other request has
    /// paid.
    pub fn busy(&mut self, until: Nanos, bill: &mut Bill) {
        if let Some(power) = self.busy.filter(|_| until > self.paid) {
            bill.add_power(Part::Controller, power, until.since(self.paid));
        }
        self.passed(until);
    }

    /// Skips the time up to `until` without cost.
    pub fn passed(&mut self, until: Nanos) {
        self.paid = self.paid.max(until);
    }
}
