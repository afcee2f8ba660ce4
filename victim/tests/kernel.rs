//! ATGC's and FAGC's victims and targets equal those of a literal walk over a sorted list, into which units
//! are inserted one by one in scan order, as into the kernel's tree.

use format::SegNo;
use format::sit::LogType;
use victim::Index;
use victim::memory::{Ask, Choice, Memory, Tuning};
use victim::plain::Plain;
use victim::similar::{self, Moved};
use victim::{Among, Candidate, atgc, cost_benefit, fagc, greedy};

const END: u32 = 120;

/// The units in the order of a scan from `from`, and where the next scan starts.
fn scan_order(state: &[Candidate], from: u32) -> (Vec<Candidate>, u32) {
    let mut order: Vec<_> = state.iter().filter(|c| c.seg.0 >= from).copied().collect();
    let wrapped = order.len() < state.len();
    order.extend(state.iter().filter(|c| c.seg.0 < from));
    let last = order.last().map_or(0, |c| c.seg.0);
    let next = if state.is_empty() { from } else { (if wrapped { from } else { last } + 1) % END };
    (order, next)
}

/// Inserts units that are old enough into a list sorted by age, equals behind equals.
fn tree(order: &[Candidate], memory: &mut Memory, threshold: u64) -> (Vec<Candidate>, u64) {
    let (mut tree, mut min): (Vec<Candidate>, _) = (Vec::new(), u64::MAX);
    for c in order {
        memory.min_mtime = memory.min_mtime.min(c.mtime);
        memory.max_mtime = memory.max_mtime.max(c.mtime);
        memory.dirty_max_mtime = memory.dirty_max_mtime.max(c.mtime);
        min = min.min(c.mtime);
        if memory.dirty_max_mtime - c.mtime >= threshold {
            let at = tree.partition_point(|t| t.mtime <= c.mtime);
            tree.insert(at, *c);
        }
    }
    (tree, min)
}

fn limit(tuning: &Tuning, entered: usize) -> usize {
    tuning.candidate_count.max(tuning.candidate_ratio * entered as u32 / 100) as usize
}

fn atgc_victim(state: &[Candidate], memory: &Memory, tuning: &Tuning) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    let mut threshold = tuning.age_threshold;
    loop {
        let (order, next) = scan_order(state, memory.last_victim_at.0);
        memory.last_victim_at = SegNo(next);
        let (tree, min) = tree(&order, &mut memory, threshold);
        let max = memory.dirty_max_mtime + 1;
        let mut found: Option<(u64, u64, Candidate)> = None;
        let mut looked = 0;
        for c in &tree {
            let total = max - min;
            let accuracy = (u64::MAX / total / 100).min(10_000);
            let age = accuracy * (max - c.mtime) / total * u64::from(tuning.age_weight);
            let u = accuracy * u64::from(512 - c.valid) / 512 * u64::from(100 - tuning.age_weight);
            looked += 1;
            let best = found.map_or((0, 0), |f| (f.0, f.1));
            if age + u > best.0 || (age + u == best.0 && age > best.1) {
                found = Some((age + u, age, *c));
            }
            if looked >= limit(tuning, tree.len()) {
                break;
            }
        }
        match found {
            None if !state.is_empty() && memory.elapsed < threshold => threshold = 0,
            _ => return (found.map(|f| Choice { victim: f.2, cost: u32::MAX - f.0 as u32 }), memory),
        }
    }
}

fn atgc_target(state: &[Candidate], memory: &Memory, tuning: &Tuning, moved: Moved) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    let mut threshold = tuning.age_threshold;
    let cold = moved.kind != LogType::HotData;
    loop {
        let (order, next) = scan_order(state, if cold { memory.last_victim_greedy.0 } else { 0 });
        if !state.is_empty() {
            memory.last_victim_greedy = SegNo(next);
        }
        let (tree, _) = tree(&order, &mut memory, threshold);
        let max = memory.dirty_max_mtime + 1;
        let mut found: Option<(u32, u64, Candidate)> = None;
        // The last that is no younger, or else the first.
        let start = tree.partition_point(|t| t.mtime <= moved.mtime).saturating_sub(1);
        let older: Vec<_> = tree.iter().take(start + 1).rev().collect();
        for side in [older, tree.iter().skip(start).collect()] {
            let mut looked = 0;
            for c in side {
                if c.held < 512 {
                    looked += 1;
                    let apart = moved.mtime.wrapping_sub(max - c.mtime) as i64;
                    let close = max.wrapping_sub(apart.unsigned_abs());
                    let best = found.map_or((0, 0), |f| (f.0, f.1));
                    if c.held > best.0 || (c.held == best.0 && close > best.1) {
                        found = Some((c.held, close, *c));
                    }
                }
                if looked >= limit(tuning, tree.len()) {
                    break;
                }
            }
        }
        match found {
            None if !state.is_empty() && memory.elapsed < threshold => threshold = 0,
            _ => return (found.map(|f| Choice { victim: f.2, cost: u32::MAX - f.0 }), memory),
        }
    }
}

