//! Recordings written as Parquet are read by Parquet's own reader and by pyarrow.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};
use trace::block::{Action, DeviceId, Event, Events, Flags, Op};
use trace::call::{self, Call, Handle, How, Target};
use trace::write::parquet::{Blocks, Calls, GROUP};
use trace::{Format, Names, Opened, OtherCounts, Process, TraceError};

/// Generated events.
struct Made {
    names: Names,
    others: OtherCounts,
}

impl Events for Made {
    fn format(&self) -> Format {
        Format::Blkparse
    }
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        Ok(None)
    }
    fn names(&self) -> &Names {
        &self.names
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }
    fn consumed(&self) -> u64 {
        0
    }
    fn device(&self, id: DeviceId) -> Option<String> {
        (id.minor == 16).then(|| "sdb".into())
    }
}

fn event(n: u64) -> Event {
    Event {
        time: n * 1000,
        action: Action::ALL[n as usize % Action::ALL.len()],
        op: Op::ALL[n as usize % Op::ALL.len()],
        flags: Flags::from_bits_truncate(n as u8),
        sector: u64::MAX - n,
        sectors: n % 100,
        device: DeviceId { major: 8, minor: if n.is_multiple_of(2) { 16 } else { u32::MAX } },
        cpu: 3,
        pid: n as u32,
        process: Process(0),
        took: n.is_multiple_of(3).then_some(n),
        error: 5,
        writing: Default::default(),
        from: None,
    }
}

fn rows(path: &Path) -> (Vec<Row>, usize) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let groups = reader.num_row_groups();
    (reader.get_row_iter(None).unwrap().map(Result::unwrap).collect(), groups)
}

fn field(row: &Row, name: &str) -> Field {
    row.get_column_iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no column {name}")).1.clone()
}

fn text_field(text: &str) -> Field {
    Field::Str(text.to_owned())
}

#[test]
fn every_event_is_a_row_and_groups_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.parquet");
    let mut made = Made { names: Names::default(), others: OtherCounts::new() };
    let process = made.names.number(b"kworker/0:1");
    let mut writer = Blocks::new(File::create(&path).unwrap(), Format::Blkparse).unwrap();
    let count = GROUP as u64 + 1000;
    for n in 0..count {
        writer.event(&Event { process, ..event(n) }, &made).unwrap();
    }
    writer.finish().unwrap();
    let (rows, groups) = rows(&path);
    assert_eq!((rows.len() as u64, groups), (count, 2));
    for n in [0, 1, 3, 77, count - 1] {
        let (row, e) = (&rows[n as usize], event(n));
        let number = |name| field(row, name);
        assert_eq!(number("time_ns"), Field::ULong(e.time));
        assert_eq!(number("action"), text_field(&e.action.letter().to_string()));
        assert_eq!(number("op"), text_field(e.op.text()));
        for (name, flag) in [
            ("sync", Flags::SYNC),
            ("ahead", Flags::AHEAD),
            ("meta", Flags::META),
            ("fua", Flags::FUA),
            ("preflush", Flags::PREFLUSH),
        ] {
            assert_eq!(number(name), Field::Bool(e.flags.contains(flag)), "{name}");
        }
        assert_eq!((number("sector"), number("sectors")), (Field::ULong(e.sector), Field::ULong(e.sectors)));
        assert_eq!(number("device_major"), Field::UInt(8));
        assert_eq!(number("device_minor"), Field::UInt(e.device.minor));
        assert_eq!(number("device"), if n % 2 == 0 { text_field("sdb") } else { Field::Null });
        assert_eq!((number("cpu"), number("pid")), (Field::UInt(3), Field::UInt(n as u32)));
        assert_eq!(number("process"), text_field("kworker/0:1"));
        assert_eq!(number("took_ns"), e.took.map_or(Field::Null, Field::ULong));
        assert_eq!(number("error"), Field::UInt(5));
    }
}

