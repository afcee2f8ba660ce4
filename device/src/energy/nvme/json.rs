//! Parser for `nvme id-ctrl -o json`.
//!
//! The keys are those of nvme-cli 1.12, 2.3 and 2.13. They differ in the power states: the scale of the highest
//! power and the operational mark are either bits of `flags` or separate numbers, and scales of other powers are
//! the two highest bits of the field, in place or shifted down.

use serde_json::{Map, Value};

use super::{Controller, NvmeError, State, check_count, highest, scaled};
use crate::energy::units::Nanos;

/// A number, stored as a number or as text (numbers of 128 bits).
fn number(of: &Map<String, Value>, key: &str) -> Option<u64> {
    match of.get(key)? {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(n) => n.as_u64().or_else(|| n.as_f64().filter(|f| (0.0..1.8e19).contains(f)).map(|f| f as u64)),
        _ => None,
    }
}

/// A scale, in the two highest bits of its byte or shifted down.
fn scale(of: &Map<String, Value>, key: &str) -> u64 {
    match number(of, key).unwrap_or_default() {
        n if n > 3 => n >> 6,
        n => n,
    }
}

fn state(n: usize, value: &Value) -> Result<State, NvmeError> {
    let missing = |key: &str| NvmeError::Broken(format!("power state {n} of psds has no number {key:?}"));
    let of = value.as_object().ok_or_else(|| NvmeError::Broken(format!("power state {n} of psds is no object")))?;
    let needed = |key: &str| number(of, key).ok_or_else(|| missing(key));
    let (fine, operational) = match number(of, "flags") {
        Some(flags) => (flags & 1 == 1, flags & 2 == 0),
        None => (needed("max_power_scale")? == 1, needed("non-operational_state")? == 0),
    };
    let micros = |key: &str| needed(key).map(|us| Nanos(us.saturating_mul(1000)));
    let active = if of.contains_key("active_scale") { "active_scale" } else { "active_work_scale" };
    Ok(State {
        most: highest(needed("max_power")?, fine),
        operational,
        entry: micros("entry_lat")?,
        exit: micros("exit_lat")?,
        idle: scaled(number(of, "idle_power").unwrap_or_default(), scale(of, "idle_scale")),
        active: scaled(number(of, "active_power").unwrap_or_default(), scale(of, active)),
    })
}

/// Parses a whole document.
pub fn read(text: &str) -> Result<Controller, NvmeError> {
    let value: Value = serde_json::from_str(text).map_err(|e| NvmeError::Unknown(format!("JSON, but {e}")))?;
    let of = value.as_object().ok_or_else(|| NvmeError::Unknown("JSON, but no object".into()))?;
    let Some(psds) = of.get("psds").and_then(Value::as_array) else {
        return Err(NvmeError::Unknown("JSON, but without psds, the power states".into()));
    };
    let words = |key: &str| of.get(key).and_then(Value::as_str).map(|t| t.trim().to_owned());
    let states: Vec<State> = psds.iter().enumerate().map(|(n, s)| state(n, s)).collect::<Result<_, _>>()?;
    check_count(&states, number(of, "npss"))?;
    Ok(Controller {
        model: words("mn").filter(|m| !m.is_empty()).ok_or_else(|| NvmeError::Broken("no model (mn)".into()))?,
        firmware: words("fr").unwrap_or_default(),
        capacity: number(of, "tnvmcap").filter(|n| *n > 0),
        autonomous: number(of, "apsta").unwrap_or_default() & 1 == 1,
        states,
    })
}
