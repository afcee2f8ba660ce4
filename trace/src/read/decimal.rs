//! How is a number parsed? For formats with a number every few bytes: no allocation, no locale, no signs, and nothing
//! after the number.

/// An integer of digits only.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut n = 0u64;
    if text.len() < 20 {
        // 19 digits always fit.
        for b in text {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            n = n * 10 + u64::from(digit);
        }
        return Some(n);
    }
    for b in text {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(n)
}

/// Seconds with an optional fraction, in nanoseconds. The tenth digit rounds, because programs that keep seconds in
/// floating point print more digits.
pub(crate) fn nanoseconds(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|b| *b == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    let mut nanoseconds = 0u64;
    for place in 0..9 {
        let digit = fraction.get(place).map_or(0, |b| b.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        nanoseconds = nanoseconds * 10 + u64::from(digit);
    }
    if fraction.len() > 9 {
        if !fraction[9..].iter().all(u8::is_ascii_digit) {
            return None;
        }
        nanoseconds += u64::from(fraction[9] >= b'5');
    }
    number(whole)?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Error text for a field: its name and the beginning of its text.
pub(crate) fn wrong(name: &str, text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let end = if text.len() > SHOWN { "…" } else { "" };
    format!("{name} is {:?}{end}", String::from_utf8_lossy(&text[..text.len().min(SHOWN)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number_and_only_if_they_fit() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"00000000000000000000042"), Some(42));
        for not in ["", "18446744073709551616", "-1", "+1", "1 ", "1.0", "0x1", "99999999999999999999a"] {
            assert_eq!(number(not.as_bytes()), None, "{not}");
        }
    }

    #[test]
    fn seconds_keep_nine_digits_and_the_tenth_rounds() {
        assert_eq!(nanoseconds(b"12"), Some(12_000_000_000));
        assert_eq!(nanoseconds(b"12."), Some(12_000_000_000));
        assert_eq!(nanoseconds(b"0.000001"), Some(1_000));
        assert_eq!(nanoseconds(b"1200487.4621539998"), Some(1_200_487_462_154_000));
        assert_eq!(nanoseconds(b"660881.0188740001"), Some(660_881_018_874_000));
        assert_eq!(nanoseconds(b"1.9999999999"), Some(2_000_000_000));
        for not in ["", ".5", "1.5e3", "1.-5", "-1", "99999999999999", "1.1234567890x"] {
            assert_eq!(nanoseconds(not.as_bytes()), None, "{not}");
        }
    }
}
