//! Parser for the identify controller structure.
//!
//! Offsets and fields are those of the NVM Express base specification (Identify Controller data structure, power state
//! descriptor data structure). Numbers are little-endian, texts padded with spaces.

use super::{Controller, NvmeError, STATES, State, highest, scaled};
use crate::energy::units::Nanos;

const MODEL: std::ops::Range<usize> = 24..64;
const FIRMWARE: std::ops::Range<usize> = 64..72;
const NPSS: usize = 263;
const APSTA: usize = 265;
const TNVMCAP: usize = 280;
/// Offset of the first descriptor.
const DESCRIPTORS: usize = 2048;
const DESCRIPTOR: usize = 32;

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_owned()
}

fn state(d: &[u8]) -> State {
    let flags = number(d, 3, 1);
    let micros = |at| Nanos(number(d, at, 4) * 1000);
    State {
        most: highest(number(d, 0, 2), flags & 1 == 1),
        operational: flags & 2 == 0,
        entry: micros(4),
        exit: micros(8),
        idle: scaled(number(d, 16, 2), number(d, 18, 1) >> 6),
        active: scaled(number(d, 20, 2), number(d, 22, 1) >> 6),
    }
}

/// Parses the 4,096 bytes.
pub fn read(bytes: &[u8]) -> Result<Controller, NvmeError> {
    let last = number(bytes, NPSS, 1) as usize;
    if last >= STATES {
        let why = format!("byte {NPSS}, the number of the last power state, is {last}");
        return Err(NvmeError::Unknown(format!("4096 bytes, but {why}, and the highest there can be is 31")));
    }
    let model = text(&bytes[MODEL]);
    if model.is_empty() || model.contains(|c: char| c.is_control()) {
        return Err(NvmeError::Unknown("4096 bytes, but none that could be a model's name at byte 24".into()));
    }
    // No device has a capacity of more than 2^64 bytes.
    let capacity = number(bytes, TNVMCAP, 8);
    Ok(Controller {
        model,
        firmware: text(&bytes[FIRMWARE]),
        capacity: (capacity > 0 && number(bytes, TNVMCAP + 8, 8) == 0).then_some(capacity),
        autonomous: number(bytes, APSTA, 1) & 1 == 1,
        states: bytes[DESCRIPTORS..].chunks(DESCRIPTOR).take(last + 1).map(state).collect(),
    })
}
