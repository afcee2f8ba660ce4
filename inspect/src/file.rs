//! How is a file laid out: how many extents does it have, what is the minimum, and where are they?
//!
//! An *extent* is a run of file blocks at neighbouring addresses. A *stretch* is a run of file blocks that have
//! addresses, up to the next hole or reserved block. The fewest possible extents are one per stretch, because F2FS does
//! not limit their length. The degree of fragmentation is extents divided by fewest extents (Ji HotStorage'16, equation
//! 1).
//!
//! In a compressed file, a cluster has fewer stored blocks than it represents. Clusters that follow each other are one
//! stretch, and an extent is a run of addresses in read order.
//!
//! A file with deltas is described by its base blocks, because these are read from the device.

use format::sit::LogType;
use format::superblock::SuperBlock;
use format::{BLOCKS_PER_SEG, BlockAddr, SegNo};

use crate::inode::Draft;
use crate::piece::{NODE, Piece};
use crate::tables::Sit;

/// Translation entries in a page of a flash device's map, one for each block of 4 KiB.
const MAP_ENTRIES: u64 = 1024;

/// A run of file blocks at neighbouring addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First file block.
    pub from: u64,
    /// Its address: blocks of 4 KiB from the beginning of the device.
    pub addr: u64,
    /// Blocks.
    pub blocks: u64,
}

/// How a file lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Blocks with an address.
    pub blocks: u64,
    /// Reserved blocks, which have no address.
    pub reserved: u64,
    /// Marks of compressed clusters.
    pub marks: u64,
    /// Nodes, the inode among them.
    pub nodes: u32,
    /// Holes before and between blocks: runs of file blocks without an address.
    pub holes: u32,
    /// Extents.
    pub extents: u32,
    /// The fewest possible extents.
    pub min_extents: u32,
    /// Lowest address; 0 without blocks.
    pub first_addr: u64,
    /// Blocks from the lowest address to the highest.
    pub span: u64,
    /// Segments that hold part of the file.
    pub segments: u32,
    /// Pages of a flash device's map (1,024 blocks each) that cover the file.
    pub map_pages: u32,
    /// How often the map page changes when the file is read in order.
    pub map_turns: u32,
    /// Map pages if the file were in its fewest extents.
    pub min_map_pages: u32,
    /// Requests for reading the whole file, each at most one read-ahead window.
    pub requests: u64,
    /// The same if the file were in its fewest extents.
    pub min_requests: u64,
    /// The log that holds most of its blocks.
    pub log: Option<LogType>,
    /// Addresses outside the main area.
    pub outside: u32,
    /// One of these addresses.
    pub outside_at: u32,
}

/// A file's extents in file order, with its other blocks counted.
pub struct Extents {
    /// Extents.
    pub all: Vec<Extent>,
    /// For each extent, whether it begins a new stretch.
    begins: Vec<bool>,
    reserved: u64,
    marks: u64,
    nodes: u32,
}

/// Combines the pieces of one file. They must be ordered by node and slot.
pub fn extents(draft: &Draft, pieces: &[Piece]) -> Extents {
    let mut out = Extents { all: Vec::new(), begins: Vec::new(), reserved: 0, marks: 0, nodes: 1 };
    let shape = draft.shape;
    // End of the previous extent: file block, address.
    let mut end: Option<(u64, u32)> = None;
    for p in pieces {
        if p.number == NODE {
            out.nodes += 1;
            continue;
        }
        let Some(shape) = shape else { continue };
        let (slots, first) = match p.number {
            0 => (shape.direct_slots, 0),
            n => (shape.per_node, u64::from(shape.direct_slots) + u64::from(n - 1) * u64::from(shape.per_node)),
        };
        // Compressed files do not use the last slots of a node.
        let len = u32::from(p.len).min(slots.saturating_sub(p.slot.into()));
        if len == 0 {
            continue;
        }
        let from = first + u64::from(p.slot);
        match p.addr {
            BlockAddr::NEW => {
                out.reserved += u64::from(len);
                continue;
            }
            BlockAddr::COMPRESS => {
                out.marks += u64::from(len);
                continue;
            }
            _ => {}
        }
        let follows = end.is_some_and(|(e, _)| goes_on(draft.log_cluster, e, from));
        match out.all.last_mut() {
            Some(last) if follows && end.is_some_and(|(_, a)| a == p.addr.0) => last.blocks += u64::from(len),
            _ => {
                out.all.push(Extent { from, addr: p.addr.0.into(), blocks: len.into() });
                out.begins.push(!follows);
            }
        }
        end = Some((from + u64::from(len), p.addr.plus(len).0));
    }
    out
}

/// True if no hole lies between a file block that ended at `end` and one that begins at `from`.
fn goes_on(log_cluster: Option<u8>, end: u64, from: u64) -> bool {
    match log_cluster {
        None => end == from,
        // A cluster without any block is a hole.
        Some(log) => (from >> log) <= end.div_ceil(1 << log),
    }
}

