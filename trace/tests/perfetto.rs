//! Perfetto traces are read: kernel events and power rails, compared with the text they were generated from.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use trace::block::{Action, Event, Flags, Op};
use trace::power::{Reading, Value};
use trace::{At, Format, Input, Kind, Opened, Process, TraceError, open_as, open_input, open_input_as};

use crate::text::{Seen, read, whole};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn fixture(name: &str) -> Vec<u8> {
    zstd::stream::decode_all(std::fs::File::open(path(name)).unwrap()).unwrap()
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A field with a number.
fn number(field: u64, n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3, &mut out);
    varint(n, &mut out);
    out
}

/// A field with bytes.
fn bytes(field: u64, contents: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3 | 2, &mut out);
    varint(contents.len() as u64, &mut out);
    out.extend_from_slice(contents);
    out
}

/// A packet with one kernel event of CPU 0.
fn kernel(time: u64, event: u64, fields: &[Vec<u8>]) -> Vec<u8> {
    let event = [number(1, time), number(2, 77), bytes(event, &fields.concat())].concat();
    bytes(1, &bytes(1, &[number(1, 0), bytes(2, &event)].concat()))
}

fn input(bytes: &[u8]) -> Input {
    Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())).unwrap()
}

fn rails(bytes: &[u8]) -> (Vec<Reading>, Vec<String>, Option<TraceError>) {
    let Ok(Opened::Power(mut readings)) = open_input_as(input(bytes), Kind::Power) else { panic!("no meter") };
    let mut all = Vec::new();
    let error = loop {
        match readings.next() {
            Ok(Some(reading)) => all.push(reading),
            Ok(None) => break None,
            Err(e) => break Some(e),
        }
    };
    assert!(matches!(readings.next(), Ok(None)));
    (all, readings.channels().to_vec(), error)
}

#[test]
fn events_are_those_of_the_text_in_the_order_of_time() {
    let (ours, text) = (whole(&fixture("perfetto/events.pftrace.zst")), whole(&fixture("ftrace/v6.report.txt.zst")));
    let nameless = |seen: &Seen| -> Vec<Event> {
        seen.events.iter().map(|e| Event { process: Process::default(), ..*e }).collect()
    };
    assert_eq!(nameless(&ours), nameless(&text));
    for (at, event) in ours.events.iter().enumerate() {
        if event.action != Action::Complete {
            assert_eq!(ours.names[at], text.names[at]);
        }
    }
    for name in ["f2fs_sync_file_enter", "f2fs_sync_file_exit", "f2fs_write_checkpoint"] {
        assert_eq!(ours.others[name], text.others[name]);
    }
    assert_eq!(ours.others["lost events, how many is not known"], 1);
    assert!(ours.events.iter().any(|e| e.cpu == 0) && ours.events.iter().any(|e| e.cpu == 1));
}

/// Lines of `events.sums` that begin with a word, by the text after it, with their last numbers.
fn counted(word: &str, numbers: usize) -> BTreeMap<String, Vec<u64>> {
    let text = std::fs::read_to_string(path("perfetto/events.sums")).unwrap();
    let of = |line: &str| {
        let mut rest = line.strip_prefix(word)?.strip_prefix(' ')?;
        let mut out = vec![0; numbers];
        for n in out.iter_mut().rev() {
            let (before, last) = rest.rsplit_once(' ')?;
            (rest, *n) = (before, last.parse().ok()?);
        }
        Some((rest.to_owned(), out))
    };
    let all: BTreeMap<_, _> = text.lines().filter_map(of).collect();
    assert!(!all.is_empty(), "no {word}");
    all
}