/// The windowed scans of the kernel: the units examined, and where the next scan starts.
fn window(state: &[Candidate], from: u32, most: usize) -> (Vec<Candidate>, u32) {
    let (mut order, _) = scan_order(state, from);
    order.truncate(most);
    let next = match order.last() {
        None => from,
        Some(c) if c.seg.0 < from => from + 1,
        Some(c) => c.seg.0 + 1,
    };
    (order, next % END)
}

fn cost_benefit_victim(state: &[Candidate], memory: &Memory, tuning: &Tuning) -> (Option<Choice>, Memory) {
    let mut memory = *memory;
    let (order, next) = window(state, memory.last_victim_cb.0, tuning.max_victim_search as usize);
    memory.last_victim_cb = SegNo(next);
    let mut found: Option<Choice> = None;
    for c in order {
        memory.min_mtime = memory.min_mtime.min(c.mtime);
        memory.max_mtime = memory.max_mtime.max(c.mtime);
        let span = memory.max_mtime - memory.min_mtime;
        let percent = (100 * (c.mtime - memory.min_mtime)).checked_div(span);
        let age = percent.map_or(0, |p| 100 - p as u32);
        let u = c.valid * 100 / 512;
        let cost = u32::MAX - 100 * (100 - u) * age / (100 + u);
        if cost < found.map_or(u32::MAX, |f| f.cost) {
            found = Some(Choice { victim: c, cost });
        }
    }
    (found, memory)
}

fn first_with_least(order: &[Candidate], bar: u32, cost: impl Fn(&Candidate) -> u32) -> Option<Choice> {
    let least = order.iter().filter(|c| cost(c) < bar).min_by_key(|c| cost(c))?;
    Some(Choice { victim: *least, cost: cost(least) })
}

struct World {
    rng: device::Rng,
    state: Vec<Candidate>,
    index: Index,
    now: u64,
    /// Few seconds for many equal ages, or many.
    seconds: u64,
    values: u64,
}

impl World {
    fn change(&mut self) {
        let changes = self.rng.below(12) + 1;
        self.now += self.rng.below(self.seconds / 4 + 2);
        for _ in 0..changes {
            let seg = SegNo(self.rng.below(END.into()) as u32);
            self.state.retain(|c| c.seg != seg);
            let c = self.rng.chance(3, 4).then(|| self.candidate(seg));
            self.index.set(seg, c);
            self.state.extend(c);
        }
        self.state.sort_unstable_by_key(|c| c.seg);
    }
    fn candidate(&mut self, seg: SegNo) -> Candidate {
        let valid = 1 + self.rng.below(self.values) as u32 * (510 / self.values as u32);
        let held = if self.rng.chance(1, 8) { 512 } else { valid + self.rng.below(2) as u32 };
        let mtime = self.now.saturating_sub(self.rng.below(self.seconds));
        let f = self.rng.below(self.values) as u32 * 1000;
        let loose = self.rng.below(u64::from(513 - valid)) as u32;
        Candidate { seg, valid, held, mtime, f, loose }
    }
}

fn worlds(seed: u64, mut each: impl FnMut(&mut World, &Tuning)) {
    for n in 0..60 {
        let mut rng = device::Rng::new(seed * 1000 + n);
        let seconds = [3, 20, 1000][rng.index(3)];
        let tuning = Tuning {
            age_threshold: [0, 2, 30, 500][rng.index(4)],
            candidate_count: [1, 3, 10][rng.index(3)],
            candidate_ratio: [0, 20, 60][rng.index(3)],
            max_victim_search: [1, 7, 40, 4096][rng.index(4)],
            ..Tuning::default()
        };
        let values = [1, 4, 100][rng.index(3)];
        let mut world = World { rng, state: Vec::new(), index: Index::new(END, 1), now: 1000, seconds, values };
        for _ in 0..40 {
            world.change();
            each(&mut world, &tuning);
        }
    }
}

const ASK: Ask<'_> = Ask { foreground: false, urgent: false, end: SegNo(END), unit: 1, passed: &[] };

