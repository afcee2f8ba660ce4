//! What does it cost to record for every joule its file, cause, operation and part?
//!
//! Compares the meter with a minimal alternative: three independent accounts (part and cause, owner and component,
//! operation) in plain maps. Both book the same requests, alternately; ratios are medians. Memory is measured per
//! process, so each size runs in a separate process:
//!
//!     cargo run --release -p joulefs-device --example booking -- 100000

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use joulefs_device::clock::{Clock, RealClock};
use joulefs_device::energy::profile::Profile;
use joulefs_device::energy::{Bill, Component, Energy, Meter, Nanos, Operation, Part};
use joulefs_device::{Rng, Tag};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Requests per pass.
const REQUESTS: u64 = 1_000_000;

/// The control.
#[derive(Clone)]
struct Three {
    causes: Box<[[Energy; Part::ALL.len()]]>,
    owners: FxHashMap<u64, [Energy; Component::ALL.len()]>,
    operations: HashMap<Operation, Energy>,
}

/// A bill as a model produces it: some requests fetch a map page, a few cause cleaning.
fn bill(rng: &mut Rng, owners: u64, bill: &mut Bill) -> (Operation, Tag) {
    bill.clear();
    for part in [Part::Link, Part::Controller, Part::FlashProgram, Part::Idle] {
        bill.add(part, Energy(rng.below(1 << 30)));
    }
    if rng.below(3) == 0 {
        bill.add(Part::FlashMap, Energy(rng.below(1 << 30)));
    }
    if rng.below(20) == 0 {
        bill.add(Part::FlashClean, Energy(rng.below(1 << 30)));
    }
    // Half of the requests are for a few files. Each file has contents, nodes and reads.
    let owner = if rng.below(2) == 0 { rng.below(16) } else { rng.below(owners) };
    let kinds = [(Operation::Write, 1), (Operation::Write, 4), (Operation::Flush, 4), (Operation::Read, 1)];
    let (operation, cause) = kinds[rng.index(4)];
    (operation, Tag { cause, owner })
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let owners = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let clock = RealClock::new();
    let timed = |work: &mut dyn FnMut()| -> Duration {
        let from = clock.monotonic();
        work();
        clock.monotonic() - from
    };
    let host = Profile::find("kirin9000-ufs31").expect("a shipped profile").host.prices();
    let meter = Meter::new(host);
    let three = Mutex::new(Three {
        causes: vec![[Energy::ZERO; Part::ALL.len()]; 256].into(),
        owners: FxHashMap::default(),
        operations: HashMap::new(),
    });
    let by_meter = &mut |seed| {
        let (mut rng, mut one) = (Rng::new(seed), Bill::default());
        for _ in 0..REQUESTS {
            let (operation, tag) = bill(&mut rng, owners, &mut one);
            meter.request(operation, tag, 1, Nanos(100_000), &mut one);
        }
    };
    let host = meter.host();
    let by_three = &mut |seed| {
        let (mut rng, mut one) = (Rng::new(seed), Bill::default());
        for _ in 0..REQUESTS {
            let (operation, tag) = bill(&mut rng, owners, &mut one);
            // The meter's additions to a bill.
            one.add(Part::CpuRequest, host.cpu_request);
            if operation != Operation::Flush {
                one.add(Part::CpuBytes, host.cpu_byte.of(4096));
                one.add(Part::Dram, host.dram_byte.of(4096));
            }
            one.add_power(Part::Board, host.board, Nanos(100_000));
            let Three { causes, owners, operations } = &mut *three.lock();
            let owner = owners.entry(tag.owner).or_default();
            let kind = operations.entry(operation).or_default();
            for (part, energy) in one.amounts() {
                causes[usize::from(tag.cause)][*part as usize] += *energy;
                owner[part.component() as usize] += *energy;
                *kind += *energy;
            }
        }
    };
    let nothing = resident();
    let passes = 3 + owners / 250_000;
    (0..passes).for_each(&mut *by_three);
    let of_three = resident() - nothing;
    (0..passes).for_each(&mut *by_meter);
    let of_meter = resident() - nothing - of_three;
    assert_eq!(meter.look(|l| l.total()), three.lock().operations.values().copied().sum(), "they booked otherwise");

    let (mut ours, mut theirs, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 100..109 {
        let (a, b) = match seed % 2 {
            0 => (timed(&mut || by_three(seed)), timed(&mut || by_meter(seed))),
            _ => {
                let b = timed(&mut || by_meter(seed));
                (timed(&mut || by_three(seed)), b)
            }
        };
        let each = |d: Duration| d.as_nanos() as f64 / REQUESTS as f64;
        theirs.push(each(a));
        ours.push(each(b));
        ratio.push(each(b) / each(a));
    }
    let rows = meter.look(|l| l.amounts().map(|(purpose, ..)| purpose).collect::<std::collections::HashSet<_>>().len());
    println!("{owners} owners, {rows} rows");
    println!("booking: {:.0} ns, three accounts {:.0} ns, ratio {:.2}", median(ours), median(theirs), median(ratio));
    println!("memory: {} MB, three accounts {} MB", of_meter / 1_000_000, of_three / 1_000_000);
    let before = meter.ledger();
    let millis = |d: Duration| d.as_micros() as f64 / 1000.0;
    let copy = median((0..5).map(|_| millis(timed(&mut || _ = black_box(meter.ledger())))).collect());
    let copied = median((0..5).map(|_| millis(timed(&mut || _ = black_box(three.lock().clone())))).collect());
    by_meter(7);
    let now = meter.ledger();
    let since = median((0..5).map(|_| millis(timed(&mut || _ = black_box(now.since(&before))))).collect());
    let sums =
        median((0..5).map(|_| millis(timed(&mut || _ = black_box(now.component(Component::Storage))))).collect());
    let by_owner = median((0..5).map(|_| millis(timed(&mut || _ = black_box(now.owners())))).collect());
    println!(
        "copy: {copy:.1} ms, three accounts {copied:.1} ms; since: {since:.1} ms; sum of a component: {sums:.3} ms; by owner: {by_owner:.1} ms"
    );
}
