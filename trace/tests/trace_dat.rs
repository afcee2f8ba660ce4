//! trace-cmd's recordings are read like trace-cmd reports them, and so are pages built by hand.

use std::path::{Path, PathBuf};

use trace::block::{Action, DeviceId, Op};
use trace::{At, Format, Opened, TraceError, open};

use crate::text::{Seen, read, whole};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ftrace").join(name)
}

fn fixture(name: &str) -> Vec<u8> {
    zstd::stream::decode_all(std::fs::File::open(path(name)).unwrap()).unwrap()
}

#[test]
fn every_event_is_the_one_that_trace_cmd_reports() {
    for name in ["v6", "v7", "lost"] {
        let ours = whole(&fixture(&format!("{name}.dat.zst")));
        let theirs = whole(&fixture(&format!("{name}.report.txt.zst")));
        assert!(theirs.events.len() > 400);
        for (at, (a, b)) in ours.events.iter().zip(&theirs.events).enumerate() {
            let same = trace::block::Event { process: b.process, ..*a };
            assert_eq!((at, same, &ours.names[at]), (at, *b, &theirs.names[at]), "{name}");
        }
        assert_eq!(ours.events.len(), theirs.events.len(), "{name}");
        assert_eq!(ours.others, theirs.others, "{name}");
    }
}

#[test]
fn a_file_is_read_in_place_as_a_pipe_is_from_a_copy() {
    let bytes = fixture("v6.dat.zst");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("trace.dat");
    std::fs::write(&file, &bytes).unwrap();
    let Ok(Opened::Blocks(mut events)) = open(&file) else { panic!("no block devices") };
    assert_eq!(events.format(), Format::TraceDat);
    let mut seen = Vec::new();
    while let Some(event) = events.next().unwrap() {
        seen.push(event);
    }
    assert_eq!(seen, whole(&bytes).events);
    assert!((57_344..=bytes.len() as u64).contains(&events.consumed()));
}

/// A file of version 6 with one kind of event, built by hand.
struct Made {
    big: bool,
    /// Size of the kernel's `long`.
    long: u8,
    pages: Vec<Vec<Vec<u8>>>,
}

const PAGE: usize = 256;

impl Made {
    fn number(&self, n: u64, bytes: usize) -> Vec<u8> {
        if self.big { n.to_be_bytes()[8 - bytes..].to_vec() } else { n.to_le_bytes()[..bytes].to_vec() }
    }

    /// The word before an event.
    fn head(&self, kind: u64, delta: u64) -> Vec<u8> {
        self.number(if self.big { kind << 27 | delta } else { delta << 5 | kind }, 4)
    }

    /// `block_bio_queue` of one sector.
    fn queue(&self, sector: u64) -> Vec<u8> {
        let mut out = [self.number(7, 2), vec![0, 0], self.number(55, 4)].concat();
        out.extend(
            [self.number(254 << 20 | 1, 4), self.number(0, 4), self.number(sector, 8), self.number(1, 4)].concat(),
        );
        out.extend(b"WS\0\0\0\0\0\0dd\0\0");
        out
    }

    /// An event of 40 bytes, `delta` after the previous one.
    fn event(&self, delta: u64, sector: u64) -> Vec<u8> {
        [self.head(10, delta), self.queue(sector)].concat()
    }

    /// A page of events.
    fn page(&self, time: u64, flags: u64, events: &[Vec<u8>]) -> Vec<u8> {
        let events = events.concat();
        let mut out = self.number(time, 8);
        out.extend(self.number(events.len() as u64 | flags, usize::from(self.long)));
        out.extend(events);
        out.resize(PAGE, 0);
        out
    }

    fn file(&self) -> Vec<u8> {
        let header = 8 + self.long;
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend(self.number(text.len() as u64, 8));
            out.extend(text.as_bytes());
        };
        let mut out = b"\x17\x08Dtracing6\0".to_vec();
        out.extend([u8::from(self.big), self.long]);
        out.extend(self.number(PAGE as u64, 4));
        out.extend(b"header_page\0");
        text(
            &mut out,
            &format!(
                "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:{};\tsigned:1;\n\tfield: char data;\toffset:{header};\tsize:{};\tsigned:1;\n",
                self.long,
                PAGE - usize::from(header)
            ),
        );
        out.extend(b"header_event\0");
        text(
            &mut out,
            "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tpadding     : type == 29\n",
        );
        out.extend(self.number(0, 4));
        out.extend(self.number(1, 4));
        out.extend(b"block\0");
        out.extend(self.number(1, 4));
        let fields = [
            ("unsigned short common_type", 0, 2),
            ("int common_pid", 4, 4),
            ("dev_t dev", 8, 4),
            ("sector_t sector", 16, 8),
            ("unsigned int nr_sector", 24, 4),
            ("char rwbs[8]", 28, 8),
            ("char comm[4]", 36, 4),
        ];
        let lines: String = fields
            .iter()
            .map(|(field, offset, size)| format!("\tfield:{field};\toffset:{offset};\tsize:{size};\tsigned:0;\n"))
            .collect();
        text(&mut out, &format!("name: block_bio_queue\nID: 7\nformat:\n{lines}\nprint fmt: \"\"\n"));
        out.extend([self.number(0, 4), self.number(0, 4), self.number(0, 8)].concat());
        out.extend(self.number(self.pages.len() as u64, 4));
        out.extend(b"flyrecord\0");
        let mut at = out.len() + self.pages.len() * 16;
        for pages in &self.pages {
            out.extend(self.number(at as u64, 8));
            out.extend(self.number((pages.len() * PAGE) as u64, 8));
            at += pages.len() * PAGE;
        }
        out.extend(self.pages.iter().flatten().flatten());
        out
    }
}

