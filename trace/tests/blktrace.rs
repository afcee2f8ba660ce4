//! blktrace's records and blkparse's text for them, recorded by `conformance/examples/record_blktrace.rs` under Linux
//! 6.1, have the same events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trace::block::{Action, Event, Op};
use trace::requests::Requests;
use trace::{Format, Opened, OtherCounts, open};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/blktrace").join(name)
}

/// Events with the names of their processes, and counts of other records.
fn all(path: &Path) -> (Vec<(Event, String)>, OtherCounts, Format) {
    let Ok(Opened::Blocks(mut events)) = open(path) else { panic!("{}: not opened", path.display()) };
    let mut told = Vec::new();
    while let Some(event) = events.next().unwrap() {
        told.push((event, events.names().name(event.process).to_owned()));
    }
    (told, events.other_counts().clone(), events.format())
}

/// The same with the first event at 0, and processes only by name and number. Events of two CPUs in the same nanosecond
/// have no order, and blkparse sorts a stream 512 events at a time.
fn from_zero(path: &Path) -> Vec<(Event, String)> {
    let (mut events, _, _) = all(path);
    let first = events[0].0.time;
    for (event, _) in &mut events {
        event.time -= first;
        event.process = Default::default();
    }
    events.sort_by_key(|(event, _)| (event.time, event.cpu));
    events
}

#[test]
fn records_and_blkparses_text_of_them_tell_the_same_events() {
    for (records, text, at_least) in
        [("vda.blktrace.0.zst", "vda.blkparse.zst", 2900), ("vdb.blktrace.zst", "vdb.blkparse.zst", 1900)]
    {
        let (ours, theirs) = (from_zero(&fixture(records)), from_zero(&fixture(text)));
        assert!(ours.len() >= at_least, "{}", ours.len());
        for (n, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(a.0, b.0, "event {n} of {records}");
            // A completion has no name in the text unless its process had an earlier event.
            assert!(a.1 == b.1 || b.1.is_empty(), "event {n} of {records}: {} is called {}", a.1, b.1);
        }
        assert_eq!(ours.len(), theirs.len());
    }
}

/// The numbers of a row of blkparse's table, before `KiB` or without.
fn numbers(table: &str, name: &str) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for line in table.lines() {
        let Some(at) = line.find(&format!(" {name}:")) else { continue };
        let mut rest = line[at..].split(':').nth(1).unwrap_or("").split([',', '\t']).map(str::trim);
        let number = |text: Option<&str>| text?.strip_suffix("KiB").or(text)?.trim().parse().ok();
        found.push((number(rest.next()).unwrap(), number(rest.next()).unwrap_or(0)));
    }
    found
}

#[test]
fn totals_are_those_of_blkparses_own_table() {
    for (records, text) in [("vda.blktrace.1.zst", "vda.blkparse.zst"), ("vdb.blktrace.zst", "vdb.blkparse.zst")] {
        let file = std::fs::File::open(fixture(text)).unwrap();
        let text = String::from_utf8(zstd::decode_all(file).unwrap()).unwrap();
        let (events, _, _) = all(&fixture(records));
        let mut totals: BTreeMap<(Action, bool), (u64, u64)> = BTreeMap::new();
        for (event, _) in &events {
            // The block layer's own flushes count as empty reads in blkparse; a file system's flushes are writes.
            let write = match event.op {
                Op::Write | Op::Discard => true,
                Op::Read => false,
                Op::Flush => event.flags.contains(trace::block::Flags::SYNC),
                _ => continue,
            };
            let total = totals.entry((event.action, write)).or_default();
            *total = (total.0 + 1, total.1 + event.bytes());
        }
        for (name, action, write) in [
            ("Reads Queued", Action::Queue, false),
            ("Writes Queued", Action::Queue, true),
            ("Read Dispatches", Action::Issue, false),
            ("Write Dispatches", Action::Issue, true),
            ("Reads Completed", Action::Complete, false),
            ("Writes Completed", Action::Complete, true),
            ("Read Merges", Action::BackMerge, false),
            ("Write Merges", Action::BackMerge, true),
        ] {
            // The last table is the total; with one CPU it is the only one.
            let (count, kib) = *numbers(&text, name).last().unwrap();
            let ours = totals.get(&(action, write)).copied().unwrap_or_default();
            assert_eq!((ours.0, ours.1 >> 10), (count, kib), "{name} of {records}");
        }
        let entries = text.lines().find_map(|l| l.strip_prefix("Events (")?.split_once("): ")).unwrap().1;
        assert_eq!(entries, format!("{} entries", events.len()));
    }
}

#[test]
fn statistics_count_the_requests_that_blkparse_counts_as_dispatched() {
    for (records, text) in [("vda.blktrace.1.zst", "vda.blkparse.zst"), ("vdb.blktrace.zst", "vdb.blkparse.zst")] {
        let text = zstd::decode_all(std::fs::File::open(fixture(text)).unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        let Ok(Opened::Blocks(events)) = open(&fixture(records)) else { panic!("not opened") };
        let (stat, whole) = trace::stat::blocks::count(&mut Requests::new(events), |_| ());
        whole.unwrap();
        assert_eq!(stat.requests_are, 'D');
        let of = |op: Op| {
            stat.operations.iter().find(|o| o.op == op.text()).map_or((0, 0), |o| (o.sizes.count, o.sizes.bytes))
        };
        let (reads, writes, discards, flushes) = (of(Op::Read), of(Op::Write), of(Op::Discard), of(Op::Flush));
        // blkparse counts discards as writes, and the block layer's flushes as empty reads.
        let dispatched = |name: &str| *numbers(&text, name).last().unwrap();
        assert_eq!((reads.0 + flushes.0, reads.1 >> 10), dispatched("Read Dispatches"));
        assert_eq!((writes.0 + discards.0, (writes.1 + discards.1) >> 10), dispatched("Write Dispatches"));
        assert_eq!(flushes.0, text.lines().filter(|line| line.contains("  D  FN ")).count() as u64);
    }
}

#[test]
fn events_of_all_processors_come_in_the_order_of_their_times() {
    for records in ["vda.blktrace.0.zst", "vdb.blktrace.zst"] {
        let (events, others, format) = all(&fixture(records));
        assert!(events.is_sorted_by_key(|(event, _)| event.time));
        assert!([0, 1].iter().all(|cpu| events.iter().any(|(event, _)| event.cpu == *cpu)));
        assert!(!others.contains_key("events the kernel lost"), "{others:?}");
        assert_eq!(format, Format::Blktrace);
    }
}

#[test]
fn other_records_are_counted() {
    let beside = |name: &str| {
        let others = all(&fixture(name)).1;
        others.into_iter().map(|(what, n)| format!("{n} {what}")).collect::<Vec<_>>()
    };
    assert_eq!(beside("vda.blktrace.0.zst"), ["29 names of processes", "1 wall-clock times"]);
    assert_eq!(beside("vdb.blktrace.zst"), ["3665 messages", "27 names of processes", "1 wall-clock times"]);
    for text in ["vda.blkparse.zst", "vdb.blkparse.zst"] {
        assert_eq!(beside(text), ["2 empty lines", "26 lines of tables"]);
    }
}