#[test]
fn events_and_energies_are_those_that_the_classes_of_perfettos_makers_read() {
    for name in ["perfetto/events.pftrace.zst", "perfetto/compressed.pftrace.zst"] {
        let ours = whole(&fixture(name));
        let mut left = ours.others.clone();
        left.retain(|name, _| !name.starts_with("packets of") && name != "lost events, how many is not known");
        let mut plugs = [0; 3];
        for (event, theirs) in counted("event", 3) {
            let action = match event.as_str() {
                "block_rq_issue" => Action::Issue,
                "block_rq_complete" => Action::Complete,
                "block_rq_insert" => Action::Insert,
                "block_getrq" => Action::Get,
                "block_bio_queue" => Action::Queue,
                "block_bio_backmerge" => Action::BackMerge,
                "block_plug" | "block_unplug" => {
                    plugs.iter_mut().zip(theirs).for_each(|(sum, n)| *sum += n);
                    continue;
                }
                other => {
                    assert_eq!(left.remove(other), Some(theirs[0]), "{other}");
                    continue;
                }
            };
            assert_eq!(sums(&ours, action).to_vec(), theirs, "{event}");
        }
        assert_eq!(sums(&ours, Action::Other), plugs);
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(ours.others["lost events, how many is not known"], lost());

        let asked = ours.events.iter().filter(|e| e.action != Action::Other);
        let mut kinds: BTreeMap<(Op, u8), u64> = BTreeMap::new();
        asked.for_each(|e| *kinds.entry((e.op, e.flags.bits())).or_default() += 1);
        let mut theirs: BTreeMap<(Op, u8), u64> = BTreeMap::new();
        for (letters, count) in counted("letters", 1) {
            let (op, flags) = match letters.as_str() {
                "DS" => (Op::Discard, Flags::SYNC),
                "FF" => (Op::Flush, Flags::empty()),
                "FWFSM" => (Op::Write, Flags::PREFLUSH | Flags::FUA | Flags::SYNC | Flags::META),
                "FWS" => (Op::Flush, Flags::SYNC),
                "R" => (Op::Read, Flags::empty()),
                "RA" => (Op::Read, Flags::AHEAD),
                "RM" => (Op::Read, Flags::META),
                "W" => (Op::Write, Flags::empty()),
                "WS" => (Op::Write, Flags::SYNC),
                "WSM" => (Op::Write, Flags::SYNC | Flags::META),
                other => panic!("{other}"),
            };
            *theirs.entry((op, flags.bits())).or_default() += count[0];
        }
        assert_eq!(kinds, theirs);

        // A completion has no process.
        let mut names: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (_, name) in ours.events.iter().zip(&ours.names).filter(|(e, _)| e.action != Action::Complete) {
            names.entry(name.clone()).or_insert_with(|| vec![0])[0] += 1;
        }
        assert_eq!(names, counted("process", 1));

        let (readings, channels, _) = rails(&fixture(name));
        for (rail, theirs) in counted("rail", 3) {
            let channel = channels.iter().position(|c| *c == rail).unwrap();
            let of: Vec<u64> = readings
                .iter()
                .filter(|r| usize::from(r.channel) == channel)
                .map(|r| match r.value {
                    Value::Joules(joules) => (joules * 1e6).round() as u64,
                    Value::Watts(_) => panic!("watts of a rail"),
                })
                .collect();
            assert_eq!(vec![of.len() as u64, of[0], of[of.len() - 1]], theirs, "{rail}");
        }
    }
}

/// Number of events with an action, their sectors, and sums of their times and thread numbers.
fn sums(seen: &Seen, action: Action) -> [u64; 3] {
    let of = seen.events.iter().filter(|e| e.action == action);
    of.fold([0; 3], |[n, sectors, sum], e| [n + 1, sectors + e.sectors, sum + e.time + u64::from(e.pid)])
}

fn lost() -> u64 {
    let text = std::fs::read_to_string(path("perfetto/events.sums")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("lost ")?.parse().ok()).unwrap()
}

