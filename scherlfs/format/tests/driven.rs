//! The fuzzer's drivers on random bytes.

use crate::drivers;

use device::Rng;

#[test]
fn no_bytes_make_a_driver_panic() {
    let mut rng = Rng::new(1);
    for round in 0..4000 {
        let mut bytes = vec![0; rng.index(60)];
        rng.fill(&mut bytes);
        // Positions near the beginning, where fields are.
        if round % 2 == 0 {
            bytes.iter_mut().skip(1).step_by(3).for_each(|b| *b = 0);
        }
        for (_, driver) in drivers::ALL {
            driver(&bytes);
        }
    }
}
