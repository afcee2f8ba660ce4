//! The kernel's recorded choices: every recording has all inputs of its first choices.
//!
//! The choices are recomputed from the recorded states ([`formulas`]), without the volume's own policies. This detects
//! incomplete recordings and errors in their reader. If a recording determines a choice exactly, the volume's own
//! policies must make the same one ([`ours`]).

pub mod formulas;
pub mod ours;
pub mod situation;
mod tree;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use format::sit::LogType;
use judges::oracle::cleaning::record;
use judges::oracle::linux::Linux;
use judges::oracle::tools::Mkfs;
use judges::oracle::victims::{Fixture, Purpose, Step, Victim};

use formulas::{Memory, expected};
use ours::{Ours, differ_by_balance};
use situation::{Certain, Situation, situation};

/// Every recording, by name.
fn recordings() -> Vec<(String, Fixture, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gc");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("recordings are there") {
        let path = entry.expect("an entry").path();
        let file_name = path.file_name().expect("a name").to_string_lossy();
        if let Some(name) = file_name.strip_suffix(".txt.zst") {
            let name = name.to_owned();
            let packed = std::fs::File::open(&path).expect("the recording");
            let mut text = String::new();
            ruzstd::decoding::StreamingDecoder::new(packed).expect("zstd").read_to_string(&mut text).expect("text");
            let fixture = Fixture::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            all.push((name, fixture, text));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!all.is_empty());
    all
}

/// The kind of a choice: greedy, cost-benefit, by age; for a log, for a log by age.
fn kind(victim: &Victim) -> usize {
    match victim.purpose {
        Purpose::Clean => victim.policy as usize,
        Purpose::Fill => 3,
        Purpose::FillByAge => 4,
    }
}

/// The number of explained choices, and errors for the others whose inputs are known.
fn explain(name: &str, fixture: &Fixture, wrong: &mut Vec<String>) -> [usize; 5] {
    let mut explained = [0; 5];
    for mount in &fixture.mounts {
        let (mut certain, mut memory) = (Certain::at_mount(), Memory::default());
        for choice in mount.choices() {
            let victim = choice.victim;
            let want = match situation(fixture, &choice, &mut certain) {
                Situation::Unpriced { segment, cost } => vec![(segment, cost)],
                Situation::Unknown(_) => continue,
                Situation::Known(scene) => {
                    let want = expected(&scene, &mut memory);
                    if scene.vague.is_some() {
                        continue;
                    }
                    want
                }
            };
            if want.contains(&(victim.segment, victim.cost.into())) {
                explained[kind(victim)] += 1;
            } else {
                wrong.push(format!("{name}: {victim}, but {want:?} by formula"));
            }
        }
    }
    explained
}

/// Choices that were also computed by our policies.
#[derive(Default)]
struct Compared {
    /// By [`kind`]: equal choices.
    alike: [usize; 5],
    /// By [`kind`]: choices that differ only because of the balance of the kernel's tree.
    balance: [usize; 5],
    /// Choices not compared, by reason.
    left_out: BTreeMap<&'static str, usize>,
    /// Errors.
    wrong: Vec<String>,
}

/// Computes the choices of a recording with our policies.
fn compare(name: &str, fixture: &Fixture, compared: &mut Compared) {
    for mount in &fixture.mounts {
        let (mut certain, mut memory) = (Certain::at_mount(), Memory::default());
        let mut ours = Ours::at_mount(fixture, mount);
        for choice in mount.choices() {
            let victim = choice.victim;
            let scene = match situation(fixture, &choice, &mut certain) {
                Situation::Known(scene) => scene,
                Situation::Unknown(why) => {
                    *compared.left_out.entry(why).or_default() += 1;
                    continue;
                }
                Situation::Unpriced { .. } => {
                    *compared.left_out.entry("no choice: background cleaning had marked it").or_default() += 1;
                    continue;
                }
            };
            let before = memory.clone();
            expected(&scene, &mut memory);
            let chosen = ours.choose(&scene);
            if let Err(e) = ours.remembers(&memory) {
                compared.wrong.push(format!("{name}: after {victim}, {e}"));
            }
            if let Some(why) = scene.vague {
                *compared.left_out.entry(why).or_default() += 1;
            } else if chosen.contains(&Some((victim.segment, victim.cost.into()))) {
                compared.alike[kind(victim)] += 1;
            } else if let Err(why) = differ_by_balance(&scene, &before, &chosen) {
                compared.wrong.push(format!("{name}: {victim}, but {chosen:?} here ({why})"));
            } else {
                compared.balance[kind(victim)] += 1;
            }
        }
    }
}

