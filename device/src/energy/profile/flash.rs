//! The numbers of a flash device.

use serde::{Deserialize, Serialize};

use super::idle::{self, IdleSpec};
use super::quantity::{PerByte, Quantity, TimePerByte};
use crate::energy::units::{Energy, Nanos, Power};

/// The flash chips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NandSpec {
    /// Channels; a channel transfers one page at a time.
    pub channels: Quantity<u64>,
    /// Dies per channel; a die does one operation at a time.
    pub dies: Quantity<u64>,
    /// Planes of a die, which read, program and erase together.
    pub planes: Quantity<u64>,
    /// Pages in a block.
    pub pages: Quantity<u64>,
    /// Bytes in a page.
    pub page: Quantity<u64>,
    /// Time of reading a page into its register, by the page's position in its word line: one for each bit of a
    /// cell.
    pub read: Vec<Quantity<Nanos>>,
    /// Time of programming a page, likewise.
    pub program: Vec<Quantity<Nanos>>,
    /// Time of erasing a block.
    pub erase: Quantity<Nanos>,
    /// A byte between a register and the controller.
    pub transfer: Quantity<TimePerByte>,
    /// Energy per byte read.
    pub read_energy: Quantity<PerByte>,
    /// Energy per byte programmed.
    pub program_energy: Quantity<PerByte>,
    /// Energy per block erased.
    pub erase_energy: Quantity<Energy>,
    /// Spare room beyond the visible size, as a share of that.
    pub spare: Quantity<f64>,
    /// Room that the device keeps erased by cleaning while it is idle, as a share of the visible size. If not
    /// given, it cleans only when a write needs a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Quantity<f64>>,
    /// Handles of reclaim units, as in NVMe's flexible data placement; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handles: Option<Quantity<u64>>,
    /// Erase cycles that a block endures.
    pub endurance: Quantity<u64>,
}

/// The cached map from logical to physical pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapSpec {
    /// Translation pages (of 4 KiB, 1,024 entries) kept in the device's memory.
    pub cached_pages: Quantity<u64>,
    /// Energy of fetching or writing back one page.
    pub access_energy: Quantity<Energy>,
    /// Time of fetching one page.
    pub access: Quantity<Nanos>,
}

/// The link to the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Latency of each request before its first byte.
    pub request: Quantity<Nanos>,
    /// The same for a write, if it differs: read latency of flash does not delay it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_request: Option<Quantity<Nanos>>,
    /// Energy of each request in the device.
    pub request_energy: Quantity<Energy>,
    /// A byte to the host.
    pub read: Quantity<TimePerByte>,
    /// A byte from the host.
    pub write: Quantity<TimePerByte>,
    /// Energy of a byte to the host.
    pub read_energy: Quantity<PerByte>,
    /// Energy of a byte from the host.
    pub write_energy: Quantity<PerByte>,
    /// Most requests that the device accepts concurrently.
    pub queue: Quantity<u64>,
}

/// A flash device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// Its usual size in bytes.
    pub size: Quantity<u64>,
    /// The chips.
    pub nand: NandSpec,
    /// The map.
    pub map: MapSpec,
    /// The link.
    pub link: LinkSpec,
    /// Written bytes that may wait in the device's memory.
    pub buffer: Quantity<u64>,
    /// After this time without a write the buffer is programmed, even if it does not fill a row. If not given, it
    /// waits for more writes or a flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Quantity<Nanos>>,
    /// Time of a flush in addition to writing the buffer.
    pub flush: Quantity<Nanos>,
    /// Energy of a flush in addition to that.
    pub flush_energy: Quantity<Energy>,
    /// Power while ready, before the first idle state.
    pub ready: Quantity<Power>,
    /// Power while at least one request is under way, independent of their number, in addition to the prices of
    /// requests, bytes and flash. If not given, these prices contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Quantity<Power>>,
    /// Idle states, the lightest first.
    #[serde(default)]
    pub idle: Vec<IdleSpec>,
}

impl FlashSpec {
    /// Rejects impossible values, naming the number.
    pub(super) fn check(&self) -> Result<(), String> {
        let n = &self.nand;
        for (name, q) in [
            ("size", &self.size),
            ("nand.channels", &n.channels),
            ("nand.dies", &n.dies),
            ("nand.planes", &n.planes),
            ("nand.pages", &n.pages),
            ("nand.page", &n.page),
            ("map.cached_pages", &self.map.cached_pages),
            ("link.queue", &self.link.queue),
        ] {
            if q.value == 0 {
                return Err(format!("device.{name} is 0"));
            }
        }
        if !n.page.value.is_multiple_of(4096) || n.page.value > 1 << 20 {
            return Err(format!("device.nand.page is {} bytes, not a few times 4096", n.page.value));
        }
        if n.read.is_empty() || n.read.len() != n.program.len() {
            return Err("device.nand.read and device.nand.program need one time for each bit of a cell".into());
        }
        if let Some(handles) = n.handles.as_ref().filter(|q| !(1..=128).contains(&q.value)) {
            return Err(format!("device.nand.handles is {}, not 1 to 128", handles.value));
        }
        if n.spare.value < 0.02 {
            return Err(format!("device.nand.spare is {}, too little to clean with", n.spare.value));
        }
        if self.buffer.value < n.page.value {
            return Err("device.buffer is smaller than a page of flash".into());
        }
        idle::check(&self.idle)
    }

    /// Multiplies every time by `factor` and divides every power by it.
    pub(super) fn scale(&mut self, factor: f64) {
        let longer = |q: &mut Quantity<Nanos>| q.scale(factor);
        let slower = |q: &mut Quantity<TimePerByte>| q.scale(factor);
        let n = &mut self.nand;
        n.read.iter_mut().chain(&mut n.program).for_each(longer);
        [&mut n.erase, &mut self.map.access, &mut self.link.request, &mut self.flush].into_iter().for_each(longer);
        [&mut n.transfer, &mut self.link.read, &mut self.link.write].into_iter().for_each(slower);
        [&mut self.ready].into_iter().chain(&mut self.busy).for_each(|q| q.scale(1.0 / factor));
        self.link.write_request.iter_mut().chain(&mut self.drain).for_each(longer);
        self.idle.iter_mut().for_each(|i| i.scale(factor));
    }
}
