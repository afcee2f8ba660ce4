//! Where is a file on disk according to the kernel, and what is free? `FS_IOC_FIEMAP` of a file and `FS_IOC_GETFSMAP`
//! of a file system, if supported (the latter: ext4 and XFS).
//!
//! One of the project's three places with `unsafe`: the kernel writes to memory passed to these calls, and no
//! maintained library with a compatible license offers them.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use inspect::file::Extent;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Extents per call: 16 KiB.
const AT_ONCE: usize = 290;
const BLOCK: u64 = 4096;

/// `struct fiemap` without its extents.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Asked {
    head: Head,
    extents: [Raw; AT_ONCE],
}

const _: () = assert!(size_of::<Head>() == 32 && size_of::<Raw>() == 56);
const _: () = assert!(size_of::<Asked>() == 32 + 56 * AT_ONCE);

/// `FS_IOC_FIEMAP`; its number encodes the size of the header alone.
const FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);
const _: () = assert!(FIEMAP == 0xC020_660B);

const LAST: u32 = 0x1;
/// No address, or none yet.
const UNKNOWN: u32 = 0x2 | 0x4;
/// Inside an inode, or in the tail of another block.
const INLINE: u32 = 0x200 | 0x400;
const UNWRITTEN: u32 = 0x800;

/// The kernel's map of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    /// Extents in file order, in blocks of 4 KiB; adjacent ones are merged.
    pub extents: Vec<Extent>,
    /// Blocks allocated but not written.
    pub reserved: u64,
    /// Blocks that have no address yet.
    pub waiting: u64,
    /// True if data is stored with metadata.
    pub inline: bool,
}

/// One call, from byte `start`.
fn ask(file: impl AsFd, asked: &mut Asked, start: u64) -> Result<(), Errno> {
    asked.head = Head { start, length: u64::MAX - start, flags: 0, mapped: 0, count: AT_ONCE as u32, reserved: 0 };
    // SAFETY: the number is that of FS_IOC_FIEMAP, asserted above. The kernel reads and writes `struct fiemap`, whose
    // layout is that of `Head`, and after it writes at most `fm_extent_count` extents, for which `Asked` has room:
    // sizes are asserted above, and the extents follow the header without a gap, as both are multiples of eight bytes.
    // Any bit pattern is a valid value of their integers. The memory is borrowed exclusively for the whole call.
    unsafe { ioctl(file, Updater::<{ FIEMAP }, Asked>::new(asked)) }
}

