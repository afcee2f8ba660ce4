//! What the kernel chose, recorded: every recording holds all that its first choices depend on.
//!
//! The choices are worked out again here from the recorded states ([`formulas`]); nothing of the volume's own
//! policies is used. So a recording that misses something, or a reader that garbles it, is found here.

mod formulas;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;

use format::sit::LogType;
use joulefs_conformance::oracle::qemu::KernelPackage;
use joulefs_conformance::oracle::qemu::cleaning::record;
use joulefs_conformance::oracle::tools::Mkfs;
use joulefs_conformance::oracle::victims::{Fixture, Purpose, Step};

use formulas::{Memory, expected};

/// Every recording, by name.
fn recordings() -> Vec<(String, Fixture, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gc");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("recordings are there") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "txt") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("text");
            let fixture = Fixture::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            all.push((name, fixture, text));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!all.is_empty());
    all
}

/// Choices explained, and complaints about the others of which enough is known.
fn explain(name: &str, fixture: &Fixture, wrong: &mut Vec<String>) -> [usize; 5] {
    let mut explained = [0; 5];
    for mount in &fixture.mounts {
        let mut memory = Memory { last: [Some(0); 3], youngest: Some(0) };
        for choice in mount.choices() {
            let victim = choice.victim;
            let Some(want) = expected(fixture, &choice, &mut memory) else { continue };
            if want.contains(&(victim.segment, victim.cost.into())) {
                explained[match victim.purpose {
                    Purpose::Clean => victim.policy as usize,
                    Purpose::Fill => 3,
                    Purpose::FillByAge => 4,
                }] += 1;
            } else {
                wrong.push(format!("{name}: {victim}, but {want:?} by formula"));
            }
        }
    }
    explained
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

#[test]
#[ignore = "boots a kernel in an emulator: needs `scripts/install-tools kernel`, and half a minute"]
fn the_kernel_chooses_today_as_the_formulas_say() {
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    Mkfs::default().format(&image, 256 << 20).expect("mkfs.f2fs formats");
    let kernel = KernelPackage::installed().unwrap_or_else(|e| panic!("{e}"));
    let script = "mnt background_gc=off; fill a 40; fill b 40; wear 1 400; fill c 20; wear 2 300; umnt
        for i in 1 2 3 4; do
            mnt background_gc=off; knob gc_idle 2; clean background; umnt
            mnt background_gc=off; clean background; umnt
            mnt background_gc=off; clean foreground; umnt
        done";
    let fixture = record(kernel, &image, &[], script).unwrap_or_else(|e| panic!("{e}"));
    let mut wrong = Vec::new();
    let explained = explain("today", &fixture, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(explained[0] >= 8 && explained[1] >= 4, "{explained:?}");
}
