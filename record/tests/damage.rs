//! However a recording is damaged, reading it ends, and an error gives the offset.

use std::io::Cursor;
use std::sync::Arc;

use device::clock::{Time, VirtualClock};
use device::rng::Rng;
use device::{BLOCK, BlockDevice, Lba, Memory, Tag};
use record::blocks::{Events, Recorder};
use record::{Reader, RecordError, calls};
use vfs::FileSystem;

use crate::drivers;
use crate::sink::{Sink, counted};

/// A recording of `n` requests; thousands make several chunks.
fn recording(n: u64) -> Vec<u8> {
    let sink = Sink::default();
    let clock = Arc::new(VirtualClock::new(Time::default()));
    let dev = Recorder::new(Memory::new(1 << 10), sink.clone(), clock, &[]).expect("memory is never full");
    let mut rng = Rng::new(1);
    for _ in 0..n {
        dev.write(Lba(rng.below(1 << 10)), &[2; BLOCK], Tag { cause: 1, owner: rng.below(1 << 40) }).expect("inside");
    }
    drop(dev);
    sink.bytes()
}

fn calls_recording() -> Vec<u8> {
    let sink = Sink::default();
    let clock = Arc::new(VirtualClock::new(Time::default()));
    let fs = Arc::new(judges::memfs::MemFs::new(1 << 20));
    let fs = calls::Recorder::new(fs, sink.clone(), clock).expect("memory is never full");
    let dir = fs.mkdir(vfs::Caller::default(), fs.root(), b"dir", 0o755, 0).expect("made").attr.ino;
    let _ = fs.mkdir(vfs::Caller::default(), fs.root(), b"dir", 0o755, 0);
    let _ = fs.setxattr(dir, b"user.a", b"value", vfs::XattrFlags::CREATE);
    let _ = fs.setattr(dir, &vfs::SetAttr { atime: Some(vfs::SetTime::Now), ..Default::default() });
    let _ = fs.rename(vfs::Caller::default(), (fs.root(), b"dir"), (fs.root(), b"d"), vfs::RenameFlags::empty());
    drop(fs);
    sink.bytes()
}

/// Number of records read, and the error after them.
fn read(bytes: &[u8]) -> (u64, Option<RecordError>) {
    counted(Reader::new(Cursor::new(bytes.to_vec())).and_then(Events::new))
}

#[test]
fn every_changed_byte_is_detected_and_no_record_is_invented() {
    let good = recording(300);
    assert!(read(&good).1.is_none());
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let (whole, error) = read(&bad);
        let error = error.unwrap_or_else(|| panic!("byte {at} was changed and nobody noticed"));
        // A chunk is checked before its records are returned.
        assert!(whole == 0 || whole == 300, "byte {at}: {whole} records, {error}");
        if let RecordError::Damaged { at: place, .. } | RecordError::CutShort { at: place, .. } = error {
            assert!(place <= good.len() as u64, "byte {at}: {error}");
        }
    }
}

#[test]
fn a_recording_that_stops_anywhere_gives_complete_records_and_the_place() {
    let good = recording(12_000);
    let mut rng = Rng::new(2);
    let mut most = 0;
    for at in (0..300).chain((0..200).map(|_| rng.below(good.len() as u64) as usize)) {
        let (whole, error) = read(&good[..at]);
        match error.unwrap_or_else(|| panic!("{at} bytes are not all")) {
            RecordError::CutShort { at: place, records } => assert_eq!((place, records), (at as u64, whole)),
            RecordError::NotARecording => assert!(at < 8),
            other => panic!("{at} bytes: {other}"),
        }
        most = most.max(whole);
    }
    assert!(most > 5_000, "there are several chunks");
    let mut longer = good.clone();
    longer.push(0);
    let (whole, error) = read(&longer);
    let error = error.expect("a byte too many").to_string();
    assert_eq!((whole, error.contains(&format!("byte {}", good.len()))), (12_000, true), "{error}");
}

#[test]
fn a_missing_or_duplicate_chunk_is_detected() {
    let good = recording(12_000);
    // Consecutive chunks: the first four bytes hold the length, the header has twenty.
    let mut chunks = Vec::new();
    let mut at = 16 + 3 + 4;
    while at < good.len() {
        let length = 20 + u32::from_le_bytes(good[at..at + 4].try_into().expect("four bytes")) as usize;
        chunks.push(&good[at..at + length]);
        at += length;
    }
    assert!(chunks.len() >= 4 && at == good.len());
    let head = &good[..23];
    let join = |chunks: &[&[u8]]| [head, &chunks.concat()].concat();
    assert!(read(&join(&chunks)).1.is_none());
    for bad in [
        [&chunks[..1], &chunks[2..]].concat(),
        [&chunks[..2], &chunks[1..]].concat(),
        chunks[1..].to_vec(),
        [&chunks[1..2], &chunks[..1], &chunks[2..]].concat(),
    ] {
        let error = read(&join(&bad)).1.expect("noticed");
        assert!(matches!(error, RecordError::Damaged { .. }), "{error}");
    }
}

#[test]
fn other_files_are_distinguished_from_recordings() {
    for bytes in [&b""[..], b"Joule", b"an ext4 volume, perhaps", &[0; 4096]] {
        assert!(matches!(read(bytes).1, Some(RecordError::NotARecording)), "{bytes:?}");
    }
    let mut later = recording(1);
    later[8] = 3;
    assert!(matches!(read(&later).1, Some(RecordError::Version { found: 3, .. })));
}

#[test]
fn any_bytes_end_in_an_answer() {
    let mut rng = Rng::new(3);
    for good in [recording(40), calls_recording()] {
        drivers::recordings(&good);
        for _ in 0..3_000 {
            let mut bad = good.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.index(bad.len());
                bad[at] = rng.next_u64() as u8;
            }
            drivers::recordings(&bad);
        }
    }
}
