//! How long does it take to encode a delta of a page, and to decode it?
//!
//! `cargo run --release -p joulefs-format --example delta_speed`. Each time includes the check over the page,
//! without which no delta is stored or applied. Pages are in the processor's cache, like those that a program has
//! just written.

use device::Rng;
use device::clock::{Clock, RealClock};
use joulefs_format::delta::codec::{decode, encode};
use joulefs_format::{Block, Ino, delta};

const ROUNDS: u32 = 20_000;

/// Nanoseconds per round of `ROUNDS`, the best of five runs.
fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let clock = RealClock::new();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let from = clock.monotonic();
        (0..ROUNDS).for_each(|_| work());
        best = best.min((clock.monotonic() - from).as_nanos() as f64 / f64::from(ROUNDS));
    }
    best
}

fn main() {
    let mut rng = Rng::new(1);
    let mut base: Box<Block> = Box::new([0; 4096]);
    rng.fill(&mut base[..]);
    let mut changed = |runs: usize, length: usize| {
        let mut page = base.clone();
        for _ in 0..runs {
            let at = rng.below(4097 - length as u64) as usize;
            rng.fill(&mut page[at..at + length]);
        }
        page
    };
    let mut pages = vec![
        ("the same page", base.clone()),
        ("8 bytes in 1 place", changed(1, 8)),
        ("64 bytes in 8 places", changed(8, 8)),
        ("200 bytes in 1 place", changed(1, 200)),
        ("2,000 bytes in 1 place, no delta", changed(1, 2000)),
        ("another page, no delta", changed(1, 4096)),
    ];
    let mut moved = base.clone();
    moved.copy_within(100..2000, 140);
    pages.push(("1,900 bytes moved by 40, LZ4", moved));
    let check = |page: &Block| delta::check(7, Ino(8), 9, 10, page);
    let mut out = Vec::new();
    let mut sum = 0;
    println!("{:<34} {:>6} {:>10} {:>10}", "page", "bytes", "encode ns", "decode ns");
    for (name, page) in &pages {
        let codec = encode(&base, page, delta::LONGEST, &mut out);
        let bytes = codec.map_or_else(|| "-".into(), |_| out.len().to_string());
        let payload = out.clone();
        let making = nanoseconds(|| {
            if encode(&base, page, delta::LONGEST, &mut out).is_some() {
                sum ^= check(page);
            }
        });
        let applying = codec.map(|codec| {
            nanoseconds(|| {
                if let Some(page) = decode(codec, &payload, &base) {
                    sum ^= check(&page);
                }
            })
        });
        let applying = applying.map_or_else(|| "-".into(), |n| format!("{n:.0}"));
        println!("{name:<34} {bytes:>6} {making:>10.0} {applying:>10}");
    }
    // Keeps the results alive.
    std::hint::black_box(sum);
}
