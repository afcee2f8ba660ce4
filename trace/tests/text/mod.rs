//! Shared by tests of text formats: recordings from strings, and checks for every damaged one.
#![allow(dead_code, reason = "every test uses a part of it")]

#[path = "../drivers/lines.rs"]
pub mod drivers;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use trace::block::Event;
use trace::call::Call;
use trace::{At, Input, Opened, OtherCounts, TraceError, open_input};

/// A recording, read to its end or first error.
#[derive(Debug)]
pub struct Seen {
    pub events: Vec<Event>,
    pub names: Vec<String>,
    pub calls: Vec<Call>,
    pub others: OtherCounts,
    pub error: Option<TraceError>,
}

fn input(bytes: &[u8]) -> Input {
    Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())).unwrap()
}

/// The first invalid line is an error.
pub fn open(bytes: &[u8]) -> Result<Opened, TraceError> {
    open_input(input(bytes).strict(true))
}

/// Reads everything; nothing may follow an end or error.
pub fn read(bytes: &[u8]) -> Seen {
    all_of(open(bytes))
}

/// The same, skipping invalid lines.
pub fn read_leniently(bytes: &[u8]) -> Seen {
    all_of(open_input(input(bytes)))
}

/// The same as a table.
pub fn read_table(bytes: &[u8], columns: &str) -> Seen {
    all_of(Ok(trace::open_columns(input(bytes), columns.parse().unwrap())))
}

pub fn all_of(opened: Result<Opened, TraceError>) -> Seen {
    let mut seen = Seen { events: vec![], names: vec![], calls: vec![], others: OtherCounts::new(), error: None };
    match opened {
        Err(e) => seen.error = Some(e),
        Ok(Opened::Blocks(mut events)) => {
            loop {
                match events.next() {
                    Ok(Some(event)) => {
                        seen.names.push(events.names().name(event.process).to_owned());
                        seen.events.push(event);
                    }
                    Ok(None) => break,
                    Err(e) => {
                        seen.error = Some(e);
                        break;
                    }
                }
            }
            assert!(matches!(events.next(), Ok(None)), "something after the end");
            seen.others = events.other_counts().clone();
        }
        Ok(Opened::Calls(mut calls)) => {
            loop {
                match calls.next() {
                    Ok(Some(call)) => seen.calls.push(call),
                    Ok(None) => break,
                    Err(e) => {
                        seen.error = Some(e);
                        break;
                    }
                }
            }
            assert!(matches!(calls.next(), Ok(None)), "something after the end");
            seen.others = calls.other_counts().clone();
        }
        Ok(Opened::Power(_)) => panic!("taken for a meter's recording"),
    }
    seen
}

/// The error's line, which must exist in the recording.
pub fn line_of(seen: &Seen) -> u64 {
    match seen.error.as_ref().expect("an error") {
        TraceError::Damaged { at: At::Line(line), .. }
        | TraceError::CutShort { at: At::Line(line), .. }
        | TraceError::Unsupported { at: At::Line(line), .. } => *line,
        other => panic!("no line: {other}"),
    }
}

/// A foreign recording, if available: in the directory `JOULEFS_TRACES`, or in `shared/traces` next to the repository.
pub fn theirs(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("JOULEFS_TRACES").map(PathBuf::from).into_iter();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(|p| p.join("shared").join("traces"));
    let found = places.chain(beside).map(|p| p.join(name)).find(|p| p.exists());
    if found.is_none() {
        testlog::not_shipped(format_args!("{name}: set JOULEFS_TRACES to a directory that has it"));
    }
    found
}

/// A valid recording cut anywhere and with single bytes changed: nothing panics.
pub fn survives_damage(good: &[u8]) {
    let step = good.len() / 150 + 1;
    for cut in (0..good.len()).step_by(step) {
        drivers::any(&good[..cut]);
    }
    let mut bytes = good.to_vec();
    for at in (0..good.len()).step_by(step) {
        for other in [b'\n', b',', b' ', b'0', b'-', b'"', b'(', 0, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x10] {
            let was = std::mem::replace(&mut bytes[at], other);
            drivers::any(&bytes);
            bytes[at] = was;
        }
    }
}

/// The contents of a compressed recording.
pub fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())).unwrap();
    input.peek(usize::MAX).unwrap().to_vec()
}

/// Reads everything; nothing may be damaged.
pub fn whole(bytes: &[u8]) -> Seen {
    let seen = read(bytes);
    assert!(seen.error.is_none(), "{:?}", seen.error);
    seen
}

/// An unpacked file of `fixtures`.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}
