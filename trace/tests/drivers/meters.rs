//! Code shared with a fuzzer: reads any bytes as a meter's recording.

use std::io::Cursor;
use std::path::Path;

use trace::power::Value;
use trace::{At, Input, Opened, TraceError, open_input};

/// Reads any bytes, as they are and after each of the headers, to their end or first error. Times must not decrease,
/// values must be numbers, and the place of an error must be inside.
pub fn meters(bytes: &[u8]) {
    const HEADERS: [&str; 5] = [
        "",
        "Time(ms),Main(mA),Main Voltage(V),\n",
        "Time(ms),Main(mA),USB(mA),Aux(mA),Main Voltage(V),USB Voltage(V),\n",
        "Main(mA),Main Voltage(V),\n",
        "seconds,package-0 (J),dram (J)\n",
    ];
    for header in HEADERS {
        read(&[header.as_bytes(), bytes].concat());
    }
}

fn read(bytes: &[u8]) {
    let place = |error: TraceError| {
        let lines = bytes.split(|b| *b == b'\n').count() as u64;
        if let TraceError::Damaged { at, .. } | TraceError::CutShort { at, .. } | TraceError::Unsupported { at, .. } =
            &error
        {
            match at {
                At::Line(n) => assert!((1..=lines).contains(n) || bytes.is_empty(), "{error}"),
                At::Byte(n) => assert!(*n <= bytes.len() as u64, "{error}"),
            }
        }
    };
    let Ok(input) = Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())) else { return };
    let mut readings = match open_input(input) {
        Ok(Opened::Power(readings)) => readings,
        Ok(_) => return,
        Err(error) => return place(error),
    };
    let mut last = 0;
    loop {
        match readings.next() {
            Ok(Some(reading)) => {
                assert!(reading.time >= last, "time goes back from {last} to {}", reading.time);
                last = reading.time;
                assert!(usize::from(reading.channel) < readings.channels().len());
                let (Value::Watts(number) | Value::Joules(number)) = reading.value;
                assert!(!number.is_nan(), "a reading that is no number");
            }
            Ok(None) => break,
            Err(error) => {
                place(error);
                break;
            }
        }
    }
    assert!(matches!(readings.next(), Ok(None)), "something comes after the end");
}
