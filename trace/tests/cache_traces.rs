//! Binary recordings of cache simulators are read. The records are made by hand from the documentation of the formats.

use trace::block::Op;
use trace::{Format, TraceError};

use crate::text::{self, read};

/// A record of version 2: command, version, number, length, scatter-gather elements, sector, microseconds, response.
fn vscsi2(command: u16, length: u32, sector: u64, us: u64) -> Vec<u8> {
    let mut all = [command.to_le_bytes(), 0x0200_u16.to_le_bytes()].concat();
    [7, length, 1].iter().for_each(|n: &u32| all.extend(n.to_le_bytes()));
    [sector, us, 250].iter().for_each(|n| all.extend(n.to_le_bytes()));
    all
}

/// A record of version 1.
fn vscsi1(command: u16, length: u32, sector: u64, us: u64) -> Vec<u8> {
    let mut all: Vec<u8> = [7, length, 1].iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
    [command, 0x0100].iter().for_each(|n| all.extend(n.to_le_bytes()));
    [sector, us].iter().for_each(|n| all.extend(n.to_le_bytes()));
    all
}

fn oracle(time: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    [&time.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
}

#[test]
fn both_versions_of_vscsi_have_reads_writes_and_flushes() {
    for record in [vscsi1 as fn(_, _, _, _) -> _, vscsi2] {
        let bytes = [
            record(0x28, 4096, 8, 1_000_000),
            record(0x2a, 512, 99, 1_000_001),
            record(0x35, 0, 0, 5),
            record(0, 0, 0, 6),
        ];
        let bytes = bytes.concat();
        assert_eq!(text::open(&bytes).unwrap().format(), Format::Vscsi);
        let seen = read(&bytes);
        assert!(seen.error.is_none(), "{:?}", seen.error);
        let all: Vec<_> = seen.events.iter().map(|e| (e.time, e.op, e.sector, e.sectors)).collect();
        assert_eq!(all, [(1_000_000_000, Op::Read, 8, 8), (1_000_001_000, Op::Write, 99, 1), (5000, Op::Flush, 0, 0)]);
        assert_eq!(seen.others["other SCSI commands"], 1);
        assert!(read(&bytes[..bytes.len() - 1]).error.unwrap().is_cut_short());
    }
}

#[test]
fn an_object_of_oracle_general_is_a_sector_unless_it_is_a_hash() {
    let bytes = [oracle(0, 2048, 4096, 2), oracle(3, 8, 512, -1), oracle(3, 2048, 4096, i64::MAX)].concat();
    assert_eq!(text::open(&bytes).unwrap().format(), Format::OracleGeneral);
    let seen = read(&bytes);
    let all: Vec<_> = seen.events.iter().map(|e| (e.time, e.op, e.sector, e.sectors)).collect();
    assert_eq!(all, [(0, Op::Read, 2048, 8), (3_000_000_000, Op::Read, 8, 1), (3_000_000_000, Op::Read, 2048, 8)]);
    assert_eq!(seen.others["requests without an operation, taken as reads"], 3);
    let hashed = [oracle(0, u64::MAX / 3, 4096, 2), oracle(3, 8, 512, -1)].concat();
    assert!(read(&hashed).error.unwrap().to_string().contains("other caches"));
    let unordered = [oracle(3, 8, 4096, 2), oracle(0, 8, 512, -1)].concat();
    assert!(matches!(read(&unordered).error, Some(TraceError::Unknown { .. })));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let vscsi: Vec<u8> = (0..9).flat_map(|n| vscsi2(0x28, 4096, 8 * n, n)).collect();
    let oracle: Vec<u8> = (0..9).flat_map(|n| oracle(n, 8, 4096, -1)).collect();
    for bytes in [&vscsi, &oracle] {
        text::drivers::cache_traces(bytes);
        text::survives_damage(bytes);
    }
}
