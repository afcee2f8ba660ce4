//! Fitting prices to measured rows, and whether the simulated device then agrees with what was measured.

use device::energy::fit::{Fit, Parameters, Rows};

const MEASURED: &str = include_str!("../../profiles/calibration/kirin9000.csv");

fn measured() -> Rows {
    Rows::parse(MEASURED, "kirin9000.csv").unwrap()
}

#[test]
fn the_eight_parameters_of_the_kirin_come_out_to_three_digits() {
    let fit = Fit::new(&measured()).unwrap();
    let expected = [0.4393, 0.05182, 1.3243, 0.02430, 0.6663, 1.689, 0.06879, 0.3403];
    for ((p, got), expected) in Parameters::ALL.iter().zip(fit.parameters.0).zip(expected) {
        assert!((got / expected - 1.0).abs() < 5e-4, "{}: {got}, not {expected}", p.name);
    }
    assert_eq!(fit.numbers, 14);
    assert!((fit.rms - 4.5).abs() < 0.05, "{}", fit.rms);
}
