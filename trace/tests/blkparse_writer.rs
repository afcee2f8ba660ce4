//! Events written in blkparse's format are read back unchanged.

use std::path::Path;

use trace::block::{Action, DeviceId, Event, Flags, Op};
use trace::write::blkparse::Writer;
use trace::{Names, Opened, open};

use crate::text;

fn written(events: &[Event], names: &Names) -> String {
    let mut writer = Writer::new(Vec::new());
    events.iter().for_each(|event| writer.event(event, names).unwrap());
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

fn event(action: Action, op: Op) -> Event {
    Event {
        time: 3_000_000_007,
        action,
        op,
        flags: Flags::SYNC,
        sector: 223_490,
        sectors: 8,
        device: DeviceId { major: 8, minor: 1 },
        cpu: 3,
        pid: 697,
        process: Default::default(),
        took: None,
        error: 0,
        writing: Default::default(),
        from: None,
    }
}

#[test]
fn a_recording_of_linux_comes_back_event_by_event() {
    for name in ["vda.blktrace.0.zst", "vdb.blktrace.zst"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/blktrace").join(name);
        let Ok(Opened::Blocks(mut reader)) = open(&path) else { panic!("not opened") };
        let (mut events, mut writer) = (Vec::new(), Writer::new(Vec::new()));
        while let Some(event) = reader.next().unwrap() {
            writer.event(&event, reader.names()).unwrap();
            let named = !matches!(event.action, Action::Complete | Action::Requeue | Action::Remap);
            events.push((event, named.then(|| reader.names().name(event.process).to_owned())));
        }
        let again = text::read(&writer.finish().unwrap());
        assert!(again.error.is_none(), "{:?}", again.error);
        assert_eq!(again.events.len(), events.len());
        for (n, ((event, name), mut back)) in events.into_iter().zip(again.events).enumerate() {
            back.process = event.process;
            assert_eq!(back, event, "event {n}");
            assert!(name.is_none_or(|name| name == again.names[n]), "event {n}");
        }
    }
}

#[test]
fn every_action_on_everything_comes_back() {
    let mut names = Names::default();
    let process = names.number(b"a name] with [brackets");
    let mut events = Vec::new();
    for action in Action::ALL {
        for op in Op::ALL {
            let mut event = event(action, op);
            if op == Op::Flush && action != Action::Split {
                (event.sector, event.sectors) = (0, 0);
            } else if op == Op::Flush {
                continue;
            }
            event.process = process;
            event.error = if matches!(action, Action::Complete | Action::Requeue) { 5 } else { 0 };
            event.time += events.len() as u64;
            events.push(event);
        }
    }
    let again = text::read(written(&events, &names).as_bytes());
    assert!(again.error.is_none(), "{:?}", again.error);
    assert_eq!(again.events, events);
    assert!(again.names.iter().all(|name| name == "a name] with [brackets"));
}

#[test]
fn lines_look_as_blkparse_prints_them() {
    let mut names = Names::default();
    let mut events = [
        event(Action::Get, Op::Write),
        event(Action::Complete, Op::Write),
        event(Action::Queue, Op::Flush),
        event(Action::Split, Op::Read),
        event(Action::Remap, Op::Read),
    ];
    events[0].flags = Flags::empty();
    events[0].process = names.number(b"kjournald");
    events[1].error = 5;
    events[1].flags = Flags::PREFLUSH | Flags::FUA | Flags::SYNC | Flags::META;
    (events[2].sector, events[2].sectors, events[2].cpu) = (0, 0, 12);
    assert_eq!(
        written(&events, &names),
        "  8,1    3        1     3.000000007   697  G   W 223490 + 8 [kjournald]\n  \
           8,1    3        2     3.000000007   697  C FWFSM 223490 + 8 [65531]\n  \
           8,1   12        1     3.000000007   697  Q FWS []\n  \
           8,1    3        3     3.000000007   697  X  RS 223490 / 223498 []\n  \
           8,1    3        4     3.000000007   697  A  RS 223490 + 8 <- (0,0) 0\n"
    );
}
