//! Write logs of Linux's dm-log-writes and QEMU's blklogwrites are read, as recorded by
//! `conformance/examples/record_write_logs.rs`.

use std::path::Path;

use trace::block::{Action, Event, Flags, Op};
use trace::{At, Opened, TraceError};

use crate::text::{self, read};

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/log_writes").join(name);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

fn extents(events: &[Event]) -> Vec<(Op, u64, u64)> {
    events.iter().map(|e| (e.op, e.sector, e.sectors)).collect()
}

/// A log with these entries: sector, sectors, flags.
fn log(sector: usize, counted: u64, entries: &[[u64; 3]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let block = |bytes: &mut Vec<u8>, words: [u64; 4]| {
        let end = bytes.len() + sector;
        words.iter().for_each(|w| bytes.extend_from_slice(&w.to_le_bytes()));
        bytes.resize(end, 0);
    };
    block(&mut bytes, [0x006a_7366_7773_6872, 1, counted, sector as u64]);
    for [at, n, flags] in entries {
        block(&mut bytes, [*at, *n, *flags, 0]);
        if flags & 4 == 0 {
            bytes.resize(bytes.len() + *n as usize * sector, 0xee);
        }
    }
    bytes
}

#[test]
fn requests_to_qemu_are_in_its_log() {
    // QEMU logs `write -f` as a write and a flush, and closing the disk flushes twice.
    let (w, f, d) = (Op::Write, Op::Flush, Op::Discard);
    let asked = [
        (w, 0, 8),
        (w, 128, 40),
        (f, 0, 0),
        (w, 16, 8),
        (d, 256, 128),
        (w, 512, 32),
        (f, 0, 0),
        (w, 2048, 2048),
        (w, 16, 8),
    ];
    for name in ["qemu-512.log.zst", "qemu-4096.log.zst"] {
        let seen = read(&fixture(name));
        assert!(seen.error.is_none(), "{:?}", seen.error);
        let mut left = asked.iter();
        let mut next = left.next();
        for extent in extents(&seen.events) {
            match next {
                Some(asked) if *asked == extent => next = left.next(),
                _ => assert_eq!(extent, (f, 0, 0), "{name}: {next:?}"),
            }
        }
        assert_eq!(next, None, "{name}");
        assert!(seen.others.is_empty(), "{:?}", seen.others);
    }
}

#[test]
fn linux_logs_metadata_fua_and_marks() {
    let seen = read(&fixture("dm-ext4.log.zst"));
    assert!(seen.error.is_none(), "{:?}", seen.error);
    // One per `dmsetup message`, and one for the end, from Linux itself.
    assert_eq!(seen.others["marks"], 3);
    let with = |flags: Flags| seen.events.iter().filter(|e| e.flags.contains(flags)).count();
    assert!(with(Flags::META) > 30 && with(Flags::FUA) > 8);
    assert!(seen.events.iter().any(|e| e.op == Op::Discard));
    assert!(seen.events.iter().all(|e| e.action == Action::Complete && e.sector + e.sectors <= 8 << 11));
    // ext4 writes its superblock at 1 KiB; its contents are found by searching the bytes.
    assert!(seen.events.iter().any(|e| e.op == Op::Write && e.sector == 2 && e.sectors == 2));
    assert_eq!(
        seen.events.len() as u64 + 3,
        u64::from_le_bytes(fixture("dm-ext4.log.zst")[16..24].try_into().unwrap())
    );
}

#[test]
fn there_are_no_times() {
    let Ok(Opened::Blocks(log)) = text::open(&log(512, 0, &[])) else { panic!("not opened") };
    assert!(!log.timed());
    let Ok(Opened::Blocks(log)) = text::open(&fixture("dm-ext4.log.zst")) else { panic!("not opened") };
    let (stat, whole) = trace::stat::blocks::count(&mut trace::requests::Requests::new(log), |_| ());
    assert!(whole.is_ok() && stat.requests > 50 && stat.between.is_none());
}

#[test]
fn larger_sectors_are_counted_in_sectors_of_512_bytes() {
    let seen = read(&log(4096, 3, &[[1, 2, 1], [0, 0, 1], [10, 1 << 20, 4]]));
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert_eq!(extents(&seen.events), [(Op::Write, 8, 16), (Op::Flush, 0, 0), (Op::Discard, 80, 8 << 20)]);
    assert_eq!(seen.events[0].flags, Flags::PREFLUSH);
    assert_eq!(seen.events[1].flags, Flags::empty());
}

#[test]
fn entries_beyond_the_count_are_not_read_but_reported() {
    let entries = [[0, 8, 0], [8, 8, 0], [16, 8, 0]];
    for counted in 0..3 {
        let seen = read(&log(512, counted, &entries));
        assert!(seen.error.is_none());
        assert_eq!(seen.events.len() as u64, counted);
        assert_eq!(seen.others["more behind the last entry that the log counts"], 1);
    }
    assert!(read(&log(512, 3, &entries)).others.is_empty());
    // The count exceeds the number of entries.
    let seen = read(&log(512, 4, &entries));
    assert_eq!(seen.events.len(), 3);
    assert!(seen.error.unwrap().is_cut_short());
}

#[test]
fn a_log_cut_anywhere_gives_its_complete_entries() {
    let bytes = log(512, 3, &[[0, 1, 0], [8, 8, 4], [0, 0, 1]]);
    let ends = [512 + 1024, 512 + 1536, 512 + 2048];
    for cut in 8..bytes.len() {
        let seen = read(&bytes[..cut]);
        assert_eq!(seen.events.len(), ends.iter().filter(|end| **end <= cut).count(), "{cut}");
        assert!(seen.error.unwrap().is_cut_short(), "{cut}");
    }
}

#[test]
fn damage_is_reported_with_its_place() {
    let good = log(512, 3, &[[0, 1, 0], [8, 8, 4], [0, 0, 1]]);
    let with = |at: usize, bytes: &[u8]| {
        let mut log = good.clone();
        log[at..at + bytes.len()].copy_from_slice(bytes);
        read(&log)
    };
    for (at, bytes, place, what) in [
        (8, &[2][..], 0, "version 2"),
        (24, &[1], 0, "sectors of 513 bytes"),
        (25, &[0], 0, "sectors of 0 bytes"),
        (1536 + 16, &[0x20], 1536, "flags"),
        (1536, &[0xff; 8], 1536, "sectors at"),
        (1536 + 8, &[0xff; 8], 1536, "sectors at"),
    ] {
        let error = with(at, bytes).error.unwrap();
        match &error {
            TraceError::Damaged { at: At::Byte(found), .. } | TraceError::Unsupported { at: At::Byte(found), .. } => {
                assert_eq!(*found, place, "{error}");
            }
            _ => panic!("{error}"),
        }
        assert!(error.to_string().contains(what), "{error}");
    }
    for (at, byte) in good.iter().enumerate() {
        for change in [0xff, 1, 0x80] {
            let seen = with(at, &[byte ^ change]);
            assert!(seen.events.len() <= 3);
        }
    }
}
