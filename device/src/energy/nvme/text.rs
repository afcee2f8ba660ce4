//! Parser for the text output of `nvme id-ctrl`.
//!
//! Each field is a line, `npss      : 4`, and each power state takes several lines:
//!
//! ```text
//! ps      3 : mp:0.0700W non-operational enlat:210 exlat:1200 rrt:3 rrl:3
//!             rwt:3 rwl:3 idle_power:- active_power:-
//! ```
//!
//! Indented lines explain the previous field (`-H`), or continue a power state. The form is the same in nvme-cli 1
//! and 2; later versions print more words.

use super::{Controller, NvmeError, State, check_count};
use crate::energy::units::{Nanos, Power};

/// Watts in the printed form `0.0700W`; `-` is not reported.
fn watts(text: &str) -> Option<Power> {
    let watts: f64 = text.strip_suffix('W')?.parse().ok()?;
    (0.0..1e6).contains(&watts).then(|| Power((watts * 1e6).round() as u64))
}

/// A decimal number, or hexadecimal with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses the words of a power state.
fn state(n: usize, words: &str) -> Result<State, NvmeError> {
    let word = |key: &str| words.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix(':'));
    let broken = |what: &str| NvmeError::Broken(format!("power state {n} has no {what}"));
    let micros = |key: &str| {
        let us = word(key).and_then(number).ok_or_else(|| broken(key))?;
        Ok::<_, NvmeError>(Nanos(us.saturating_mul(1000)))
    };
    let known = |name: &str| words.split_whitespace().any(|w| w == name);
    if known("operational") == known("non-operational") {
        return Err(broken("word whether it is operational"));
    }
    Ok(State {
        most: watts(word("mp").ok_or_else(|| broken("mp"))?).filter(|p| p.0 > 0),
        operational: known("operational"),
        entry: micros("enlat")?,
        exit: micros("exlat")?,
        idle: word("idle_power").and_then(watts),
        active: word("active_power").and_then(watts),
    })
}

/// Parses the whole output.
pub fn read(text: &str) -> Result<Controller, NvmeError> {
    let mut states: Vec<String> = Vec::new();
    let (mut model, mut firmware, mut last, mut capacity, mut autonomous) = (None, None, None, None, None);
    let mut in_state = false;
    for line in text.lines() {
        if line.starts_with(char::is_whitespace) {
            if let Some(state) = states.last_mut().filter(|_| in_state) {
                state.push(' ');
                state.push_str(line);
            }
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        in_state = false;
        match key {
            "mn" => model = Some(value.to_owned()),
            "fr" => firmware = Some(value.to_owned()),
            "npss" => last = number(value),
            "apsta" => autonomous = number(value),
            "tnvmcap" => capacity = number(value),
            _ => {
                let Some(n) = key.strip_prefix("ps").filter(|k| k.starts_with(' ')).and_then(|k| number(k.trim()))
                else {
                    continue;
                };
                if n != states.len() as u64 {
                    let why = format!("power state {n} stands where power state {} should", states.len());
                    return Err(NvmeError::Broken(why));
                }
                states.push(value.to_owned());
                in_state = true;
            }
        }
    }
    if states.is_empty() && model.is_none() {
        return Err(NvmeError::Unknown("text without a model (mn) or a power state (ps)".into()));
    }
    let missing = |what: &str| NvmeError::Broken(format!("no {what}: is the output whole?"));
    let states: Vec<State> = states.iter().enumerate().map(|(n, s)| state(n, s)).collect::<Result<_, _>>()?;
    check_count(&states, last)?;
    Ok(Controller {
        model: model.filter(|m| !m.is_empty()).ok_or_else(|| missing("model (mn)"))?,
        firmware: firmware.unwrap_or_default(),
        capacity: capacity.filter(|n| *n > 0),
        autonomous: autonomous.ok_or_else(|| missing("apsta"))? & 1 == 1,
        states,
    })
}
