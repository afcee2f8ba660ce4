//! Recordings of meters are read. Files under `meters/` were written by PyMonsoon's sample engine (with numpy 1 and
//! 2), fed with artificial packets; expected energies come from a simple script.

#[path = "drivers/meters.rs"]
mod drivers;

use std::io::Cursor;
use std::path::Path;

use device::Rng;
use trace::power::{Reading, Readings, Value};
use trace::read::joules_csv;
use trace::read::monsoon::Monsoon;
use trace::stat::power::{PowerStat, count};
use trace::{At, Format, Input, Opened, OtherCounts, TraceError, open_input};

const MAIN: &str = include_str!("meters/monsoon-main.csv");
const NUMPY2: &str = include_str!("meters/monsoon-numpy2.csv");
const TIME_OFF: &str = include_str!("meters/monsoon-time-off.csv");
const ALL: &str = include_str!("meters/monsoon-all.csv");
const LEGACY: &str = include_str!("meters/monsoon-legacy.csv");

fn input(text: &str) -> Input {
    Input::new(Path::new("recording"), Cursor::new(text.as_bytes().to_vec())).unwrap()
}

fn open(text: &str) -> Box<dyn Readings> {
    match open_input(input(text)) {
        Ok(Opened::Power(readings)) => readings,
        Ok(_) => panic!("no meter's"),
        Err(e) => panic!("{e}"),
    }
}

fn read(mut readings: Box<dyn Readings>) -> (Vec<Reading>, OtherCounts, Option<TraceError>) {
    let mut all = Vec::new();
    let error = loop {
        match readings.next() {
            Ok(Some(r)) => all.push(r),
            Ok(None) => break None,
            Err(e) => break Some(e),
        }
    };
    (all, readings.other_counts().clone(), error)
}

fn stat(text: &str) -> PowerStat {
    let (stat, read) = count(&mut *open(text), |_| ());
    read.unwrap();
    stat
}

fn watts(r: &Reading) -> f64 {
    match r.value {
        Value::Watts(watts) => watts,
        Value::Joules(_) => panic!("{r:?}"),
    }
}

#[track_caller]
fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-6, "{a} is not {b}");
}

#[test]
fn a_monsoons_milliseconds_are_seconds_and_its_power_is_current_times_voltage() {
    let s = stat(MAIN);
    assert_eq!((s.format.as_str(), s.readings, s.channels.len()), ("Monsoon CSV", 24, 1));
    assert_eq!((s.channels[0].name.as_str(), s.channels[0].readings), ("main", 24));
    close(s.channels[0].span_ns as f64, 5_408_366.5);
    close(s.channels[0].joules, 0.149_222_980_4);
    let (readings, ..) = read(open(MAIN));
    assert_eq!(readings[0].time, 2_454_281);
    close(watts(&readings[0]), 27.032_114_285_7);
}

#[test]
fn samples_of_one_packet_are_spread_to_the_next_stamp() {
    let text = "Time(ms),Main(mA),Main Voltage(V),\n1.0,1000.0,4.0,\n1.0,1000.0,4.0,\n1.0,1000.0,4.0,\n1.0,1000.0,4.0,\n\
        1.002,1000.0,4.0,\n1.002,1000.0,4.0,\n";
    let times: Vec<u64> = read(open(text)).0.iter().map(|r| r.time / 1000).collect();
    // The last two have the previous spacing.
    assert_eq!(times, [1_000_000, 1_000_500, 1_001_000, 1_001_500, 1_002_000, 1_002_500]);
}

#[test]
fn variants_of_pymonsoons_output_are_read() {
    close(stat(NUMPY2).channels[0].joules, 0.069_834_090_6);
    close(stat(TIME_OFF).channels[0].joules, 0.069_365_939_7);
    close(stat(LEGACY).channels[0].joules, 0.061_025_712_1);
    let all = stat(ALL);
    let names: Vec<_> = all.channels.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["main", "usb"]);
    close(all.channels[0].joules, 0.070_835_721_6);
    close(all.channels[1].joules, 0.033_427_450_0);
    assert_eq!(all.others["samples of aux, a current without its voltage"], 12);
}

#[test]
fn a_current_is_no_power_without_a_given_voltage() {
    let text = "Time(ms),Main(mA),\n0.1,500.0,\n0.2,500.0,\n";
    let Err(e) = open_input(input(text)) else { panic!("read") };
    assert!(matches!(e, TraceError::Unsupported { at: At::Line(1), .. }), "{e}");
    let mut said = Monsoon::new(input(text), Some(3.8)).unwrap();
    close(count(&mut said, |_| ()).0.channels[0].joules, 0.19);
    let all = Monsoon::new(input(ALL), Some(3.8)).unwrap();
    assert_eq!(all.channels(), ["main", "usb", "aux"]);
}