#[test]
fn atgc_chooses_the_victims_of_the_literal_walk() {
    let mut memory = Memory::at_mount(0, 0);
    let mut chosen = 0;
    worlds(1, |world, tuning| {
        if world.rng.chance(1, 30) {
            memory = Memory::at_mount(world.rng.below(1000), 900);
        }
        // In the kernel scans mostly start behind the last unit; here anywhere.
        if world.rng.chance(1, 2) {
            memory.last_victim_at = SegNo(world.rng.below(END.into()) as u32);
        }
        let wanted = atgc_victim(&world.state, &memory, tuning);
        assert_eq!(atgc::choose(&world.index, &memory, tuning, ASK), wanted, "{tuning:?} {:?}", world.state);
        let plain = Plain::new(1, world.state.clone());
        assert_eq!(atgc::choose(&plain, &memory, tuning, ASK), wanted);
        chosen += u32::from(wanted.0.is_some());
        memory = wanted.1;
    });
    assert!(chosen > 1000, "{chosen}");
}

#[test]
fn atgc_chooses_the_targets_of_the_literal_walk() {
    let mut memory = Memory::at_mount(0, 0);
    let mut chosen = 0;
    worlds(2, |world, tuning| {
        if world.rng.chance(1, 30) {
            memory = Memory::at_mount(world.rng.below(1000), 900);
        }
        let kind = [LogType::HotData, LogType::WarmData, LogType::ColdData][world.rng.index(3)];
        let mtime = (world.now + world.seconds / 8).saturating_sub(world.rng.below(world.seconds));
        let moved = Moved { kind, mtime };
        let wanted = atgc_target(&world.state, &memory, tuning, moved);
        let found = similar::target(atgc::fullest, &world.index, &memory, tuning, ASK, moved);
        // Where the range ends among segments of one second, they are taken by segment number.
        let edge = |c: Option<Choice>| c.map(|c| c.cost);
        if memory.last_victim_greedy == SegNo(0) || kind == LogType::HotData {
            assert_eq!(found, wanted, "{tuning:?} {moved:?} {:?}", world.state);
        } else if world.seconds == 1000 {
            assert_eq!(edge(found.0), edge(wanted.0), "{tuning:?} {moved:?} {:?}", world.state);
        }
        assert_eq!(found.1, wanted.1);
        let plain = Plain::new(1, world.state.clone());
        assert_eq!(similar::target(atgc::fullest, &plain, &memory, tuning, ASK, moved), found);
        chosen += u32::from(wanted.0.is_some());
        memory = found.1;
    });
    assert!(chosen > 1000, "{chosen}");
}

#[test]
fn fagc_chooses_alike_from_an_index_and_from_a_list() {
    let mut memory = Memory::at_mount(0, 0);
    worlds(3, |world, tuning| {
        let plain = Plain::new(1, world.state.clone());
        let found = fagc::choose(&world.index, &memory, tuning, ASK);
        assert_eq!(found, fagc::choose(&plain, &memory, tuning, ASK));
        if let Some(c) = found.0 {
            assert!(c.victim.is(Among::Fragmented, 1));
        }
        let moved = Moved { kind: LogType::ColdData, mtime: world.now.saturating_sub(world.seconds / 2) };
        let target = similar::target(fagc::most_fragmented, &world.index, &memory, tuning, ASK, moved);
        assert_eq!(target, similar::target(fagc::most_fragmented, &plain, &memory, tuning, ASK, moved));
        memory = found.1;
    });
}

#[test]
fn scans_choose_the_victims_of_the_literal_scan() {
    let mut memory = Memory::at_mount(0, 900);
    worlds(4, |world, tuning| {
        let wanted = cost_benefit_victim(&world.state, &memory, tuning);
        assert_eq!(cost_benefit::choose(&world.index, &memory, tuning, ASK), wanted);
        memory = wanted.1;

        let urgent = world.rng.chance(1, 2);
        let ask = Ask { urgent, ..ASK };
        let most = if urgent { usize::MAX } else { tuning.max_victim_search as usize };
        let (order, next) = window(&world.state, memory.last_victim_greedy.0, most);
        let found = greedy::choose(&world.index, &memory, tuning, ask);
        assert_eq!(found.0, first_with_least(&order, 1024, |c| c.valid));
        assert_eq!(found.1, Memory { last_victim_greedy: SegNo(next), ..memory });
        memory = found.1;

        let (order, next) = window(&world.state, memory.last_victim_greedy.0, most);
        let found = greedy::choose_to_thread(&world.index, &memory, tuning, ask, LogType::ColdData);
        assert_eq!(found.0, first_with_least(&order, 512, |c| c.held));
        assert_eq!(found.1, Memory { last_victim_greedy: SegNo(next), ..memory });
        memory = found.1;
    });
}
