//! Which ways of waiting does a device have, and what do they cost?

use serde::{Deserialize, Serialize};

use super::quantity::{Quantity, TimePerByte};
use crate::energy::units::{Energy, Nanos, Power};

/// A way of waiting: a sleep of flash, an idle level of a disk whose platter turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleSpec {
    /// What it is called.
    pub name: String,
    /// Entered after so long without a request.
    pub after: Quantity<Nanos>,
    /// Power in it.
    pub power: Quantity<Power>,
    /// Time until the next request starts.
    pub wake: Quantity<Nanos>,
    /// Energy of entering and leaving it, all of what is drawn during `wake` included.
    pub wake_energy: Quantity<Energy>,
}

/// Refuses a list that is not in order of `after`, or in which two have one name.
pub(super) fn check(states: &[IdleSpec]) -> Result<(), String> {
    if !states.is_sorted_by_key(|i| i.after.value) {
        return Err("device.idle is not in order of `after`".into());
    }
    for (n, state) in states.iter().enumerate() {
        if states[..n].iter().any(|before| before.name == state.name) {
            return Err(format!("device.idle has two states of the name {:?}", state.name));
        }
    }
    Ok(())
}

impl IdleSpec {
    /// Makes its times `factor` times as long and its power as much less.
    pub(super) fn scale(&mut self, factor: f64) {
        [&mut self.after, &mut self.wake].into_iter().for_each(|q| longer(q, factor));
        weaker(&mut self.power, factor);
    }
}

/// Makes a time `factor` times as long.
pub(super) fn longer(q: &mut Quantity<Nanos>, factor: f64) {
    q.value.0 = (q.value.0 as f64 * factor).round() as u64;
}

/// Makes a rate as much slower.
pub(super) fn slower(q: &mut Quantity<TimePerByte>, factor: f64) {
    q.value.0 = (q.value.0 as f64 * factor).round() as u64;
}

/// Makes a power as much less.
pub(super) fn weaker(q: &mut Quantity<Power>, factor: f64) {
    q.value.0 = (q.value.0 as f64 / factor).round() as u64;
}