/// The extents of a file.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` if the file system does not support the call.
pub fn map(file: impl AsFd) -> Result<Map, Errno> {
    let none = Raw { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
    let head = Head { start: 0, length: 0, flags: 0, mapped: 0, count: 0, reserved: 0 };
    let mut asked = Box::new(Asked { head, extents: [none; AT_ONCE] });
    let (mut out, mut start) = (Map::default(), 0);
    loop {
        ask(file.as_fd(), &mut asked, start)?;
        let got = &asked.extents[..(asked.head.mapped as usize).min(AT_ONCE)];
        got.iter().for_each(|raw| out.take(raw));
        let Some(last) = got.last().filter(|raw| raw.flags & LAST == 0) else { return Ok(out) };
        let next = last.logical.saturating_add(last.length);
        // Guards against an endless loop if the file changes meanwhile.
        if next <= start {
            return Ok(out);
        }
        start = next;
    }
}

impl Map {
    fn take(&mut self, raw: &Raw) {
        let blocks = raw.length.div_ceil(BLOCK);
        if raw.flags & INLINE != 0 {
            self.inline = true;
        } else if raw.flags & UNKNOWN != 0 {
            self.waiting += blocks;
        } else if raw.flags & UNWRITTEN != 0 {
            self.reserved += blocks;
        } else if blocks > 0 {
            let new = Extent { from: raw.logical / BLOCK, addr: raw.physical / BLOCK, blocks };
            match self.extents.last_mut() {
                Some(e) if e.from + e.blocks == new.from && e.addr + e.blocks == new.addr => e.blocks += new.blocks,
                _ => self.extents.push(new),
            }
        }
    }
}

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mapping {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `struct fsmap_head` without its records.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapHead {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Mapping; 2],
}

/// Records per call: 64 KiB.
const RECORDS: usize = 1024;

#[repr(C)]
struct MapAsked {
    head: MapHead,
    records: [Mapping; RECORDS],
}

const _: () = assert!(size_of::<Mapping>() == 64 && size_of::<MapHead>() == 192);
const _: () = assert!(size_of::<MapAsked>() == 192 + 64 * RECORDS);

/// `FS_IOC_GETFSMAP`; its number encodes the size of the header alone.
const GETFSMAP: Opcode = opcode::read_write::<MapHead>(b'X', 59);
const _: () = assert!(GETFSMAP == 0xC0C0_583B);

/// The owner is a special one.
const SPECIAL: u32 = 0x10;
/// The last record of all.
const LAST_RECORD: u32 = 0x20;
/// The special owner for free space.
const FREE: u64 = 1;

const NOTHING: Mapping = Mapping { device: 0, flags: 0, physical: 0, owner: 0, offset: 0, length: 0, reserved: [0; 3] };

/// Runs of free blocks of the file system that contains a file or directory, in order: first block and count. For a
/// file system on several devices, those of the first device reported.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` or `ENOTTY` if the file system does not support the call.
pub fn free(on: impl AsFd) -> Result<Vec<(u64, u64)>, Errno> {
    let every =
        Mapping { device: u32::MAX, flags: u32::MAX, physical: u64::MAX, owner: u64::MAX, offset: u64::MAX, ..NOTHING };
    let head =
        MapHead { iflags: 0, oflags: 0, count: RECORDS as u32, entries: 0, reserved: [0; 6], keys: [NOTHING, every] };
    let mut asked = Box::new(MapAsked { head, records: [NOTHING; RECORDS] });
    let (mut out, mut device): (Vec<(u64, u64)>, Option<u32>) = (Vec::new(), None);
    loop {
        let start = asked.head.keys[0];
        // SAFETY: the number is that of FS_IOC_GETFSMAP, asserted above. The kernel reads and writes `struct
        // fsmap_head`, whose layout is that of `MapHead`, and after it writes at most `fmh_count` records, for which
        // `MapAsked` has room: sizes are asserted above, and the records follow the header without a gap, as both are
        // multiples of eight bytes. Any bit pattern is a valid value of their integers. The memory is borrowed
        // exclusively for the whole call.
        unsafe { ioctl(&on, Updater::<{ GETFSMAP }, MapAsked>::new(&mut asked)) }?;
        let got = &asked.records[..(asked.head.entries as usize).min(RECORDS)];
        for r in got {
            if *device.get_or_insert(r.device) == r.device && r.flags & SPECIAL != 0 && r.owner == FREE {
                take_free(&mut out, r.physical, r.length);
            }
        }
        let Some(last) = got.last().filter(|r| r.flags & LAST_RECORD == 0) else { return Ok(out) };
        // Guards against an endless loop if the file system changes meanwhile.
        if (last.device, last.physical) < (start.device, start.physical) || last.length == 0 {
            return Ok(out);
        }
        asked.head.keys[0] = *last;
        (asked.head.count, asked.head.entries) = (RECORDS as u32, 0);
    }
}

/// Adds the whole blocks inside a range of free bytes; adjacent runs are merged.
fn take_free(out: &mut Vec<(u64, u64)>, physical: u64, length: u64) {
    let (from, to) = (physical.div_ceil(BLOCK), physical.saturating_add(length) / BLOCK);
    match out.last_mut() {
        _ if to <= from => {}
        Some((first, count)) if *first + *count == from => *count += to - from,
        _ => out.push((from, to - from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(logical: u64, physical: u64, length: u64, flags: u32) -> Raw {
        let [logical, physical, length] = [logical, physical, length].map(|n| n * BLOCK);
        Raw { logical, physical, length, reserved64: [0; 2], flags, reserved: [0; 3] }
    }

    #[test]
    fn neighbours_are_one_and_what_has_no_address_is_none() {
        let mut map = Map::default();
        for r in [
            raw(0, 100, 4, 0),
            raw(4, 104, 2, 0),
            raw(6, 106, 3, UNWRITTEN),
            raw(9, 109, 1, 0),
            raw(10, 0, 5, 0x4 | 0x2),
            raw(20, 50, 1, LAST),
        ] {
            map.take(&r);
        }
        let seen: Vec<_> = map.extents.iter().map(|e| (e.from, e.addr, e.blocks)).collect();
        assert_eq!(seen, [(0, 100, 6), (9, 109, 1), (20, 50, 1)]);
        assert_eq!((map.reserved, map.waiting, map.inline), (3, 5, false));
    }

    #[test]
    fn free_runs_are_whole_blocks_and_neighbours_are_one() {
        let mut free = Vec::new();
        for (at, bytes) in [(4096, 8192), (12_288, 4096), (20_481, 4096), (40_960, 5000)] {
            take_free(&mut free, at, bytes);
        }
        assert_eq!(free, [(1, 3), (10, 1)]);
    }
}
