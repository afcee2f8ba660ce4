//! blkparse's text is read line by line.

use trace::TraceError;
use trace::block::{Action, DeviceId, Event, Flags, Op};

use crate::text::{line_of, read, survives_damage};

/// The event of a line, with the name of its process.
fn event_of(line: &str) -> (Event, String) {
    let seen = read(format!("{line}\n").as_bytes());
    assert!(seen.error.is_none(), "{line}: {:?}", seen.error);
    assert_eq!(seen.events.len(), 1, "{line}");
    (seen.events[0], seen.names[0].clone())
}

/// A line with this text after the process number.
fn line(rest: &str) -> String {
    format!("  8,0    3        1     0.000000042   697  {rest}")
}

/// Action, operation, flags, sectors, error and process of a line.
fn happened(rest: &str) -> (Action, Op, Flags, u64, u64, u32, String) {
    let (e, name) = event_of(&line(rest));
    (e.action, e.op, e.flags, e.sector, e.sectors, e.error, name)
}

#[test]
fn a_line_has_time_device_and_process() {
    let (event, name) =
        event_of("259,1234  17   123456 86400.000000001 1234567  D  WS 223490 + 8 [kworker/u16:1+flush-259:0]");
    assert_eq!(event.time, 86_400_000_000_001);
    assert_eq!(event.device, DeviceId { major: 259, minor: 1234 });
    assert_eq!((event.cpu, event.pid, event.bytes()), (17, 1_234_567, 4096));
    assert_eq!(name, "kworker/u16:1+flush-259:0");
}

#[test]
fn every_action_has_its_own_rest_of_a_line() {
    let none = Flags::empty();
    let me = || "me".to_owned();
    for (rest, action, sector, sectors) in [
        ("Q   W 223490 + 8 [me]", Action::Queue, 223_490, 8),
        ("G   W 223490 + 8 [me]", Action::Get, 223_490, 8),
        ("I   W 223490 + 8 (   12345) [me]", Action::Insert, 223_490, 8),
        ("D   W 223490 + 8 [me]", Action::Issue, 223_490, 8),
        ("M   W 223498 + 8 [me]", Action::BackMerge, 223_498, 8),
        ("F   W 223482 + 8 [me]", Action::FrontMerge, 223_482, 8),
        ("X   W 223490 / 223506 [me]", Action::Split, 223_490, 16),
        ("B   W 223490 + 8 [me]", Action::Other, 223_490, 8),
        ("A   W 223490 + 8 <- (8,1) 223427 [me]", Action::Remap, 223_490, 8),
        ("Q   W [me]", Action::Queue, 0, 0),
    ] {
        assert_eq!(happened(rest), (action, Op::Write, none, sector, sectors, 0, me()), "{rest}");
    }
    for rest in ["P   N [me]", "U   N [me] 3", "UT   N [me] 1", "S   N [me]", "ZP   N [me]", "ZU   N [me] 1"] {
        assert_eq!(happened(rest), (Action::Other, Op::Other, none, 0, 0, 0, me()), "{rest}");
    }
    let no_one = String::new;
    for (rest, sector, sectors, error) in [
        ("C   W 223490 + 8 [0]", 223_490, 8, 0),
        ("C   W 223490 + 8 (  123456) [65531]", 223_490, 8, 5),
        ("C   W 223490 + 8 [-5]", 223_490, 8, 5),
        ("C   W 0 [0]", 0, 0, 0),
        ("C   W 0 (  123456) [0]", 0, 0, 0),
    ] {
        assert_eq!(happened(rest), (Action::Complete, Op::Write, none, sector, sectors, error, no_one()), "{rest}");
    }
    assert_eq!(happened("R   R 8 + 8 [11]"), (Action::Requeue, Op::Read, none, 8, 8, 11, no_one()));
    assert_eq!(happened("A   W 223490 + 8 <- (8,1) 223427").0, Action::Remap);
}

#[test]
fn commands_passed_through_are_neither_reads_nor_writes() {
    for rest in ["Q   R 512 (12 00 00 00 24 00) [hdparm]", "I   R 512 (12 00 ..) [hdparm]", "D   R 512 [hdparm]"] {
        let (action, op, flags, _, sectors, _, name) = happened(rest);
        assert_ne!(action, Action::Other);
        assert_eq!((op, flags, sectors, &*name), (Op::Other, Flags::empty(), 1, "hdparm"), "{rest}");
    }
    assert_eq!(happened("C   R (12 00 00 00 24 00) [0]").1, Op::Other);
    assert_eq!(happened("C   R [0]").1, Op::Other);
}

#[test]
fn flushes_have_no_sectors_and_names_may_hold_anything() {
    assert_eq!(happened("Q FWS [fsync]").1, Op::Flush);
    assert_eq!(happened("D  FN [kworker/0:1H]").1, Op::Flush);
    assert_eq!(happened("C  FN 0 [0]").1, Op::Flush);
    let (_, op, flags, ..) = happened("Q FWFSM 8 + 8 [jbd2]");
    assert_eq!((op, flags), (Op::Write, Flags::PREFLUSH | Flags::FUA | Flags::SYNC | Flags::META));
    for name in ["a b", "x]y", "[", "", "8 + 8", "(sd-pam)", "U] 3"] {
        assert_eq!(happened(&format!("Q   W 8 + 8 [{name}]")).6, name);
        assert_eq!(happened(&format!("U   N [{name}] 7")).6, name);
    }
}

