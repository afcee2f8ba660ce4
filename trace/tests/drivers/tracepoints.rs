//! Code shared with a fuzzer: reads any bytes as the text of tracefs, as a Perfetto trace, as a `trace.dat`.

use std::io::Cursor;
use std::path::Path;
use std::sync::OnceLock;

use trace::block::Event;
use trace::{At, Format, Input, Kind, Opened, TraceError, open_input, open_input_as};

/// The text of tracefs, after its header.
pub fn ftrace(bytes: &[u8]) {
    let (_, format) = read(&[b"# tracer: nop\n", bytes].concat(), Kind::Blocks);
    assert_eq!(format, Some(Format::Ftrace));
}

/// A Perfetto trace: as it is, and after a packet with a time; its block devices and its rails.
pub fn perfetto(bytes: &[u8]) {
    read(bytes, Kind::Blocks);
    let whole = [&[0x0a, 2, 0x40, 1], bytes].concat();
    // Complete packets with unusual fields are not recognised.
    let (events, format) = read(&whole, Kind::Blocks);
    assert!(format.is_none_or(|f| f == Format::Perfetto) && (format.is_some() || events.is_empty()));
    read(&whole, Kind::Power);
}

/// A `trace.dat`: as it is, after its mark, and as pages of two CPUs after the beginning of `good`, which has version
/// 6.
pub fn trace_dat(good: &'static [u8], bytes: &[u8]) {
    static BEFORE: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    read(bytes, Kind::Blocks);
    read(&[b"\x17\x08Dtracing", bytes].concat(), Kind::Blocks);
    let (before, places) = BEFORE.get_or_init(|| {
        let good = zstd::decode_all(good).expect("a fixture");
        let places = good.windows(10).position(|w| w == b"flyrecord\0").expect("version 6") + 10;
        (good[..places + 32].to_vec(), places)
    });
    const PAGE: usize = 4096;
    let mut whole = before.clone();
    let pages = bytes.len().div_ceil(PAGE);
    for (n, (first, count)) in [(0, pages.div_ceil(2)), (pages.div_ceil(2), pages / 2)].into_iter().enumerate() {
        let place = (before.len() + first * PAGE) as u64;
        whole[places + 16 * n..places + 16 * n + 8].copy_from_slice(&place.to_le_bytes());
        whole[places + 16 * n + 8..places + 16 * n + 16].copy_from_slice(&((count * PAGE) as u64).to_le_bytes());
    }
    whole.extend_from_slice(bytes);
    whole.resize(before.len() + pages * PAGE, 0);
    assert_eq!(read(&whole, Kind::Blocks).1, Some(Format::TraceDat));
}

/// Reads to the end or first error, whose place must be inside; returns the events and the format.
fn read(bytes: &[u8], kind: Kind) -> (Vec<Event>, Option<Format>) {
    let place = |error: TraceError| {
        let lines = bytes.split(|b| *b == b'\n').count() as u64;
        match error {
            TraceError::Damaged { at, .. } | TraceError::CutShort { at, .. } | TraceError::Unsupported { at, .. } => {
                match at {
                    At::Line(line) => assert!((1..=lines).contains(&line), "line {line} of {lines}"),
                    At::Byte(byte) => assert!(byte <= bytes.len() as u64, "byte {byte} of {}", bytes.len()),
                }
            }
            TraceError::Unknown { .. } | TraceError::Io { .. } => {}
        }
    };
    let input = match Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())) {
        Ok(input) => input,
        Err(_) => return (Vec::new(), None),
    };
    let mut events = Vec::new();
    match if kind == Kind::Power { open_input_as(input, kind) } else { open_input(input) } {
        Ok(Opened::Blocks(mut r)) => {
            loop {
                match r.next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(e) => {
                        place(e);
                        break;
                    }
                }
            }
            assert!(matches!(r.next(), Ok(None)), "something after the end");
            (events, Some(r.format()))
        }
        Ok(Opened::Power(mut r)) => {
            loop {
                match r.next() {
                    Ok(Some(reading)) => assert!(usize::from(reading.channel) < r.channels().len()),
                    Ok(None) => break,
                    Err(e) => {
                        place(e);
                        break;
                    }
                }
            }
            assert!(matches!(r.next(), Ok(None)), "something after the end");
            (events, Some(r.format()))
        }
        Ok(opened) => (events, Some(opened.format())),
        Err(e) => {
            place(e);
            (events, None)
        }
    }
}
