//! What would a flash device's map cache of any size read and write for these requests?
//!
//! Demand-based caching as in Ji HotStorage'16, section 5.3.3: the map is stored on flash in translation pages, a
//! request needs those of its blocks, and the cache fetches and evicts single pages, the least recently used first. One
//! pass over the recording gives translation reads and write-backs for caches of every size ([`Curve`]). With a
//! [`Migration`] the same requests are also translated and counted as if blocks had moved before.
//!
//! Memory grows with the number of map pages touched (each covers 4 MiB of the device in the paper), not with the
//! recording's length.
//!
//! Left out: the device's write buffer, which answers some requests without the map and merges others (the simulated
//! device in the crate `device` has one, and cleans), and the location of translation pages.

mod curve;
mod migration;
mod stack;

use std::collections::BTreeMap;
use std::ops::Range;

use roaring::RoaringTreemap;
use serde::Serialize;

pub use curve::{Costs, Curve, Step};
pub use migration::{Migration, MigrationError};

use self::stack::Stack;
use crate::block::{DeviceId, Op};
use crate::replay::extent::blocks;
use crate::requests::Request;

/// Bytes per block.
const BLOCK: u64 = 4096;
/// Longest request whose pages are counted individually, in blocks: 4 GiB, above any Linux request.
const LONGEST: u64 = 1 << 20;
/// Largest range covered by a map page, in bytes: 1 TiB.
const MOST: u64 = 1 << 40;

/// Layout of a device's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Size of a map page, the unit of fetching and evicting.
    pub page_bytes: u64,
    /// Size of an entry.
    pub entry_bytes: u64,
    /// Device bytes mapped by an entry.
    pub unit_bytes: u64,
}

impl Default for Geometry {
    /// Pages of 4 KiB with 1,024 entries, each for 4 KiB (Ji HotStorage'16, section 5.3.3).
    fn default() -> Self {
        Geometry { page_bytes: 4096, entry_bytes: 4, unit_bytes: BLOCK }
    }
}

impl Geometry {
    /// An error if it is invalid.
    pub fn check(&self) -> Result<(), String> {
        let Geometry { page_bytes, entry_bytes, unit_bytes } = *self;
        if entry_bytes == 0 || page_bytes < entry_bytes {
            return Err(format!("a page of the map of {page_bytes} bytes has no room for an entry of {entry_bytes}"));
        }
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(BLOCK) {
            return Err(format!("an entry of the map stands for whole blocks of 4 KiB, not for {unit_bytes} bytes"));
        }
        match (page_bytes / entry_bytes).checked_mul(unit_bytes) {
            Some(covers) if covers <= MOST => Ok(()),
            _ => Err("a page of the map would cover more than 1 TiB".into()),
        }
    }

    /// Device bytes covered by a map page.
    pub fn covers(&self) -> u64 {
        (self.page_bytes / self.entry_bytes.max(1)).saturating_mul(self.unit_bytes)
    }
}

/// A device's map, before or after the migration.
#[derive(Debug, Default)]
struct Map {
    stack: Stack,
    /// Fully discarded pages that were not used since.
    gone: RoaringTreemap,
}

impl Map {
    fn touch(&mut self, page: u64, change: bool, mapped: bool) {
        // A read there maps nothing: the page is still not on flash.
        let stored = mapped && !self.gone.contains(page);
        self.stack.touch(page, change, stored);
        if change {
            self.gone.remove(page);
        }
    }

    /// Discards blocks; a page covers `each` blocks.
    fn discard(&mut self, run: Range<u64>, each: u64, mapped: bool) {
        let (first, last) = (run.start / each, (run.end - 1) / each);
        let whole = run.start.div_ceil(each)..run.end / each;
        for page in [first, last].into_iter().take(if first == last { 1 } else { 2 }) {
            let maps = self.stack.maps(page).unwrap_or(mapped && !self.gone.contains(page));
            // A page that maps nothing has nothing to forget.
            if maps && !whole.contains(&page) {
                self.touch(page, true, mapped);
            }
        }
        if whole.is_empty() {
            return;
        }
        if whole.end - whole.start > self.stack.len() as u64 {
            let held: Vec<u64> = self.stack.held().filter(|p| whole.contains(p)).collect();
            // The order does not matter: each leaves a hole at its place.
            held.into_iter().for_each(|p| self.stack.drop(p));
        } else {
            whole.clone().for_each(|p| self.stack.drop(p));
        }
        self.gone.insert_range(whole);
    }

