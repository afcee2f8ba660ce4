//! Which segment do our policies choose in the kernel's recorded states, and what do they remember?
//!
//! The volume's own policies get the recorded states, as a list and as the index that a mounted volume updates from
//! state to state. Left out: how a mounted volume fills its index.

use std::collections::BTreeMap;

use format::SegNo;
use format::sit::LogType;
use judges::oracle::victims::{Fixture, Gc, Looked, Mount, Policy, Purpose};
use victim::joule::{self, Prices};
use victim::memory::{Ask, Choice, Memory, Tuning};
use victim::plain::Plain;
use victim::similar::{self, Moved};
use victim::{Candidate, Index, Outlook, Power, View, atgc, cost_benefit, fagc, greedy};

use super::formulas::{self, Start};
use super::situation::{Scene, Unit, oldest_at_mount};

/// The policies of one mounted volume.
pub struct Ours {
    /// Their state between choices.
    memory: Memory,
    /// The index of sections, and one for each log's segments.
    indexes: BTreeMap<Option<usize>, Index>,
    /// What a kernel with `kernel/patches` reported about its search.
    pub looked: Option<Looked>,
    /// Whether the energy policy would move the last victim's blocks into holes.
    pub into_holes: bool,
}

impl Ours {
    /// The state right after mounting.
    pub fn at_mount(fixture: &Fixture, mount: &Mount) -> Self {
        let memory = Memory::at_mount(mount.state.elapsed, oldest_at_mount(fixture, mount));
        Ours { memory, indexes: BTreeMap::new(), looked: None, into_holes: false }
    }

    /// Segment and cost of the choice, for every segment that may be the one being emptied.
    pub fn choose(&mut self, scene: &Scene<'_>) -> Vec<Option<(u32, u64)>> {
        // The kernel's second may have advanced; if the policy uses it, pass the reported one.
        let told = self.looked.filter(|looked| looked.policy == Policy::Joule).map(|looked| looked.now);
        self.memory.max_mtime = told.unwrap_or(self.memory.max_mtime.max(scene.now()));
        let victim = scene.choice.victim;
        let main = scene.fixture.volume.main_segments;
        let unit = if victim.purpose == Purpose::Clean { scene.per_section() } else { 1 };
        assert_eq!(unit, victim.unit, "{victim}");
        // FAGC has its own refusal.
        let refused = |u: &Unit| victim.policy != Policy::Fagc && scene.refused(u);
        let passed_by = |u: &Unit| u.marked || refused(u);
        let looked_at: BTreeMap<u32, Candidate> =
            scene.units.iter().filter(|u| !passed_by(u)).map(|u| (u.first, candidate(scene, u, unit))).collect();

        let plain = Plain::new(unit, looked_at.values().copied().collect());
        let index = self.indexes.entry(victim.log.map(LogType::index)).or_insert_with(|| Index::new(main, unit));
        for seg in (0..main).step_by(unit as usize) {
            index.set(SegNo(seg), looked_at.get(&seg).copied());
        }

        let passed: Vec<SegNo> = scene.units.iter().filter(|u| passed_by(u)).map(|u| SegNo(u.first)).collect();
        let foreground = victim.gc == Gc::Foreground;
        let ask = Ask { foreground, urgent: scene.urgent(), end: SegNo(main), unit, passed: &passed };
        let tuning = tuning(scene);
        // Only filling by age depends on the emptied segment.
        let sources = if victim.purpose == Purpose::FillByAge { scene.sources.clone() } else { vec![0] };
        let before = self.memory;
        let mut chosen = Vec::new();
        for mtime in sources {
            let choose = |view: &dyn View| match (victim.purpose, victim.policy) {
                (Purpose::Clean, Policy::Greedy) => greedy::choose(view, &before, &tuning, ask),
                (Purpose::Clean, Policy::CostBenefit) => cost_benefit::choose(view, &before, &tuning, ask),
                (Purpose::Clean, Policy::AgeThreshold) => atgc::choose(view, &before, &tuning, ask),
                (Purpose::Clean, Policy::Fagc) => fagc::choose(view, &before, &tuning, ask),
                (Purpose::Clean, Policy::Joule) => {
                    let looked = self.looked.expect("the kernel tells what energy is reckoned with");
                    let power = if looked.on_battery { Power::Battery } else { Power::Powered };
                    joule::choose(view, &before, &tuning, ask, &prices(scene), power, &outlook(scene, &looked))
                }
                (Purpose::Fill, _) => greedy::choose_to_thread(view, &before, &tuning, ask, log(scene)),
                (Purpose::FillByAge, _) => {
                    let moved = Moved { kind: log(scene), mtime };
                    let most_fragmented = scene.choice.knob("gc_frag_target") == Some(1);
                    let pick = if most_fragmented { fagc::most_fragmented } else { atgc::fullest };
                    similar::target(pick, view, &before, &tuning, ask, moved)
                }
            };
            let (choice, memory) = choose(&plain);
            assert_eq!((choice, memory), choose(&*index), "{victim}: the index shows something else than a list");
            self.memory = memory;
            self.into_holes = self.looked.zip(choice).is_some_and(|(looked, choice)| {
                let outlook = outlook(scene, &looked);
                joule::destination(&choice.victim, &prices(scene), &outlook, SegNo(main), unit).1
            });
            chosen.push(choice.map(|Choice { victim, cost }| (victim.seg.0, u64::from(cost))));
        }
        chosen
    }