#[test]
fn a_second_measurement_in_the_file_goes_on_after_the_first() {
    let one = "Time(ms),Main(mA),Main Voltage(V),\n0.1,1000.0,4.0,\n0.2,1000.0,4.0,\n";
    let (readings, others, error) = read(open(&format!("{one}{one}")));
    assert!(error.is_none(), "{error:?}");
    let times: Vec<u64> = readings.iter().map(|r| r.time / 1_000_000).collect();
    assert_eq!(times, [100, 200, 400, 500]);
    assert_eq!(others["measurements begun again"], 1);
    let other = format!("{one}Time(ms),Main(mA),\n");
    assert!(matches!(read(open(&other)).2, Some(TraceError::Unsupported { at: At::Line(4), .. })));
}

#[test]
fn a_clock_set_back_a_little_is_counted_and_one_set_back_a_lot_refused() {
    let text =
        |back: &str| format!("Time(ms),Main(mA),Main Voltage(V),\n5.0,1.0,4.0,\n{back},1.0,4.0,\n5.1,1.0,4.0,\n");
    let (readings, others, error) = read(open(&text("4.9")));
    assert!(error.is_none() && readings.len() == 3, "{error:?}");
    assert_eq!(others["stamps of a clock that was set back"], 1);
    let (readings, _, error) = read(open(&text("3.9")));
    assert_eq!(readings.len(), 1);
    assert!(matches!(error, Some(TraceError::Damaged { at: At::Line(3), .. })), "{error:?}");
}

#[test]
fn joules_are_read_as_they_are_written() {
    let text = joules_csv::header(["package-0", "package-0/dram, odd"]);
    let text = text + &joules_csv::row(0, [0.0, 0.0]) + &joules_csv::row(1_500_000_000, [3.25, 0.5]);
    let s = stat(&text);
    assert_eq!((s.format.as_str(), s.channels[1].name.as_str()), ("CSV of joules", "package-0/dram_ odd"));
    close(s.channels[0].joules, 3.25);
    close(s.channels[1].mean_watts, 0.5 / 1.5);
}

#[test]
fn every_damaged_line_is_named() {
    let monsoon = |line: &str| format!("{}{line}\n", MAIN.split_inclusive('\n').take(3).collect::<String>());
    let joules = |line: &str| format!("seconds,a (J)\n0.0,0.0\n1.0,5.0\n{line}\n");
    for (text, what) in [
        (monsoon("0.01,x,4.0,"), "Main(mA)"),
        (monsoon("0.01,1.0,"), "Main Voltage(V)"),
        (monsoon("0.01,1.0,4.0,7.0,"), "more values"),
        (monsoon("0.01,nan,4.0,"), "Main(mA)"),
        (monsoon("-0.01,1.0,4.0,"), "-0.01"),
        (monsoon("np.float64(0.01,1.0,4.0,"), "Time(ms)"),
        (joules("2.0,x"), "a is"),
        (joules("0.5,6.0"), "back"),
        (joules("2.0,6.0,7.0"), "more"),
    ] {
        let (readings, _, error) = read(open(&text));
        let error = error.unwrap_or_else(|| panic!("{what}: read"));
        assert!(matches!(error, TraceError::Damaged { at: At::Line(4), .. }), "{error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert_eq!(readings.len(), 2, "{what}: what came before is whole");
    }
}

#[test]
fn a_recording_cut_inside_a_line_is_reported() {
    for whole in [MAIN, NUMPY2, "seconds,a (J)\n0.0,0.0\n1.0,5.0\n"] {
        let header = whole.find('\n').unwrap() + 1;
        for end in header..whole.len() {
            let (_, _, error) = read(open(&whole[..end]));
            if whole[..end].ends_with('\n') {
                assert!(error.is_none(), "{error:?}");
            } else {
                assert!(error.is_some_and(|e| e.is_cut_short()), "{:?}", &whole[..end]);
            }
        }
    }
}

#[test]
fn no_damage_makes_a_reader_panic_or_time_go_back() {
    let mut rng = Rng::new(1);
    for text in [MAIN, NUMPY2, TIME_OFF, ALL, LEGACY, "seconds,a (J),b (J)\n0.0,0.0,0\n1.0,5.0,1e300\n"] {
        for _ in 0..300 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=rng.index(4) {
                if bytes.is_empty() {
                    break;
                }
                let at = rng.index(bytes.len());
                match rng.index(3) {
                    0 => bytes[at] = b"0123456789.,-e\nn\r("[rng.index(18)],
                    1 => _ = bytes.remove(at),
                    _ => bytes.truncate(at + 1),
                }
            }
            drivers::meters(&bytes);
        }
    }
}

#[test]
fn formats_are_distinguished() {
    for (text, format) in [(MAIN, Format::MonsoonCsv), ("seconds,a (J)\n", Format::JoulesCsv)] {
        assert_eq!(open(text).format(), format);
    }
    for not in ["", "Time(ms)x,Main(mA),\n", "seconds\n", "seconds,a\n"] {
        assert!(matches!(open_input(input(not)), Err(TraceError::Unknown { .. })), "{not:?}");
    }
}