#[test]
fn the_process_of_a_completion_is_known_from_its_earlier_events() {
    let text = format!("{}\n{}\n", line("Q   W 8 + 8 [dd]"), line("C   W 8 + 8 [0]"));
    assert_eq!(read(text.as_bytes()).names, ["dd", "dd"]);
}

#[test]
fn messages_and_tables_are_counted() {
    let text = format!(
        "Input file sda.blktrace.0 added\n\n{}\n{}\ndd (697)\n Reads Queued:  1,  4KiB\n\n\
         CPU0 (sda):\n IO unplugs:  1\nTotal (sda):\n\nThroughput (R/W): 0KiB/s / 4KiB/s\nEvents (sda): 4 entries\n\
         Skips: 0 forward (0 -   0.0%)\n",
        line("m   N cfq697 insert_request"),
        line("Q   W 8 + 8 [dd]"),
    );
    let seen = read(text.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert_eq!(seen.events.len(), 1);
    let others: Vec<_> = seen.others.iter().map(|(what, n)| (what.as_str(), *n)).collect();
    assert_eq!(others, [("empty lines", 3), ("lines of tables", 8), ("messages", 1), ("names of input files", 1)]);
}

#[test]
fn every_error_names_its_line_and_what_is_wrong() {
    for (bad, what) in [
        (line("Q   W 8 + 8"), "name in brackets"),
        (line("Q   W 8 + [dd]"), "length"),
        (line("Q   Y 8 + 8 [dd]"), "letters"),
        (line("G   W 8 [dd]"), "length"),
        (line("y   W 8 + 8 [dd]"), "unknown action"),
        (line("C   W 8 + 8 [dd]"), "error that is no number"),
        (line("C   W 8 + 8 [0] x"), "more than"),
        (line("A   W 8 + 8 <- 8"), "from where"),
        (line("X   W 8 + 8 [dd]"), "where"),
        (line("U   N [dd]"), "how many"),
        (line("Q   W 8 + 8 (12 [dd]"), "parenthesis"),
        (line("Q   W 99999999999999999999 + 8 [dd]"), "sector"),
        (line("Q"), "letters"),
        ("  8,0    3        1     0.00000042   697  Q   W 8 + 8 [dd]".into(), "nine digits"),
        ("  8,0    3        1     0   697  Q   W 8 + 8 [dd]".into(), "nanoseconds"),
        ("  8,0    3        1 18446744074.000000000   697  Q   W 8 + 8 [dd]".into(), "clocks"),
        ("  8;0    3        1     0.000000042   697  Q   W 8 + 8 [dd]".into(), "comma"),
        ("  8,0 9999999999  1     0.000000042   697  Q   W 8 + 8 [dd]".into(), "processor"),
        ("CPU time".into(), "device"),
    ] {
        let good = line("Q   W 8 + 8 [dd]");
        let seen = read(format!("{good}\n{bad}\n{good}\n").as_bytes());
        assert_eq!((seen.events.len(), line_of(&seen)), (1, 2), "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what), "{bad}: {text}");
    }
}

#[test]
fn lines_of_another_format_are_refused_with_the_reason() {
    // blkparse -f "%D %2c %8s %5T.%9t %5p %2a %3d %S %n %C\n"
    let seen = read(b"  8,0    0        1     0.000000000   697  G   W 223490 8 kjournald\n");
    assert!(seen.events.is_empty());
    assert_eq!(line_of(&seen), 1);
    let text = seen.error.unwrap().to_string();
    assert!(text.contains("without -f"), "{text}");
    // It has no resemblance to a line.
    assert!(matches!(read(b"W 223490 8 kjournald\n").error, Some(TraceError::Unknown { .. })));
}

#[test]
fn a_recording_cut_anywhere_gives_its_complete_records() {
    let good: String = [
        line("Q   W 8 + 8 [dd]"),
        line("A   W 8 + 8 <- (8,1) 223427"),
        line("U   N [dd] 12"),
        line("C   W 8 + 8 [0]"),
        "CPU0 (sda):".into(),
        " IO unplugs:            36        ".into(),
    ]
    .map(|l| l + "\n")
    .concat();
    let first = good.find('.').unwrap() + 10;
    for cut in first..good.len() {
        let seen = read(&good.as_bytes()[..cut]);
        let whole = good[..cut].matches('\n').count();
        assert_eq!(seen.events.len(), whole.min(4), "{cut}");
        match seen.error {
            None => assert!(good[..cut].ends_with('\n'), "{cut}"),
            Some(e) => assert!(e.is_cut_short() && !good[..cut].ends_with('\n'), "{cut}: {e}"),
        }
    }
}

#[test]
fn damage_is_survived() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/blktrace/vda.blkparse.zst");
    let text = String::from_utf8(zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let some = [&lines[..12], &lines[lines.len() - 30..]].concat().join("\n") + "\n";
    survives_damage(some.as_bytes());
}
