//! blktrace's records byte by byte: both versions, both byte orders, damage. Records are built from the fields of
//! `struct blk_io_trace` and `struct blk_io_trace2`, by a writer that shares nothing with the reader.

use std::io::Cursor;
use std::path::Path;

use trace::block::{Action, DeviceId, Event, Flags, Op};
use trace::{At, Input, Opened, OtherCounts, TraceError, open, open_input};

use crate::blktrace::fixture;

/// The fields of a record.
#[derive(Clone, Debug)]
struct Record {
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    pid: u32,
    device: u32,
    cpu: u32,
    error: u16,
    data: Vec<u8>,
}

const WRITE: u64 = 2 << 16;
const QUEUE: u64 = 1 | 16 << 16;
const COMPLETE: u64 = 8 | 128 << 16;
const NOTIFY: u64 = 1024 << 16;

impl Record {
    fn new(sequence: u32, action: u64) -> Self {
        Record {
            sequence,
            time: u64::from(sequence) * 100,
            sector: 8 * u64::from(sequence),
            bytes: 4096,
            action,
            pid: 697,
            device: 8 << 20 | 1,
            cpu: 0,
            error: 0,
            data: Vec::new(),
        }
    }

    /// The record as bytes, in either byte order.
    fn bytes(&self, version: u8, big: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |n: u64, width: usize| match big {
            true => out.extend_from_slice(&n.to_be_bytes()[8 - width..]),
            false => out.extend_from_slice(&n.to_le_bytes()[..width]),
        };
        put(0x6561_7400 | u64::from(version), 4);
        put(self.sequence.into(), 4);
        put(self.time, 8);
        put(self.sector, 8);
        put(self.bytes.into(), 4);
        match version {
            8 => {
                put(self.pid.into(), 4);
                put(self.action, 8);
            }
            _ => {
                put(self.action, 4);
                put(self.pid.into(), 4);
            }
        }
        put(self.device.into(), 4);
        put(self.cpu.into(), 4);
        put(self.error.into(), 2);
        put(self.data.len() as u64, 2);
        if version == 8 {
            put(0, 8);
            put(0, 4);
        }
        out.extend_from_slice(&self.data);
        out
    }

    /// Parses a little-endian record of version 7; also returns its length.
    fn parse(b: &[u8]) -> (Self, usize) {
        let n = |at: usize, width: usize| (0..width).rev().fold(0_u64, |n, k| n << 8 | u64::from(b[at + k]));
        assert_eq!(n(0, 4), 0x6561_7407);
        let length = 48 + n(46, 2) as usize;
        let record = Record {
            sequence: n(4, 4) as u32,
            time: n(8, 8),
            sector: n(16, 8),
            bytes: n(24, 4) as u32,
            action: n(28, 4),
            pid: n(32, 4) as u32,
            device: n(36, 4) as u32,
            cpu: n(40, 4) as u32,
            error: n(44, 2) as u16,
            data: b[48..length].to_vec(),
        };
        (record, length)
    }
}

fn file(records: &[Record], version: u8, big: bool) -> Vec<u8> {
    records.iter().flat_map(|r| r.bytes(version, big)).collect()
}

fn records_of(name: &str) -> Vec<Record> {
    let bytes = zstd::decode_all(std::fs::File::open(fixture(name)).unwrap()).unwrap();
    let (mut rest, mut records) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (record, length) = Record::parse(rest);
        records.push(record);
        rest = &rest[length..];
    }
    records
}

struct Seen {
    events: Vec<Event>,
    names: Vec<String>,
    others: OtherCounts,
    error: Option<TraceError>,
}

fn to_end(opened: Result<Opened, TraceError>) -> Seen {
    let mut seen = Seen { events: Vec::new(), names: Vec::new(), others: OtherCounts::new(), error: None };
    match opened {
        Ok(Opened::Blocks(mut reader)) => {
            loop {
                match reader.next() {
                    Ok(Some(event)) => {
                        seen.names.push(reader.names().name(event.process).to_owned());
                        seen.events.push(event);
                    }
                    Ok(None) => break,
                    Err(e) => {
                        seen.error = Some(e);
                        break;
                    }
                }
            }
            assert!(matches!(reader.next(), Ok(None)), "something after the end");
            seen.others = reader.other_counts().clone();
        }
        Ok(_) => panic!("no recording of a block device"),
        Err(e) => seen.error = Some(e),
    }
    seen
}

