//! How long does choosing a victim or a target take on a volume of 1 TB with 400,000 dirty segments?
//!
//! `cargo run --release -p joulefs-f2fs --example victim_speed [choices [policy]]`. Between two choices 300
//! segments change, as many as a log of background writing touches; taking that over is timed apart, into the order of
//! age too for those that ask for it.

#![expect(clippy::disallowed_methods, reason = "measures the machine it runs on")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use format::SegNo;
use format::sit::LogType;
use joulefs_f2fs::gc::policy::memory::{Ask, Choice, Memory, Tuning};
use joulefs_f2fs::gc::policy::similar::{self, Moved};
use joulefs_f2fs::gc::policy::{Candidate, Power, View, atgc, cost_benefit, fagc, greedy, joule};
use joulefs_f2fs::segment::index::Index;

const SEGMENTS: u32 = 524_288;
const DIRTY: u32 = 400_000;
const CHANGED: u32 = 300;
const YEAR: u64 = 365 * 86_400;

/// How the segments of a volume look.
#[derive(Clone, Copy)]
enum Shape {
    /// Every number by itself.
    Random,
    /// The emptier, the more fragments; ages in bursts, as files are copied.
    Aged,
    /// All of one age and fullness: nothing to tell them apart but f.
    Alike,
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
    // Between two fragments stands a valid block.
    let size = 1 + rng.below(31) as u32;
    let fragments = (most / size).min(valid + 1);
    let (loose, f) = (fragments * size, fragments * (16_002 / size));
    Candidate { seg, valid, held, mtime, f, loose }
}

type Chooses<'a> = &'a dyn Fn(&Index, &Memory, &mut device::Rng) -> (Option<Choice>, Memory);

fn main() {
    let choices: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(300).max(1);
    let only = std::env::args().nth(2).unwrap_or_default();
    let (tuning, prices) = (Tuning::default(), joule::Prices::default());
    let ask = Ask::background(SegNo(SEGMENTS), 1);
    let urgent = Ask { urgent: true, ..ask };
    let moved = |rng: &mut device::Rng| Moved { kind: LogType::WarmData, mtime: rng.below(YEAR) };
    let policies: [(&str, bool, Chooses<'_>); 10] = [
        ("greedy, all", false, &|v, m, _| greedy::choose(v, m, &tuning, urgent)),
        ("greedy, window", false, &|v, m, _| greedy::choose(v, m, &tuning, ask)),
        ("cost-benefit, mwhfb", false, &|v, m, _| cost_benefit::choose(v, m, &tuning, ask)),
        ("atgc", true, &|v, m, _| atgc::choose(v, m, &tuning, ask)),
        ("fagc", true, &|v, m, _| fagc::choose(v, m, &tuning, ask)),
        ("joule, battery", false, &|v, m, _| joule::choose(v, m, &tuning, ask, &prices, Power::Battery, SEGMENTS / 50)),
        ("joule, powered", false, &|v, m, _| joule::choose(v, m, &tuning, ask, &prices, Power::Powered, SEGMENTS / 10)),
        ("target: ssr", false, &|v, m, _| greedy::choose_to_thread(v, m, &tuning, ask, LogType::WarmData)),
        ("target: atgc", true, &|v, m, rng| similar::target(atgc::fullest, v, m, &tuning, ask, moved(rng))),
        ("target: fagc", true, &|v, m, rng| similar::target(fagc::most_fragmented, v, m, &tuning, ask, moved(rng))),
    ];
    for (name, shape) in [("random", Shape::Random), ("aged", Shape::Aged), ("alike", Shape::Alike)] {
        println!("{name}: microseconds per choice (mean, median, longest), per {CHANGED} changed segments; chosen");
        for (policy, by_age, choose) in policies.iter().filter(|p| p.0.contains(&only)) {
            // One of its own: an index keeps up every order that was ever asked for.
            let mut rng = device::Rng::new(7);
            let mut index = Index::new(SEGMENTS, 1);
            let mut now = YEAR;
            while index.count() < DIRTY {
                let seg = SegNo(rng.below(SEGMENTS.into()) as u32);
                let c = candidate(&mut rng, seg, now, shape);
                index.set(seg, Some(c));
            }
            // The first choice after a mount sees every age for the first time.
            let mut memory = choose(&index, &Memory::at_mount(now, 0), &mut rng).1;
            let (mut choosing, mut changing, mut found) = (Vec::new(), Duration::ZERO, 0);
            for _ in 0..choices {
                now += 30;
                let start = Instant::now();
                for _ in 0..CHANGED {
                    let seg = SegNo(rng.below(SEGMENTS.into()) as u32);
                    let mut c = candidate(&mut rng, seg, now, shape);
                    c.mtime = now - rng.below(30);
                    let keep = rng.below(SEGMENTS.into()) < DIRTY.into();
                    index.set(seg, keep.then_some(c));
                }
                if *by_age {
                    index.catch_up();
                }
                changing += start.elapsed();
                memory.max_mtime = now;
                let start = Instant::now();
                let (choice, next) = black_box(choose(&index, &memory, &mut rng));
                choosing.push(start.elapsed());
                found += u32::from(choice.is_some());
                memory = next;
            }
            choosing.sort_unstable();
            let micros = |d: Duration| d.as_secs_f64() * 1e6;
            println!(
                "  {policy:<20} {:8.2} {:8.2} {:9.2} {:9.1}   {found}",
                micros(choosing.iter().sum()) / f64::from(choices),
                micros(choosing[choosing.len() / 2]),
                micros(choosing[choosing.len() - 1]),
                micros(changing) / f64::from(choices)
            );
        }
    }
}
