//! On stacked disks each request counts once, as if only the lowest disk had been recorded. Recordings in
//! `fixtures/stacked` were made by a real kernel; the judge is the same recording without the other devices' lines.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use trace::block::{DeviceId, Events};
use trace::only::{Devices, Only};
use trace::requests::{Requests, Seen};
use trace::stacks::{LeftOut, Why};
use trace::stat::blocks::{self, BlockStat};
use trace::write::blkparse;
use trace::{Input, Opened, open, open_input};

const DISK: DeviceId = DeviceId { major: 98, minor: 0 };
const OTHER: DeviceId = DeviceId { major: 98, minor: 16 };
const LOWER: DeviceId = DeviceId { major: 253, minor: 0 };
const UPPER: DeviceId = DeviceId { major: 253, minor: 1 };
const LOOPED: DeviceId = DeviceId { major: 7, minor: 0 };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/stacked").join(name)
}

fn text(name: &str) -> String {
    let mut input = Input::open(&fixture(name)).unwrap();
    String::from_utf8(input.peek(usize::MAX).unwrap().to_vec()).unwrap()
}

fn events(opened: Opened) -> Box<dyn Events> {
    let Opened::Blocks(events) = opened else { panic!("no recording of block devices") };
    events
}

fn of_text(text: &str) -> Box<dyn Events> {
    events(open_input(Input::new(Path::new("t"), Cursor::new(text.as_bytes().to_vec())).unwrap()).unwrap())
}

fn left_out(events: Box<dyn Events>) -> Vec<LeftOut> {
    let mut requests = Requests::new(events);
    while requests.seen().unwrap().is_some() {}
    requests.left_out()
}

/// Counts like `joulefs trace stat`: a first pass finds duplicate devices.
fn counted(again: impl Fn() -> Box<dyn Events>) -> BlockStat {
    let without = left_out(again()).into_iter().filter(LeftOut::has_requests).map(|l| l.device);
    let (stat, whole) = blocks::count(&mut Requests::new(again()).without(without), |_| ());
    whole.unwrap();
    stat
}

/// All except the report on ignored devices, and the events, which always include them.
fn compared(stat: &BlockStat) -> String {
    let (not_counted, events, others) = Default::default();
    format!("{:?}", BlockStat { not_counted, events, others, ..stat.clone() })
}

fn lines(text: &str, keep: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|l| l.starts_with('#') || keep(l)).map(|l| format!("{l}\n")).collect()
}

fn of_disk(line: &str) -> bool {
    line.contains(": 98,")
}

#[test]
fn a_stack_is_counted_as_the_disk_below_alone_whichever_events_were_recorded() {
    let whole = text("stacked.txt.zst");
    let is = |line: &str, names: &[&str]| names.iter().any(|n| line.contains(&format!(": block_{n}: ")));
    let sets: [(&str, &[&str]); 5] = [
        ("all", &[]),
        ("issues alone", &["rq_issue"]),
        ("issues and ends", &["rq_issue", "rq_complete", "bio_complete", "bio_remap"]),
        ("what is queued, and remaps", &["bio_queue", "bio_remap"]),
        ("ends, and remaps", &["rq_complete", "bio_complete", "bio_remap"]),
    ];
    for (what, names) in sets {
        let some = lines(&whole, |l| names.is_empty() || is(l, names));
        let alone = lines(&some, of_disk);
        let (stack, disk) = (counted(|| of_text(&some)), counted(|| of_text(&alone)));
        assert!(disk.requests > 300, "{what}: {}", disk.requests);
        assert_eq!(compared(&stack), compared(&disk), "{what}");
    }
}

#[test]
fn devices_left_out_are_reported_with_reason_and_count() {
    let said = |names: &[&str]| {
        let some = lines(&text("stacked.txt.zst"), |l| names.iter().any(|n| l.contains(&format!(": block_{n}: "))));
        left_out(of_text(&some)).into_iter().map(|l| (l.device, l.why, l.count, l.passes_on_to)).collect::<Vec<_>>()
    };
    assert_eq!(
        said(&["bio_queue", "bio_remap", "rq_issue"]),
        [
            (LOOPED, Why::Loop, 73, vec![]),
            (LOWER, Why::GivenNone, 645, vec![DISK]),
            (UPPER, Why::GivenNone, 561, vec![LOWER]),
        ]
    );
    assert_eq!(
        said(&["bio_queue", "bio_remap"]),
        [
            (LOOPED, Why::Loop, 119, vec![]),
            (LOWER, Why::ToldAgain, 645, vec![DISK]),
            (UPPER, Why::ToldAgain, 561, vec![LOWER]),
        ]
    );
}

#[test]
fn a_binary_recording_is_counted_as_its_disk_alone_and_as_it_is_when_it_is_converted() {
    let again = || events(open(&fixture("stacked.blktrace.zst")).unwrap());
    let only = Devices { numbers: vec![DISK], names: Vec::new() };
    let stack = counted(again);
    let (disk, _) = blocks::count(&mut Requests::new(Box::new(Only::new(again(), only))), |_| ());
    assert!(disk.requests > 100, "{}", disk.requests);
    assert_eq!(compared(&stack), compared(&disk));
    // blkparse's text has the origin and target of remaps.
    let mut writer = blkparse::Writer::new(Vec::new());
    let mut all = again();
    while let Some(event) = all.next().unwrap() {
        writer.event(&event, all.names()).unwrap();
    }
    let written = String::from_utf8(writer.finish().unwrap()).unwrap();
    assert_eq!(left_out(of_text(&written)), left_out(again()));
}

#[test]
fn both_disks_below_a_striped_device_are_counted() {
    let whole = text("striped.txt.zst");
    for names in [&["rq_issue", "bio_queue", "bio_remap"][..], &["bio_queue", "bio_remap"]] {
        let some = lines(&whole, |l| names.iter().any(|n| l.contains(&format!(": block_{n}: "))));
        let stack = counted(|| of_text(&some));
        assert_eq!(compared(&stack), compared(&counted(|| of_text(&lines(&some, of_disk)))));
        let devices: Vec<&str> = stack.devices.iter().map(|d| d.device.as_str()).collect();
        assert_eq!((devices.len(), left_out(of_text(&some))[0].passes_on_to.clone()), (2, vec![DISK, OTHER]));
    }
}

#[test]
fn a_device_without_issues_is_counted_by_completions_on_request() {
    let of = |id: DeviceId| {
        let only = Devices { numbers: vec![id], names: Vec::new() };
        let mut requests = Requests::new(Box::new(Only::new(of_text(&text("stacked.txt.zst")), only)));
        let mut n = BTreeMap::new();
        while let Some(seen) = requests.seen().unwrap() {
            if let Seen::Asked(request) = seen {
                *n.entry(request.device).or_insert(0) += 1;
            }
        }
        (requests.action().letter(), n.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(of(UPPER), ('C', vec![(UPPER, 561)]));
    assert_eq!(of(LOOPED).0, 'D');
}
