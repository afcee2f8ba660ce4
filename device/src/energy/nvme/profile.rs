//! Builds a profile for a device with given power states.
//!
//! A controller reports how it waits, not how it works: rates, prices of bytes and chips come from another profile,
//! if possible of the same drive. Numbers from the report have it as their source.

use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::{Controller, NvmeError, Sleep};
use crate::energy::profile::{DeviceSpec, Profile, ProfileError};
use crate::energy::units::{Energy, Nanos, Power};

/// A generated profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// Its text.
    pub text: String,
    /// The states it sleeps in, the lightest first.
    pub sleeps: Vec<Sleep>,
    /// Notes for the user: values that were not reported and stay the base's.
    pub notes: Vec<String>,
}

fn number(amount: impl Into<Value>, unit: &str, confidence: &str, source: &str) -> Item {
    let mut number = InlineTable::new();
    number.insert("value", amount.into());
    number.insert("unit", unit.into());
    number.insert("confidence", confidence.into());
    number.insert("source", source.into());
    value(number)
}

/// An amount in thousands of its smallest unit, as an integer if possible.
fn thousands(amount: u64) -> Value {
    match amount % 1000 {
        0 => Value::from(i64::try_from(amount / 1000).unwrap_or(i64::MAX)),
        _ => Value::from(amount as f64 / 1000.0),
    }
}

fn milliwatts(power: Power) -> Value {
    thousands(power.0)
}

impl Controller {
    /// Builds the profile `name`: this device's power states, and its size unless another is given, on top of
    /// `base`, the text of the profile `from`. `limit` is the maximum exit latency ([`sleeps`](Self::sleeps)).
    ///
    /// # Errors
    /// [`NvmeError::Profile`] if the base is not a profile, [`NvmeError::Broken`] if it is not a flash
    /// profile.
    pub fn profile(
        &self,
        name: &str,
        base: &str,
        from: &str,
        size: Option<u64>,
        limit: Nanos,
    ) -> Result<Made, NvmeError> {
        let own = Profile::parse(base, from)?;
        let DeviceSpec::Flash(spec) = &own.device else {
            return Err(NvmeError::Broken(format!("{from} is the profile of a disk; NVMe devices are flash")));
        };
        let malformed = |message: String| ProfileError::Malformed { from: from.into(), message };
        let mut document: DocumentMut = base.parse().map_err(|e: toml_edit::TomlError| malformed(e.to_string()))?;
        // Without the serial number, because profiles are shared.
        let report = format!("nvme id-ctrl of {}, firmware {}, serial left out", self.model, self.firmware);
        let mut notes = Vec::new();

        document["name"] = value(name);
        document["title"] = value(format!("{}: the power states it reports, on top of {}", self.model, own.name));
        let told = format!("{report}: power states, when Linux lets it enter them, what leaving them takes");
        document["calibrated_on"] = value([told].into_iter().collect::<Value>());
        let stands = format!("nothing that was compared: rates, chips and prices of work are those of {}", own.name);
        document["predicts"] = value([stands].into_iter().collect::<Value>());

        let device = document["device"].as_table_mut().ok_or_else(|| malformed("device is no table".into()))?;
        match (size, self.capacity) {
            (Some(bytes), _) => {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                device["size"] = number(bytes, "B", "assumed", "given when this profile was made");
            }
            (None, Some(bytes)) => {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                device["size"] = number(bytes, "B", "vendor", &format!("{report}: tnvmcap"));
            }
            (None, None) => notes.push(format!("no size is reported (tnvmcap): that of {} stays", own.name)),
        }
        let mut ready = spec.ready.value;
        match self.states[0].idle {
            Some(power) => {
                ready = power;
                device["ready"] =
                    number(milliwatts(power), "mW", "vendor", &format!("{report}: power state 0, idle power"));
            }
            None => notes.push(format!(
                "no idle power of state 0 is reported: ready stays at the {} of {}",
                watts(ready),
                own.name
            )),
        }
        let sleeps = self.sleeps(limit);
        if sleeps.is_empty() {
            notes.push(match self.autonomous {
                true => "Linux lets it sleep in none of its states".into(),
                false => "it does not change its state by itself (apsta is 0): it never sleeps".into(),
            });
            device.remove("idle");
        } else {
            let mut idle = ArrayOfTables::new();
            let most = self.states[0].most;
            sleeps.iter().for_each(|s| idle.push(self.sleep(s, &report, ready, most, &mut notes)));
            device["idle"] = Item::ArrayOfTables(idle);
        }
        let text = document.to_string();
        // The base profile was valid, so any error comes from this device's report.
        let broken = |e: ProfileError| NvmeError::Broken(format!("these power states make no profile: {e}"));
        Profile::parse(&text, name).map_err(broken)?;
        Ok(Made { text, sleeps, notes })
    }

    /// The profile entry of a state.
    fn sleep(&self, sleep: &Sleep, report: &str, ready: Power, most: Option<Power>, notes: &mut Vec<String>) -> Table {
        let state = &self.states[sleep.state];
        let of = format!("{report}: power state {}", sleep.state);
        let mut table = Table::new();
        table["name"] = value(format!("ps{}", sleep.state));
        let rule = format!(
            "Linux's rule (drivers/nvme/host/core.c, nvme_configure_apst, 6.12): entering and leaving power state {} take {} ms",
            sleep.state,
            (state.entry + state.exit).0 as f64 / 1e6
        );
        table["after"] = number((sleep.after.0 / 1_000_000) as i64, "ms", "derived", &rule);
        table["power"] = match (state.idle, state.most) {
            (Some(power), _) => number(milliwatts(power), "mW", "vendor", &format!("{of}, idle power")),
            (None, Some(power)) => {
                number(milliwatts(power), "mW", "vendor", &format!("{of}, its highest power: an upper bound"))
            }
            (None, None) => {
                notes.push(format!("no power of state {} is reported: taken as none", sleep.state));
                number(0_i64, "mW", "assumed", &format!("{of} reports no power"))
            }
        };
        table["wake"] = number(thousands(state.exit.0), "us", "vendor", &format!("{of}, exit latency, at most"));
        let both = state.entry + state.exit;
        let bound = most.map_or_else(String::new, |most| {
            format!("; at most {:.3} mJ, the highest power of state 0 for them", most.over(both).millijoules())
        });
        let Energy(picojoules) = ready.over(both);
        let source = format!("not reported: the power while ready for the time of entering and leaving{bound}");
        table["wake_energy"] = number(thousands(picojoules / 1000), "uJ", "assumed", &source);
        table
    }
}

fn watts(power: Power) -> String {
    format!("{} mW", power.0 as f64 / 1e3)
}
