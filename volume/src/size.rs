//! Sizes as people write them.

/// Bytes from `4096`, `512M`, `8G` or `512MiB`; units are powers of 1024. `None`: it is no size, or too large for 64 bits.
pub fn parse(text: &str) -> Option<u64> {
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
}
