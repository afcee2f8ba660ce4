//! Recordings show which inodes are written: equally as the kernel's text, `trace.dat` and Perfetto.

use std::io::Cursor;
use std::path::Path;

use trace::block::{Action, Events};
use trace::{Input, Opened, TraceError, open_input};

fn opened(bytes: Vec<u8>) -> Box<dyn Events> {
    match open_input(Input::new(Path::new("t"), Cursor::new(bytes)).unwrap()).unwrap() {
        Opened::Blocks(events) => events,
        _ => panic!("no recording of a block device"),
    }
}

/// An inode, with the processes that made it dirty.
type Of = Option<(u64, Vec<String>)>;

/// Sector of every bio, and the inode it writes back, with the processes that made it dirty.
fn written(mut events: Box<dyn Events>) -> Vec<(u64, Of)> {
    let mut out = Vec::new();
    while let Some(event) = events.next().unwrap() {
        if event.action == Action::Queue {
            let names = events.names();
            let of = names.files.written(event.writing).map(|w| {
                let mut by: Vec<String> = w.by.iter().map(|p| names.name(*p).to_owned()).collect();
                by.sort();
                (w.ino, by)
            });
            out.push((event.sector, of));
        }
    }
    out
}

/// A field in Perfetto's format: its number, and bytes or a number.
fn bytes(number: u32, inner: &[u8]) -> Vec<u8> {
    [varint(u64::from(number) << 3 | 2), varint(inner.len() as u64), inner.to_vec()].concat()
}

fn number(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field) << 3), varint(value)].concat()
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// The same events as text, and as Perfetto stores events without a number: by name.
fn both(all: &[(u64, u32, &str, &str, u64)]) -> (String, Vec<u8>) {
    let (mut lines, mut events) = (String::new(), Vec::new());
    for (time, pid, process, what, n) in all {
        let at = format!("{process}-{pid} [000] ..... 0.{:06}: ", time / 1000);
        let event = match *what {
            "bio" => {
                lines += &format!("{at}block_bio_queue: 8,0 W {n} + 8 [{process}]\n");
                let fields =
                    [number(1, 8 << 8), number(2, *n), number(3, 8), bytes(4, b"W"), bytes(5, process.as_bytes())];
                bytes(119, &fields.concat())
            }
            what => {
                lines += &format!("{at}{what}: bdi 8:0: ino={n} index=0\n");
                let text = [bytes(1, b"name"), bytes(3, b"8:0")].concat();
                let ino = [bytes(1, b"ino"), number(5, *n)].concat();
                bytes(327, &[bytes(1, what.as_bytes()), bytes(2, &text), bytes(2, &ino)].concat())
            }
        };
        events.extend(bytes(2, &[number(1, *time), number(2, u64::from(*pid)), event].concat()));
    }
    let bundle = [number(1, 0), events].concat();
    (lines, bytes(1, &bytes(1, &bundle)))
}

#[test]
fn text_and_perfetto_tell_the_same_of_inodes() {
    let dirty = "writeback_dirty_folio";
    let all = [
        (1000, 7, "dd", "bio", 80),
        (2000, 7, "dd", dirty, 12),
        (3000, 8, "cp", "bio", 88),
        (4000, 8, "cp", dirty, 12),
        (5000, 3, "kworker/u4:1", "writeback_single_inode_start", 12),
        (6000, 3, "kworker/u4:1", "bio", 96),
        (7000, 3, "kworker/u4:1", "writeback_single_inode", 12),
        (8000, 3, "kworker/u4:1", "bio", 104),
    ];
    let (lines, perfetto) = both(&all);
    let by = vec!["cp".to_owned(), "dd".to_owned()];
    let expected = vec![(80, None), (88, None), (96, Some((12, by))), (104, None)];
    assert_eq!(written(opened(lines.into_bytes())), expected);
    assert_eq!(written(opened(perfetto)), expected);
}

#[test]
fn an_unknown_form_of_a_line_harms_no_request() {
    let lines = "kworker/0-3 [000] ..... 0.000001: writeback_single_inode_start: inode 12\n\
                 kworker/0-3 [000] ..... 0.000002: block_bio_queue: 8,0 W 8 + 8 [kworker/0]\n\
                 kworker/0-3 [000] ..... 0.000003: writeback_single_inode_start: bdi 8:0: ino=99999999999999999999 x\n\
                 kworker/0-3 [000] ..... 0.000004: block_bio_queue: 8,0 W 16 + 8 [kworker/0]\n";
    let mut events = opened(lines.as_bytes().to_vec());
    let mut n = 0;
    while events.next().unwrap_or_else(|e: TraceError| panic!("{e}")).is_some() {
        n += 1;
    }
    assert_eq!((n, events.other_counts()["writeback_single_inode_start"]), (2, 2));
}
