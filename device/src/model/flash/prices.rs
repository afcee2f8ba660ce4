//! The profile's numbers in the form that the model uses.

use serde::{Deserialize, Serialize};

use super::nand::Geometry;
use crate::BLOCK;
use crate::energy::profile::{FlashSpec, PerByte, TimePerByte};
use crate::energy::{Energy, Nanos};

/// Plain numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prices {
    pub request: Nanos,
    pub write_request: Nanos,
    pub request_energy: Energy,
    pub read: TimePerByte,
    pub write: TimePerByte,
    pub read_energy: PerByte,
    pub write_energy: PerByte,
    pub queue: usize,
    /// Reading a unit from flash.
    pub unit_read: Energy,
    /// Programming a unit.
    pub unit_program: Energy,
    /// Erasing a block of this device on all planes.
    pub erase: Energy,
    pub map: Nanos,
    pub map_energy: Energy,
    /// Waiting blocks are programmed after this time without a write.
    pub drain: Option<Nanos>,
    /// Erased blocks that each die prepares in idle time, beyond those it always keeps.
    pub ahead: usize,
    pub flush: Nanos,
    pub flush_energy: Energy,
}

impl Prices {
    /// From a profile, for these chips.
    pub fn new(spec: &FlashSpec, geometry: &Geometry) -> Self {
        let (link, nand) = (&spec.link, &spec.nand);
        let erase = nand.erase_energy.value.times(u64::from(geometry.planes));
        Prices {
            request: link.request.value,
            write_request: link.write_request.as_ref().unwrap_or(&link.request).value,
            request_energy: link.request_energy.value,
            read: link.read.value,
            write: link.write.value,
            read_energy: link.read_energy.value,
            write_energy: link.write_energy.value,
            queue: usize::try_from(link.queue.value).unwrap_or(usize::MAX),
            unit_read: nand.read_energy.value.of(BLOCK as u64),
            unit_program: nand.program_energy.value.of(BLOCK as u64),
            erase: Energy(erase.0 / u64::from(geometry.shrunk)),
            map: spec.map.access.value,
            map_energy: spec.map.access_energy.value,
            drain: spec.drain.as_ref().map(|q| q.value),
            ahead: nand.ahead.as_ref().map_or(0, |share| geometry.blocks_of(share.value)),
            flush: spec.flush.value,
            flush_energy: spec.flush_energy.value,
        }
    }
}