#[test]
fn our_policies_choose_what_the_kernel_chose() {
    let mut compared = Compared::default();
    let mut all = 0;
    for (name, fixture, _) in recordings() {
        compare(&name, &fixture, &mut compared);
        all += fixture.mounts.iter().map(|m| m.choices().count()).sum::<usize>();
    }
    let Compared { alike, balance, left_out, wrong } = compared;
    println!("of {all} choices alike {alike:?}, otherwise by the balance of a tree {balance:?}; not compared:");
    left_out.iter().for_each(|(why, n)| println!("{n:5} {why}"));
    assert!(wrong.is_empty(), "{} choices are others:\n{}", wrong.len(), wrong.join("\n"));
    let sum = |of: &[usize]| of.iter().sum::<usize>();
    assert_eq!(sum(&alike) + sum(&balance) + left_out.values().sum::<usize>(), all);
    assert_eq!(sum(&balance[..4]), 0);
    // The numbers in `docs/cleaning.md`.
    let enough = alike.iter().zip([142, 134, 240, 166, 290]).all(|(&n, want)| n >= want);
    assert!(enough && balance[4] <= 8, "{alike:?}, {balance:?}");
}

#[test]
fn choices_follow_from_the_states_beside_them() {
    let mut wrong = Vec::new();
    let mut explained = [0; 5];
    for (name, fixture, _) in recordings() {
        let these = explain(&name, &fixture, &mut wrong);
        println!("{name}: {these:?}");
        explained.iter_mut().zip(these).for_each(|(all, n)| *all += n);
    }
    assert!(wrong.is_empty(), "{} choices are not explained:\n{}", wrong.len(), wrong.join("\n"));
    // Greedy, cost-benefit, by age; for a log, for a log by age.
    let enough = explained.iter().all(|&n| n >= 20);
    assert!(enough, "{explained:?}");
}

#[test]
fn there_are_twenty_first_choices_of_every_policy_and_log() {
    let mut counts = BTreeMap::new();
    let all = recordings();
    for (_, fixture, _) in &all {
        for choice in fixture.first_choices() {
            *counts.entry(format!("{:?} by {:?}", choice.victim.purpose, choice.victim.policy)).or_insert(0) += 1;
        }
    }
    for want in ["Clean by Greedy", "Clean by CostBenefit", "Clean by AgeThreshold", "Fill by Greedy"] {
        assert!(counts.get(want).is_some_and(|&n| n >= 20), "{want}: {counts:?}");
    }
    let logs = |wanted: LogType| {
        let steps = all.iter().flat_map(|(_, f, _)| &f.mounts).flat_map(|m| &m.steps);
        steps.filter(|s| matches!(s, Step::Victim(v) if v.log == Some(wanted))).count()
    };
    for log in LogType::ALL.into_iter().filter(|log| *log != LogType::ColdNode) {
        assert!(logs(log) >= 2, "{log:?} was filled {} times", logs(log));
    }
}

#[test]
fn a_recording_is_written_as_it_was_read() {
    for (name, fixture, text) in recordings() {
        assert!(fixture.to_string() == text, "{name}");
        assert!(text.len() < 300 << 10, "{name} has {} bytes", text.len());
    }
}

#[test]
fn a_garbled_recording_is_refused_with_its_line() {
    let (_, _, text) = recordings().swap_remove(0);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|l| l.starts_with("seg ")).expect("a segment");
    let with = |line: &str| {
        let mut lines = lines.clone();
        lines[at] = line;
        Fixture::parse(&lines.join("\n")).map(drop)
    };
    assert_eq!(with(lines[at]), Ok(()));
    for bad in
        ["seg 0 hot-data 3 0 -", "seg 99999999 hot-data 0 1 -", "seg 0 lukewarm 0 1 -", "seg 0 hot-data 0", "sge"]
    {
        assert_eq!(with(bad).expect_err(bad).line, at + 1, "{bad}");
    }
}

/// Only with `JOULEFS_DEEP=1`: it needs the kernel that `scripts/install-tools kernel` builds.
#[test]
fn the_kernel_chooses_today_as_the_formulas_say() {
    if std::env::var_os("JOULEFS_DEEP").is_none_or(|v| v != "1") {
        return testlog::only_in("make deep");
    }
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    Mkfs::default().format(&image, 256 << 20).expect("mkfs.f2fs formats");
    let linux = Linux::complete().unwrap_or_else(|e| panic!("{e}"));
    let script = "mnt background_gc=off; fill a 40; fill b 40; wear 1 400; fill c 20; wear 2 300; umnt
        for i in 1 2 3 4; do
            mnt background_gc=off; knob gc_idle 2; clean background; umnt
            mnt background_gc=off; clean background; umnt
            mnt background_gc=off; clean foreground; umnt
        done";
    let fixture = record(linux, &image, &[], script).unwrap_or_else(|e| panic!("{e}"));
    let mut wrong = Vec::new();
    let explained = explain("today", &fixture, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(explained[0] >= 8 && explained[1] >= 4, "{explained:?}");
}
