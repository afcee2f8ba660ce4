//! Geometry, timing and programming rules of the flash chips.
//!
//! The planes of a die read, program and erase together, so a *block* here spans all planes of a die and is erased
//! as one; a *row* is the pages with the same number on all planes; a *unit* is the 4 KiB that the host sees. Left
//! out: bad blocks, bit errors.

use serde::{Deserialize, Serialize};

use crate::energy::Nanos;
use crate::energy::profile::flash::NandSpec;

/// Fewest blocks on a die: with fewer, a few percent of spare would be less than a block.
const BLOCKS_ON_A_DIE: u64 = 128;
/// Fewest pages in a block: the loss by a partial last page must be small in cleaning.
const PAGES_IN_A_BLOCK: u64 = 64;
/// Blocks of a die that must not be needed for the host's data: one being filled by the host, one by cleaning, two
/// erased, one for the remainder. Each further handle fills one more.
const APART: u64 = 5;
const UNIT: u64 = 4096;

/// Dimensions of the chips. Blocks and units are numbered through all dies, one die after the other.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Geometry {
    /// Channels.
    pub channels: u32,
    /// Dies on all channels.
    pub dies: u32,
    /// Blocks on a die.
    pub blocks: u32,
    /// Pages in a row.
    pub planes: u32,
    /// Rows in a block.
    pub rows: u32,
    /// Units in a page.
    pub page_units: u32,
    /// Units of the host's data per die.
    pub on_die: u32,
    /// Most units with the host's data on a die, so that cleaning always finds a block.
    pub limit: u32,
    /// Number of rows in the profile's blocks per row here: a small device has smaller blocks.
    pub shrunk: u32,
    /// Handles of reclaim units.
    pub handles: u32,
}

impl Geometry {
    /// Chips for `units` units of data. A device smaller than the profile's has blocks of fewer rows on the same
    /// number of dies, so that its spare still consists of whole blocks.
    ///
    /// # Panics
    /// If the device has more than 2^31 units.
    pub fn new(spec: &NandSpec, units: u64) -> Self {
        assert!(units <= 1 << 31, "a flash model of more than 8 TiB");
        let small = |n: u64| n.clamp(1, 1 << 20) as u32;
        let (channels, planes) = (small(spec.channels.value), small(spec.planes.value));
        let dies = channels * small(spec.dies.value);
        let page_units = small(spec.page.value / UNIT);
        let (page_units, row_units) = (u64::from(page_units), u64::from(planes) * u64::from(page_units));
        let on_die = units.div_ceil(u64::from(dies)).max(1);
        let mut rows = u64::from(small(spec.pages.value));
        while rows / 2 * u64::from(planes) >= PAGES_IN_A_BLOCK && on_die.div_ceil(rows * row_units) < BLOCKS_ON_A_DIE {
            rows = rows.div_ceil(2);
        }
        let block = rows * row_units;
        // If the host's data fills at most `limit` of a die, its closed blocks have two invalid pages each on
        // average, so cleaning always gains.
        let gain = (block - (2 * page_units).min(block - 1)).max(1);
        let handles = spec.handles.as_ref().map_or(1, |q| q.value.clamp(1, 256)) as u32;
        let apart = APART + u64::from(handles - 1);
        let needed = on_die + row_units;
        let with_spare = (on_die as f64 * (1.0 + spec.spare.value)).ceil() as u64;
        let blocks = with_spare.div_ceil(block).max(needed.div_ceil(gain) + apart);
        // Half of the spare allows for uneven filling of dies, the other half remains on each for cleaning.
        let limit = (on_die + (with_spare - on_die) / 2).max(needed).min((blocks - apart) * gain);
        let shrunk = small(spec.pages.value.div_ceil(rows));
        assert!(blocks * block * u64::from(dies) < u64::from(u32::MAX), "a flash model of too many units");
        Geometry {
            channels,
            dies,
            blocks: blocks as u32,
            planes,
            rows: rows as u32,
            page_units: page_units as u32,
            on_die: on_die as u32,
            limit: limit as u32,
            shrunk,
            handles,
        }
    }
    /// Units in a row.
    pub fn row_units(&self) -> u32 {
        self.planes * self.page_units
    }
    /// Pages in a block.
    pub fn block_pages(&self) -> u32 {
        self.rows * self.planes
    }
    /// Units in a block.
    pub fn block_units(&self) -> u32 {
        self.block_pages() * self.page_units
    }
    /// Blocks on all dies.
    pub fn all_blocks(&self) -> u32 {
        self.blocks * self.dies
    }
    /// Units on all dies.
    pub fn units(&self) -> u32 {
        self.all_blocks() * self.block_units()
    }
    /// Blocks of a die for a share of the host's data, rounded up.
    pub fn blocks_of(&self, share: f64) -> usize {
        (f64::from(self.on_die) * share / f64::from(self.block_units())).ceil() as usize
    }
    /// The block a unit is in.
    pub fn block_of(&self, unit: u32) -> u32 {
        unit / self.block_units()
    }
    /// The die a block is on.
    pub fn die_of(&self, block: u32) -> u32 {
        block / self.blocks
    }
    /// The first unit of a page of a block.
    pub fn unit(&self, block: u32, page: u32) -> u32 {
        (block * self.block_pages() + page) * self.page_units
    }
    /// A row's number on the whole device.
    pub fn row_of(&self, unit: u32) -> u32 {
        unit / self.row_units()
    }
    /// The bit of the cell that stores a row.
    pub fn bit(&self, row: u32, bits: usize) -> usize {
        (row % self.rows) as usize % bits
    }
}

