//! The text of tracefs is read in all its forms.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use trace::block::{Action, DeviceId, Event, Flags, Op};
use trace::{Format, Kind, TraceError, open};

use crate::text::{line_of, read, survives_damage, whole};

/// A recording of a real kernel; see `trace/fixtures/ftrace/README.md`.
fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ftrace").join(name);
    zstd::stream::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

/// The output of a simple script for a text.
fn awk(script: &str, text: &[u8]) -> String {
    let mut child = Command::new("awk").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&text));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

const LINES: &str = "\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           mount-113     [001] .....     5.793116: block_bio_queue: 254,0 R 0 + 8 [mount]
           <...>-44      [000] .....     5.793982: block_rq_issue: 254,0 WS 4096 () 8 + 8 [kworker/0:1H]
          <idle>-0       [001] d.h1.     5.794263: block_rq_complete: 254,0 FF () 18446744073709551615 + 0 [-5]
CPU:1 [LOST 896 EVENTS]
           mount-113     [001] .....     5.794300: f2fs_sync_file_enter: dev = (254,0), ino = 4
           mount-113     [001] .....     5.794301: block_unplug: [mount] 2
CPU:0 [EVENTS DROPPED]
           mount-113     [001] .....     5.794302: __submit_bio <-submit_bio_noacct_nocheck
           mount-113     [001] .....     5.794302: <stack trace>
 => submit_bio
";

#[test]
fn a_line_is_an_event_or_is_counted() {
    let seen = whole(LINES.as_bytes());
    let device = DeviceId { major: 254, minor: 0 };
    let first = Event {
        time: 5_793_116_000,
        action: Action::Queue,
        op: Op::Read,
        flags: Flags::empty(),
        sector: 0,
        sectors: 8,
        device,
        cpu: 1,
        pid: 113,
        process: seen.events[0].process,
        took: None,
        error: 0,
        writing: Default::default(),
        from: None,
    };
    assert_eq!(seen.events[0], first);
    let [_, issue, flush, unplug] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((issue.action, issue.op, issue.flags, issue.cpu), (Action::Issue, Op::Write, Flags::SYNC, 0));
    assert_eq!((flush.action, flush.op, flush.sector, flush.error), (Action::Complete, Op::Flush, 0, 5));
    assert_eq!((unplug.action, unplug.sectors), (Action::Other, 0));
    assert_eq!(seen.names, ["mount", "kworker/0:1H", "<idle>", "mount"]);
    let others: Vec<(&str, u64)> = seen.others.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(
        others,
        [
            ("calls of functions", 2),
            ("f2fs_sync_file_enter", 1),
            ("lines of stack traces", 1),
            ("lost events", 896),
            ("lost events, how many is not known", 1)
        ]
    );
}

#[test]
fn one_buffer_shown_in_three_ways_is_the_same_events() {
    let expected = whole(&fixture("trace.txt.zst"));
    assert!(expected.events.len() > 600 && expected.others["f2fs_sync_file_enter"] == 8);
    for name in ["noirq.txt.zst", "pipe.txt.zst"] {
        let seen = whole(&fixture(name));
        assert_eq!((&seen.events, &seen.names, &seen.others), (&expected.events, &expected.names, &expected.others));
    }
}

#[test]
fn totals_are_those_of_a_plain_script() {
    let script = r#"
        /block_(rq_issue|rq_complete|bio_queue|getrq|rq_insert): / {
            for (i = 1; i <= NF; i++) if ($i ~ /^block_/) name = $i
            for (i = 1; i <= NF; i++) if ($i == "+") { n[name]++; sectors[name] += $(i + 1) }
        }
        END { for (name in n) print name, n[name], sectors[name] | "sort" }"#;
    for name in ["trace.txt.zst", "tgid.txt.zst", "lost.txt.zst", "v6.report.txt.zst", "v7.report.txt.zst"] {
        let text = fixture(name);
        let seen = whole(&text);
        let ours: Vec<String> = [
            (Action::Queue, "block_bio_queue:"),
            (Action::Get, "block_getrq:"),
            (Action::Complete, "block_rq_complete:"),
            (Action::Insert, "block_rq_insert:"),
            (Action::Issue, "block_rq_issue:"),
        ]
        .iter()
        .map(|(action, word)| {
            let of = seen.events.iter().filter(|e| e.action == *action);
            format!("{word} {} {}", of.clone().count(), of.map(|e| e.sectors).sum::<u64>())
        })
        .collect();
        assert_eq!(ours.join("\n"), awk(script, &text), "{name}");
        let all = seen.events.len() as u64
            + seen.others.iter().filter(|(n, _)| !n.starts_with("lost")).map(|o| o.1).sum::<u64>();
        assert_eq!(all.to_string(), awk("/\\[[0-9]+\\] .*[0-9]: / { n++ } END { print n }", &text), "{name}");
    }
}

#[test]
fn lost_events_are_recognised_as_the_kernel_and_trace_cmd_print_them() {
    for name in ["lost.txt.zst", "lost.report.txt.zst"] {
        let text = fixture(name);
        let seen = whole(&text);
        let script =
            "/^CPU:/ { for (i = 1; i <= NF; i++) { sub(/\\[/, \"\", $i); if ($i + 0 > 0) n += $i } } END { print n }";
        assert_eq!(seen.others["lost events"].to_string(), awk(script, &text), "{name}");
    }
}

