//! Which power states does an NVMe device report, and in which of them does it sleep under Linux?
//!
//! | question | where |
//! |---|---|
//! | the 4,096 bytes of the identify controller structure | `raw.rs` |
//! | the output of `nvme id-ctrl` of nvme-cli, as text and as JSON | `text.rs`, `json.rs` |
//! | the states that Linux lets the device enter by itself, and when | `linux.rs` |
//! | a profile with these states | `profile.rs` |
//!
//! A controller reports up to 32 states (NVM Express base specification, Identify Controller, power state
//! descriptors): the maximum power, whether the state is operational, the longest entry and exit times, and
//! optionally the idle and the active power. It reports nothing else that a profile needs.
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
    /// Maximum power, if reported.
    pub most: Option<Power>,
    /// True if it processes requests in this state, perhaps more slowly.
    pub operational: bool,
    /// Longest entry time; 0 if not reported.
    pub entry: Nanos,
    /// Longest exit time; 0 if not reported.
    pub exit: Nanos,
    /// Power over 30 s without a request, if reported.
    pub idle: Option<Power>,
    /// Power under a load chosen by the vendor, if reported.
    pub active: Option<Power>,
}

/// A controller's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its model.
    pub model: String,
    /// Its firmware.
    pub firmware: String,
    /// Flash capacity in bytes, if reported.
    pub capacity: Option<u64>,
    /// True if it can change its state by itself after a time without requests.
    pub autonomous: bool,
    /// Its states, state 0 first; power never increases.
    pub states: Vec<State>,
}

/// Input that is not a usable controller report, or cannot become a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeError {
    /// Unknown input.
    #[error(
        "neither what nvme id-ctrl prints (as text or with -o json) nor the 4096 bytes of nvme id-ctrl --raw-binary: {0}"
    )]
    Unknown(String),
    /// A known format with a missing or wrong part.
    #[error("{0}")]
    Broken(String),
    /// The base profile is not usable.
    #[error(transparent)]
    Profile(#[from] super::profile::ProfileError),
}

/// Bytes of an identify structure.
const STRUCTURE: usize = 4096;
/// Largest number of states.
const STATES: usize = 32;

impl Controller {
    /// Reads the output of `nvme id-ctrl`, as text or JSON, or the structure itself.
    ///
    /// # Errors
    /// [`NvmeError::Unknown`] if it is none of these, [`NvmeError::Broken`] with the name of a missing
    /// part.
    pub fn read(bytes: &[u8]) -> Result<Self, NvmeError> {
        let controller = match std::str::from_utf8(bytes) {
            // A structure always contains a 0; text never does.
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

/// A power of `units` units with its scale: 1 is 0.0001 W, 2 is 0.01 W, 0 is not reported.
fn scaled(units: u64, scale: u64) -> Option<Power> {
    match scale {
        1 => Some(Power(units.saturating_mul(100))),
        2 => Some(Power(units.saturating_mul(10_000))),
        _ => None,
    }
}

/// The highest power of a state, unless 0 (not reported). The fine unit is 0.0001 W, the other 0.01 W.
fn highest(units: u64, fine: bool) -> Option<Power> {
    scaled(units, if fine { 1 } else { 2 }).filter(|p| p.0 > 0)
}

/// Checks that the number of states matches the number of the last one.
fn check_count(states: &[State], last: Option<u64>) -> Result<(), NvmeError> {
    match last {
        Some(last) if last + 1 != states.len() as u64 => Err(NvmeError::Broken(format!(
            "npss is {last}, so there are {} power states, but {} are listed: is the output whole?",
            last + 1,
            states.len()
        ))),
        _ => Ok(()),
    }
}
