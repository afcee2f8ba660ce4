//! MobiBench's recordings are read.

use std::collections::BTreeMap;

use trace::TraceError;
use trace::call::{Call, Calls, Handle, How, Op, Target};

use crate::text::{self, line_of, read, survives_damage, theirs};

/// Written by hand in MobiGen's format.
const GOOD: &str = "\
1 0 open /data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE 36
1 0 write 36 4
1 50 open \"/data/app/x y.apk\" O_RDONLY|O_LARGEFILE 40
1 60 pread 40 8192 100
1 70 close 40 0
2 10 open data/data O_RDWR|O_CREAT|O_EXCL|O_LARGEFILE 37
2 20 pwrite 37 4096 512
2 30 fsync 37 0
2 31 open /data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE 37
2 32 write 37 8
2 40 close 37 0
2 55 read 40 30
2 80 stat64 \"/data/app/x y.apk\" 0
2 81 access \"/data/none\" -1
2 82 unlink \"/data/app/../old\" 0
2 83 read 36 -1
2 84 open \"/dev/urandom\" O_RDONLY 41
2 85 read 41 16
2 86 close 41 0
2 87 close 99 0
2 88 open \"/data/app\" O_RDONLY 42
2 89 fsync 42 0
2 90 fstat64 42 0
2 91 fdatasync 42 0
2 92 open config.xml\"/nil O_RDWR -1
2 93 readlink \"/x\" 4
";

fn paths(calls: &[Call]) -> Vec<(u64, String, How)> {
    calls
        .iter()
        .filter_map(|c| match &c.op {
            Op::Open { handle, path, how } => Some((handle.0, String::from_utf8(path.clone()).unwrap(), *how)),
            _ => None,
        })
        .collect()
}