fn empty(big: bool, long: u8) -> Made {
    Made { big, long, pages: Vec::new() }
}

/// Times and sectors.
fn times_and_sectors(seen: &Seen) -> Vec<(u64, u64)> {
    seen.events.iter().map(|e| (e.time, e.sector)).collect()
}

#[test]
fn all_kinds_of_records_in_a_page_are_understood_in_both_orders_of_bytes() {
    for (big, long) in [(false, 8), (true, 8), (false, 4), (true, 4)] {
        let mut m = empty(big, long);
        let long_event = [m.head(0, 3), m.number(44, 4), m.queue(3)].concat();
        let taken_back = [m.head(29, 5), m.number(8, 4), vec![0; 4]].concat();
        let extend = [m.head(30, 1), m.number(2, 4)].concat();
        let stamp = [m.head(31, 9), m.number(1 << 20, 4)].concat();
        let first = m.page(1000, 0, &[m.event(1, 1), m.event(2, 2), long_event, taken_back]);
        let second = m.page(2000, 0, &[extend, m.event(1, 4), stamp, m.event(1, 5), m.head(29, 0)]);
        m.pages = vec![vec![first, second]];
        let seen = whole(&m.file());
        assert_eq!(
            times_and_sectors(&seen),
            [(1001, 1), (1003, 2), (1006, 3), (2000 + 1 + (2 << 27) + 1, 4), ((1 << 47) + 9 + 1, 5),]
        );
        let e = seen.events[0];
        assert_eq!((e.action, e.op, e.sectors, e.pid), (Action::Queue, Op::Write, 1, 55));
        assert_eq!((e.device, seen.names[0].as_str()), (DeviceId { major: 254, minor: 1 }, "dd"));
    }
}

#[test]
fn processors_are_merged_by_time_and_empty_ones_are_no_end() {
    let mut m = empty(false, 8);
    let pages = |m: &Made, first: u64, n: u64| -> Vec<Vec<u8>> {
        (0..n)
            .map(|k| m.page(first + 100 * k, 0, &[m.event(0, first + 100 * k), m.event(50, first + 100 * k + 50)]))
            .collect()
    };
    m.pages =
        vec![pages(&m, 0, 30), vec![], pages(&m, 7, 40), vec![m.page(0, 0, &[]), m.page(1234, 0, &[m.event(0, 1234)])]];
    let seen = whole(&m.file());
    assert_eq!(seen.events.len(), 141);
    assert!(seen.events.is_sorted_by_key(|e| e.time) && seen.events.iter().all(|e| e.time == e.sector));
    assert_eq!(seen.events.iter().filter(|e| e.cpu == 3).count(), 1);
}

#[test]
fn of_instances_the_first_that_recorded_anything_is_read() {
    let mut m = empty(false, 8);
    m.pages = vec![vec![m.page(1, 0, &[m.event(0, 1)])]];
    let alone = m.file();
    let tag = memchr_of(&alone, b"flyrecord\0");
    // An option with an instance's location, after all others.
    let with = |length: u64| {
        let moved = 10 + 2 + 4 + 8 + 2;
        let place = alone.len() + moved;
        let mut file = alone[..tag].to_vec();
        file.extend(b"options  \0");
        file.extend([m.number(3, 2), m.number(8, 4), m.number(place as u64, 8), m.number(0, 2)].concat());
        file.extend(b"flyrecord\0");
        file.extend([m.number((tag + moved + 26) as u64, 8), m.number(length, 8)].concat());
        file.extend(&alone[tag + 26..]);
        assert_eq!(file.len(), place);
        file.extend(b"flyrecord\0");
        file.extend([m.number((place + 26) as u64, 8), m.number(PAGE as u64, 8)].concat());
        file.extend(m.page(1, 0, &[m.event(0, 77)]));
        whole(&file)
    };
    let both = with(PAGE as u64);
    assert_eq!((times_and_sectors(&both), both.others["instances that are not read"]), (vec![(1, 1)], 1));
    let second = with(0);
    assert_eq!((times_and_sectors(&second), second.others.len()), (vec![(1, 77)], 0));
}