fn read(bytes: &[u8]) -> Seen {
    to_end(open_input(Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())).unwrap()))
}

/// Reads without an error.
fn good(bytes: &[u8]) -> Seen {
    let seen = read(bytes);
    assert!(seen.error.is_none(), "{:?}", seen.error);
    seen
}

#[test]
fn both_versions_in_both_byte_orders_tell_the_same() {
    for name in ["vda.blktrace.1.zst", "vdb.blktrace.zst"] {
        let records = records_of(name);
        let first = good(&file(&records, 7, false));
        assert!(first.events.len() > 2000);
        for (version, big) in [(7, true), (8, false), (8, true)] {
            let again = good(&file(&records, version, big));
            assert_eq!(again.events, first.events, "{name}, version {version}");
            assert_eq!((again.names, &again.others), (first.names.clone(), &first.others));
        }
    }
}

#[test]
fn version_8_knows_zones_and_zeroes() {
    let about = |bit: u64| 1 << (16 + bit);
    let records: Vec<Record> = (16..=22)
        .map(|bit| QUEUE | about(bit) | WRITE)
        .chain([18 | QUEUE & !0xff, 19 | QUEUE & !0xff])
        .zip(1..)
        .map(|(action, n)| Record::new(n, action))
        .collect();
    let seen = good(&file(&records, 8, false));
    let ops: Vec<Op> = seen.events.iter().take(7).map(|e| e.op).collect();
    let zone = Op::Other;
    assert_eq!(ops, [Op::Write, zone, zone, zone, zone, zone, Op::WriteZeroes]);
    let plugs: Vec<Action> = seen.events.iter().skip(7).map(|e| e.action).collect();
    assert_eq!(plugs, [Action::Other, Action::Other]);
    assert!(seen.others.is_empty(), "{:?}", seen.others);
}

#[test]
fn categories_are_operations_and_flags() {
    let bit = |n: u64| 1 << (16 + n);
    let event = |action: u64, bytes: u32| {
        let record = Record { bytes, ..Record::new(1, action) };
        let event = good(&record.bytes(7, false)).events[0];
        (event.op, event.flags, event.sector, event.sectors)
    };
    let none = Flags::empty();
    assert_eq!(event(QUEUE, 4096), (Op::Read, none, 8, 8));
    assert_eq!(event(QUEUE | WRITE | bit(3) | bit(12), 512), (Op::Write, Flags::SYNC | Flags::META, 8, 1));
    assert_eq!(event(QUEUE | bit(11), 512), (Op::Read, Flags::AHEAD, 8, 1));
    assert_eq!(event(QUEUE | WRITE | bit(2) | bit(15), 512), (Op::Write, Flags::PREFLUSH | Flags::FUA, 8, 1));
    assert_eq!(event(QUEUE | WRITE | bit(2), 0), (Op::Flush, none, 0, 0));
    assert_eq!(event(QUEUE | bit(2), 0), (Op::Flush, none, 0, 0));
    assert_eq!(event(QUEUE | WRITE | bit(13), 0x8000_0000), (Op::Discard, none, 8, 1 << 22));
    assert_eq!(event(QUEUE | bit(9), 512), (Op::Other, none, 8, 1));
    assert_eq!(event(QUEUE, 0), (Op::Other, none, 0, 0));
}

#[test]
fn a_remap_is_where_it_goes_to_and_a_cgroup_is_passed_over() {
    let mut remap = Record::new(1, QUEUE & !0xff | 15);
    remap.data = [8_u32 << 20 | 7, 9 << 20 | 3].iter().flat_map(|d| d.to_be_bytes()).collect();
    remap.data.extend_from_slice(&5000_u64.to_be_bytes());
    let mut grouped = remap.clone();
    grouped.sequence = 2;
    grouped.action |= 256;
    grouped.data.splice(0..0, [7; 8]);
    for big in [false, true] {
        let seen = good(&file(&[remap.clone(), grouped.clone()], 7, big));
        for event in seen.events {
            assert_eq!((event.action, event.device), (Action::Remap, DeviceId { major: 9, minor: 3 }));
        }
    }
}