    /// Copies the state that a search by age, computed by formula, leaves behind.
    pub fn remember(&mut self, memory: &formulas::Memory) {
        self.memory.last_victim_at = SegNo(memory.last[Policy::AgeThreshold as usize]);
        self.memory.dirty_max_mtime = memory.youngest;
    }

    /// Checks that both remember the same.
    pub fn remembers(&self, memory: &formulas::Memory) -> Result<(), String> {
        let ours = [self.memory.last_victim_cb, self.memory.last_victim_greedy, self.memory.last_victim_at];
        let of = |policy: Policy| memory.last[policy as usize];
        let theirs = [Policy::CostBenefit, Policy::Greedy, Policy::AgeThreshold].map(of);
        let same = ours.map(|seg| seg.0) == theirs && self.memory.dirty_max_mtime == memory.youngest;
        if same { Ok(()) } else { Err(format!("{:?} is remembered, but {memory:?} by formula", self.memory)) }
    }
}

fn candidate(scene: &Scene<'_>, unit: &Unit, segments: u32) -> Candidate {
    let valid = unit.valid as u32;
    // In a recorded state every held block is also valid. No policy of the unpatched kernel uses the last two.
    let (f, loose) = scene.fragmentation(unit.first, segments);
    Candidate { seg: SegNo(unit.first), valid, held: valid, mtime: unit.mtime, f, loose }
}

fn log(scene: &Scene<'_>) -> LogType {
    scene.choice.victim.log.expect("a log is filled")
}

/// The kernel's prices: it computes in blocks, and returns thousandths where prices are in picojoules.
fn prices(scene: &Scene<'_>) -> Prices {
    const BLOCK: u64 = 1_000_000;
    Prices {
        read_block: BLOCK,
        write_block_sequential: BLOCK,
        write_block_random: BLOCK,
        request: scene.knob("gc_request_cost") * BLOCK,
        flush: 0,
        copy_inside: 0,
        spare: 0,
        padding: 0,
    }
}

/// The kernel's expectations. Without its log for moved blocks no holes are small enough.
fn outlook(scene: &Scene<'_>, looked: &Looked) -> Outlook {
    let moved_cuts = if fills_holes(scene) { looked.outlook.moved_cuts } else { u32::MAX };
    Outlook { moved_cuts, ..looked.outlook }
}

/// Whether the kernel has a log that fills holes by age: if requested, on a volume of at least a week.
fn fills_holes(scene: &Scene<'_>) -> bool {
    const WEEK: u64 = 7 * 86_400;
    let mount = scene.choice.mount;
    mount.options.split(',').any(|option| option == "atgc") && mount.state.elapsed >= WEEK
}

fn tuning(scene: &Scene<'_>) -> Tuning {
    let small = |name| u32::try_from(scene.knob(name)).expect("a small number");
    Tuning {
        max_victim_search: small("max_victim_search"),
        age_threshold: scene.knob("atgc_age_threshold"),
        candidate_ratio: small("atgc_candidate_ratio"),
        candidate_count: small("atgc_candidate_count"),
        age_weight: small("atgc_age_weight"),
        ..Tuning::default()
    }
}

/// Whether a choice to fill by age differs only because of the balance of the kernel's tree: the search began one unit
/// further towards the youngest, so it covers one more unit there or one fewer of the oldest, and that one was chosen.
/// `before` is the state before the choice.
pub fn differ_by_balance(
    scene: &Scene<'_>,
    before: &formulas::Memory,
    ours: &[Option<(u32, u64)>],
) -> Result<(), String> {
    let victim = scene.choice.victim;
    if victim.purpose != Purpose::FillByAge {
        return Err("nothing is filled by age".into());
    }
    let mut why = Vec::new();
    for (&source, &ours) in scene.sources.iter().zip(ours) {
        let by = |start| formulas::similar(scene, before, source, start);
        let (Some(kernel), Some(here)) = (by(Start::Tree), by(Start::NoYounger)) else { continue };
        let chosen = |s: &formulas::Similar| (s.best.1, s.best.2);
        let explained = chosen(&kernel) == (victim.segment, victim.cost.into()) && Some(chosen(&here)) == ours;
        let shifted = kernel.start == here.start + 1;
        let at_end = !here.places.contains(&kernel.best.0) || !kernel.places.contains(&here.best.0);
        if explained && shifted && at_end {
            return Ok(());
        }
        why.push(format!("{source}: {kernel:?} and {here:?}"));
    }
    Err(why.join("; "))
}
