//! From the same state, the patched kernel and crate `victim` choose the same segments, with the same f.

use std::collections::BTreeMap;

use judges::oracle::cleaning::record;
use judges::oracle::victims::{Choice, Fixture, Looked, Policy, Purpose, Step, Victim};
use trials::worn::{BATCHES, Image, LARGE, Life, SECTIONS};

use super::patched;
use crate::kernel_victims::formulas::{self, expected};
use crate::kernel_victims::ours::{Ours, differ_by_balance};
use crate::kernel_victims::situation::{Certain, Scene, Situation, situation};

/// Less than a tenth of it is free.
const FULL: Image = Image { mib: 512, per_section: 1, percent: 88, seed: 5, life: Life::Worn { rounds: 24 } };

/// Result of comparing a recording's choices.
#[derive(Debug, Default)]
struct Compared {
    /// By purpose and policy: equal choices; equal refusals.
    alike: BTreeMap<String, [usize; 2]>,
    left_out: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

/// Runs `script` on the image under the patched kernel and compares every search whose input is recorded.
fn compared(image: Image, script: &str) -> Option<Compared> {
    let linux = patched()?;
    let work = tempfile::tempdir().expect("a directory");
    let path = work.path().join("image");
    image.build(&path).expect("an image");
    let fixture = record(linux, &path, &[], script).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(Fixture::parse(&fixture.to_string()).as_ref(), Ok(&fixture), "a recording is written as it was read");
    let compared = compare(&fixture);
    println!("{image:?}: {:?}; not compared: {:?}", compared.alike, compared.left_out);
    if !compared.wrong.is_empty() {
        // The kernel writes at times of its own: the next run may record something else.
        let kept = std::env::temp_dir().join(format!("otherwise-{}.txt", std::process::id()));
        std::fs::write(&kept, fixture.to_string()).expect("the recording is kept");
        let (wrong, kept) = (&compared.wrong, kept.display());
        panic!("{} of them otherwise, recorded in {kept}:\n{}", wrong.len(), wrong.join("\n"));
    }
    Some(compared)
}

fn compare(fixture: &Fixture) -> Compared {
    let mut compared = Compared::default();
    for mount in &fixture.mounts {
        let (mut certain, mut memory) = (Certain::at_mount(), formulas::Memory::default());
        let mut ours = Ours::at_mount(fixture, mount);
        let mut state = &mount.state;
        let (mut since, mut checkpoints) = (0, 0);
        for (n, step) in mount.steps.iter().enumerate() {
            match step {
                Step::State(now) => (state, since, checkpoints) = (now, 0, 0),
                Step::Checkpoint { .. } => checkpoints += 1,
                Step::Victim(_) => since += 1,
                // If a log finds no segment to fill, it continues in a free segment; no choice depends on that search.
                Step::Looked(Looked { segment: None, purpose: Purpose::Fill | Purpose::FillByAge, .. }) => {}
                Step::Looked(looked) => {
                    let victim = chosen(looked, &mount.steps[n + 1..], fixture.volume.segments_per_section);
                    let before = &mount.steps[..n];
                    let choice = Choice { mount, state, before, since, checkpoints, victim: &victim };
                    match situation(fixture, &choice, &mut certain) {
                        Situation::Known(scene) => one(&scene, looked, &mut ours, &mut memory, &mut compared),
                        Situation::Unknown(why) => *compared.left_out.entry(why).or_default() += 1,
                        Situation::Unpriced { .. } => *compared.left_out.entry("marked before").or_default() += 1,
                    }
                }
                _ => {}
            }
        }
    }
    compared
}

/// The choice of a search; if it chose nothing, one without a segment.
fn chosen(looked: &Looked, rest: &[Step], unit: u32) -> Victim {
    if let (Some(segment), Some(Step::Victim(victim))) = (looked.segment, rest.first()) {
        assert_eq!((victim.segment, victim.policy), (segment, looked.policy));
        return *victim;
    }
    assert_eq!(looked.segment, None, "{looked}: what is chosen is told");
    let Looked { at, log, gc, purpose, policy, .. } = *looked;
    Victim { at, log, gc, purpose, policy, segment: u32::MAX, cost: 0, unit, at_section: None, prefree: 0, free: 0 }
}

fn one(scene: &Scene<'_>, looked: &Looked, ours: &mut Ours, memory: &mut formulas::Memory, compared: &mut Compared) {
    let victim = scene.choice.victim;
    if let (Some(segment), true) = (looked.segment, looked.purpose == Purpose::Clean) {
        let (f, loose) = scene.fragmentation(segment / victim.unit * victim.unit, victim.unit);
        if (looked.factor, looked.loose) != (f, loose) {
            compared.wrong.push(format!("{looked}: but f is {f} of {loose} blocks"));
        }
    }
    if looked.policy == Policy::Joule
        && let Err(why) = knows_the_space(scene, looked)
    {
        compared.wrong.push(format!("{looked}: {why}"));
    }
    let before = memory.clone();
    let formula = expected(scene, memory);
    let (whose, here) = match (victim.purpose, victim.policy) {
        // Our ATGC has no stop rule; compare with the kernel's formula and that rule.
        (Purpose::Clean, Policy::AgeThreshold) => {
            ours.remember(memory);
            ("by formula", formula.into_iter().map(Some).collect())
        }
        _ => {
            ours.looked = Some(*looked);
            ("here", ours.choose(scene))
        }
    };
    let theirs = looked.segment.map(|_| (victim.segment, u64::from(victim.cost)));
    if here.contains(&theirs) || here.is_empty() && theirs.is_none() {
        if victim.policy == Policy::Joule && theirs.is_some() && looked.into_holes != ours.into_holes {
            compared.wrong.push(format!("{looked}: into holes, or not, but {} {whose}", ours.into_holes));
        }
        let holes = if looked.into_holes { ", into holes" } else { "" };
        let key = format!("{:?} by {:?}{holes}", victim.purpose, victim.policy);
        compared.alike.entry(key).or_default()[usize::from(theirs.is_none())] += 1;
    } else if let Some(why) = scene.vague {
        *compared.left_out.entry(why).or_default() += 1;
    } else if let Err(why) = differ_by_balance(scene, &before, &here) {
        compared.wrong.push(format!("{looked}: {theirs:?}, but {here:?} {whose} ({why})"));
    } else {
        *compared.left_out.entry("otherwise by the balance of the kernel's tree alone").or_default() += 1;
    }
}

/// The input of the energy policy that follows from the state: nothing was written since.
fn knows_the_space(scene: &Scene<'_>, looked: &Looked) -> Result<(), String> {
    let (state, per) = (scene.choice.state, scene.per_section());
    let logs = state.logs.iter().map(|log| log.segment).chain(state.atgc_log).chain(state.pinned_log);
    let logs: Vec<u32> = logs.map(|segment| segment / per).collect();
    let sections = state.segments.chunks(per as usize).zip(0..);
    let free = sections.filter(|(s, n)| s.iter().all(|s| s.valid == 0) && !logs.contains(n)).count() as u32;
    let kept_back = scene.knob("min_ssr_sections") + u64::from(scene.fixture.volume.reserved / per);
    let all = u64::from(scene.fixture.volume.main_segments / per);
    let asked = all * scene.choice.knob("gc_keep_free").unwrap_or(0) / 100;
    let valid: u64 = state.segments.iter().map(|s| u64::from(s.valid)).sum();
    let holes = (all - u64::from(free)) * 512 * u64::from(per) - valid;
    let said = &looked.outlook;
    let theirs = (said.free, u64::from(said.kept_back), u64::from(said.asked), said.holes);
    let there = (free, kept_back, asked, holes);
    if theirs == there {
        return Ok(());
    }
    Err(format!("{theirs:?} sections free, kept back, asked for, blocks in holes, but there are {there:?}"))
}

fn counts(compared: &Compared, key: &str) -> [usize; 2] {
    compared.alike.get(key).copied().unwrap_or_default()
}

#[test]
fn fagc_chooses_and_refuses_as_ours() {
    let script = "for i in 1 2 3 4; do
            mnt background_gc=off,gc_policy=fagc; knob gc_frag_ratio 50
            for j in 1 2 3 4 5 6 7 8; do clean background; state; done
            wear $i 200; state; clean background
            umnt
         done
         mnt background_gc=off,gc_policy=fagc; knob gc_frag_ratio 50; knob atgc_age_threshold 0; knob atgc_candidate_ratio 100
         for j in $(seq 80); do clean background; state; done
         umnt";
    let mut all = [0; 2];
    for image in [LARGE, SECTIONS, BATCHES] {
        let Some(compared) = compared(image, script) else { return };
        let these = counts(&compared, "Clean by Fagc");
        all = [all[0] + these[0], all[1] + these[1]];
    }
    assert!(all[0] >= 150 && all[1] >= 10, "chosen and refused: {all:?}");
}

#[test]
fn moved_blocks_go_to_the_most_fragmented_of_similar_age() {
    let script = "mnt background_gc=off,atgc,gc_policy=fagc; knob gc_frag_ratio 50; knob gc_frag_target 1
         knob min_ssr_sections 0; state
         for i in $(seq 60); do clean background; state; done
         umnt";
    let Some(compared) = compared(LARGE, script) else { return };
    assert!(counts(&compared, "FillByAge by Greedy")[0] >= 10, "{:?}", compared.alike);
}

#[test]
fn joule_chooses_and_refuses_as_ours_with_and_without_a_battery() {
    // Two uses are known after the third rest. With this many reserved sections, logs fill holes, and the holes count.
    let script = "mounted() { mnt background_gc=off,gc_policy=joule$ATGC; knob gc_on_battery $battery; }
         used() { for n in 1 2 3; do wear $1$n 300; state; clean background; done; state; }
         for battery in 1 0; do
            for request in 10 2 80; do
                mounted; knob gc_request_cost $request
                used 1; knob min_ssr_sections 9999; used 2
                for j in 1 2 3 4 5 6; do clean background; state; done
                used 3; knob min_ssr_sections 4; used 4
                umnt
            done
            mounted; state; clean background; state; knob gc_keep_free 70
            for j in 1 2 3 4 5 6; do clean background; state; done
            knob gc_keep_free 0; clean background; umnt
         done";
    let (mut all, mut holes) = ([0; 2], 0);
    for image in [LARGE, SECTIONS, FULL] {
        for atgc in ["", ",atgc"] {
            let Some(compared) = compared(image, &format!("ATGC={atgc}\n{script}")) else { return };
            let (these, into) = (counts(&compared, "Clean by Joule"), counts(&compared, "Clean by Joule, into holes"));
            all = [all[0] + these[0], all[1] + these[1]];
            assert!(!atgc.is_empty() || into == [0; 2], "there is no log that would fill them: {into:?}");
            holes += into[0];
        }
    }
    assert!(all[0] >= 40 && all[1] >= 10 && holes >= 10, "chosen and refused: {all:?}, into holes: {holes}");
}

#[test]
fn the_stop_rule_binds_every_policy_in_the_background() {
    let script = "for ratio in 0 20 50 80 99; do
            for how in background_gc=off background_gc=off,gc_policy=greedy background_gc=off,atgc; do
                mnt $how; knob gc_frag_ratio $ratio
                for j in 1 2 3; do state; clean background; done
                umnt
            done
         done";
    let Some(compared) = compared(LARGE, script) else { return };
    for policy in ["Greedy", "CostBenefit", "AgeThreshold"] {
        let [chosen, refused] = counts(&compared, &format!("Clean by {policy}"));
        assert!(chosen >= 8, "{policy}: {chosen} chosen, {refused} refused");
    }
}
