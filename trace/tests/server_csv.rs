//! Block traces of servers are read: Microsoft Research Cambridge and SYSTOR'17. The lines are written by hand from the
//! documentation.

use trace::block::{Action, DeviceId, Events, Op};
use trace::{Opened, TraceError};

use crate::text::{self, line_of, read, survives_damage};

const MSR: &str = "\
128166372003061629,usr,0,Read,7014609920,24576,41286
128166372016382155,usr,1,Write,1317441536,8192,1963
128166372026382245,web,0,Write,1001,512,0
";

const SYSTOR: &str = "\
1456095145.133076000,0.000806000,R,0,899056122368,131072
1456095145.233076000,,W,4,4096,512
1456095145.333076000,-0.5,W,4,4096,0
1456095145.433076000,0.1,,6,4096,4096
";

fn devices(bytes: &[u8]) -> Vec<String> {
    let Ok(Opened::Blocks(mut events)) = text::open(bytes) else { panic!("no block events") };
    let events: &mut dyn Events = &mut *events;
    let mut out = vec![];
    while let Some(event) = events.next().unwrap() {
        out.push(events.device(event.device).unwrap_or_default());
    }
    out
}

#[test]
fn a_line_of_cambridge_is_a_request_from_issue_to_end() {
    let seen = read(MSR.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let [a, b, c] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((a.time, a.action, a.op), (12_816_637_200_306_162_900, Action::Issue, Op::Read));
    assert_eq!((a.sector, a.sectors, a.took), (7_014_609_920 / 512, 48, Some(4_128_600)));
    assert_eq!((b.op, b.sectors, b.took), (Op::Write, 16, Some(196_300)));
    assert_eq!((c.sector, c.sectors), (1, 2), "bytes 1001 to 1512 lie in sectors 1 and 2");
    assert_eq!(seen.others["requests not in whole sectors"], 1);
    assert!(a.device.major == b.device.major && b.device.major != c.device.major);
    assert_eq!(devices(MSR.as_bytes()), ["usr 0", "usr 1", "web 0"]);
}

#[test]
fn a_line_of_systor_is_a_request_if_its_answer_was_seen() {
    let seen = read(SYSTOR.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let [a, b, c] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((a.time, a.op, a.took), (1_456_095_145_133_076_000, Op::Read, Some(806_000)));
    assert_eq!((a.sector, a.sectors), (899_056_122_368 / 512, 256));
    assert_eq!((b.device, b.sector, b.sectors, b.took), (DeviceId { major: 0, minor: 4 }, 8, 1, None));
    assert_eq!((c.op, c.sectors, c.took), (Op::Write, 0, None));
    let others: Vec<_> = seen.others.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(others, [("impossible times of response", 2), ("requests whose answer was not seen", 1)]);
}

#[test]
fn a_header_is_optional() {
    for (header, lines) in [
        ("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", MSR),
        ("Timestamp,Response,IOType,LUN,Offset,Size", SYSTOR),
    ] {
        for end in ["\n", "\r\n"] {
            let with = format!("{header}\n{lines}").replace('\n', end);
            let seen = read(with.as_bytes());
            assert!(seen.error.is_none(), "{:?}", seen.error);
            assert_eq!(seen.events, read(lines.as_bytes()).events);
        }
        assert!(read(format!("{header}\n").as_bytes()).events.is_empty());
    }
}

#[test]
fn every_error_names_its_line() {
    for (good, bad, what) in [
        (MSR, "128166372003061629,usr,0,Read,1,2", "columns"),
        (MSR, "128166372003061629,usr,0,Read,1,2,3,4", "columns"),
        (MSR, "x,usr,0,Read,1,2,3", "Timestamp"),
        (MSR, "1281663720030616290,usr,0,Read,1,2,3", "Timestamp"),
        (MSR, "128166372003061629,usr,a,Read,1,2,3", "DiskNumber"),
        (MSR, "128166372003061629,usr,0,read!,1,2,3", "Type"),
        (MSR, "128166372003061629,usr,0,Read,-1,2,3", "Offset"),
        (MSR, "128166372003061629,usr,0,Read,1,,3", "Size"),
        (MSR, "128166372003061629,usr,0,Read,18446744073709551615,2,3", "sum"),
        (MSR, "128166372003061629,usr,0,Read,1,2,", "ResponseTime"),
        (SYSTOR, "1.0,0.1,R,0,1", "columns"),
        (SYSTOR, "yesterday,0.1,R,0,1,2", "Timestamp"),
        (SYSTOR, "1.0,fast,R,0,1,2", "Response"),
        (SYSTOR, "1.0,0.1,X,0,1,2", "IOType"),
        (SYSTOR, "1.0,0.1,R,one,1,2", "LUN"),
        (SYSTOR, "1.0,0.1,,0,1,two", "Size"),
    ] {
        let seen = read(format!("{good}{bad}\n{good}").as_bytes());
        assert_eq!((seen.events.len(), line_of(&seen)), (3, good.lines().count() as u64 + 1), "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what), "{text}");
    }
    assert!(matches!(read(b"1,2,3,4,5,6\n").error, Some(TraceError::Unknown { .. })));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    text::drivers::server_csv(SYSTOR.as_bytes());
    survives_damage(MSR.as_bytes());
    survives_damage(SYSTOR.as_bytes());
}