#[test]
fn a_page_of_systrace_is_read_from_its_data_to_their_end() {
    let (head, foot) = (
        "<!DOCTYPE html>\n<html>\n<head>\n<title>Android System Trace</title>\n<script>var a = \"x-1 [000] 1.0: block_plug: [x]\";</script>\n<!-- BEGIN TRACE -->\n  <script class=\"trace-data\" type=\"application/text\">\n",
        "  </script>\n<!-- END TRACE -->\n</body></html>\n",
    );
    let page = format!("{head}{LINES}{foot}");
    let (seen, plain) = (whole(page.as_bytes()), whole(LINES.as_bytes()));
    assert_eq!((seen.events, seen.others), (plain.events, plain.others));
    let cut = read(format!("{head}{LINES}").as_bytes());
    assert!(cut.error.unwrap().is_cut_short());
}

#[test]
fn text_of_atrace_and_trace_cmd_before_the_first_event_is_skipped() {
    let event = "a-1 [000] 1.000001: block_plug: [a]\n";
    for head in ["capturing trace... done\nTRACE:\n# tracer: nop\n", "version = 7\nCPU 1 is empty\ncpus=2\n", "\n\n"] {
        let seen = whole(format!("{head}{event}").as_bytes());
        assert_eq!((seen.events.len(), seen.others.len()), (1, 0), "{head}");
    }
    let opened = open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ftrace/pipe.txt.zst")).unwrap();
    assert_eq!(opened.kind(), Kind::Blocks);
}

const PHONE: &str = "\
 surfaceflinger-500   (  500) [000] .....  10.000000: ufshcd_command: send_req: 1d84000.ufshc: tag: 1, DB: 0x1, size: 4096, IS: 0, LBA: 100, opcode: 0x2a (WRITE_10), group_id: 0x0
 surfaceflinger-500   (  500) [000] .....  10.000100: ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 1, DB: 0x0, size: 4096, IS: 0, LBA: 100, opcode: 0x2a (WRITE_10), group_id: 0x0
";
const ACCOUNTED: &str = "\
 a-5 [000] .....  11.000000: block_io_start: 254,48 WS 8192 () 800 + 16 be,0,4 [a]
 a-5 [000] .....  11.000200: block_io_done: 254,48 WS 0 () 800 + 0 be,0,4 [b]
";
const ISSUED: &str = "\
 a-5 [000] .....  12.000000: block_rq_issue: 254,48 WS 8192 () 800 + 16 [a]
";

#[test]
fn of_layers_that_tell_of_the_same_request_the_best_is_listened_to() {
    let said = |text: String| {
        let seen = whole(text.as_bytes());
        let events: Vec<_> =
            seen.events.iter().map(|e| (e.time / 1_000_000_000, e.action, e.sector, e.sectors)).collect();
        let others: Vec<_> = seen.others.into_iter().collect();
        (events, others)
    };
    let ufs = vec![(10, Action::Issue, 800, 8), (10, Action::Complete, 800, 8)];
    let accounted = vec![(11, Action::Issue, 800, 16), (11, Action::Complete, 800, 16)];
    let not = |what: &str, n| (what.to_owned(), n);
    assert_eq!(said(PHONE.into()), (ufs, vec![]));
    assert_eq!(said(ACCOUNTED.into()), (accounted.clone(), vec![]));
    assert_eq!(said(format!("{PHONE}{ACCOUNTED}")), (accounted, vec![not("ufshcd_command", 2)]));
    let (events, others) = said(format!("{PHONE}{ACCOUNTED}{ISSUED}"));
    assert_eq!(events, [(12, Action::Issue, 800, 16)]);
    assert_eq!(others, [not("block_io_done", 1), not("block_io_start", 1), not("ufshcd_command", 2)]);
}

#[test]
fn every_error_names_its_line() {
    for (bad, what) in [
        ("nonsense", "processor"),
        ("a-1 [000] 512334: block_plug: [a]", "counts no seconds"),
        ("a-1 [000] 1.000001: block_rq_issue: 254,0 WS 4096 () 8", "what happened"),
        ("a-1 [000] 1.000001: block_rq_issue: 254,0 QQ 4096 () 8 + 8 [a]", "what happened"),
        ("a-1 [000] 1.000001: ufshcd_command: send_req", "command"),
        ("CPU:1 [LOST x EVENTS]", "processor"),
    ] {
        let seen = read(format!("{LINES}{bad}\n{ISSUED}").as_bytes());
        assert_eq!((seen.events.len(), line_of(&seen)), (4, 14), "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what) && text.contains("line 14") && text.contains(Format::Ftrace.text()), "{text}");
    }
}

#[test]
fn a_last_line_without_its_end_is_cut_short() {
    let seen = read(format!("{LINES}{}", ISSUED.trim_end()).as_bytes());
    assert_eq!((seen.events.len(), line_of(&seen)), (4, 14));
    assert!(seen.error.unwrap().is_cut_short());
}

#[test]
fn output_of_blkparse_is_not_recognised_as_ftrace() {
    let blkparse = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n";
    let seen = read(blkparse.as_bytes());
    assert!(seen.events.is_empty() || !matches!(seen.error, Some(TraceError::Damaged { format: Format::Ftrace, .. })));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    survives_damage(LINES.as_bytes());
    survives_damage(format!("{PHONE}{ACCOUNTED}{ISSUED}").as_bytes());
}
