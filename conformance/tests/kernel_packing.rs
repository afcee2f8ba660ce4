//! Linux's F2FS and ours need the same number of cleaned sections to pack a volume, and move the same number of blocks.
//!
//! The experiment `fagc-table6` in small size.

use std::ops::Range;
use std::sync::Arc;

use format::sit::LogType;
use joulefs_conformance::packing::space::segments;
use joulefs_conformance::packing::{Course, Drive, Holes, Way, linux, of_data, ours, way};
use judges::oracle::linux::Linux;
use judges::oracle::victims::Segment;

const HOLES: Holes = Holes { mib: 384, segments: 20, valid: 256, invalid_percent: 55.53 };
const DRIVE: Drive = Drive { limit: 120, every: 1 };

/// Both courses with one policy.
fn both(name: &str) -> (Course, Course) {
    let way: Way = way(name).expect("a way of this name");
    let image = HOLES.volume().expect("a volume");
    let work = tempfile::tempdir().expect("a temporary directory");
    let path = work.path().join("image");
    image.save_hollow(&path).expect("an image");
    let theirs = linux(Linux::asked(), &path, way, DRIVE).expect("a course");
    (theirs, ours(Arc::new(image), way, DRIVE).expect("a course"))
}

/// The sections cleaned may differ by the last one: whether the remainder after packing, a half-full log, is worth a
/// move depends on seconds, and those of Linux are real. Moved blocks may differ by the blocks of that section.
#[track_caller]
fn assert_as_many(linux: &Course, ours: &Course) {
    assert!(linux.ended && ours.ended, "both come to an end: {linux:?} {ours:?}");
    let (theirs, mine) = (of_data(linux.packing()), of_data(ours.packing()));
    assert!(theirs.0.abs_diff(mine.0) <= 1, "sections until packed: Linux {}, ours {}", theirs.0, mine.0);
    assert!(theirs.1.abs_diff(mine.1) <= 512, "blocks until packed: Linux {}, ours {}", theirs.1, mine.1);
    let free = |c: &Course| c.rounds.iter().map(|r| r.free).max().unwrap_or(0);
    assert!(free(linux).abs_diff(free(ours)) <= 1, "free segments: Linux {}, ours {}", free(linux), free(ours));
}

/// The runs of invalid blocks in a segment.
fn pieces(map: &[u8; 64]) -> Vec<Range<usize>> {
    let free = |n: &usize| map[n / 8] & 0x80 >> (n % 8) == 0;
    let ends: Vec<usize> = (0..512).filter(free).collect();
    ends.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1).collect()
}

#[test]
fn segments_of_the_three_types_are_written_as_the_experiment_says() {
    for valid in [231, 256, 296] {
        let holes = Holes { valid, ..HOLES };
        let image = holes.volume().expect("a volume");
        let segments = segments(&image).expect("a segment table");
        let of_files = |s: &&Segment| s.log == LogType::WarmData;
        let seen = segments.iter().filter(of_files).map(|s| {
            let pieces = pieces(&s.map);
            (s.valid, pieces.len(), pieces.iter().map(Range::len).max().unwrap_or(0))
        });
        let seen: Vec<(u16, usize, usize)> = seen.collect();
        // In A and C the free blocks are contiguous, in B they are in as many runs as possible.
        let (free, pieces) = (512 - valid, (512 - valid).min(valid));
        let rest = (3.0 * 512.0 * (1.0 - 0.5553_f64)).round() as u64 - 2 * valid;
        let types = [(valid, 1, free), (valid, pieces, free.div_ceil(pieces)), (rest, 1, 512 - rest)];
        let mut places = Vec::new();
        for (valid, pieces, longest) in types {
            let of_type = |s: &(u16, usize, usize)| *s == (valid as u16, pieces as usize, longest as usize);
            let found: Vec<usize> = (0..seen.len()).filter(|n| of_type(&seen[*n])).collect();
            assert_eq!(
                found.len() as u64,
                holes.segments,
                "{valid} valid, {pieces} pieces of {longest} among {seen:?}"
            );
            places.push((found[0], found[found.len() - 1]));
        }
        assert!(places.is_sorted_by(|a, b| a.1 < b.0), "one type after the other: {places:?}");
        let invalid = 100.0 * (1.0 - (2 * valid + rest) as f64 / (3.0 * 512.0));
        assert!((invalid - holes.invalid_percent).abs() < 0.05, "{invalid:.2} % invalid");
    }
}

#[test]
fn by_cost_and_benefit_linux_cleans_every_section_once_as_we_do() {
    let (linux, ours) = both("cost-benefit");
    assert_as_many(&linux, &ours);
    assert!(of_data(&linux.rounds).0.abs_diff(HOLES.total()) <= 1, "{linux:?}");
}

#[test]
fn greedily_linux_cleans_every_section_once_as_we_do() {
    let (linux, ours) = both("greedy");
    assert_as_many(&linux, &ours);
    assert!(of_data(&linux.rounds).0.abs_diff(HOLES.total()) <= 1, "{linux:?}");
}

#[test]
fn urgently_linux_fills_holes_so_that_packing_takes_fewer_sections_as_with_us() {
    let (linux, ours) = both("urgent");
    assert_as_many(&linux, &ours);
    assert!(of_data(linux.packing()).0 < HOLES.total() * 2 / 3, "{linux:?}");
}

#[test]
fn by_age_linux_cleans_no_more_sections_than_packing_takes_as_we_do() {
    let (linux, ours) = both("atgc");
    assert_as_many(&linux, &ours);
    let least = HOLES.optimum().expect("a number");
    let (packed, all) = (of_data(linux.packing()).0, of_data(&linux.rounds).0);
    assert!(packed >= least && all <= least + 1, "{least} suffice, Linux cleaned {packed} and {all} in all");
}