#[test]
fn compressed_packets_are_the_same_packets() {
    let plain = fixture("perfetto/events.pftrace.zst");
    let expected = whole(&plain);
    let by_zstd = bytes(1, &bytes(133, &zstd::stream::encode_all(&plain[..], 3).unwrap()));
    for packed in [fixture("perfetto/compressed.pftrace.zst"), by_zstd] {
        let seen = whole(&packed);
        assert_eq!(
            (seen.events, seen.names, seen.others),
            (expected.events.clone(), expected.names.clone(), expected.others.clone())
        );
    }
    let a = rails(&fixture("perfetto/events.pftrace.zst"));
    let b = rails(&fixture("perfetto/compressed.pftrace.zst"));
    assert_eq!((a.0, a.1), (b.0, b.1));
}

#[test]
fn rails_are_read_in_joules_by_one_clock() {
    let (readings, channels, error) = rails(&fixture("perfetto/events.pftrace.zst"));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(channels, ["S5M_VDD_INT", "L12S_VDD_UFS", "VSYS_PWR_DISPLAY"]);
    assert_eq!(readings.len() % 3, 0);
    assert!(readings.is_sorted_by_key(|r| r.time));
    for channel in 0..3_u16 {
        let of: Vec<&Reading> = readings.iter().filter(|r| r.channel == channel).collect();
        assert_eq!(of.len() * 3, readings.len());
        for (n, reading) in of.iter().enumerate() {
            let joules = 1.0 + (n + 1) as f64 * f64::from(channel + 1) * 1e-3;
            assert!(matches!(reading.value, Value::Joules(j) if (j - joules).abs() < 1e-9), "{reading:?}");
        }
        assert!(of.windows(2).all(|w| w[1].time - w[0].time == 50_000_000));
    }
    // The third rail uses the trace's own clock, which is more precise by a fraction of a millisecond.
    let third: Vec<u64> = readings.iter().filter(|r| r.channel == 2).map(|r| r.time).collect();
    let first: Vec<u64> = readings.iter().filter(|r| r.channel == 0).map(|r| r.time).collect();
    assert!(first.iter().zip(&third).all(|(a, b)| a / 1_000_000 == b / 1_000_000 && a % 1_000_000 == 0));
}

#[test]
fn every_event_of_a_request_has_its_fields_in_its_own_places() {
    let base = [number(1, 259 << 8 | 5), number(2, 800), number(3, 16)].concat();
    let with = |fields: &[Vec<u8>]| [std::slice::from_ref(&base), fields].concat();
    let minus_five = (-5_i64) as u64;
    for (event, fields, action, error) in [
        (45, with(&[number(4, 8192), bytes(5, b"WS"), bytes(6, b"dd")]), Action::Issue, 0),
        (126, with(&[number(4, 8192), bytes(5, b"WS"), bytes(6, b"dd")]), Action::Insert, 0),
        (125, with(&[bytes(5, b"WS"), number(7, minus_five)]), Action::Complete, 5),
        (125, with(&[number(4, minus_five), bytes(5, b"WS")]), Action::Complete, 5),
        (129, with(&[bytes(5, b"WS")]), Action::Requeue, 0),
        (117, with(&[number(4, minus_five), bytes(5, b"WS")]), Action::Complete, 5),
        (119, with(&[bytes(4, b"WS"), bytes(5, b"dd")]), Action::Queue, 0),
        (115, with(&[bytes(4, b"WS"), bytes(5, b"dd")]), Action::BackMerge, 0),
        (118, with(&[bytes(4, b"WS"), bytes(5, b"dd")]), Action::FrontMerge, 0),
        (122, with(&[bytes(4, b"WS"), bytes(5, b"dd")]), Action::Get, 0),
        (120, with(&[number(4, 1), number(5, 9), bytes(6, b"WS")]), Action::Remap, 0),
        (128, with(&[number(4, 1), number(5, 9), number(6, 1), bytes(7, b"WS")]), Action::Remap, 0),
        (546, with(&[number(4, 8192), number(5, 16386), bytes(6, b"WS"), bytes(7, b"dd")]), Action::Issue, 0),
    ] {
        let seen = whole(&kernel(1000, event, &fields));
        let e = seen.events[0];
        assert_eq!((e.action, e.op, e.sector, e.sectors, e.error), (action, Op::Write, 800, 16, error), "{event}");
        assert_eq!((e.time, e.pid, e.device.major, e.device.minor), (1000, 77, 259, 5));
    }
    let split = [number(1, 259 << 8), number(2, 800), number(3, 808), bytes(4, b"R")];
    let seen = whole(&kernel(1, 131, &split));
    assert_eq!((seen.events[0].action, seen.events[0].sectors), (Action::Split, 8));
}

