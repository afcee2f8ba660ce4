//! What would waiting cost at other prices, and if the device slept earlier or later?
//!
//! A device that waits goes through states: ready, then one after another, each after a time of its own. The cost of a
//! pause is no product of numbers, so the ledger keeps the lengths of pauses, and each is priced anew in each draw. What a
//! device spends besides pauses (it waits while it works for itself) is priced at its power while ready. Left out: that a
//! request which wakes the device comes later if waking takes longer.

use super::drawn::{Numbers, Term};
use super::ledger::Ledger;
use super::pauses::Class;
use super::profile::{DeviceSpec, Profile};
use super::units::{Energy, Part};

/// A state that the device enters while it waits: the names of its numbers, and where their energies are booked.
struct State {
    after: String,
    power: String,
    wake: String,
    power_in: Part,
    wake_in: Part,
}

/// The power before the first state, and the states.
fn states(profile: &Profile) -> (&'static str, Vec<State>) {
    let idle = |name: &str, part: Part| {
        let of = |number: &str| format!("device.idle.{name}.{number}");
        State { after: of("after"), power: of("power"), wake: of("wake_energy"), power_in: part, wake_in: part }
    };
    match &profile.device {
        DeviceSpec::Flash(spec) => ("device.ready", spec.idle.iter().map(|s| idle(&s.name, Part::Sleep)).collect()),
        DeviceSpec::Disk(spec) => {
            let levels = spec.idle.iter().map(|level| idle(&level.name, Part::Idle));
            let standby = (spec.standby_after.value.0 > 0).then(|| State {
                after: "device.standby_after".into(),
                power: "device.standby_power".into(),
                wake: "device.spin_up_energy".into(),
                power_in: Part::Sleep,
                wake_in: Part::SpinUp,
            });
            ("device.idle_power", levels.chain(standby).collect())
        }
    }
}

/// Prices of waiting: microwatts, and of each state nanoseconds until it begins, microwatts, picojoules of waking.
#[derive(Debug, Default)]
struct Prices {
    ready: f64,
    states: Vec<[f64; 3]>,
}

impl Prices {
    /// A state that begins before an earlier one replaces it.
    fn in_order(mut self) -> Self {
        for n in (1..self.states.len()).rev() {
            self.states[n - 1][0] = self.states[n - 1][0].min(self.states[n][0]);
        }
        self
    }

    /// Passes the energies of a pause, in picojoules: of being ready, in no state; of each state reached; of waking.
    fn each(&self, pause: Class, mut tell: impl FnMut(Option<usize>, f64, f64)) {
        let begins = |n: usize| self.states.get(n).map_or(f64::INFINITY, |state| state[0]);
        // Microwatts for nanoseconds: 1,000 of these are a picojoule.
        tell(None, self.ready * pause.length.min(begins(0)) / 1e3 * pause.count, 0.0);
        for (n, [begin, power, wake]) in self.states.iter().enumerate() {
            let reached = pause.length >= *begin;
            if !reached {
                return;
            }
            let wakes = pause.ended && pause.length < begins(n + 1);
            let wake = if wakes { *wake * pause.count } else { 0.0 };
            tell(Some(n), power * (pause.length.min(begins(n + 1)) - begin) / 1e3 * pause.count, wake);
        }
    }

    fn total(&self, pauses: &[Class]) -> f64 {
        let mut sum = 0.0;
        pauses.iter().for_each(|pause| self.each(*pause, |_, energy, wake| sum += energy + wake));
        sum
    }
}

/// The cost of waiting in all draws.
pub struct Waiting {
    /// Of pauses, in each draw.
    pub totals: Vec<f64>,
    /// Of the rest.
    pub rest: Vec<Term>,
    /// What the device spends on average while it waits, without waking.
    pub while_waiting: Vec<Term>,
}

/// The cost of waiting; `booked` has the ledger's energy of a part.
pub fn waiting(profile: &Profile, ledger: &Ledger, numbers: &Numbers, booked: impl Fn(Part) -> Energy) -> Waiting {
    let (ready, states) = states(profile);
    let pauses: Vec<Class> = ledger.pauses().classes().collect();
    let own = Prices {
        ready: numbers.value(ready),
        states: states.iter().map(|s| [&s.after, &s.power, &s.wake].map(|name| numbers.value(name))).collect(),
    };
    // What is known of the ledger's parts from the pauses.
    let mut known = [0.0; Part::ALL.len()];
    let mut powers = vec![0.0; states.len()];
    let mut while_ready = 0.0;
    let own = own.in_order();
    for pause in &pauses {
        own.each(*pause, |state, energy, wake| match state {
            None => {
                known[Part::Idle as usize] += energy;
                while_ready += energy;
            }
            Some(n) => {
                known[states[n].power_in as usize] += energy;
                known[states[n].wake_in as usize] += wake;
                powers[n] += energy;
            }
        });
    }
    let left = |part: Part| booked(part).0 as f64 - known[part as usize];
    let deepest = states.last().map_or(ready, |state| &state.power);
    let rest = [(Part::Idle, ready), (Part::Sleep, deepest), (Part::SpinUp, "device.spin_up_energy")];
    let rest = rest.map(|(part, name)| (left(part), vec![name.to_owned()]));
    let mut while_waiting = vec![(while_ready + rest[0].0, vec![ready.to_owned()])];
    while_waiting.extend(powers.into_iter().zip(&states).map(|(energy, state)| (energy, vec![state.power.clone()])));
    let drawn: Vec<[Vec<f64>; 3]> =
        states.iter().map(|s| [&s.after, &s.power, &s.wake].map(|name| numbers.drawn(name))).collect();
    let prices = |(draw, ready): (usize, f64)| {
        let states = drawn.iter().map(|numbers| numbers.each_ref().map(|draws| draws[draw])).collect();
        Prices { ready, states }.in_order().total(&pauses)
    };
    let totals = numbers.drawn(ready).into_iter().enumerate().map(prices).collect();
    Waiting { totals, rest: rest.into(), while_waiting }
}
