//! The fuzzer's drivers run on valid recordings with a few bytes changed.

#[path = "drivers/blocks.rs"]
mod drivers;

use crate::text::fixture;

/// Runs `rounds` times with the first `length` bytes, three of them changed.
fn changed(good: &[u8], length: usize, rounds: u64, driver: impl Fn(&[u8])) {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let good = &good[..length.min(good.len())];
    driver(good);
    for _ in 0..rounds {
        let mut bytes = good.to_vec();
        for _ in 0..3 {
            let at = random(bytes.len());
            bytes[at] = match random(4) {
                0 => b"0 [](+/\n"[random(8)],
                _ => random(256) as u8,
            };
        }
        driver(&bytes[..bytes.len() - random(64)]);
    }
}

#[test]
fn changed_records_keep_the_rules() {
    changed(&fixture("blktrace/vda.blktrace.0.zst"), 2000, 1500, drivers::blktrace);
}

#[test]
fn changed_lines_keep_the_rules() {
    changed(&fixture("blktrace/vdb.blkparse.zst"), 2000, 1500, drivers::blkparse);
}