#[test]
fn ufs_commands_are_requests_if_no_better_layer_is_recorded() {
    let command = |time, kind| {
        kernel(
            time,
            406,
            &[bytes(1, b"1d84000.ufshc"), number(4, 100), number(5, 0x2a), number(8, 8192), number(10, kind)],
        )
    };
    let seen = whole(&[command(10, 0), command(20, 1), command(30, 2)].concat());
    let said: Vec<_> = seen.events.iter().map(|e| (e.time, e.action, e.op, e.sector, e.sectors)).collect();
    assert_eq!(said, [(10, Action::Issue, Op::Write, 800, 16), (20, Action::Complete, Op::Write, 800, 16)]);
    assert_eq!(seen.others["ufshcd_command"], 1);
}

#[test]
fn events_without_a_place_in_the_format_are_counted_by_the_name_they_give() {
    let generic = kernel(5, 327, &[bytes(1, b"f2fs_new_event")]);
    let described = [number(1, 70_000), bytes(2, &bytes(1, b"f2fs_newest_event"))].concat();
    let event = [number(1, 6), number(2, 7), bytes(70_000, &[])].concat();
    let dense = bytes(1, &bytes(1, &[number(1, 0), bytes(11, &described), bytes(2, &event)].concat()));
    let unknown = kernel(5, 600, &[]);
    let elsewhere = bytes(1, &[number(98, 1), bytes(1, &[])].concat());
    let seen = whole(&[generic, dense, unknown, elsewhere].concat());
    let others: Vec<(&str, u64)> = seen.others.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    assert_eq!(
        others,
        [("f2fs_new_event", 1), ("f2fs_newest_event", 1), ("kernel event 600", 1), ("packets of other machines", 1)]
    );
}

#[test]
fn traces_with_only_rails_or_without_rails_are_reported_as_such() {
    let rail = [
        bytes(1, &[number(1, 4), bytes(2, b"VSYS")].concat()),
        bytes(2, &[number(1, 4), number(2, 3), number(3, 9)].concat()),
    ];
    let trace = bytes(1, &[number(8, 1), bytes(40, &rail.concat())].concat());
    let seen = read(&trace);
    assert!(seen.events.is_empty());
    let error = seen.error.unwrap();
    assert!(matches!(error, TraceError::Unsupported { format: Format::Perfetto, .. }), "{error}");
    assert!(error.to_string().contains("only power rails"), "{error}");

    let (readings, channels, _) = rails(&trace);
    assert_eq!(
        (readings, channels),
        (vec![Reading { time: 3_000_000, channel: 0, value: Value::Joules(9e-6) }], vec!["VSYS".to_owned()])
    );

    let without = kernel(1, 600, &[]);
    let error = rails(&without).2.unwrap();
    assert!(error.to_string().contains("without power rails"), "{error}");
    assert_eq!(open_input(input(&without)).unwrap().kind(), Kind::Blocks);
    let error = open_as(&path("ftrace/trace.txt.zst"), Kind::Power).err().unwrap();
    assert!(matches!(error, TraceError::Unsupported { format: Format::Ftrace, .. }), "{error}");
}

