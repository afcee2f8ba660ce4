//! Mobile block traces are read.

use trace::block::{Action, DeviceId, Op};
use trace::{Format, Kind, TraceError};

use crate::text::{self, line_of, read, survives_damage, theirs};

const HEADER: &str = "proces,device,rw_flag,sector,size,timestamp\n";

fn good() -> String {
    format!(
        "{HEADER}loop40-2757,8388608,R,206567552,8,653406.907265\n\
         <...>-21515,8388608,R,206567552,8,653406.908974\n\
         kworker/u17:0-24737,8388609,W,194352760,16,660881.0188740001\n\
         a,b-c-5,271581184,WS,0,0,1.5\n"
    )
}

#[test]
fn a_line_is_a_request_given_to_the_device() {
    let seen = read(good().as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert_eq!(seen.names, ["loop40", "", "kworker/u17:0", "a,b-c"]);
    let [a, _, c, d] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((a.time, a.action, a.op), (653_406_907_265_000, Action::Issue, Op::Read));
    assert_eq!((a.sector, a.sectors, a.pid, a.bytes()), (206_567_552, 8, 2757, 4096));
    assert_eq!((a.device, c.device), (DeviceId { major: 8, minor: 0 }, DeviceId { major: 8, minor: 1 }));
    assert_eq!((c.time, c.op, c.took), (660_881_018_874_000, Op::Write, None));
    assert_eq!((d.device, d.sectors), (DeviceId { major: 259, minor: 0 }, 0));
}

#[test]
fn every_error_names_its_line() {
    for (bad, what) in [
        ("x-1,8388608,R,1,8", "columns"),
        ("x-1,sda,R,1,8,1.0", "device"),
        ("x-1,8388608,Q,1,8,1.0", "rw_flag"),
        ("x-1,8388608,R,-1,8,1.0", "sector"),
        ("x-1,8388608,R,1,8.0,1.0", "size"),
        ("x-1,8388608,R,1,8,1e5", "timestamp"),
        ("x-1,4294967296,R,1,8,1.0", "device"),
        ("x-1,8388608,R,1,99999999999999999999,1.0", "size"),
    ] {
        let seen = read(format!("{}{bad}\nx-1,8388608,R,1,8,9.0\n", good()).as_bytes());
        assert_eq!((seen.events.len(), line_of(&seen)), (4, 6), "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what) && text.contains("line 6") && text.contains("mobile block CSV"), "{text}");
    }
}

#[test]
fn a_last_line_without_its_end_may_be_half_a_line_and_is_not_read() {
    let good = good();
    let seen = read(good.trim_end().as_bytes());
    assert_eq!((seen.events.len(), line_of(&seen)), (3, 5));
    assert!(seen.error.unwrap().is_cut_short());
}

#[test]
fn empty_lines_are_counted_and_foreign_ends_of_lines_are_fine() {
    let seen = read(good().replace('\n', "\r\n\r\n").as_bytes());
    assert!(seen.error.is_none() && seen.events.len() == 4);
    assert_eq!(seen.others.get("empty lines"), Some(&5));
}

#[test]
fn a_header_is_what_makes_it_one() {
    assert!(matches!(read(b"proces,device,rw_flag\n").error, Some(TraceError::Unknown { .. })));
    assert!(matches!(read(good().strip_prefix(HEADER).unwrap().as_bytes()).error, Some(TraceError::Unknown { .. })));
    let seen = read(HEADER.as_bytes());
    assert!(seen.events.is_empty() && seen.error.is_none());
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    text::drivers::mobile_csv(good().as_bytes());
    survives_damage(good().as_bytes());
}

#[test]
fn telegram_is_read_whole_and_sums_up_as_a_plain_script_finds() {
    let Some(path) = theirs("telegram_exec.csv.gz") else { return };
    let mut opened = trace::open(&path).unwrap();
    assert_eq!(opened.kind(), Kind::Blocks);
    let trace::Opened::Blocks(events) = &mut opened else { panic!("not block events") };
    let (mut reads, mut writes, mut sectors) = (0, 0, [0u64; 2]);
    while let Some(event) = events.next().unwrap() {
        match event.op {
            Op::Read => (reads, sectors[0]) = (reads + 1, sectors[0] + event.sectors),
            Op::Write => (writes, sectors[1]) = (writes + 1, sectors[1] + event.sectors),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(events.format(), Format::MobileCsv);
    // zcat | awk -F, '{n[$3]++; s[$3]+=$5}'
    assert_eq!((reads, writes, sectors), (24_094, 227_785, SECTORS));
}

/// Sectors read and written.
const SECTORS: [u64; 2] = [2_957_168, 9_352_208];
