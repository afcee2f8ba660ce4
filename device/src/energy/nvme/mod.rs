//! Which power states does an NVMe device report, and which of them does it sleep in under Linux?
//!
//! | question | where |
//! |---|---|
//! | what the 4,096 bytes of the identify controller structure say | `raw.rs` |
//! | what `nvme id-ctrl` of nvme-cli prints, for people and as JSON | `text.rs`, `json.rs` |
//! | which states Linux lets the device go to by itself, and when | `linux.rs` |
//! | a profile with these states | `profile.rs` |
//!
//! A controller reports up to 32 states (NVM Express base specification, Identify Controller, power state descriptors):
//! the most power it draws, whether it works in it, the longest time that entering and leaving take, and, if the vendor
//! cares to, power while idle and active. Nothing else that a profile needs is told.
//!
//! The serial number is not read.

mod json;
mod linux;
mod profile;
mod raw;
mod text;

use super::units::{Nanos, Power};
pub use linux::{LATENCY_LIMIT, Sleep};
pub use profile::Made;

/// A power state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The most it draws, if that is reported.
    pub most: Option<Power>,
    /// True if it works in this state, though perhaps slower.
    pub operational: bool,
    /// How long entering it takes at most; 0 if not reported.
    pub entry: Nanos,
    /// How long leaving it takes at most; 0 if not reported.
    pub exit: Nanos,
    /// Power in it over 30 s without a request, if reported.
    pub idle: Option<Power>,
    /// Power in it under a load that the vendor chose, if reported.
    pub active: Option<Power>,
}

/// What a controller says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its model.
    pub model: String,
    /// Its firmware.
    pub firmware: String,
    /// Bytes of flash it offers, if reported.
    pub capacity: Option<u64>,
    /// True if it can change its state by itself after a time without requests.
    pub autonomous: bool,
    /// Its states, state 0 first: never more power in a later one.
    pub states: Vec<State>,
}

/// What cannot be read as a controller's report, or be made a profile of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeError {
    /// Nothing that is known.
    #[error(
        "neither what nvme id-ctrl prints (as text or with -o json) nor the 4096 bytes of nvme id-ctrl --raw-binary: {0}"
    )]
    Unknown(String),
    /// It is of the kind, but a part is missing or wrong.
    #[error("{0}")]
    Broken(String),
    /// The base profile is not usable.
    #[error(transparent)]
    Profile(#[from] super::profile::ProfileError),
}

/// Bytes of an identify structure.
const STRUCTURE: usize = 4096;
/// States there can be.
const STATES: usize = 32;

impl Controller {
    /// From what `nvme id-ctrl` printed, as text or JSON, or from the structure itself.
    ///
    /// # Errors
    /// [`NvmeError::Unknown`] if it is none of these, [`NvmeError::Broken`] if it is and something is missing, by name.
    pub fn read(bytes: &[u8]) -> Result<Self, NvmeError> {
        let controller = match std::str::from_utf8(bytes) {
            // A structure is never without a 0; text is.
            _ if bytes.len() == STRUCTURE && bytes.contains(&0) => raw::read(bytes)?,
            Ok(text) if text.trim_start().starts_with('{') => json::read(text)?,
            Ok(text) => text::read(text)?,
            Err(_) => return Err(NvmeError::Unknown(format!("{} bytes that are not text", bytes.len()))),
        };
        if controller.states.is_empty() || controller.states.len() > STATES {
            let found = controller.states.len();
            return Err(NvmeError::Broken(format!("{found} power states; a controller has 1 to {STATES}")));
        }
        Ok(controller)
    }
}

/// A power of so many units, by the scale that goes with it: 1 is 0.0001 W, 2 is 0.01 W, 0 is not reported.
fn scaled(units: u64, scale: u64) -> Option<Power> {
    match scale {
        1 => Some(Power(units.saturating_mul(100))),
        2 => Some(Power(units.saturating_mul(10_000))),
        _ => None,
    }
}

/// The highest power of a state: 0 is not reported. The fine unit is 0.0001 W, the other 0.01 W.
fn highest(units: u64, fine: bool) -> Option<Power> {
    scaled(units, if fine { 1 } else { 2 }).filter(|p| p.0 > 0)
}

/// As many states as the number of the last one says.
fn all_there(states: &[State], last: Option<u64>) -> Result<(), NvmeError> {
    match last {
        Some(last) if last + 1 != states.len() as u64 => Err(NvmeError::Broken(format!(
            "npss is {last}, so there are {} power states, but {} are listed: is the output whole?",
            last + 1,
            states.len()
        ))),
        _ => Ok(()),
    }
}