#[test]
fn a_trace_cut_anywhere_ends_with_an_error_or_between_packets() {
    let plain = fixture("perfetto/events.pftrace.zst");
    let all = whole(&plain);
    let mut ends = vec![];
    let mut at = 0;
    while at < plain.len() {
        let (mut length, mut header) = (0, 1);
        while header == 1 || plain[at + header - 1] >= 0x80 {
            length |= usize::from(plain[at + header] & 0x7f) << (7 * (header - 1));
            header += 1;
        }
        at += header + length;
        ends.push(at);
    }
    assert_eq!(at, plain.len());
    for cut in (0..1000).chain((1000..plain.len()).step_by(97)).chain(ends.iter().copied()) {
        let seen = read(&plain[..cut]);
        let clean = cut == 0 || ends.contains(&cut);
        match &seen.error {
            None => assert!(clean, "{cut}"),
            // Rails come before the first events of block devices.
            Some(TraceError::Unknown { .. }) => assert!(cut < ends[1]),
            Some(TraceError::Unsupported { .. }) => assert!(clean && seen.events.is_empty()),
            Some(e @ TraceError::CutShort { at: At::Byte(at), .. }) => {
                assert!(!clean && (*at == 0 || ends.contains(&(*at as usize))) && *at < cut as u64, "{cut}: {e}");
            }
            Some(e) => panic!("{cut}: {e}"),
        }
        assert!(seen.events.iter().all(|e| all.events.contains(e)));
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    for name in ["perfetto/events.pftrace.zst", "perfetto/compressed.pftrace.zst"] {
        let good = fixture(name);
        let mut bytes = good[..good.len().min(4000)].to_vec();
        for at in (0..bytes.len()).step_by(3) {
            for other in [0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
                let was = std::mem::replace(&mut bytes[at], other);
                if let Some(TraceError::Damaged { at: At::Line(_), .. }) = read(&bytes).error {
                    panic!("a line of a binary format");
                }
                bytes[at] = was;
            }
        }
    }
}

#[test]
fn lengths_that_lie_take_no_memory() {
    let mut long = vec![0x0a];
    varint(1 << 40, &mut long);
    let seen = read(&[kernel(1, 600, &[]), long.clone()].concat());
    assert!(seen.error.unwrap().to_string().contains("a packet of 1099511627776 bytes"));
    let bomb = {
        use std::io::Write as _;
        let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..64).for_each(|_| e.write_all(&vec![0; 1 << 20]).unwrap());
        e.finish().unwrap()
    };
    let seen = read(&bytes(1, &bytes(50, &bomb)));
    assert!(seen.error.unwrap().to_string().contains("compressed packets of over"));
    let nested = kernel(1, 600, &[]);
    let seen = read(&bytes(1, &bytes(50, &nested)));
    assert!(matches!(seen.error, Some(TraceError::Damaged { at: At::Byte(0), .. })));
}

#[test]
fn text_that_begins_with_an_empty_line_is_none() {
    for text in
        ["\n\n\n", "\n# tracer: nop\n", "\n8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n"]
    {
        match open_input(input(text.as_bytes())) {
            Ok(opened) => assert_ne!(opened.format(), Format::Perfetto, "{text:?}"),
            Err(e) => assert!(matches!(e, TraceError::Unknown { .. }), "{text:?}"),
        }
    }
}

#[test]
fn a_first_packet_longer_than_the_recognised_head_is_accepted() {
    let event = bytes(2, &[number(1, 9), number(2, 7), bytes(123, &bytes(1, b"dd"))].concat());
    let bundle = [number(1, 3), event.repeat(20_000)].concat();
    let trace = bytes(1, &[number(10, 1), bytes(1, &bundle)].concat());
    assert!(trace.len() > 200_000);
    let seen = whole(&trace);
    assert_eq!(seen.events.len(), 20_000);
    assert!(seen.events.iter().all(|e| e.cpu == 3 && e.action == Action::Other));
}