/// Number of distinct integers in ranges.
fn distinct(ranges: &mut [(u64, u64)]) -> u32 {
    ranges.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (from, to) in ranges {
        let from = (*from).max(next);
        if from <= *to {
            count += *to - from + 1;
            next = *to + 1;
        }
    }
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Describes the layout of a file of an F2FS volume. `window` is the largest read request in blocks; windows begin at
/// the file's beginning.
pub fn layout(sb: &SuperBlock, sit: &Sit, of: &Extents, window: u64) -> Layout {
    let mut out = places(of.all.iter().zip(of.begins.iter().copied()), window, MAP_ENTRIES);
    (out.reserved, out.marks, out.nodes) = (of.reserved, of.marks, of.nodes);
    let mut segments = Vec::new();
    let mut logs = [0_u64; 7];
    for e in &of.all {
        // OK to cut: F2FS addresses have 32 bits.
        let [first, last] = [e.addr, e.addr + e.blocks - 1].map(|a| BlockAddr(a.min(u32::MAX.into()) as u32));
        let (Some((from, _)), Some((to, _))) = (sb.locate(first), sb.locate(last)) else {
            out.outside += 1;
            out.outside_at = first.0;
            continue;
        };
        segments.push((from.0.into(), to.0.into()));
        for seg in (from.0..=to.0).map(SegNo) {
            let start = sb.seg_start(seg);
            let (begin, end) = (first.max(start), last.min(start.plus(BLOCKS_PER_SEG - 1)));
            logs[sit.segment(seg).log.map_or(6, LogType::index)] += u64::from(end.0 - begin.0 + 1);
        }
    }
    out.segments = distinct(&mut segments);
    let most = (0..6).max_by_key(|log| (logs[*log], std::cmp::Reverse(*log)));
    out.log = most.filter(|log| logs[*log] > 0).and_then(|log| LogType::from_number(log as u8));
    out
}

/// Describes the layout of a file of any file system, from its extents in file order.
pub fn of_extents(extents: &[Extent], window: u64) -> Layout {
    let mut end = None;
    let begins = extents.iter().map(|e| end.replace(e.from.saturating_add(e.blocks)) != Some(e.from));
    places(extents.iter().zip(begins), window, MAP_ENTRIES)
}

/// The same if it is known whether each extent begins a new stretch.
pub fn of_runs(runs: &[(Extent, bool)], window: u64) -> Layout {
    places(runs.iter().map(|(e, begins)| (e, *begins)), window, MAP_ENTRIES)
}

/// The same for extents in blocks of `unit` bytes, a power of two. Except for extents, the result is in blocks of 4
/// KiB.
pub fn of_extents_in(extents: &[Extent], window: u64, unit: u64) -> Layout {
    let mut end = None;
    let begins = extents.iter().map(|e| end.replace(e.from.saturating_add(e.blocks)) != Some(e.from));
    let block = format::BLOCK as u64;
    let in_units = |blocks: u64| (blocks.saturating_mul(block) / unit.max(1)).max(1);
    let mut out = places(extents.iter().zip(begins), in_units(window), in_units(MAP_ENTRIES));
    let (first, last) = (out.first_addr * unit, (out.first_addr + out.span) * unit);
    out.blocks = (out.blocks * unit).div_ceil(block);
    (out.first_addr, out.span) = (first / block, last.div_ceil(block) - first / block);
    out
}

/// The layout from extents alone; the flag marks those that begin a new stretch. `map_entries` is the number of blocks,
/// in the unit of the extents, that a page of a flash device's map covers.
fn places<'e>(all: impl Iterator<Item = (&'e Extent, bool)>, window: u64, map_entries: u64) -> Layout {
    let window = window.max(1);
    let mut out = Layout::default();
    let requests = |from: u64, blocks: u64| (from + blocks - 1) / window - from / window + 1;
    let mut pages: Vec<(u64, u64)> = Vec::new();
    let (mut lowest, mut highest) = (u64::MAX, 0);
    let mut stretch: Option<(u64, u64)> = None;
    for (e, begins) in all.filter(|(e, _)| e.blocks > 0) {
        let last = e.addr + e.blocks - 1;
        out.blocks += e.blocks;
        out.extents = out.extents.saturating_add(1);
        out.requests += requests(e.from, e.blocks);
        (lowest, highest) = (lowest.min(e.addr), highest.max(last));
        let (one, other) = (e.addr / map_entries, last / map_entries);
        let turns = other - one + u64::from(pages.last().is_none_or(|p| p.1 != one));
        out.map_turns = out.map_turns.saturating_add(u32::try_from(turns).unwrap_or(u32::MAX));
        pages.push((one, other));
        let end = e.from + e.blocks;
        match &mut stretch {
            Some((_, to)) if !begins => *to = (*to).max(end),
            other => {
                let before = other.replace((e.from, end));
                out.holes += u32::from(before.is_some() || e.from > 0);
                out.min_extents += 1;
                out.min_requests += before.map_or(0, |(from, to)| requests(from, to - from));
            }
        }
    }
    out.min_requests += stretch.map_or(0, |(from, to)| requests(from, to - from));
    // Read-ahead of a compressed file reads stored blocks.
    out.min_requests = out.min_requests.min(out.requests);
    out.map_pages = distinct(&mut pages);
    let least = out.blocks.div_ceil(map_entries).min(out.map_pages.into()) as u32;
    out.min_map_pages = if out.extents == out.min_extents { out.map_pages } else { least };
    if out.blocks > 0 {
        (out.first_addr, out.span) = (lowest, highest - lowest + 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_numbers_of_ranges_that_overlap_and_touch() {
        assert_eq!(distinct(&mut []), 0);
        assert_eq!(distinct(&mut [(5, 5), (1, 3), (2, 4), (5, 6), (9, 9)]), 7);
    }

    #[test]
    fn clusters_follow_each_other_until_one_is_missing() {
        assert!(goes_on(None, 4, 4) && !goes_on(None, 4, 5));
        // Clusters of four: the first stores blocks 1 and 2; then block 5 belongs to the second, block 9 to the third.
        assert!(goes_on(Some(2), 3, 5) && !goes_on(Some(2), 3, 9) && goes_on(Some(2), 8, 9));
    }
}