#[test]
fn calls_of_all_threads_come_in_order_of_time() {
    let seen = read(GOOD.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let times: Vec<u64> = seen.calls.iter().map(|c| c.time / 1000).collect();
    assert!(times.is_sorted(), "{times:?}");
    // The file that thread 1 opened is read by thread 2.
    let apk = seen.calls.iter().find(|c| c.time == 55_000).unwrap();
    assert_eq!((apk.thread, &apk.op), (2, &Op::Read { handle: Handle(3), at: None, bytes: 30 }));
    assert_eq!(
        seen.calls.iter().find(|c| c.time == 60_000).unwrap().op,
        Op::Read { handle: Handle(3), at: Some(8192), bytes: 100 }
    );
}

#[test]
fn a_file_has_its_recorded_name_or_else_a_unique_one() {
    let before = How::READ | How::WRITE;
    let expected = [
        (1, "/data/data/unnamed-1", before),
        (2, "/data/data/unnamed-2", before | How::CREATE | How::EXCLUSIVE),
        (3, "/data/app/x y.apk", How::READ),
        // Another path in the recording is below it.
        (4, "/data/app", How::READ | How::DIRECTORY),
        (5, "/config.xml", before),
    ];
    let got = paths(&read(GOOD.as_bytes()).calls);
    assert_eq!(got, expected.map(|(n, p, h)| (n, String::from(p), h)));
}

#[test]
fn a_descriptor_that_is_open_is_not_opened_by_a_guess() {
    let seen = read(GOOD.as_bytes());
    let write = seen.calls.iter().find(|c| c.time == 32_000).unwrap();
    assert_eq!(write.op, Op::Write { handle: Handle(2), at: None, bytes: 8 });
    assert_eq!(seen.others["MobiGen's opens of files that are open"], 1);
}

#[test]
fn calls_on_other_objects_are_counted() {
    let others: Vec<(String, u64)> = read(GOOD.as_bytes()).others.into_iter().collect();
    let expected = [
        ("MobiGen's opens of files that are open", 1),
        ("calls on descriptors that nobody opened", 1),
        ("calls on no regular file", 2),
        ("open of no regular file", 1),
        ("readlink", 1),
    ];
    assert_eq!(others, expected.map(|(k, n)| (k.to_owned(), n)));
}

#[test]
fn failures_are_distinguished_from_successes() {
    let failed: Vec<Op> =
        read(GOOD.as_bytes()).calls.into_iter().filter(|c| c.failed.is_some()).map(|c| c.op).collect();
    assert_eq!(
        failed,
        [
            Op::Stat { file: Target::Path(b"/data/none".to_vec()) },
            Op::Read { handle: Handle(1), at: None, bytes: 0 },
            Op::Open { handle: Handle(5), path: b"/config.xml".to_vec(), how: How::READ | How::WRITE },
        ]
    );
}

#[test]
fn every_error_names_its_line() {
    for bad in [
        "x 1 read 36 1",
        "1 -1 read 36 1",
        "1 1 Read 36 1",
        "1 1",
        "1 1 read",
        "1 1 read 36",
        "1 1 read a 1",
        "1 1 pread 36 1",
        "1 1 pread 36 x 1",
        "1 1 open \"/x\" 36",
        "1 1 open \"/x\" RDONLY 36",
        "1 1 unlink 0",
        "1 1 read 36 1 1",
        "1 18446744073709551615 fsync 36 0",
        "4294967296 1 fsync 36 0",
    ] {
        let seen = read(format!("{GOOD}{bad}\n1 100 fsync 36 0\n").as_bytes());
        assert_eq!(line_of(&seen), 27, "{bad}");
        assert_eq!(seen.calls.len(), read(GOOD.as_bytes()).calls.len(), "what is before it is read: {bad}");
    }
    assert!(matches!(read(b"1 1 hello 1\n").error, Some(TraceError::Unknown { .. })));
    let cut = read(&GOOD.as_bytes()[..GOOD.len() - 3]);
    assert!(cut.error.as_ref().unwrap().is_cut_short() && line_of(&cut) == 26);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    text::drivers::mobibench(GOOD.as_bytes());
    survives_damage(GOOD.as_bytes());
}

#[test]
fn the_facebook_recording_is_read_whole_and_sums_up_as_a_plain_script_finds() {
    let Some(path) = theirs("mobigen.out.facebook") else { return };
    let trace::Opened::Calls(mut calls) = trace::open(&path).unwrap() else { panic!("no calls") };
    let calls: &mut dyn Calls = &mut *calls;
    let mut count: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut time = 0;
    while let Some(call) = calls.next().unwrap() {
        assert!(call.time >= time);
        time = call.time;
        let (name, bytes) = match call.op {
            Op::Open { .. } => ("open", 0),
            Op::Close { .. } => ("close", 0),
            Op::Read { at, bytes, .. } => (if at.is_some() { "pread" } else { "read" }, bytes),
            Op::Write { at, bytes, .. } => (if at.is_some() { "pwrite" } else { "write" }, bytes),
            Op::Sync { .. } => ("fsync", 0),
            Op::Stat { file: Target::Path(_) } => ("stat", 0),
            Op::Stat { .. } => ("fstat", 0),
            Op::Unlink { .. } => ("unlink", 0),
            other => panic!("{other:?}"),
        };
        let sum = count.entry(name).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    assert_eq!(time / 1_000_000_000, 117);
    let count: Vec<_> = count.into_iter().collect();
    assert_eq!(count, EXPECTED);
    let left_out: u64 = calls.other_counts().values().sum();
    assert_eq!(left_out + count.iter().map(|(_, (n, _))| n).sum::<u64>(), 30_819);
}

/// Results of a thirty-line script that tracks descriptors in order of time.
const EXPECTED: [(&str, (u64, u64)); 10] = [
    ("close", (845, 0)),
    ("fstat", (1277, 0)),
    ("fsync", (996, 0)),
    ("open", (905, 0)),
    ("pread", (2448, 3008199)),
    ("pwrite", (6855, 10720391)),
    ("read", (6037, 628822)),
    ("stat", (1907, 0)),
    ("unlink", (54, 0)),
    ("write", (7057, 1186771)),
];
