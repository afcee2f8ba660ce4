//! An invalid line is skipped, counted and named; too many are an error. Text with a byte order mark is read.

use trace::{At, TraceError};

use crate::text::{line_of, read, read_leniently};

const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n";
const FTRACE: &str = "  cat-119   [000] d..1.     1.000000: block_rq_issue: 8,0 R 4096 () 2048 + 8 [cat]\n";
const STRACE: &str = "7 1.0 mkdir(\"/a\", 0700) = 0 <0.1>\n";
const MOBIBENCH: &str = "1 0 unlink \"/a\" 0\n";
const IOLOG: &str = "fio version 3 iolog\n1 f add\n1 f open\n1 f write 0 4096\n";
const ALIBABA: &str = "419,W,8792731648,16384,1577808144360767\n";

fn events(seen: &crate::text::Seen) -> usize {
    seen.events.len() + seen.calls.len()
}

#[test]
fn an_invalid_line_is_skipped_and_counted_with_the_first_one_in_every_format_of_lines() {
    // Tables are recognised by several lines.
    let table = ALIBABA.repeat(5);
    for good in [BLKPARSE, FTRACE, STRACE, MOBIBENCH, IOLOG, &table] {
        let once = events(&read(good.as_bytes()));
        assert!(once > 0, "{good}");
        let line = good.lines().count() + 1;
        let table = format!("{good}7 not a line\n9 nor this\n{good}");
        let seen = read_leniently(table.as_bytes());
        assert!(seen.error.is_none(), "{good}: {:?}", seen.error);
        assert_eq!(events(&seen), 2 * once, "{good}");
        let [told] = &trace::invalid_lines(&seen.others)[..] else { panic!("{:?}", seen.others) };
        assert!(
            told.starts_with(&format!("2 invalid lines skipped, the first is line {line}, \"7 not a line\": ")),
            "{told}"
        );
        // Strictly, it is the end.
        let seen = read(table.as_bytes());
        assert_eq!((events(&seen), line_of(&seen)), (once, line as u64), "{good}");
    }
}

#[test]
fn five_invalid_lines_or_one_in_a_hundred_are_skipped_and_more_are_an_error() {
    let table = |good: usize, bad: usize| ALIBABA.repeat(good) + &"bad\n".repeat(bad) + &ALIBABA.repeat(40);
    let seen = read_leniently(table(1, 5).as_bytes());
    assert!(seen.error.is_none() && seen.events.len() == 41, "{:?}", seen.error);
    let seen = read_leniently(table(1, 6).as_bytes());
    assert_eq!((seen.events.len(), line_of(&seen)), (1, 2));
    let text = seen.error.unwrap().to_string();
    assert!(text.contains("; line 3: ") && text.contains("; line 4: ") && !text.contains("; line 5: "), "{text}");
    assert!(text.ends_with("; 6 of the first 7 lines are invalid"), "{text}");
    assert!(read_leniently(table(990, 10).as_bytes()).error.is_none());
    assert!(read_leniently(table(989, 11).as_bytes()).error.is_some());
}

#[test]
fn more_invalid_lines_than_valid_ones_are_an_error_however_few() {
    let seen = read_leniently(format!("{BLKPARSE}a\nb\n").as_bytes());
    assert_eq!((seen.events.len(), line_of(&seen)), (1, 2), "{:?}", seen.error);
    let seen = read_leniently(format!("{ALIBABA}a\n").as_bytes());
    assert!(matches!(seen.error, Some(TraceError::Unknown { .. })), "{:?}", seen.error);
}

#[test]
fn the_last_line_without_an_end_is_still_cut_short() {
    let seen = read_leniently(BLKPARSE.repeat(2).trim_end().as_bytes());
    assert!(matches!(seen.error, Some(TraceError::CutShort { at: At::Line(2), .. })), "{:?}", seen.error);
}

#[test]
fn text_with_a_byte_order_mark_is_recognised() {
    let low = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let high = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
    for text in [BLKPARSE, STRACE, ALIBABA, IOLOG] {
        let expected = read(text.as_bytes());
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        for bytes in [windows.as_bytes().to_vec(), low(&windows), high(&windows)] {
            let seen = read(&bytes);
            assert!(seen.error.is_none(), "{:?}", seen.error);
            assert_eq!((&seen.events, &seen.calls), (&expected.events, &expected.calls));
        }
    }
}