#[test]
fn names_are_those_of_notes_and_errors_are_positive() {
    let name = |pid: u32, data: &[u8]| Record { pid, data: data.to_vec(), ..Record::new(0, NOTIFY) };
    let mut grouped = name(5, b"12345678dd\0\0");
    grouped.action |= 256;
    let mut records = vec![name(697, b"fsync\0rest"), grouped, Record::new(1, QUEUE), Record::new(2, COMPLETE)];
    records[3].pid = 5;
    records[3].error = 5_u16.wrapping_neg();
    records.push(Record { pid: 1, ..Record::new(3, QUEUE) });
    let seen = good(&file(&records, 7, false));
    assert_eq!(seen.names, ["fsync", "dd", ""]);
    assert_eq!(seen.events.iter().map(|e| e.error).collect::<Vec<_>>(), [0, 5, 0]);
}

#[test]
fn events_lost_by_the_kernel_are_counted_for_each_cpu() {
    let on = |cpu: u32, sequence: u32| Record { cpu, ..Record::new(sequence, QUEUE) };
    let seen = good(&file(&[on(0, 1), on(1, 1), on(0, 2), on(0, 6), on(1, 2), on(1, 5)], 7, false));
    assert_eq!(seen.events.len(), 6);
    assert_eq!(seen.others["events the kernel lost"], 3 + 2);
    // Sequence numbers have 32 bits.
    let mut around = [on(0, u32::MAX), on(0, 0)];
    around[1].time = around[0].time + 1;
    assert!(good(&file(&around, 7, false)).others.is_empty());
}

#[test]
fn buffers_of_processors_in_one_stream_are_put_in_order() {
    let on =
        |cpu: u32, sequence: u32| Record { cpu, time: u64::from(2 * sequence + cpu), ..Record::new(sequence, QUEUE) };
    // Buffers of 512 KiB, one CPU after the other.
    let mut records = Vec::new();
    for buffer in 0..6 {
        for cpu in 0..2 {
            records.extend((1..=10_922).map(|n| on(cpu, buffer * 10_922 + n)));
        }
    }
    let seen = good(&file(&records, 7, false));
    assert_eq!(seen.events.len(), records.len());
    assert!(seen.events.is_sorted_by_key(|e| e.time));
    assert!(seen.others.is_empty(), "{:?}", seen.others);
    // Whole recordings of CPUs one after the other exceed the window.
    records.sort_by_key(|r| r.cpu);
    let seen = good(&file(&records, 7, false));
    assert_eq!(seen.events.len(), records.len());
    assert!(seen.others["events told too late to be put in order"] > 10_000);
}

#[test]
fn files_of_processors_are_one_recording_by_any_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let files = ["vda.blktrace.0", "vda.blktrace.1"].map(|name| {
        let bytes = zstd::decode_all(std::fs::File::open(fixture(&format!("{name}.zst"))).unwrap()).unwrap();
        std::fs::write(place(name), &bytes).unwrap();
        bytes
    });
    // An idle CPU, and files with other names.
    std::fs::write(place("vda.blktrace.2"), b"").unwrap();
    for other in ["vda1.blktrace.0", "vda.blktrace.x", "vda.blktrace.", "vda.blktrace.0.txt"] {
        std::fs::write(place(other), b"something else").unwrap();
    }
    let whole = to_end(open(&fixture("vda.blktrace.0.zst")));
    assert!(whole.error.is_none() && whole.events.iter().any(|e| e.cpu == 1));
    for name in ["vda", "vda.blktrace.0", "vda.blktrace.1", "vda.blktrace.2"] {
        let seen = to_end(open(&place(name)));
        assert!(seen.error.is_none(), "{name}: {:?}", seen.error);
        assert_eq!(seen.events, whole.events, "{name}");
    }
    // Under another name it is a single file.
    std::fs::write(place("alone"), &files[1]).unwrap();
    let alone = to_end(open(&place("alone")));
    assert!(alone.events.len() < whole.events.len() && alone.events.iter().all(|e| e.cpu == 1));
    // If the end of one is missing, all available events come first, and then the error with its name.
    std::fs::write(place("vda.blktrace.1"), &files[1][..files[1].len() - 1]).unwrap();
    let cut = to_end(open(&place("vda")));
    assert_eq!(cut.events.len(), whole.events.len() - 1);
    let error = cut.error.unwrap();
    assert!(error.is_cut_short() && error.to_string().contains("vda.blktrace.1"), "{error}");
    // A name without files.
    assert!(matches!(open(&place("vdb")), Err(TraceError::Io { .. })));
    assert!(matches!(open(&place("vda1.blktrace.0")), Err(TraceError::Unknown { .. })));
}

