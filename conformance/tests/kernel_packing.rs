//! Linux's F2FS needs as many sections cleaned as ours to pack the same volume, and moves as many blocks.
//!
//! The experiment `fagc-table6` in small.

use joulefs_conformance::packing::{Course, Drive, Holes, Way, linux, of_data, ours, way};

const HOLES: Holes = Holes { mib: 384, segments: 20, valid: 256, invalid_percent: 55.53 };
const DRIVE: Drive = Drive { limit: 120, every: 1 };

/// Both courses of one way.
fn both(name: &str) -> (Course, Course) {
    let way: Way = way(name).expect("a way of this name");
    let image = HOLES.volume().expect("a volume");
    let work = tempfile::tempdir().expect("a temporary directory");
    let theirs = linux(&image, way, DRIVE, work.path()).expect("a course");
    (theirs, ours(&image, way, DRIVE).expect("a course"))
}

/// Sections cleaned may differ by the one that is last: whether what is left after packing, a log half full, is worth a
/// move depends on seconds, and those of Linux are real. Moved blocks, by those of that one.
#[track_caller]
fn assert_as_many(linux: &Course, ours: &Course) {
    assert!(linux.ended && ours.ended, "both come to an end: {linux:?} {ours:?}");
    let (theirs, mine) = (of_data(linux.packing()), of_data(ours.packing()));
    assert!(theirs.0.abs_diff(mine.0) <= 1, "sections until packed: Linux {}, ours {}", theirs.0, mine.0);
    assert!(theirs.1.abs_diff(mine.1) <= 512, "blocks until packed: Linux {}, ours {}", theirs.1, mine.1);
    let free = |c: &Course| c.rounds.iter().map(|r| r.free).max().unwrap_or(0);
    assert!(free(linux).abs_diff(free(ours)) <= 1, "free segments: Linux {}, ours {}", free(linux), free(ours));
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
