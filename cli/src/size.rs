//! Sizes as people write them.

use crate::Failure;

/// Bytes from `512M` or `8G`; the error names the option.
pub fn of(option: &str, text: &str) -> Result<u64, Failure> {
    parse(text).ok_or_else(|| Failure::usage(format!("{option} {text}: not a size; write e.g. 512M or 8G")))
}

/// The same within limits, which the error says.
pub fn within(option: &str, text: &str, limits: std::ops::RangeInclusive<u64>) -> Result<u64, Failure> {
    let bytes = of(option, text)?;
    if limits.contains(&bytes) {
        return Ok(bytes);
    }
    let [from, to] = [limits.start(), limits.end()].map(|n| crate::output::bytes(*n));
    Err(Failure::usage(format!("{option} {text}: from {from} to {to} is possible")))
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (number, shift) = match text.char_indices().last()? {
        (i, 'k' | 'K') => (&text[..i], 10),
        (i, 'm' | 'M') => (&text[..i], 20),
        (i, 'g' | 'G') => (&text[..i], 30),
        (i, 't' | 'T') => (&text[..i], 40),
        _ => (text, 0),
    };
    let n: u64 = number.trim().parse().ok()?;
    n.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse("8G"), Some(8 << 30));
        assert_eq!(parse("512MiB"), Some(512 << 20));
        assert_eq!(parse("4096"), Some(4096));
        assert_eq!(parse("much"), None);
        assert_eq!(parse("99999999999T"), None);
    }

    #[test]
    fn a_size_out_of_its_limits_is_wrong_usage() {
        assert_eq!(within("--size", "8G", 1 << 20..=1 << 40).unwrap(), 8 << 30);
        let failure = within("--size", "8K", 1 << 20..=1 << 40).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert_eq!(failure.text(), "--size 8K: from 1.00 MiB to 1.00 TiB is possible");
    }
}
