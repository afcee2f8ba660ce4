//! The fuzzer's drivers on random bytes.

use device::Rng;

use crate::drivers;

#[test]
fn no_bytes_make_a_driver_panic() {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let mut rng = Rng::new(1);
    for round in 0..if deep { 20_000 } else { 500 } {
        let mut bytes = vec![0; 1 + 6 * (1 + rng.index(5))];
        rng.fill(&mut bytes);
        // Positions near the beginning, where fields are.
        if round % 2 == 0 {
            bytes.iter_mut().skip(4).step_by(6).for_each(|b| *b = 0);
        }
        for (_, driver) in drivers::ALL {
            driver(&bytes);
        }
    }
}

/// Inputs found by the fuzzer.
#[test]
fn what_once_made_a_driver_panic_does_not_again() {
    drivers::repaired(&[1, 8, 0xff, 0xff, 0, 0, 0xf7, 0xf7]);
}
