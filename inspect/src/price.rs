//! What does it cost to read a file, by a device's profile?
//!
//! Prices use closed formulas, so that a million files can be priced at once. A read is one request per extent and
//! read-ahead window; the device has just been switched on, so it fetches each page of its map from flash once. The
//! energy equals what the simulated device books for the same requests. The time ignores that requests may overlap,
//! that flash pages differ in read time, and that dies may be busy; a test measures the error against the simulation.
//!
//! On a disk each extent costs a seek of average length and half a rotation; read-ahead hides the gap between two
//! windows of an extent. If the rate differs between outer and inner tracks, the mean is used.
//!
//! Left out: reading nodes and directories, waking the device or the disk's return from an idle level, contents stored
//! in the inode, and the processor's work on contents.

use std::ops::Add;

use device::energy::profile::{DeviceSpec, DiskSpec, FlashSpec, Host, Profile};
use device::energy::{Energy, Nanos};

use crate::file::Layout;

const BLOCK: u64 = format::BLOCK as u64;

/// Energy and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Energy.
    pub energy: Energy,
    /// Time.
    pub time: Nanos,
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, o: Cost) -> Cost {
        Cost { energy: self.energy + o.energy, time: Nanos(self.time.0.saturating_add(o.time.0)) }
    }
}

impl Cost {
    /// This cost `n` times.
    pub fn times(self, n: u64) -> Cost {
        Cost { energy: self.energy.times(n), time: self.time.times(n) }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(all: I) -> Cost {
        all.fold(Cost::default(), Add::add)
    }
}

/// The work of a device for one read or write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Blocks.
    pub blocks: u64,
    /// Requests.
    pub requests: u64,
    /// Positions that a disk's arm has to seek to.
    pub places: u64,
    /// Pages of a flash device's map.
    pub map_pages: u64,
    /// How often the map page changes from one access to the next.
    pub map_turns: u64,
}

impl Work {
    /// Reading a file as it is laid out.
    pub fn as_it_lies(l: &Layout) -> Self {
        let (places, map_pages) = (l.extents.into(), l.map_pages.into());
        Work { blocks: l.blocks, requests: l.requests, places, map_pages, map_turns: l.map_turns.into() }
    }
    /// Reading a file in its fewest extents.
    pub fn as_it_could(l: &Layout) -> Self {
        let (places, map_pages) = (l.min_extents.into(), l.min_map_pages.into());
        let map_turns = if l.extents == l.min_extents { l.map_turns.into() } else { map_pages };
        Work { blocks: l.blocks, requests: l.min_requests, places, map_pages, map_turns }
    }
}

impl Work {
    /// How often a map page is fetched if `room` pages fit in memory. If all fit, each is fetched once. Otherwise a
    /// page that is needed again is still in memory with the probability that it fits: an estimate, exact for random
    /// accesses.
    fn fetched(&self, room: u64) -> u64 {
        if self.map_pages <= room {
            return self.map_pages;
        }
        let again = self.map_turns.saturating_sub(self.map_pages);
        let gone = u128::from(again) * u128::from(self.map_pages - room) / u128::from(self.map_pages);
        self.map_pages + gone as u64
    }
}

/// Power of busy flash over a time, if no other price includes it.
fn busy(d: &FlashSpec, time: Nanos) -> Energy {
    d.busy.as_ref().map_or(Energy::ZERO, |power| power.value.over(time))
}

/// The prices of a device.
#[derive(Debug, Clone)]
pub struct Prices {
    host: Host,
    device: DeviceSpec,
}

impl Prices {
    /// The prices of a profile.
    pub fn from_profile(profile: &Profile) -> Self {
        Prices { host: profile.host.prices(), device: profile.device.clone() }
    }

    /// What a read costs.
    pub fn read(&self, work: &Work) -> Cost {
        match &self.device {
            DeviceSpec::Flash(flash) => self.flash_read(flash, work),
            DeviceSpec::Disk(disk) => self.disk(disk, work, false),
        }
    }

    /// What a write of new blocks costs, including the flush that makes them durable. A changed page of the flash map
    /// is written back.
    pub fn write(&self, work: &Work) -> Cost {
        match &self.device {
            DeviceSpec::Flash(flash) => self.flash_write(flash, work),
            DeviceSpec::Disk(disk) => self.disk(disk, work, true),
        }
    }

