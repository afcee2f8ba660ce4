//! How are sizes and times written for people?

/// Bytes.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (0..units.len()).rev().find(|u| n >> (10 * u) > 0).unwrap_or(0);
    let value = n as f64 / (1_u64 << (10 * unit)) as f64;
    if unit == 0 { format!("{n} B") } else { format!("{value:.2} {}", units[unit]) }
}

/// A time, from nanoseconds.
pub fn time(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

/// A share in percent.
pub fn percent(part: u64, of: u64) -> String {
    if of == 0 { "-".into() } else { format!("{:.1} %", part as f64 * 100.0 / of as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_fits_them() {
        assert_eq!(
            [0, 1023, 1024, 1536 << 10, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "1.50 MiB", "16.00 EiB"]
        );
        assert_eq!([0, 1_500, 2_000_000, 3_000_000_000].map(time), ["0.0 µs", "1.5 µs", "2.00 ms", "3.000 s"]);
        assert_eq!([percent(1, 8), percent(0, 0)], ["12.5 %", "-"]);
    }
}
