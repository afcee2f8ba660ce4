//! How long does choosing a victim or a target take on a volume of 1 TB with 400,000 dirty segments?
//!
//! Between two choices 300 segments change, as many as a log of background writing uses; updating the index for these
//! is timed separately, including the order of age for policies that use it.

use std::hint::black_box;
use std::time::Duration;

use format::SegNo;
use format::sit::LogType;
use victim::Index;
use victim::memory::{Ask, Choice, Memory, Tuning};
use victim::similar::{self, Moved};
use victim::{Candidate, Outlook, Power, View, atgc, cost_benefit, fagc, greedy, joule};

use super::in_process::Measured;
use super::{Stopwatch, median};

const SEGMENTS: u32 = 524_288;
const DIRTY: u32 = 400_000;
const CHANGED: u32 = 300;
const YEAR: u64 = 365 * 86_400;

/// The state of a volume's segments.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Every number is independent.
    Random,
    /// Emptier segments have more fragments; ages come in bursts, as when files are copied.
    Aged,
    /// All of one age and fullness: they differ only in f.
    Alike,
}

impl Shape {
    /// Every shape.
    const ALL: [Shape; 3] = [Shape::Random, Shape::Aged, Shape::Alike];
}

fn candidate(rng: &mut device::Rng, seg: SegNo, now: u64, shape: Shape) -> Candidate {
    let valid = match shape {
        Shape::Alike => 228,
        _ => 1 + rng.below(511) as u32,
    };
    let free = 512 - valid;
    let held = (valid + rng.below(8) as u32).min(512);
    let mtime = match shape {
        Shape::Random => rng.below(now),
        Shape::Aged => rng.below(now / 3600) * 3600,
        Shape::Alike => now / 2,
    };
    let most = match shape {
        Shape::Aged => free * (rng.below(4) as u32 + 1) / 4,
        _ => rng.below(u64::from(free) + 1) as u32,
    };
    // A valid block separates two fragments.
    let size = 1 + rng.below(31) as u32;
    let fragments = (most / size).min(valid + 1);
    let (loose, f) = (fragments * size, fragments * (16_002 / size));
    Candidate { seg, valid, held, mtime, f, loose }
}

type Chooses = fn(&Index, &Memory, &mut device::Rng) -> (Option<Choice>, Memory);

/// A choice to measure.
struct Chosen {
    /// Its purpose and policy.
    name: &'static str,
    /// Uses the order of ages.
    by_age: bool,
    choose: Chooses,
}

const ASK: Ask<'_> = Ask::background(SegNo(SEGMENTS), 1);

fn moved(rng: &mut device::Rng) -> Moved {
    Moved { kind: LogType::WarmData, mtime: rng.below(YEAR) }
}

/// With `free` free segments, fewer than the next use takes; holes cost it a request at every fourth block.
fn by_joules(view: &Index, memory: &Memory, power: Power, free: u32) -> (Option<Choice>, Memory) {
    let outlook = Outlook {
        free,
        kept_back: free,
        asked: 0,
        takes: 8192,
        writes: 8192,
        cuts: 256,
        moved_cuts: 512,
        holes: 100_000,
        only_appends: false,
    };
    joule::choose(view, memory, &Tuning::default(), ASK, &joule::Prices::default(), power, &outlook)
}

/// All kinds of choices.
const CHOICES: [Chosen; 10] = [
    Chosen {
        name: "greedy, all",
        by_age: false,
        choose: |v, m, _| greedy::choose(v, m, &Tuning::default(), Ask { urgent: true, ..ASK }),
    },
    Chosen { name: "greedy, window", by_age: false, choose: |v, m, _| greedy::choose(v, m, &Tuning::default(), ASK) },
    Chosen {
        name: "cost-benefit, mwhfb",
        by_age: false,
        choose: |v, m, _| cost_benefit::choose(v, m, &Tuning::default(), ASK),
    },
    Chosen { name: "atgc", by_age: true, choose: |v, m, _| atgc::choose(v, m, &Tuning::default(), ASK) },
    Chosen { name: "fagc", by_age: true, choose: |v, m, _| fagc::choose(v, m, &Tuning::default(), ASK) },
    Chosen { name: "joule, battery", by_age: false, choose: |v, m, _| by_joules(v, m, Power::Battery, SEGMENTS / 50) },
    Chosen { name: "joule, powered", by_age: false, choose: |v, m, _| by_joules(v, m, Power::Powered, SEGMENTS / 10) },
    Chosen {
        name: "target: ssr",
        by_age: false,
        choose: |v, m, _| greedy::choose_to_thread(v, m, &Tuning::default(), ASK, LogType::WarmData),
    },
    Chosen {
        name: "target: atgc",
        by_age: true,
        choose: |v, m, rng| similar::target(atgc::fullest, v, m, &Tuning::default(), ASK, moved(rng)),
    },
    Chosen {
        name: "target: fagc",
        by_age: true,
        choose: |v, m, rng| similar::target(fagc::most_fragmented, v, m, &Tuning::default(), ASK, moved(rng)),
    },
];

/// Mean microseconds per choice, of `choices` choices on a volume in that state.
fn mean(of: &Chosen, shape: Shape, choices: u32) -> f64 {
    // A new index: an index maintains every order that was ever used.
    let mut rng = device::Rng::new(7);
    let mut index = Index::new(SEGMENTS, 1);
    let mut now = YEAR;
    while index.count() < DIRTY {
        let seg = SegNo(rng.below(SEGMENTS.into()) as u32);
        let c = candidate(&mut rng, seg, now, shape);
        index.set(seg, Some(c));
    }
    // The first choice after a mount reads all ages for the first time.
    let mut memory = (of.choose)(&index, &Memory::at_mount(now, 0), &mut rng).1;
    let mut taken = Duration::ZERO;
    for _ in 0..choices {
        now += 30;
        for _ in 0..CHANGED {
            let seg = SegNo(rng.below(SEGMENTS.into()) as u32);
            let mut c = candidate(&mut rng, seg, now, shape);
            c.mtime = now - rng.below(30);
            let keep = rng.below(SEGMENTS.into()) < DIRTY.into();
            index.set(seg, keep.then_some(c));
        }
        if of.by_age {
            index.catch_up();
        }
        memory.max_mtime = now;
        let since = Stopwatch::start();
        let (_, next) = black_box((of.choose)(&index, &memory, &mut rng));
        taken += since.elapsed();
        memory = next;
    }
    taken.as_secs_f64() * 1e6 / f64::from(choices)
}

/// The rows: mean microseconds per choice, over volumes in all states; the median of `passes` passes.
pub fn all(passes: usize) -> Vec<Measured> {
    let one = |of: &Chosen| {
        let means: Vec<f64> = (0..passes.max(1))
            .map(|_| Shape::ALL.map(|shape| mean(of, shape, 200)).iter().sum::<f64>() / Shape::ALL.len() as f64)
            .collect();
        Measured { name: of.name.into(), value: median(&means), unit: "µs", aim: "≤ 50" }
    };
    CHOICES.iter().map(one).collect()
}
