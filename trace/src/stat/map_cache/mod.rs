//! What would the mapping cache of a flash device read and write for these requests, for every size it could have?
//!
//! Demand-based caching as in Ji HotStorage'16, section 5.3.3: the map lies on flash in translation pages, a request needs
//! those of its blocks, and the cache fetches and evicts a page at a time, the least recently used first. One pass gives
//! translation reads and write-backs of caches of every size ([`Curve`]), as long as the recording is read; with a
//! [`Migration`] the same requests are translated through it and counted once more, as if blocks had moved before.
//!
//! Memory grows with the pages of the map that are touched, 4 MiB of the device each as published, not with the
//! recording's length.
//!
//! Left out: the device's write buffer, which answers some requests without the map and joins others (the simulated device
//! in the crate `device` has one, and cleans), and where translation pages lie.

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

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// The longest request whose pages are looked at one by one, in blocks: 4 GiB, which no Linux request reaches.
const LONGEST: u64 = 1 << 20;
/// The most that a page of the map may cover, in bytes: 1 TiB.
const MOST: u64 = 1 << 40;

/// How the map of a device is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Bytes of a page of the map, the unit of fetching and evicting.
    pub page_bytes: u64,
    /// Size of a map entry.
    pub entry_bytes: u64,
    /// Bytes of the device that one entry maps.
    pub unit_bytes: u64,
}

impl Default for Geometry {
    /// Pages of 4 KiB with 1,024 entries, each for 4 KiB (Ji HotStorage'16, section 5.3.3).
    fn default() -> Self {
        Geometry { page_bytes: 4096, entry_bytes: 4, unit_bytes: BLOCK }
    }
}

impl Geometry {
    /// What is wrong with it, if anything is.
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

    /// Bytes of the device that a page of the map covers.
    pub fn covers(&self) -> u64 {
        (self.page_bytes / self.entry_bytes.max(1)).saturating_mul(self.unit_bytes)
    }
}

/// The map of a device at one time of its life.
#[derive(Debug, Default)]
struct Map {
    stack: Stack,
    /// Pages of which everything was discarded, and that were not used since.
    gone: RoaringTreemap,
}

impl Map {
    fn touch(&mut self, page: u64, change: bool, mapped: bool) {
        // Whoever reads there leaves nothing mapped: the page is still not on flash.
        let stored = mapped && !self.gone.contains(page);
        self.stack.touch(page, change, stored);
        if change {
            self.gone.remove(page);
        }
    }

    /// Discards blocks; `each` is the number of them that a page covers.
    fn discard(&mut self, run: Range<u64>, each: u64, mapped: bool) {
        let (first, last) = (run.start / each, (run.end - 1) / each);
        let whole = run.start.div_ceil(each)..run.end / each;
        for page in [first, last].into_iter().take(if first == last { 1 } else { 2 }) {
            let maps = self.stack.maps(page).unwrap_or(mapped && !self.gone.contains(page));
            // Of a page that maps nothing there is nothing to forget.
            if maps && !whole.contains(&page) {
                self.touch(page, true, mapped);
            }
        }
        if whole.is_empty() {
            return;
        }
        if whole.end - whole.start > self.stack.len() as u64 {
            let held: Vec<u64> = self.stack.held().filter(|p| whole.contains(p)).collect();
            // In no order, which does not matter: each leaves a hole where it was.
            held.into_iter().for_each(|p| self.stack.drop(p));
        } else {
            whole.clone().for_each(|p| self.stack.drop(p));
        }
        self.gone.insert_range(whole);
    }

    /// `each` is the number of blocks that a page covers.
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

/// Looks into the maps of a recording's devices.
#[derive(Debug)]
pub struct Maps {
    geometry: Geometry,
    /// False if nothing was ever written to a device before the recording: then nothing of the map is on flash.
    mapped: bool,
    of: Option<DeviceId>,
    migration: Option<Migration>,
    devices: BTreeMap<DeviceId, (Map, Map)>,
    too_long: u64,
}

/// What the caches of one device's map did.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceMaps {
    /// Its numbers, major and minor.
    pub device: String,
    /// As recorded.
    pub before: Curve,
    /// As if blocks had moved before, if it is known where to.
    pub after: Option<Curve>,
}

/// What the caches did.
#[derive(Debug, Clone, Serialize)]
pub struct MapStat {
    /// How maps are divided.
    #[serde(flatten)]
    pub geometry: Geometry,
    /// Bytes of a device that a page of its map covers.
    pub covers_bytes: u64,
    /// Whether maps were on flash when the recording began.
    pub mapped: bool,
    /// Blocks of 4 KiB that moved, each as often as it did.
    pub moved_blocks: Option<u64>,
    /// Requests of more than 4 GiB, left out.
    pub too_long: u64,
    /// By device, that with most looks into its map first.
    pub devices: Vec<DeviceMaps>,
}

impl Maps {
    /// Of all devices, or of one.
    pub fn new(geometry: Geometry, mapped: bool, of: Option<DeviceId>, migration: Option<Migration>) -> Self {
        Maps { geometry, mapped, of, migration, devices: BTreeMap::new(), too_long: 0 }
    }

    /// One more request.
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

    /// What the caches did.
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