/// An impossible flash operation: an error of the translation layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// Pages of a block must be programmed once and in order.
    #[error("page {page} of block {block} programmed, {next} is next")]
    Order {
        /// The block.
        block: u32,
        /// The requested page.
        page: u32,
        /// The permitted page.
        next: u32,
    },
    /// The page does not exist.
    #[error("page {page} of block {block} does not exist")]
    NoPage {
        /// The block.
        block: u32,
        /// The page.
        page: u32,
    },
    /// The page is not programmed.
    #[error("page {page} of block {block} read, and not programmed since the erase")]
    Blank {
        /// The block.
        block: u32,
        /// The page.
        page: u32,
    },
}

/// State of pages, and erase counts of blocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nand {
    geometry: Geometry,
    /// Pages programmed since the last erase, by block.
    programmed: Vec<u32>,
    /// Erases, by block.
    erases: Vec<u32>,
}

impl Nand {
    /// Erased chips.
    pub fn new(geometry: Geometry) -> Self {
        let blocks = geometry.all_blocks() as usize;
        Nand { geometry, programmed: vec![0; blocks], erases: vec![0; blocks] }
    }
    /// Pages programmed since the last erase of a block.
    pub fn programmed(&self, block: u32) -> u32 {
        self.programmed[block as usize]
    }
    /// Erases of a block.
    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }
    /// Erase counts of all blocks, in order.
    pub fn all_erases(&self) -> &[u32] {
        &self.erases
    }
    /// Programs consecutive pages.
    pub fn program(&mut self, block: u32, page: u32, pages: u32) -> Result<(), Misuse> {
        let next = &mut self.programmed[block as usize];
        if page != *next {
            return Err(Misuse::Order { block, page, next: *next });
        }
        if page + pages > self.geometry.block_pages() {
            return Err(Misuse::NoPage { block, page: page + pages - 1 });
        }
        *next += pages;
        Ok(())
    }
    /// Reads the page of a unit.
    pub fn read(&self, unit: u32) -> Result<(), Misuse> {
        let block = self.geometry.block_of(unit);
        let page = unit % self.geometry.block_units() / self.geometry.page_units;
        match page < self.programmed[block as usize] {
            true => Ok(()),
            false => Err(Misuse::Blank { block, page }),
        }
    }
    /// Erases a block.
    pub fn erase(&mut self, block: u32) {
        self.programmed[block as usize] = 0;
        self.erases[block as usize] += 1;
    }
}

/// Timing of the chips.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    /// Reading a page, by bit of the cell.
    pub read: Vec<Nanos>,
    /// Programming a page, likewise.
    pub program: Vec<Nanos>,
    /// Erasing a block of this device.
    pub erase: Nanos,
    /// Transferring a unit over a channel.
    pub transfer: Nanos,
}

impl Times {
    /// The profile's times; a block shrunk for a small device takes a proportional time.
    pub fn new(spec: &NandSpec, geometry: &Geometry) -> Self {
        Times {
            read: spec.read.iter().map(|q| q.value).collect(),
            program: spec.program.iter().map(|q| q.value).collect(),
            erase: Nanos(spec.erase.value.0 / u64::from(geometry.shrunk)),
            transfer: spec.transfer.value.of(UNIT),
        }
    }
}
