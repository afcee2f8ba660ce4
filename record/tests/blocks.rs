//! Requests to a device are recorded, read and replayed.

use std::sync::Arc;
use std::time::Duration;

use device::clock::{Clock, Time, VirtualClock};
use device::model::Remap;
use device::rng::Rng;
use device::{BLOCK, BlockDevice, Counting, Lba, Memory, Tag, generate};
use record::blocks::{Event, Events, Recorder, Request, replay};
use record::{RecordError, Tempo};

use crate::sink::{Full, Sink};

const BLOCKS: u64 = 1 << 12;
const CAUSES: &[(u8, &str)] = &[(0, "zero"), (2, "two")];

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::default()))
}

/// Records random requests, some of which fail, at distinct times; also returns what a reader must find.
fn record(requests: u64) -> (Sink, Vec<Event>) {
    let (sink, clock) = (Sink::default(), clock());
    let dev = Recorder::new(Memory::new(BLOCKS), sink.clone(), clock.clone(), CAUSES).expect("memory is never full");
    let mut rng = Rng::new(5);
    let mut expected = Vec::new();
    let mut next = 0;
    for _ in 0..requests {
        clock.advance(Duration::from_nanos(rng.below(1 << 20)));
        let arrival = u64::try_from(clock.monotonic().as_nanos()).unwrap();
        let tag = Tag { cause: rng.below(3) as u8, owner: rng.below(2) * 77_000 };
        let blocks = 1 + rng.below(4);
        // Half of them continue where the last one ended; one may pass the end and fail.
        let at = Lba(if rng.chance(1, 2) { next } else { rng.below(BLOCKS) });
        next = at.0 + blocks;
        let data = vec![rng.below(3) as u8; blocks as usize * BLOCK];
        let (request, done) = match rng.below(6) {
            0 => (Request::Read { at, blocks }, dev.read(at, &mut data.clone(), tag)),
            1 => {
                let fingerprint = crc32fast_of(&data);
                (Request::Write { at, blocks, fingerprint }, dev.write(at, &data, tag))
            }
            2 => {
                let fingerprint = crc32fast_of(&data);
                let parts: Vec<&[u8]> = data.chunks(BLOCK).collect();
                (Request::Write { at, blocks, fingerprint }, dev.write_gather(at, &parts, tag))
            }
            3 => (Request::Flush, dev.flush(tag)),
            4 => (Request::Discard { at, blocks }, dev.discard(at, blocks, tag)),
            _ => {
                let (to, how) = (Lba(rng.below(BLOCKS)), [Remap::Move, Remap::Exchange, Remap::Share][rng.index(3)]);
                (Request::Remap { from: at, to, blocks, how }, dev.remap(at, to, blocks, how, tag))
            }
        };
        expected.push(Event { arrival, took: 0, tag, request, failed: done.is_err() });
    }
    assert_eq!(dev.finish().expect("memory is never full"), requests);
    (sink, expected)
}

fn crc32fast_of(data: &[u8]) -> u32 {
    crc32fast::hash(data)
}

#[test]
fn recorded_requests_are_read_back() {
    let (sink, expected) = record(20_000);
    let events = Events::new(sink.reader()).expect("a recording of a device");
    assert_eq!(events.blocks(), BLOCKS);
    assert_eq!(events.causes().iter().map(|(n, t)| (*n, t.as_str())).collect::<Vec<_>>(), CAUSES);
    let read: Vec<Event> = events.map(|e| e.expect("whole")).collect();
    assert_eq!(read.len(), expected.len());
    for (n, (read, expected)) in read.iter().zip(&expected).enumerate() {
        assert_eq!(read, expected, "record {n}");
    }
    assert!(expected.iter().any(|e| e.failed) && expected.iter().any(|e| !e.failed));
    let each = sink.bytes().len() as f64 / expected.len() as f64;
    assert!(each < 14.0, "{each} bytes a request");
}