/// The first records of a recording: notes, a remap, events.
fn some(n: usize) -> Vec<Record> {
    records_of("vda.blktrace.0.zst").into_iter().take(n).collect()
}

#[test]
fn a_recording_cut_anywhere_gives_its_complete_records() {
    for (version, big) in [(7, false), (7, true), (8, false)] {
        let records = some(12);
        let bytes = file(&records, version, big);
        let ends: Vec<usize> = records
            .iter()
            .scan(0, |end, r| {
                *end += r.bytes(version, big).len();
                Some(*end)
            })
            .collect();
        for cut in 4..bytes.len() {
            let seen = read(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let events = records[..whole].iter().filter(|r| r.action & NOTIFY == 0).count();
            assert_eq!(seen.events.len(), events, "{cut}");
            match seen.error {
                None => assert!(ends.contains(&cut), "{cut} is no end"),
                Some(TraceError::CutShort { at: At::Byte(at), .. }) => {
                    assert_eq!(at as usize, if whole == 0 { 0 } else { ends[whole - 1] }, "{cut}");
                }
                Some(other) => panic!("{cut}: {other}"),
            }
        }
    }
}

#[test]
fn every_byte_may_be_wrong() {
    for version in [7, 8] {
        let good = file(&some(20), version, false);
        let mut bytes = good.clone();
        for at in 0..good.len() {
            for change in [0xff, 1, 0x80, good[at]] {
                bytes[at] ^= change;
                let seen = read(&bytes);
                assert!(seen.events.len() <= 20);
                match seen.error {
                    None | Some(TraceError::Unknown { .. }) => {}
                    Some(
                        TraceError::Damaged { at: At::Byte(place), .. }
                        | TraceError::CutShort { at: At::Byte(place), .. }
                        | TraceError::Unsupported { at: At::Byte(place), .. },
                    ) => assert!(place <= good.len() as u64),
                    Some(other) => panic!("{at}: {other}"),
                }
                bytes[at] = good[at];
            }
        }
    }
}

#[test]
fn damage_is_reported_with_its_place_after_all_earlier_records() {
    let records = some(12);
    let mut bytes = file(&records, 7, false);
    let at = bytes.len();
    bytes.extend_from_slice(b"no record at all, but long enough to be one.........");
    let seen = read(&bytes);
    assert_eq!(seen.events.len(), records.iter().filter(|r| r.action & NOTIFY == 0).count());
    match seen.error {
        Some(TraceError::Damaged { at: At::Byte(place), .. }) => assert_eq!(place as usize, at),
        other => panic!("{other:?}"),
    }
    // A different byte order in the middle is invalid.
    let mut mixed = file(&records, 7, false);
    mixed.extend(Record::new(1, QUEUE).bytes(7, true));
    assert!(matches!(read(&mixed).error, Some(TraceError::Damaged { .. })));
    // An older version is reported as such.
    let old = read(&Record::new(1, QUEUE).bytes(6, false)).error.unwrap();
    assert!(matches!(old, TraceError::Unsupported { .. }) && old.to_string().contains("version 6"), "{old}");
}

#[test]
fn zeroes_at_the_end_are_a_recording_that_was_not_closed() {
    let records = some(12);
    let mut bytes = file(&records, 7, false);
    let end = bytes.len();
    bytes.resize(end + 300_000, 0);
    match read(&bytes).error {
        Some(TraceError::CutShort { at: At::Byte(at), .. }) => assert_eq!(at as usize, end),
        other => panic!("{other:?}"),
    }
    // Data after the zeroes is damage.
    *bytes.last_mut().unwrap() = 1;
    assert!(matches!(read(&bytes).error, Some(TraceError::Damaged { at: At::Byte(at), .. }) if at as usize == end));
}

#[test]
fn times_at_the_ends_of_the_clock_are_times() {
    let mut records = [Record::new(1, QUEUE), Record::new(2, QUEUE)];
    (records[0].time, records[1].time, records[1].sector) = (0, u64::MAX, u64::MAX);
    let seen = good(&file(&records, 7, false));
    assert_eq!(seen.events.iter().map(|e| e.time).collect::<Vec<_>>(), [0, u64::MAX]);
}
