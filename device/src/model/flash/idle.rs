//! How deep is the device asleep, and what do sleeping and waking cost?
//!
//! A device is idle when it has no request and no work of its own. The request that wakes the device pays the energy of
//! entering and leaving a state; only the deepest state that was reached is paid. Bytes in the write buffer are kept in
//! every state.

use crate::energy::profile::IdleSpec;
use crate::energy::{Bill, Energy, Nanos, Part, Power};

#[derive(Debug)]
struct State {
    after: Nanos,
    power: Power,
    wake: Nanos,
    energy: Energy,
}

/// Waiting.
#[derive(Debug)]
pub struct Idle {
    ready: Power,
    /// While a request is under way, if that is not in the prices.
    busy: Option<Power>,
    states: Vec<State>,
    /// Everything is paid up to here.
    paid: Nanos,
    /// What waiting has cost beyond whole picojoules: waiting that is paid in pieces costs what it costs in one.
    femto: u128,
    /// Times it was woken.
    pub wakes: u64,
}

impl Idle {
    /// Awake at the start of time.
    pub fn new(ready: Power, busy: Option<Power>, states: &[IdleSpec]) -> Self {
        let state = |s: &IdleSpec| State {
            after: s.after.value,
            power: s.power.value,
            wake: s.wake.value,
            energy: s.wake_energy.value,
        };
        Idle { ready, busy, states: states.iter().map(state).collect(), paid: Nanos(0), femto: 0, wakes: 0 }
    }

    /// Pays for waiting until `until`; `rest` is when the device had nothing more to do.
    pub fn pay(&mut self, until: Nanos, rest: Nanos, bill: &mut Bill) {
        if until <= self.paid {
            return;
        }
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

    /// A request comes at `now`: says when the device is awake.
    pub fn wake(&mut self, now: Nanos, rest: Nanos, bill: &mut Bill) -> Nanos {
        let slept = now.since(rest);
        match self.states.iter().rfind(|s| s.after <= slept && now > rest) {
            None => now,
            Some(s) => {
                bill.add(Part::Sleep, s.energy);
                self.wakes += 1;
                // Its energy is all that is drawn meanwhile.
                self.paid = self.paid.max(now + s.wake);
                now + s.wake
            }
        }
    }

    /// Up to `until` a request is under way: pays what goes on meanwhile and is in no price, as far as no other request has.
    pub fn busy(&mut self, until: Nanos, bill: &mut Bill) {
        if let Some(power) = self.busy.filter(|_| until > self.paid) {
            bill.add_power(Part::Controller, power, until.since(self.paid));
        }
        self.passed(until);
    }

    /// Time up to `until` costs nothing.
    pub fn passed(&mut self, until: Nanos) {
        self.paid = self.paid.max(until);
    }
}
