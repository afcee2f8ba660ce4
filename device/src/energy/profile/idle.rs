//! Idle states of a device, and their costs.

use serde::{Deserialize, Serialize};

use super::quantity::Quantity;
use crate::energy::units::{Energy, Nanos, Power};

/// An idle state: a sleep state of flash, or an idle level of a disk with a spinning platter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleSpec {
    /// Its name.
    pub name: String,
    /// Entered after this time without a request.
    pub after: Quantity<Nanos>,
    /// Power in it.
    pub power: Quantity<Power>,
    /// Time until the next request starts.
    pub wake: Quantity<Nanos>,
    /// Energy of entering and leaving it, including all energy during `wake`.
    pub wake_energy: Quantity<Energy>,
}

/// Rejects a list that is not ordered by `after`, or that has a duplicate name.
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
    /// Multiplies its times by `factor` and divides its power by it.
    pub(super) fn scale(&mut self, factor: f64) {
        [&mut self.after, &mut self.wake].into_iter().for_each(|q| q.scale(factor));
        self.power.scale(1.0 / factor);
    }
}