#[test]
fn a_replay_makes_the_same_requests_at_the_same_times() {
    let (sink, expected) = record(3_000);
    let made = expected.iter().filter(|e| !e.failed).count() as u64;
    let (again, clock) = (Sink::default(), clock());
    clock.advance(Duration::from_secs(9));
    let dev = Recorder::new(Memory::new(BLOCKS), again.clone(), clock.clone(), CAUSES).expect("memory is never full");
    let events = Events::new(sink.reader()).expect("a recording of a device");
    let (done, whole) = replay(events, &dev, &Tempo::Virtual(clock), |_, failure| assert!(failure.is_none()));
    whole.expect("whole");
    assert_eq!((done.requests, done.failed, done.left_out), (made, 0, expected.len() as u64 - made));
    assert_eq!(done.span, expected[expected.len() - 1].arrival - expected[0].arrival);
    dev.finish().expect("memory is never full");

    // The time before the first request is not replayed. Contents are generated: other fingerprints, but equal for
    // equal ones.
    let first = expected[0].arrival;
    let mut generated = std::collections::BTreeMap::new();
    let second = Events::new(again.reader()).expect("a recording of a device").map(|e| e.expect("whole"));
    for (now, then) in second.zip(expected.iter().filter(|e| !e.failed)) {
        let (mut now, mut then) = (now, *then);
        if let (Request::Write { fingerprint: a, .. }, Request::Write { fingerprint: b, blocks, .. }) =
            (&mut now.request, &mut then.request)
        {
            assert_eq!(*generated.entry((*b, *blocks)).or_insert(*a), *a);
            (*a, *b) = (0, 0);
        }
        then.arrival -= first;
        assert_eq!(now, then);
    }
    assert!(generated.len() > 3);
}

#[test]
fn a_long_request_is_split_into_parts_of_one_sequence() {
    let sink = Sink::default();
    let dev = Recorder::new(Memory::new(BLOCKS), sink.clone(), clock(), CAUSES).expect("memory is never full");
    let data = vec![1; 600 * BLOCK];
    dev.write(Lba(10), &data, Tag::default()).expect("inside");
    dev.write(Lba(0), &[], Tag::default()).expect("nothing is inside");
    drop(dev);
    let target = Counting::new(Memory::new(BLOCKS));
    let events = Events::new(sink.reader()).expect("a recording of a device");
    let (done, whole) = replay(events, &target, &Tempo::BackToBack, |_, _| {});
    whole.expect("whole");
    assert_eq!((done.requests, done.failed), (2, 0));
    assert_eq!(target.snapshot().total().blocks_written, 600);
    let mut expected = vec![0; 600 * BLOCK];
    generate(u64::from(crc32fast_of(&data)), 0, &mut expected);
    let mut found = vec![0; 600 * BLOCK];
    target.read(Lba(10), &mut found, Tag::default()).expect("inside");
    assert!(found == expected);
}

#[test]
fn a_smaller_device_fails_where_it_ends_and_the_replay_goes_on() {
    let (sink, expected) = record(2_000);
    let events = Events::new(sink.reader()).expect("a recording of a device");
    let mut told = 0;
    let (done, whole) = replay(events, &Memory::new(BLOCKS / 2), &Tempo::BackToBack, |_, failure| {
        told += u64::from(failure.is_some());
    });
    whole.expect("whole");
    assert_eq!(done.requests + done.left_out, expected.len() as u64);
    assert!(done.failed > 100 && done.failed == told && done.failed < done.requests, "{done:?}");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_device() {
    let dev = Recorder::new(Memory::new(BLOCKS), Full(100), clock(), CAUSES).expect("there is room for the beginning");
    for n in 0..100_000 {
        dev.write(Lba(n % BLOCKS), &[1; BLOCK], Tag::default()).expect("the device is not full");
    }
    assert_eq!(dev.finish().expect_err("the recording is").kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn a_recording_of_a_device_is_none_of_a_file_system() {
    let (sink, _) = record(1);
    let error = record::calls::Events::new(sink.reader()).err().expect("refused");
    assert!(matches!(error, RecordError::Kind { .. }), "{error}");
}
