//! The fuzzer's drivers run on valid recordings with a few bytes changed.

#[path = "drivers/tracepoints.rs"]
mod drivers;

use crate::text::fixture;

/// Runs `rounds` times with three bytes of `good` changed.
fn changed(good: &[u8], rounds: u64, driver: impl Fn(&[u8])) {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    driver(good);
    for _ in 0..rounds {
        let mut bytes = good.to_vec();
        for _ in 0..3 {
            let at = random(bytes.len());
            bytes[at] = match random(3) {
                0 => b"0 [](+/\n"[random(8)],
                1 => bytes[at] ^ 1 << random(8),
                _ => random(256) as u8,
            };
        }
        driver(&bytes[..bytes.len() - random(64)]);
    }
}

#[test]
fn changed_text_keeps_the_rules() {
    changed(&fixture("ftrace/trace.txt.zst")[1000..3000], 1500, drivers::ftrace);
}

#[test]
fn changed_packets_keep_the_rules() {
    changed(&fixture("perfetto/events.pftrace.zst")[..3000], 500, drivers::perfetto);
    changed(&fixture("perfetto/compressed.pftrace.zst"), 300, drivers::perfetto);
}

#[test]
fn changed_pages_keep_the_rules() {
    let good: &'static [u8] = include_bytes!("../fixtures/ftrace/v6.dat.zst");
    let pages = zstd::decode_all(good).unwrap()[40960..][..2 * 4096].to_vec();
    changed(&pages, 800, |bytes| drivers::trace_dat(good, bytes));
}
