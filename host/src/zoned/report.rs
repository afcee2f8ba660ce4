//! What does the kernel report about a block device's zones, and how is one reset? `BLKGETZONESZ`, `BLKREPORTZONE`,
//! `BLKRESETZONE`.
//!
//! One of the project's three places with `unsafe`: the kernel reads and writes memory passed to these calls, and no
//! maintained library with a compatible license offers them. Left out: the use of the report ([`super`]).
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

/// Zones per call: 16 KiB.
const AT_ONCE: usize = 256;
/// Size of the kernel's sectors, its unit here.
const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;

/// `struct blk_zone_report` without its zones.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    sector: u64,
    zones: u32,
    flags: u32,
}

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    start: u64,
    len: u64,
    pointer: u64,
    kind: u8,
    condition: u8,
    non_seq: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    more: [u8; 24],
}

#[repr(C)]
struct Asked {
    head: Head,
    zones: [Raw; AT_ONCE],
}

/// `struct blk_zone_range`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    sector: u64,
    sectors: u64,
}

const _: () = assert!(size_of::<Head>() == 16 && size_of::<Raw>() == 64 && size_of::<Range>() == 16);
const _: () = assert!(size_of::<Asked>() == 16 + 64 * AT_ONCE);

/// `BLKREPORTZONE`; its number encodes the size of the header alone.
const REPORT: Opcode = opcode::read_write::<Head>(0x12, 130);
/// `BLKRESETZONE`.
const RESET: Opcode = opcode::write::<Range>(0x12, 131);
/// `BLKGETZONESZ`.
const SIZE: Opcode = opcode::read::<u32>(0x12, 132);

/// The kernel fills in `capacity` (`BLK_ZONE_REP_CAPACITY`).
const HAS_CAPACITY: u32 = 1;
/// `BLK_ZONE_TYPE_CONVENTIONAL`.
const CONVENTIONAL: u8 = 1;
/// `BLK_ZONE_COND_FULL`, `_READONLY`, `_OFFLINE`.
const FULL: u8 = 0xe;
const READ_ONLY: u8 = 0xd;
const OFFLINE: u8 = 0xf;

/// One zone, in blocks of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Its first block.
    pub start: u64,
    /// Its blocks.
    pub len: u64,
    /// Its writable blocks.
    pub capacity: u64,
    /// Where the next write begins; `None` for a zone without a write pointer.
    pub pointer: Option<u64>,
    /// The zone accepts no writes.
    pub is_worn: bool,
}

/// Blocks of a zone; `None` for a device without zones.
///
/// # Errors
/// If a zone is not a whole number of blocks.
pub fn zone_blocks(file: impl AsFd) -> Result<Option<u64>, Errno> {
    // SAFETY: the kernel writes one `u32` (`put_user` of a `__u32` in `block/ioctl.c`), for which the getter has room.
    // Every bit pattern is a valid `u32`.
    match unsafe { ioctl(file, Getter::<{ SIZE }, u32>::new()) } {
        Ok(0) => Ok(None),
        Ok(sectors) if (u64::from(sectors) * SECTOR).is_multiple_of(BLOCK) => {
            Ok(Some(u64::from(sectors) * SECTOR / BLOCK))
        }
        Ok(_) => Err(Errno::INVAL),
        // A kernel or a file without zone support.
        Err(_) => Ok(None),
    }
}

fn ask(file: impl AsFd, asked: &mut Asked) -> Result<(), Errno> {
    // SAFETY: `Asked` is a `struct blk_zone_report` followed by room for `AT_ONCE` zones: sizes are asserted above,
    // fields are in the kernel's order. Its `nr_zones` has that count, and the kernel writes no more zones. Any bytes
    // are a valid value. The memory is borrowed exclusively for the whole call.
    unsafe { ioctl(file, Updater::<{ REPORT }, Asked>::new(asked)) }
}

/// All zones of a device, in order.
///
/// # Errors
/// The kernel's.
pub fn zones(file: impl AsFd) -> Result<Vec<Zone>, Errno> {
    let mut all = Vec::new();
    let mut asked = Box::new(Asked { head: Head::default(), zones: [Raw::default(); AT_ONCE] });
    let mut from = 0;
    loop {
        asked.head = Head { sector: from, zones: AT_ONCE as u32, flags: 0 };
        ask(file.as_fd(), &mut asked)?;
        let known = (asked.head.zones as usize).min(AT_ONCE);
        let has_capacity = asked.head.flags & HAS_CAPACITY != 0;
        for raw in &asked.zones[..known] {
            let end = raw.start.checked_add(raw.len).filter(|end| raw.start == from && *end > from);
            from = end.ok_or(Errno::INVAL)?;
            all.push(zone(raw, has_capacity));
        }
        if known == 0 {
            return Ok(all);
        }
    }
}

fn zone(raw: &Raw, has_capacity: bool) -> Zone {
    let blocks = |sectors: u64| sectors / (BLOCK / SECTOR);
    let pointer = match raw.condition {
        FULL => raw.start + raw.len,
        _ => raw.pointer,
    };
    Zone {
        start: blocks(raw.start),
        len: blocks(raw.len),
        capacity: if has_capacity { blocks(raw.capacity) } else { blocks(raw.len) },
        // A torn write left the pointer inside a block: writing cannot continue there, and the block holds no data.
        pointer: (raw.kind != CONVENTIONAL).then(|| pointer.div_ceil(BLOCK / SECTOR)),
        is_worn: matches!(raw.condition, READ_ONLY | OFFLINE),
    }
}

/// Resets the write pointer of a zone to its start.
///
/// # Errors
/// The kernel's.
pub fn reset(file: impl AsFd, start: u64, len: u64) -> Result<(), Errno> {
    let range = Range { sector: start * (BLOCK / SECTOR), sectors: len * (BLOCK / SECTOR) };
    // SAFETY: `Range` is a `struct blk_zone_range`: two 64-bit numbers, size asserted above. The kernel only reads it.
    unsafe { ioctl(file, Setter::<{ RESET }, Range>::new(range)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_calls_are_those_of_the_kernels_header() {
        // On architectures with the usual ioctl numbers.
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")) {
            assert_eq!((REPORT, RESET, SIZE), (0xC010_1282, 0x4010_1283, 0x8004_1284));
        }
    }

    #[test]
    fn a_full_zones_pointer_is_its_end_whatever_the_device_says_and_a_torn_block_is_passed() {
        let raw = Raw { start: 80, len: 80, pointer: u64::MAX, kind: 2, condition: FULL, ..Raw::default() };
        assert_eq!(zone(&raw, false), Zone { start: 10, len: 10, capacity: 10, pointer: Some(20), is_worn: false });
        let torn = Raw { pointer: 89, condition: 2, capacity: 72, ..raw };
        assert_eq!(zone(&torn, true), Zone { pointer: Some(12), capacity: 9, ..zone(&raw, false) });
        let conventional = Raw { kind: CONVENTIONAL, condition: 0, ..raw };
        assert_eq!(zone(&conventional, false).pointer, None);
        assert!(zone(&Raw { condition: OFFLINE, ..raw }, false).is_worn);
    }

    #[test]
    fn a_file_has_no_zones() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(zone_blocks(&file), Ok(None));
    }
}
