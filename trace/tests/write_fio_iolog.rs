//! Requests written as iologs are read by our reader and by fio.

use std::process::Command;

use trace::block::{DeviceId, Event, Flags, Op};
use trace::requests::{Request, Requests, Seen};
use trace::write::fio_iolog::{Version, Writer};
use trace::{Opened, Process};

use crate::text::{self, read};

fn request(time: u64, op: Op, sector: u64, sectors: u64, minor: u32) -> Request {
    Request {
        time,
        op,
        flags: Flags::empty(),
        sector,
        sectors,
        device: DeviceId { major: 8, minor },
        pid: 0,
        process: Process::default(),
    }
}

fn written(version: Version, requests: &[Request], name: impl Fn(DeviceId) -> Option<String>) -> (Vec<u8>, u64) {
    let mut writer = Writer::new(Vec::new(), version).unwrap();
    requests.iter().for_each(|r| writer.request(r, &name).unwrap());
    let left_out = writer.left_out();
    (writer.finish().unwrap(), left_out)
}

const MS: u64 = 1_000_000;

fn some() -> Vec<Request> {
    vec![
        request(77_000_000, Op::Read, 8, 8, 0),
        request(77_000_000 + MS, Op::Write, 0, 1, 16),
        request(77_000_000 + 5 * MS, Op::Flush, 0, 0, 16),
        request(77_000_000 + 3 * MS, Op::Discard, 800, 80, 0),
        request(77_000_000 + 9 * MS, Op::WriteZeroes, 800, 80, 0),
        Request { flags: Flags::FUA, ..request(77_000_000 + 9 * MS, Op::Write, 80, 8, 0) },
    ]
}

#[test]
fn lines_are_what_fio_reads() {
    let (v3, left_out) = written(Version::V3, &some(), |d| (d.minor == 16).then(|| "/tmp/x".to_owned()));
    assert_eq!(left_out, 1);
    let expected = "fio version 3 iolog
0 /dev/block/8:0 add
0 /dev/block/8:0 open
0 /dev/block/8:0 read 4096 4096
1000 /tmp/x add
1000 /tmp/x open
1000 /tmp/x write 0 512
5000 /tmp/x sync 0 0
5000 /dev/block/8:0 trim 409600 40960
9000 /dev/block/8:0 write 40960 4096
9000 /dev/block/8:0 datasync 0 0
9000 /dev/block/8:0 close
9000 /tmp/x close
";
    assert_eq!(String::from_utf8(v3).unwrap(), expected);
    let (v2, _) = written(Version::V2, &some()[..3], |_| Some("has spaces".into()));
    let expected = "fio version 2 iolog
/dev/block/8:0 add
/dev/block/8:0 open
/dev/block/8:0 read 4096 4096
/dev/block/8:16 add
/dev/block/8:16 open
/dev/block/8:16 wait 1 0
/dev/block/8:16 write 0 512
/dev/block/8:16 wait 5 0
/dev/block/8:16 sync 0 0
/dev/block/8:0 close
/dev/block/8:16 close
";
    assert_eq!(String::from_utf8(v2).unwrap(), expected);
}

#[test]
fn a_request_beyond_what_fio_counts_is_several_lines() {
    let (log, _) = written(Version::V3, &[request(0, Op::Discard, 1, 10 << 20, 0)], |_| None);
    let sizes: Vec<u64> = read(&log).events.iter().map(Event::bytes).collect();
    assert_eq!(sizes, [1 << 31, 1 << 31, 1 << 30]);
}

#[test]
fn requests_are_read_back_unchanged() {
    for version in [Version::V2, Version::V3] {
        let (log, _) = written(version, &some(), |_| None);
        let seen = read(&log);
        assert!(seen.error.is_none(), "{:?}", seen.error);
        let got: Vec<_> = seen.events.iter().map(|e| (e.time / MS, e.op, e.sector, e.sectors)).collect();
        assert_eq!(
            got,
            [
                (0, Op::Read, 8, 8),
                (1, Op::Write, 0, 1),
                (5, Op::Flush, 0, 0),
                (5, Op::Discard, 800, 80),
                (9, Op::Write, 80, 8),
                (9, Op::Flush, 0, 0),
            ]
        );
    }
}

#[test]
fn fio_replays_it_and_moves_the_same_bytes() {
    if Command::new("fio").arg("--version").output().is_err() {
        return testlog::missing("fio: apt-get install fio");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = |minor| dir.path().join(format!("volume.{minor}"));
    (0..2).for_each(|n| std::fs::File::create(file(n)).unwrap().set_len(1 << 20).unwrap());
    for version in [Version::V2, Version::V3] {
        let log = dir.path().join("log");
        let mut writer = Writer::new(std::fs::File::create(&log).unwrap(), version).unwrap();
        let (mut read, mut wrote, mut synced) = ((0, 0), (0, 0), 0);
        let Opened::Blocks(recording) = text::open(include_bytes!("../fixtures/fio/mixed.v3.log")).unwrap() else {
            panic!()
        };
        let mut requests = Requests::new(recording);
        while let Some(seen) = requests.seen().unwrap() {
            let Seen::Asked(request) = seen else { continue };
            let bytes = request.sectors * 512;
            match request.op {
                Op::Read => read = (read.0 + 1, read.1 + bytes),
                Op::Write => wrote = (wrote.0 + 1, wrote.1 + bytes),
                _ => synced += 1,
            }
            writer.request(&request, |d| file(d.minor).to_str().map(str::to_owned)).unwrap();
        }
        writer.finish().unwrap();
        let out = Command::new("fio")
            .args(["--name=again", "--ioengine=psync", "--output-format=json", "--read_iolog"])
            .arg(&log)
            .current_dir(&dir)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && out.stderr.is_empty(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        // Every number follows its name; the first `read` and `write` are those of the job.
        let number = |section: &str, name: &str| -> u64 {
            let at = text.find(&format!("\"{section}\" : {{")).unwrap();
            let rest = &text[at..];
            let from = rest.find(&format!("\"{name}\" : ")).unwrap() + name.len() + 5;
            rest[from..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        assert_eq!((number("read", "total_ios"), number("read", "io_bytes")), read, "{version:?}");
        assert_eq!((number("write", "total_ios"), number("write", "io_bytes")), wrote);
        assert_eq!(number("sync", "total_ios"), synced);
    }
}
