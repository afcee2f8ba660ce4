//! The numbers of a flash device.

use serde::{Deserialize, Serialize};

use super::idle::{self, IdleSpec, longer, slower, weaker};
use super::quantity::{PerByte, Quantity, TimePerByte};
use crate::energy::units::{Energy, Nanos, Power};

/// The flash chips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NandSpec {
    /// Channels; a channel carries one page at a time.
    pub channels: Quantity<u64>,
    /// Dies on each channel; a die does one thing at a time.
    pub dies: Quantity<u64>,
    /// Planes of a die, which read, program and erase together.
    pub planes: Quantity<u64>,
    /// Pages in a block.
    pub pages: Quantity<u64>,
    /// Bytes in a page.
    pub page: Quantity<u64>,
    /// Reading a page into its register, by the page's position in its word line: one for each bit of a cell.
    pub read: Vec<Quantity<Nanos>>,
    /// Programming a page, likewise.
    pub program: Vec<Quantity<Nanos>>,
    /// Erasing a block.
    pub erase: Quantity<Nanos>,
    /// A byte between a register and the controller.
    pub transfer: Quantity<TimePerByte>,
    /// Energy of reading a byte.
    pub read_energy: Quantity<PerByte>,
    /// Energy of programming a byte.
    pub program_energy: Quantity<PerByte>,
    /// Energy of erasing a block.
    pub erase_energy: Quantity<Energy>,
    /// Room beyond what the host sees, as a share of that.
    pub spare: Quantity<f64>,
    /// Room that the device keeps erased while nobody asks it anything, cleaning for it, as a share of what the host sees.
    /// Without, it cleans only when a write needs a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Quantity<f64>>,
    /// Handles of reclaim units that a host may name, as NVMe's flexible data placement has them; one without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handles: Option<Quantity<u64>>,
    /// Erases a block is made for.
    pub endurance: Quantity<u64>,
}

/// The cached map from logical to physical pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapSpec {
    /// Translation pages (of 4 KiB, 1,024 entries) kept in the device's memory.
    pub cached_pages: Quantity<u64>,
    /// Energy of fetching or writing back one.
    pub access_energy: Quantity<Energy>,
    /// Time of fetching one.
    pub access: Quantity<Nanos>,
}

/// The way to the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// What each request takes before its first byte moves.
    pub request: Quantity<Nanos>,
    /// The same for a write, if it differs: what takes a read from flash does not delay it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_request: Option<Quantity<Nanos>>,
    /// What each request costs the device.
    pub request_energy: Quantity<Energy>,
    /// A byte to the host.
    pub read: Quantity<TimePerByte>,
    /// A byte from the host.
    pub write: Quantity<TimePerByte>,
    /// Energy of a byte to the host.
    pub read_energy: Quantity<PerByte>,
    /// Energy of a byte from the host.
    pub write_energy: Quantity<PerByte>,
    /// Requests the device takes in at once.
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
    /// Bytes written that may wait in the device's memory.
    pub buffer: Quantity<u64>,
    /// After so long without a write what waits in it is programmed, whether it fills a row or not. Without, it waits for
    /// more, or for a flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Quantity<Nanos>>,
    /// What a flush takes beside writing the buffer out.
    pub flush: Quantity<Nanos>,
    /// What a flush costs beside that.
    pub flush_energy: Quantity<Energy>,
    /// Power while ready and waiting, before the first idle state.
    pub ready: Quantity<Power>,
    /// Power while at least one request is under way, once however many there are, beside the prices of requests, bytes and
    /// flash. Without, these contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Quantity<Power>>,
    /// Ways of waiting, the lightest sleep first.
    #[serde(default)]
    pub idle: Vec<IdleSpec>,
}

impl FlashSpec {
    /// Refuses what cannot be built, naming the number.
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

    /// Makes every time `factor` times as long and every power as much less.
    pub(super) fn scale(&mut self, factor: f64) {
        let longer = |q: &mut Quantity<Nanos>| longer(q, factor);
        let slower = |q: &mut Quantity<TimePerByte>| slower(q, factor);
        let n = &mut self.nand;
        n.read.iter_mut().chain(&mut n.program).for_each(longer);
        [&mut n.erase, &mut self.map.access, &mut self.link.request, &mut self.flush].into_iter().for_each(longer);
        [&mut n.transfer, &mut self.link.read, &mut self.link.write].into_iter().for_each(slower);
        [&mut self.ready].into_iter().chain(&mut self.busy).for_each(|q| weaker(q, factor));
        self.link.write_request.iter_mut().chain(&mut self.drain).for_each(longer);
        self.idle.iter_mut().for_each(|i| i.scale(factor));
    }
}
