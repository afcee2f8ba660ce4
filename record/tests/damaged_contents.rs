//! However a recording with contents is damaged, reading it ends, and an error gives the offset.

use std::io::Cursor;
use std::sync::Arc;

use device::rng::Rng;
use judges::memfs::MemFs;
use record::calls::{Events, Recorder};
use record::{Reader, RecordError};

use crate::drivers;
use crate::old_tree::{CHUNK_HEAD, change, chunks, clock, find, noise, old_tree, recorder, write};
use crate::sink::{Sink, counted};

/// A recording with several chunks of all kinds of records.
fn recording() -> Vec<u8> {
    let (sink, mut rng) = (Sink::default(), Rng::new(5));
    let old = Arc::new(MemFs::new(1 << 30));
    old_tree(&*old, &mut rng);
    let fs = recorder(old, &sink);
    change(&fs);
    let ino = find(&fs, "new/holes");
    write(&fs, ino, 0, &noise(&mut rng, 700 << 10));
    drop(fs);
    sink.bytes()
}

/// Number of records read, and the error after them.
fn read(bytes: &[u8]) -> (u64, Option<RecordError>) {
    counted(Reader::new(Cursor::new(bytes.to_vec())).and_then(Events::new))
}

#[test]
fn damage_is_detected_and_earlier_records_are_read() {
    let good = recording();
    let (all, error) = read(&good);
    assert!(error.is_none() && all > 100, "{all} {error:?}");
    let ends = chunks(&good);
    assert!(ends.len() >= 4, "{ends:?}");
    let mut rng = Rng::new(6);
    for at in (0..400).chain((0..400).map(|_| rng.below(good.len() as u64) as usize)) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let (whole, error) = read(&bad);
        let error = error.unwrap_or_else(|| panic!("byte {at} was changed and nobody noticed"));
        assert!(whole < all);
        if let RecordError::Damaged { at: place, .. } = error {
            // The damaged chunk, or the header.
            let chunk = ends.iter().find(|(from, length)| (*from..from + CHUNK_HEAD + length).contains(&at));
            assert!(
                chunk.is_none_or(|(from, length)| (*from..from + CHUNK_HEAD + length).contains(&(place as usize))),
                "{at}: {error}"
            );
        }
        let (cut, error) = read(&good[..at]);
        assert!(cut < all);
        match error.expect("not all") {
            RecordError::CutShort { at: place, .. } => assert_eq!(place, at as u64),
            // A cut between the parts of one write.
            other => assert!(at < 8, "cut at {at}: {other}"),
        }
    }
}

/// A chunk with a valid checksum around a payload.
fn chunk(payload: &[u8], records: u32, first: u64) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    head.extend_from_slice(&records.to_le_bytes());
    head.extend_from_slice(&first.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(payload);
    head.extend_from_slice(&crc.finalize().to_le_bytes());
    [head, payload.to_vec()].concat()
}

#[test]
fn a_forged_recording_gets_no_memory_and_no_sense() {
    let good = recording();
    let (first, _) = chunks(&good)[0];
    let head = &good[..first];
    let end = |records| chunk(&[], 0, records);
    let packed = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).expect("memory");
    let part = |n: usize| {
        // A part: at 0, took 0, n bytes (three of LEB128), result 0.
        let length = [(n & 127) as u8 | 128, (n >> 7 & 127) as u8 | 128, (n >> 14) as u8];
        [&[30, 0, 0][..], &length, &vec![b'p'; n], &[0]].concat()
    };
    // A frame of 64 MiB in a few bytes.
    let bomb = packed(&vec![0; 64 << 20]);
    assert!(bomb.len() < 1 << 18);
    let parts = |n: u64| -> Vec<u8> { (0..n).flat_map(|i| chunk(&packed(&part((1 << 20) - 100)), 1, i)).collect() };
    for (name, body, says) in [
        ("a bomb", [chunk(&bomb, 1, 0), end(1)].concat(), "compression"),
        ("no frame", [chunk(b"records as they are", 1, 0), end(1)].concat(), "compression"),
        ("half a frame", [chunk(&packed(&[3; 5000])[..10], 1, 0), end(1)].concat(), "compression"),
        ("parts of nothing", [parts(1), end(1)].concat(), "do not follow"),
        (
            "parts of a sync",
            [chunk(&packed(&[part(1 << 14), vec![22, 0, 0, 0]].concat()), 2, 0), end(2)].concat(),
            "do not follow",
        ),
        ("parts without end", [parts(70), end(70)].concat(), "longer than"),
        ("an unknown call", [chunk(&packed(&[34, 0, 0, 0]), 1, 0), end(1)].concat(), "unknown call"),
    ] {
        let (whole, error) = read(&[head, &body].concat());
        let error = error.unwrap_or_else(|| panic!("{name} was read")).to_string();
        assert!(whole == 0 && error.contains(says), "{name}: {error}");
    }
    // A recording without contents has no records for them.
    let sink = Sink::default();
    drop(Recorder::new(Arc::new(MemFs::new(1 << 20)), sink.clone(), clock()).expect("memory is never full"));
    let plain = sink.bytes();
    let body = [chunk(&part(1 << 14), 1, 0), end(1)].concat();
    let error = read(&[&plain[..plain.len() - CHUNK_HEAD], &body].concat()).1.expect("refused").to_string();
    assert!(error.contains("unknown call"), "{error}");
    // A later version is refused with an error.
    let mut later = good.clone();
    later[8] = 3;
    let error = read(&later).1.expect("refused").to_string();
    assert_eq!(error, "version 3 of the format; this program reads versions up to 2");
}

#[test]
fn any_bytes_end_in_an_answer() {
    let (good, mut rng) = (recording(), Rng::new(3));
    drivers::recordings(&good);
    for _ in 0..200 {
        let mut bad = good.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.index(bad.len());
            bad[at] = rng.next_u64() as u8;
        }
        drivers::recordings(&bad);
    }
}

#[test]
fn recordings_that_are_shipped_are_read_as_before() {
    let all = ["chat", "clone", "unpack", "download"].map(|name| {
        let path = format!("{}/../experiments/fagc-fig11/{name}.rec", env!("CARGO_MANIFEST_DIR"));
        let (read, error) = read(&std::fs::read(path).expect("shipped"));
        assert!(error.is_none(), "{name}: {error:?}");
        read
    });
    assert_eq!(all, [5_162, 8_729, 25_798, 26_785]);
}
