//! Measures choosing a victim or a target among 400,000 dirty segments, for several volume states.
//!
//! `cargo run --release -p joulefs-conformance --example victim_speed [choices [policy]]`

use joulefs_conformance::bench::choosing::{CHOICES, Shape, time};

fn main() {
    let choices: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(300).max(1);
    let only = std::env::args().nth(2).unwrap_or_default();
    for shape in Shape::ALL {
        println!("{shape:?}: microseconds per choice (mean, median, longest), for what changed between two; chosen");
        for of in CHOICES.iter().filter(|c| c.name.contains(&only)) {
            let taken = time(of, shape, choices);
            let micros = |n: usize| taken.choices[n].as_secs_f64() * 1e6;
            println!(
                "  {:<20} {:8.2} {:8.2} {:9.2} {:9.1}   {}",
                of.name,
                taken.mean(),
                micros(taken.choices.len() / 2),
                micros(taken.choices.len() - 1),
                taken.changing.as_secs_f64() * 1e6 / f64::from(choices),
                taken.found
            );
        }
    }
}