#[test]
fn events_that_were_lost_are_counted() {
    let mut m = empty(false, 8);
    let mut told = m.page(1, 3 << 30, &[m.event(0, 1)]);
    told[16 + 44..16 + 52].copy_from_slice(&896_u64.to_le_bytes());
    let untold = m.page(2, 1 << 31, &[m.event(0, 2)]);
    m.pages = vec![vec![told, untold]];
    let seen = whole(&m.file());
    assert_eq!(seen.events.len(), 2);
    assert_eq!((seen.others["lost events"], seen.others["lost events, how many is not known"]), (896, 1));
}

#[test]
fn unsupported_files_are_refused_with_the_reason() {
    let v7 = fixture("v7.dat.zst");
    let changed = |from: &[u8], to: &[u8]| {
        let at = memchr_of(&v7, from);
        let mut bytes = v7.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        read(&bytes).error.unwrap()
    };
    for (from, to, what) in [
        (&b"tracing7"[..], &b"tracing8"[..], "version \"8\""),
        (b"zstd\0", b"lz77\0", "compressed by lz77"),
        // The clock of the pages, after the empty name of the instance.
        (b"\0\0global\0", b"\0\0counter\0", "counter"),
    ] {
        let e = changed(from, to);
        // A longer clock name moves the data after it.
        assert!(matches!(e, TraceError::Unsupported { .. }) && e.to_string().contains(what), "{e}");
    }
}

fn memchr_of(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|w| w == text).unwrap()
}

#[test]
fn errors_name_the_byte() {
    let mut m = empty(false, 8);
    m.pages = vec![vec![m.page(1, 0, &[m.event(0, 1)]), m.page(2, 0, &[m.event(0, 2)])]];
    let good = m.file();
    let pages = good.len() - 2 * PAGE;
    let with = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let seen = read(&file);
        (seen.events.len(), seen.error.unwrap())
    };
    let second = pages + PAGE;
    for (at, bytes, what) in [
        (second + 8, &[0xff, 0xff, 0, 0][..], "bytes of events"),
        (second + 16, &[28, 0, 0, 0], "longer than its page"),
        (second + 20 + 28, b"QQ", "rwbs"),
    ] {
        let (events, error) = with(at, bytes);
        assert_eq!(events, 1, "{error}");
        assert!(matches!(error, TraceError::Damaged { at: At::Byte(at), .. } if at == second as u64), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let (_, error) = with(memchr_of(&good, b"rwbs"), b"rxbs");
    assert!(error.to_string().contains("without the fields"), "{error}");
}

#[test]
fn a_file_cut_anywhere_ends_with_an_error() {
    let mut m = empty(false, 8);
    m.pages = vec![
        vec![m.page(1, 0, &[m.event(0, 1)]), m.page(2, 0, &[m.event(0, 2)])],
        vec![m.page(3, 0, &[m.event(0, 3)])],
    ];
    let good = m.file();
    for cut in 0..good.len() {
        let seen = read(&good[..cut]);
        match seen.error {
            Some(TraceError::Unknown { .. }) => assert!(cut < 10),
            Some(TraceError::CutShort { at: At::Byte(at), .. }) => assert!(at <= cut as u64, "{at} of {cut}"),
            other => panic!("{cut}: {other:?}"),
        }
    }
    for name in ["v6.dat.zst", "v7.dat.zst"] {
        let good = fixture(name);
        let all = whole(&good);
        for cut in (0..good.len()).step_by(good.len() / 100) {
            let seen = read(&good[..cut]);
            // The last section of version 7 has unused titles of the others.
            let titles = name.starts_with("v7") && cut > good.len() - 120;
            assert!(seen.error.is_some() || titles && seen.events == all.events, "{name} {cut}");
        }
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let mut m = empty(false, 8);
    m.pages = vec![vec![m.page(1, 0, &[m.event(0, 1), m.event(1, 2)])]];
    let made = m.file();
    let step = |bytes: &[u8], step: usize| {
        let mut bytes = bytes.to_vec();
        for at in (0..bytes.len()).step_by(step) {
            for other in [0, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
                let was = std::mem::replace(&mut bytes[at], other);
                let _ = read(&bytes);
                bytes[at] = was;
            }
        }
    };
    step(&made, 1);
    step(&fixture("v7.dat.zst"), 97);
}