#[test]
fn every_call_is_a_row_with_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calls.parquet");
    let mut writer = Calls::new(File::create(&path).unwrap(), Format::Strace).unwrap();
    let h = Handle(7);
    let ops = [
        call::Op::Open { handle: h, path: b"/a\xff".to_vec(), how: How::READ | How::CREATE },
        call::Op::Write { handle: h, at: Some(10), bytes: 20 },
        call::Op::Read { handle: h, at: None, bytes: 30 },
        call::Op::Seek { handle: h, to: None },
        call::Op::Sync { handle: h, data_only: true },
        call::Op::SyncAll,
        call::Op::Truncate { file: Target::Path(b"/t".to_vec()), length: 5 },
        call::Op::Allocate { handle: h, at: 1, bytes: 2, punch: true, keep_size: true },
        call::Op::Rename { from: b"/x".to_vec(), to: b"/y".to_vec() },
        call::Op::Stat { file: Target::Open(h) },
    ];
    for (n, op) in ops.into_iter().enumerate() {
        let failed = (n == 8).then(|| "EXDEV".to_owned());
        writer.call(&Call { time: n as u64, thread: 42, op, took: Some(9), failed }).unwrap();
    }
    writer.finish().unwrap();
    let got: Vec<String> = rows(&path).0.iter().map(Row::to_string).collect();
    let line = |n: usize, rest: &str, failed: &str| {
        format!("{{time_ns: {n}, thread: 42, {rest}, took_ns: 9, failed: {failed}}}")
    };
    let expected = [
        r#"op: "open", handle: 7, path: "/a�", other_path: null, offset: null, bytes: null, flags: "read|create""#,
        r#"op: "write", handle: 7, path: null, other_path: null, offset: 10, bytes: 20, flags: null"#,
        r#"op: "read", handle: 7, path: null, other_path: null, offset: null, bytes: 30, flags: null"#,
        r#"op: "seek", handle: 7, path: null, other_path: null, offset: null, bytes: null, flags: null"#,
        r#"op: "fdatasync", handle: 7, path: null, other_path: null, offset: null, bytes: null, flags: null"#,
        r#"op: "sync", handle: null, path: null, other_path: null, offset: null, bytes: null, flags: null"#,
        r#"op: "truncate", handle: null, path: "/t", other_path: null, offset: null, bytes: 5, flags: null"#,
        r#"op: "fallocate", handle: 7, path: null, other_path: null, offset: 1, bytes: 2, flags: "punch|keep_size""#,
        r#"op: "rename", handle: null, path: "/x", other_path: "/y", offset: null, bytes: null, flags: null"#,
        r#"op: "stat", handle: 7, path: null, other_path: null, offset: null, bytes: null, flags: null"#,
    ];
    for (n, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(*got, line(n, expected, if n == 8 { "\"EXDEV\"" } else { "null" }));
    }
    assert_eq!(got.len(), expected.len());
}

#[test]
fn a_recording_without_anything_is_a_file_without_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.parquet");
    Calls::new(File::create(&path).unwrap(), Format::Strace).unwrap().finish().unwrap();
    assert_eq!(rows(&path).0.len(), 0);
}

#[test]
fn a_full_disk_is_reported() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let made = Made { names: Names::default(), others: OtherCounts::new() };
    let written = Blocks::new(Full, Format::Blkparse).and_then(|mut w| {
        w.event(&event(0), &made)?;
        w.finish().map(drop)
    });
    assert!(written.unwrap_err().to_string().contains("no storage space"));
}

/// The output of pyarrow, if it is installed.
fn pyarrow(script: &str, path: &Path) -> Option<String> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/python/bin/python");
    let program = if ours.exists() { ours } else { PathBuf::from("python3") };
    let python = |script: &str| {
        let script = format!("import sys, pyarrow.parquet as q, pyarrow.compute as c\n{script}");
        Command::new(&program).arg("-c").arg(script).arg(path).output().ok().filter(|o| o.status.success())
    };
    if python("").is_none() {
        testlog::missing("python3 with pyarrow: scripts/install-tools python");
        return None;
    }
    Some(String::from_utf8(python(script).expect("a script that runs").stdout).unwrap())
}

#[test]
fn pyarrow_reads_the_same_sums() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calls.parquet");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let Opened::Calls(mut calls) = trace::open(&fixtures.join("strace/programs.y.strace.gz")).unwrap() else {
        panic!()
    };
    let mut writer = Calls::new(File::create(&path).unwrap(), calls.format()).unwrap();
    let (mut count, mut took, mut bytes) = (0_u64, 0_u64, 0_u64);
    while let Some(call) = calls.next().unwrap() {
        count += 1;
        took += call.took.unwrap_or(0);
        if let call::Op::Write { bytes: n, .. } = call.op {
            bytes += n;
        }
        writer.call(&call).unwrap();
    }
    writer.finish().unwrap();
    let script = "
t = q.read_table(sys.argv[1])
w = t.filter(c.equal(t['op'], 'write'))
print(t.num_rows, c.sum(t['took_ns']), c.sum(w['bytes']), t.schema.field('handle').type, t.schema.metadata)";
    if let Some(said) = pyarrow(script, &path) {
        assert_eq!(said, format!("{count} {took} {bytes} uint64 {{b'joulefs.format': b'strace'}}\n"));
    }
    let Opened::Blocks(mut events) = trace::open(&fixtures.join("fio/mixed.v3.log")).unwrap() else { panic!() };
    let mut writer = Blocks::new(File::create(&path).unwrap(), events.format()).unwrap();
    let (mut count, mut sectors, mut last) = (0_u64, 0_u64, 0);
    while let Some(event) = events.next().unwrap() {
        (count, sectors, last) = (count + 1, sectors + event.sectors, event.time);
        writer.event(&event, &*events).unwrap();
    }
    writer.finish().unwrap();
    let script = "
t = q.read_table(sys.argv[1])
print(t.num_rows, c.sum(t['sectors']), c.max(t['time_ns']), sorted(set(t['device'].to_pylist())))";
    if let Some(said) = pyarrow(script, &path) {
        let devices = "['/tmp/vol/mixed.0.0', '/tmp/vol/mixed.0.1']";
        assert_eq!(said, format!("{count} {sectors} {last} {devices}\n"));
    }
}
