//! Linux with `kernel/small`: each stop rule lets background cleaning choose exactly the sections that its definition allows,
//! computed here from the segment table; volumes stay intact.
//!
//! Left out: the default, for which `make kernel` runs `unchanged` on this kernel; `background_gc=sync` and zoned devices (KUnit
//! has the conditions).

use std::collections::BTreeSet;

use judges::oracle::cleaning::record;
use judges::oracle::linux::Linux;
use judges::oracle::tools::assert_fsck_clean;
use judges::oracle::victims::{Segment, State, Step};
use trials::worn::LARGE;

use super::kernel;

const BLOCKS: u64 = 512;

fn small() -> Option<Linux> {
    kernel("JOULEFS_LINUX_SMALL")
}

fn below_ratio(segment: &Segment, percent: u64) -> bool {
    u64::from(segment.valid) < BLOCKS * percent / 100
}

/// Fragments and the blocks in them, counted block by block.
fn fragments(segment: &Segment) -> (u64, u64) {
    let (mut count, mut blocks, mut run) = (0, 0, 0);
    for at in 0..=BLOCKS as usize {
        if at < BLOCKS as usize && segment.map[at / 8] >> (7 - at % 8) & 1 == 0 {
            run += 1;
            continue;
        }
        if (1..32).contains(&run) {
            count += 1;
            blocks += run;
        }
        run = 0;
    }
    (count, blocks)
}

fn above_gain(segment: &Segment, gain: u64) -> bool {
    let (count, blocks) = fragments(segment);
    count * count * 1000 > gain * blocks * u64::from(segment.valid)
}

/// Segments that background cleaning may choose, of those that `worth` allows.
fn allowed(state: &State, worth: impl Fn(&Segment) -> bool) -> BTreeSet<u32> {
    let dirty = |n: u32, s: &Segment| {
        (1..BLOCKS).contains(&u64::from(s.valid)) && state.logs.iter().all(|log| log.segment != n)
    };
    let segments = (0..).zip(&state.segments);
    segments.filter(|&(n, s)| dirty(n, s) && worth(s)).map(|(n, _)| n).collect()
}

#[test]
fn each_small_stop_rule_allows_what_it_defines() {
    let Some(linux) = small() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let [path, copy] = ["image", "copy"].map(|name| work.path().join(name));
    LARGE.build(&path).expect("an image");
    let run = |script: &str| {
        std::fs::copy(&path, &copy).expect("a copy");
        let fixture = record(linux.clone(), &copy, &[], script).unwrap_or_else(|e| panic!("{e}"));
        assert_fsck_clean(&copy);
        fixture.mounts.into_iter().next().expect("a mount")
    };
    let state = run("mnt background_gc=off; umnt").state;
    // The strictest limit that allows twenty sections.
    let enough = |worth: fn(&Segment, u64) -> bool, limit| allowed(&state, |s| worth(s, limit)).len() >= 20;
    let ratio = (1..=100).find(|&limit| enough(below_ratio, limit)).expect("a ratio");
    let gain = (1..=1000).rev().find(|&limit| enough(above_gain, limit)).expect("a gain");
    let rules: [(&str, u64, fn(&Segment, u64) -> bool); 2] =
        [("gc_valid_thresh_ratio", ratio, below_ratio), ("gc_frag_gain", gain, above_gain)];
    for (knob, limit, worth) in rules {
        let want = allowed(&state, |s| worth(s, limit));
        let script = format!(
            "mnt background_gc=off; knob {knob} {limit}; for i in $(seq {}); do clean background; done
            knob gc_urgent 1; clean background; knob gc_urgent 0; fill more 10; wear 1 200; umnt",
            want.len() + 1
        );
        let steps = run(&script).steps;
        let urgent = steps.iter().position(|s| matches!(s, Step::Set { knob, .. } if knob == "gc_urgent"));
        let (before, after) = steps.split_at(urgent.expect("urgency"));
        let victims = |steps: &[Step]| -> Vec<u32> {
            steps.iter().filter_map(|s| if let Step::Victim(v) = s { Some(v.segment) } else { None }).collect()
        };
        assert_eq!(victims(before).into_iter().collect::<BTreeSet<_>>(), want, "{knob} {limit}");
        assert_eq!(before.iter().filter(|s| matches!(s, Step::Failed(_))).count(), 1, "{knob}: the last finds none");
        assert!(!victims(after).is_empty(), "{knob} holds under gc_urgent");
        println!("{knob} {limit}: {} sections, then none", want.len());
    }
}
