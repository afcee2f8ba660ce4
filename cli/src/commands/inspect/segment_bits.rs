//! What does a mounted F2FS report about its segments? `/proc/fs/f2fs/DEV/segment_bits`, which is world-readable.
//!
//! It has each segment's log, bits and, on newer kernels, the time it was written: the current state, not that of the
//! last checkpoint. `/sys/fs/f2fs/DEV/main_blkaddr` has the start of the main area; without it segments are counted,
//! but files cannot be located in them.

use std::fs;
use std::path::Path;

use format::SegNo;
use format::sit::{LogType, MAP_BYTES};
use inspect::space::Space;
use inspect::tables::{Segment, Sit};

use super::ground::Known;

/// For the file system on a block device, by its number; `None` if the kernel does not report it.
pub fn of(device: u64) -> Option<Known> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let link = fs::read_link(Path::new("/sys/dev/block").join(number)).ok()?;
    let name = link.file_name()?;
    let text = fs::read_to_string(Path::new("/proc/fs/f2fs").join(name).join("segment_bits")).ok()?;
    let first = fs::read_to_string(Path::new("/sys/fs/f2fs").join(name).join("main_blkaddr"));
    let first = first.ok().and_then(|text| number_of(text.trim()));
    let (segments, newest) = parse(&text)?;
    let space = Space::from_sit(&segments, newest.unwrap_or(0));
    Some(Known { segments, space, first, now: newest, has_logs: true })
}

fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Segments, and the latest write time, if times are present. `None` for an unknown format.
fn parse(text: &str) -> Option<(Sit, Option<u64>)> {
    let lines = || text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let mut out = Sit::new(u32::try_from(lines().count()).ok()?);
    let mut newest = None;
    for (n, line) in lines().enumerate() {
        let (segment, time) = row(line, n as u32)?;
        newest = newest.max(time);
        if segment.valid > 0 {
            *out.segment_mut(SegNo(n as u32))? = segment;
        }
    }
    (out.segments() > 0).then_some((out, newest))
}

/// Parses `NUMBER LOG|VALID| 64 bytes` and, if present, `| TIME`; bytes and time are hexadecimal.
fn row(line: &str, expected: u32) -> Option<(Segment, Option<u64>)> {
    let mut parts = line.split('|');
    let mut head = parts.next()?.split_whitespace();
    if head.next()?.parse::<u32>().ok()? != expected {
        return None;
    }
    let log = LogType::from_number(head.next()?.parse().ok()?);
    let valid: u16 = parts.next()?.trim().parse().ok()?;
    let mut map = [0; MAP_BYTES];
    let mut bytes = parts.next()?.split_whitespace();
    for byte in &mut map {
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    let time = parts.next().and_then(|t| u64::from_str_radix(t.trim(), 16).ok());
    let counted = map.iter().map(|b| b.count_ones() as u16).sum::<u16>();
    // The kernel prints without stopping writers, so VALID may differ: the bits are used.
    let _ = valid;
    (bytes.next().is_none()).then_some((Segment { map, log, valid: counted, mtime: time.unwrap_or(0) }, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u32, head: &str, first: &str, end: &str) -> String {
        format!("{n:<10}{head}| {first}{}{end}", " 00".repeat(63))
    }

    #[test]
    fn lines_of_old_and_new_kernels_are_read_and_others_are_not() {
        let head = "format: segment_type|valid_blocks|bitmaps\nsegment_type(0:HD, 1:WD, 2:CD, 3:HN, 4:WN, 5:CN)\n";
        let old = format!("{head}{}\n{}\n", line(0, "3|2  ", "81", ""), line(1, "0|0  ", "00", ""));
        let (sit, newest) = parse(&old).unwrap();
        let first = sit.segment(SegNo(0));
        assert_eq!((sit.segments(), newest, first.valid, first.log), (2, None, 2, Some(LogType::HotNode)));
        assert!(first.has(0) && first.has(7) && !first.has(1));
        let new = format!("{head}{}\n", line(0, "1|1  ", "01", "| 1f"));
        assert_eq!(parse(&new).unwrap().1, Some(31));
        for bad in ["", "0 1|x| 00", &line(1, "1|0  ", "00", ""), &format!("{} 00", line(0, "1|0  ", "00", ""))] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
