//! How are numbers from programs of meters parsed?

/// A finite number.
pub(super) fn finite(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|n: &f64| n.is_finite())
}

/// Seconds as nanoseconds; `None` if negative or beyond some 570 years.
pub(super) fn nanoseconds(seconds: f64) -> Option<u64> {
    let nanos = seconds * 1e9;
    (0.0..1.8e19).contains(&nanos).then(|| nanos.round() as u64)
}