    /// What it costs to have the device map blocks at a second address too: one request for each extent, and the map
    /// pages of the old and new addresses. No data moves.
    pub fn share(&self, work: &Work) -> Cost {
        let DeviceSpec::Flash(d) = &self.device else {
            // A disk has no map to change, so it copies.
            return self.read(work) + self.write(work);
        };
        let new_pages = work.blocks.div_ceil(1024);
        let fetched = work.fetched(d.map.cached_pages.value) + new_pages;
        let time = d.link.request.value.times(work.places) + d.map.access.value.times(fetched);
        let none = Work { requests: work.places, ..Work::default() };
        let of_device =
            d.link.request_energy.value.times(work.places) + d.map.access_energy.value.times(fetched + new_pages);
        Cost { energy: of_device + busy(d, time) + self.host(&none, time), time }
    }

    fn host(&self, work: &Work, time: Nanos) -> Energy {
        let bytes = work.blocks.saturating_mul(BLOCK);
        let by_byte = self.host.cpu_byte.of(bytes) + self.host.dram_byte.of(bytes);
        self.host.cpu_request.times(work.requests) + by_byte + self.host.board.over(time)
    }

    fn flash_read(&self, d: &FlashSpec, work: &Work) -> Cost {
        let (link, nand, map) = (&d.link, &d.nand, &d.map);
        let bytes = work.blocks.saturating_mul(BLOCK);
        let fetched = work.fetched(map.cached_pages.value);
        let mean = nand.read.iter().map(|q| q.value.0).sum::<u64>() / nand.read.len().max(1) as u64;
        // A request waits for its first block; the link transfers each block while the next is read.
        let before = Nanos(link.request.value.0.saturating_add(mean)) + nand.transfer.value.of(BLOCK);
        let dies = (nand.channels.value.saturating_mul(nand.dies.value)).max(1);
        let row = (nand.page.value.saturating_mul(nand.planes.value) / BLOCK).max(1);
        let flash = (mean.saturating_mul(work.blocks.div_ceil(row)) / dies)
            .max(nand.transfer.value.of(bytes).0 / nand.channels.value.max(1));
        let moved = Nanos(link.read.value.of(bytes).0.max(flash));
        let time = before.times(work.requests) + map.access.value.times(fetched) + moved;
        let of_device = link.request_energy.value.times(work.requests)
            + link.read_energy.value.of(bytes)
            + nand.read_energy.value.of(BLOCK).times(work.blocks)
            + map.access_energy.value.times(fetched)
            + busy(d, time);
        Cost { energy: of_device + self.host(work, time), time }
    }

    fn flash_write(&self, d: &FlashSpec, work: &Work) -> Cost {
        let (link, nand) = (&d.link, &d.nand);
        let bytes = work.blocks.saturating_mul(BLOCK);
        let request = link.write_request.as_ref().unwrap_or(&link.request).value;
        let time = request.times(work.requests) + link.write.value.of(bytes) + d.flush.value;
        let of_device = link.request_energy.value.times(work.requests)
            + link.write_energy.value.of(bytes)
            + nand.program_energy.value.of(BLOCK).times(work.blocks)
            + d.map.access_energy.value.times(work.map_pages)
            + d.flush_energy.value
            + busy(d, time);
        Cost { energy: of_device + self.host.cpu_request + self.host(work, time), time }
    }

    fn disk(&self, d: &DiskSpec, work: &Work, write: bool) -> Cost {
        let bytes = work.blocks.saturating_mul(BLOCK);
        let half_turn = Nanos(30_000_000_000 / d.rpm.value.max(1)).times(work.places);
        let settle = if write { d.write_settle.value } else { Nanos(0) };
        let seek = (d.seek_average.value + settle).times(work.places);
        let media = d.media_mean().of(bytes);
        // Within an extent, the platter passes under the head while the next request arrives.
        let request = d.request.value.times(work.places.min(work.requests));
        let time = request + seek + half_turn + media;
        let power = if write { d.write_power.value } else { d.read_power.value };
        let of_device = d.idle_power.value.over(request)
            + d.seek_power.value.over(seek)
            + d.rotate_power.value.over(half_turn)
            + power.over(media);
        Cost { energy: of_device + self.host(work, time), time }
    }
}
