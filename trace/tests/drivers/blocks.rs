//! Code shared with a fuzzer: reads any bytes as blktrace's records, as blkparse's text.

use std::io::Cursor;
use std::path::Path;

use trace::block::{Event, Op};
use trace::write::blkparse::Writer;
use trace::{At, Format, Input, Names, Opened, TraceError, open_input};

/// blktrace's records: as they are, and after one valid record of each version and byte order.
pub fn blktrace(bytes: &[u8]) {
    read(bytes);
    for (version, big) in [(7_u8, false), (8, false), (7, true), (8, true)] {
        let mut whole = vec![version, b't', b'a', b'e'];
        if big {
            whole.reverse();
        }
        // A record of zeroes, without notes and data.
        whole.resize(if version == 7 { 48 } else { 64 }, 0);
        whole.extend_from_slice(bytes);
        let (events, format) = read(&whole);
        assert!(format == Some(Format::Blktrace) && !events.is_empty());
    }
}

/// blkparse's text: as it is, and after one valid line. The events are written and must be read back unchanged.
pub fn blkparse(bytes: &[u8]) {
    const LINE: &[u8] = b"  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n";
    read(bytes);
    let (events, format) = read(&[LINE, bytes].concat());
    assert!(format == Some(Format::Blkparse) && !events.is_empty());
    let mut writer = Writer::new(Vec::new());
    for event in &events {
        writer.event(event, &Names::default()).expect("memory");
    }
    let (again, _) = read(&writer.finish().expect("memory"));
    assert_eq!(again.len(), events.len());
    for (again, event) in again.iter().zip(&events) {
        // Processes are not compared, and a line has no field for the sectors of a flush or a split across 2 TiB.
        assert_eq!((again.time, again.action, again.device), (event.time, event.action, event.device));
        assert_eq!((again.cpu, again.pid, again.sector), (event.cpu, event.pid, event.sector));
        assert_eq!((again.sectors, again.op, again.flags), (event.sectors, event.op, event.flags));
        assert_eq!(again.error, event.error);
    }
}

/// Reads to the end or first error, whose place must be inside.
fn read(bytes: &[u8]) -> (Vec<Event>, Option<Format>) {
    let place = |error: TraceError| {
        let lines = bytes.split(|b| *b == b'\n').count() as u64;
        if let TraceError::Damaged { at, .. } | TraceError::CutShort { at, .. } | TraceError::Unsupported { at, .. } =
            &error
        {
            match at {
                At::Line(n) => assert!((1..=lines).contains(n), "{error}"),
                At::Byte(n) => assert!(*n <= bytes.len() as u64, "{error}"),
            }
        }
    };
    let Ok(input) = Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())) else { return (vec![], None) };
    let mut reader = match open_input(input) {
        Ok(Opened::Blocks(reader)) => reader,
        Ok(_) => return (vec![], None),
        Err(error) => {
            place(error);
            return (vec![], None);
        }
    };
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(event)) => {
                assert!(event.sectors > 0 || event.sector == 0);
                assert!(event.op != Op::Flush || event.sectors == 0);
                events.push(event);
            }
            Ok(None) => break,
            Err(error) => {
                place(error);
                break;
            }
        }
    }
    assert!(matches!(reader.next(), Ok(None)), "something comes after the end");
    (events, Some(reader.format()))
}