    /// Applies a request; a page covers `each` blocks.
    fn ask(&mut self, op: Op, run: Range<u64>, each: u64, mapped: bool) {
        if run.is_empty() {
            return;
        }
        match op {
            Op::Discard | Op::SecureErase => self.discard(run, each, mapped),
            Op::Read | Op::Write | Op::WriteZeroes => {
                (run.start / each..=(run.end - 1) / each).for_each(|p| self.touch(p, op != Op::Read, mapped));
            }
            Op::Flush | Op::Other => {}
        }
    }
}

/// The maps of a recording's devices.
#[derive(Debug)]
pub struct Maps {
    geometry: Geometry,
    /// False if the devices had never been written before the recording: then no map page is on flash.
    mapped: bool,
    of: Option<DeviceId>,
    migration: Option<Migration>,
    devices: BTreeMap<DeviceId, (Map, Map)>,
    too_long: u64,
}

/// Accesses of map caches of one device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceMaps {
    /// Major and minor number.
    pub device: String,
    /// As recorded.
    pub before: Curve,
    /// As if blocks had moved before, with a migration.
    pub after: Option<Curve>,
}

/// Accesses of map caches.
#[derive(Debug, Clone, Serialize)]
pub struct MapStat {
    /// Layout of the maps.
    #[serde(flatten)]
    pub geometry: Geometry,
    /// Device bytes covered by a map page.
    pub covers_bytes: u64,
    /// True if maps were on flash when the recording began.
    pub mapped: bool,
    /// Number of moves of 4 KiB blocks.
    pub moved_blocks: Option<u64>,
    /// Requests of more than 4 GiB, skipped.
    pub too_long: u64,
    /// By device, the one with most lookups first.
    pub devices: Vec<DeviceMaps>,
}

impl Maps {
    /// Maps for all devices, or for one.
    pub fn new(geometry: Geometry, mapped: bool, of: Option<DeviceId>, migration: Option<Migration>) -> Self {
        Maps { geometry, mapped, of, migration, devices: BTreeMap::new(), too_long: 0 }
    }

    /// Adds a request.
    pub fn add(&mut self, request: &Request) {
        if request.sectors == 0 || self.of.is_some_and(|of| of != request.device) {
            return;
        }
        let (first, n) = blocks(request);
        let discard = matches!(request.op, Op::Discard | Op::SecureErase);
        if n > LONGEST && !discard {
            self.too_long += 1;
            return;
        }
        let each = (self.geometry.covers() / BLOCK).max(1);
        let (before, after) = self.devices.entry(request.device).or_default();
        before.ask(request.op, first.0..first.0.saturating_add(n), each, self.mapped);
        if let Some(migration) = &self.migration {
            for (at, n) in migration.translate(first.0, n) {
                after.ask(request.op, at..at.saturating_add(n), each, self.mapped);
            }
        }
    }

    /// The result.
    pub fn done(self) -> MapStat {
        let migration = self.migration;
        let mut devices: Vec<DeviceMaps> = self
            .devices
            .into_iter()
            .map(|(id, (before, after))| DeviceMaps {
                device: id.to_string(),
                before: before.stack.curve(),
                after: migration.is_some().then(|| after.stack.curve()),
            })
            .collect();
        devices.sort_by_key(|d| std::cmp::Reverse(d.before.touches));
        MapStat {
            geometry: self.geometry,
            covers_bytes: self.geometry.covers(),
            mapped: self.mapped,
            moved_blocks: migration.map(|m| m.moved()),
            too_long: self.too_long,
            devices,
        }
    }
}
