//! fio's iologs are read.

use std::collections::BTreeMap;

use trace::block::{DeviceId, Op};
use trace::{Opened, TraceError};

use crate::text::{self, line_of, read, survives_damage};

const V3: &[u8] = include_bytes!("../fixtures/fio/mixed.v3.log");
const V2: &[u8] = include_bytes!("../fixtures/fio/mixed.v2.log");

/// Lines and bytes by action, from words alone.
fn by_words(text: &[u8], version: usize) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for line in std::str::from_utf8(text).unwrap().lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        let sum = sums.entry(words[version - 1].to_owned()).or_default();
        let bytes = words.get(version + 1).map_or(0, |w| w.parse().unwrap());
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    sums
}

#[test]
fn fios_logs_are_read_whole_and_add_up() {
    for (log, version) in [(V2, 2), (V3, 3)] {
        let seen = read(log);
        assert!(seen.error.is_none(), "{:?}", seen.error);
        let expected = by_words(log, version);
        let of = |op: Op| {
            let events = seen.events.iter().filter(|e| e.op == op);
            events.fold((0, 0), |(n, bytes), e| (n + 1, bytes + e.bytes()))
        };
        assert_eq!((of(Op::Read), of(Op::Write)), (expected["read"], expected["write"]));
        assert_eq!(of(Op::Flush).0, expected["sync"].0 + expected["datasync"].0);
        assert_eq!(seen.others["files added"], expected["add"].0);
        let rest: u64 = seen.others.values().sum();
        assert_eq!(rest + seen.events.len() as u64, expected.values().map(|(n, _)| n).sum::<u64>());
    }
}

#[test]
fn version_3_has_times_and_version_2_has_none() {
    let (v2, v3) = (read(V2), read(V3));
    assert_eq!(v3.events.len(), v2.events.len());
    assert!(v2.events.iter().all(|e| e.time == 0));
    assert!(v3.events.is_sorted_by_key(|e| e.time));
    let first = std::str::from_utf8(V3).unwrap().lines().find(|l| l.contains(" write ")).unwrap();
    let microseconds: u64 = first.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(v3.events[0].time, microseconds * 1000);
}

#[test]
fn the_presence_of_times_is_reported_and_intervals_need_times() {
    for (log, timed) in
        [(V2, false), (V3, true), (&b"fio version 2 iolog\nf add\nf wait 4 0\nf read 0 512\n"[..], true)]
    {
        let Ok(Opened::Blocks(events)) = text::open(log) else { panic!("no block events") };
        let (stat, whole) = trace::stat::blocks::count(&mut trace::requests::Requests::new(events), |_| {});
        whole.unwrap();
        assert_eq!(stat.timed, timed);
        assert_eq!(stat.between.is_some(), timed && stat.requests > 1);
    }
}

#[test]
fn every_file_is_a_device_with_its_name() {
    let log =
        "fio version 3 iolog\n1 /a add\n2 /b c add\n3 /a open\n4 /b c open\n5 /b c read 512 512\n6 /a trim 0 1024\n";
    let seen = read(log.as_bytes());
    let [b, a] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((b.device, a.device), (DeviceId { major: 0, minor: 1 }, DeviceId { major: 0, minor: 0 }));
    assert_eq!((a.op, a.sectors), (Op::Discard, 2));
    let Ok(Opened::Blocks(mut events)) = text::open(log.as_bytes()) else { panic!("no block events") };
    while events.next().unwrap().is_some() {}
    assert_eq!((events.device(b.device), events.device(a.device)), (Some("/b c".into()), Some("/a".into())));
    assert_eq!(events.device(DeviceId { major: 0, minor: 2 }), None);
}

#[test]
fn a_wait_of_version_2_is_until_milliseconds_since_the_beginning() {
    let log = "fio version 2 iolog\nf add\nf open\nf wait 400 0\nf read 0 512\nf wait 300 0\nf read 0 512\nf wait 500 0\nf datasync 0 0\n";
    let seen = read(log.as_bytes());
    let times: Vec<u64> = seen.events.iter().map(|e| e.time / 1_000_000).collect();
    assert_eq!(times, [400, 400, 500]);
    assert_eq!(seen.others["waits"], 3);
}

#[test]
fn unaligned_ranges_are_widened_to_sectors_and_counted() {
    let seen = read(b"fio version 2 iolog\nf add\nf read 1000 1000\nf write 512 512\nf sync 77 0\n");
    let extents: Vec<(u64, u64)> = seen.events.iter().map(|e| (e.sector, e.sectors)).collect();
    assert_eq!(extents, [(1, 3), (1, 1), (0, 0)]);
    assert_eq!(seen.others["requests not in whole sectors"], 1);
}

#[test]
fn runs_that_were_appended_come_one_after_the_other() {
    let seen = read(&[V3, V3].concat());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let n = seen.events.len() / 2;
    assert!(seen.events.is_sorted_by_key(|e| e.time));
    assert_eq!(seen.events[n].sector, seen.events[0].sector);
    assert_eq!(seen.others["further runs"], 1);
}

#[test]
fn every_error_names_its_line() {
    for (version, bad, what) in [
        (3, "read", "time"),
        (3, "5", "line"),
        (3, "5 f", "line"),
        (3, "5 f reed 0 512", "action"),
        (3, "5 f wait 5 0", "action"),
        (3, "5 g read 0 512", "not added"),
        (3, "5 g open", "not added"),
        (3, "5 f read x 512", "offset"),
        (3, "5 f read 0 512b", "length"),
        (3, "5 f read 18446744073709551615 512", "sum"),
        (3, "18446744073709551615 f read 0 512", "time"),
        (2, "f read 0", "action"),
        (2, "g wait 1 0", "not added"),
        (2, "f wait 18446744073709551615 0", "wait"),
    ] {
        let good = if version == 2 { "f add\nf open" } else { "1 f add\n2 f open" };
        let seen = read(format!("fio version {version} iolog\n{good}\n{bad}\n{bad}\n").as_bytes());
        assert_eq!(line_of(&seen), 4, "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what) && text.contains("fio iolog"), "{text}");
    }
    assert!(matches!(read(b"fio version 4 iolog\n").error, Some(TraceError::Unknown { .. })));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    text::drivers::fio_iolog(V3);
    survives_damage(V2);
    survives_damage(V3);
}
