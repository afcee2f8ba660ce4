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

/// A decimal number in units of `unit` nanoseconds, in nanoseconds; less than one is dropped.
pub(crate) fn scaled(text: &[u8], unit: u64) -> Option<u64> {
    if unit == 1_000_000_000 {
        return nanoseconds(text);
    }
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let whole = number(&text[..dot])?.checked_mul(unit)?;
    let fraction = text.get(dot + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Nine digits of a fraction below a second fit.
    let digits = &fraction[..fraction.len().min(9)];
    let part = number(digits).unwrap_or(0) * unit / 10_u64.pow(digits.len() as u32);
    whole.checked_add(part)
}

/// An integer, which may have a fraction of zeroes: programs that keep all columns in floating point print it.
pub(crate) fn whole(text: &[u8]) -> Option<u64> {
    match memchr::memchr(b'.', text) {
        None => number(text),
        Some(dot) => number(&text[..dot]).filter(|_| text[dot + 1..].iter().all(|b| *b == b'0')),
    }
}

/// `2024-02-29 12:34:56.789`, also with `T`, and with `Z` or an offset such as `+02:00` at the end: nanoseconds since
/// 1970, in UTC if there is no offset.
pub(crate) fn date(text: &[u8]) -> Option<u64> {
    let (day, clock) = (text.get(..10)?, text.get(10..)?);
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = *day else { return None };
    let (year, month, day) = (number(&[y0, y1, y2, y3])?, number(&[m0, m1])?, number(&[d0, d1])?);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if year < 1970 || !(1..=12).contains(&month) || !(1..=months[month as usize - 1]).contains(&day) {
        return None;
    }
    let before = |year: u64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let days = (year - 1970) * 365 + before(year) - before(1970) + months[..month as usize - 1].iter().sum::<u64>();
    let [b' ' | b'T' | b't', h0, h1, b':', n0, n1, b':', rest @ ..] = clock else { return None };
    let (hours, minutes) = (number(&[*h0, *h1])?, number(&[*n0, *n1])?);
    let end = rest.iter().position(|b| !(b.is_ascii_digit() || *b == b'.')).unwrap_or(rest.len());
    let passed = nanoseconds(&rest[..end])?;
    if hours > 23 || minutes > 59 || passed >= 61_000_000_000 {
        return None;
    }
    let (east, minutes_off) = match rest[end..] {
        [] | [b'Z' | b'z'] => (true, 0),
        [sign @ (b'+' | b'-'), a, b, b':', c, d] | [sign @ (b'+' | b'-'), a, b, c, d] => {
            (sign == b'+', number(&[a, b])? * 60 + number(&[c, d])?)
        }
        _ => return None,
    };
    let minutes = ((days + day - 1) * 24 + hours) * 60 + minutes;
    let minutes = if east { minutes.checked_sub(minutes_off)? } else { minutes + minutes_off };
    (minutes * 60).checked_mul(1_000_000_000)?.checked_add(passed)
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
    fn numbers_have_units_and_fractions() {
        assert_eq!(scaled(b"1.5", 1_000_000), Some(1_500_000));
        assert_eq!(scaled(b"1577808144360767", 1000), Some(1_577_808_144_360_767_000));
        assert_eq!(
            (scaled(b"7", 100), scaled(b"0.29", 1_000_000), scaled(b"1.", 1000)),
            (Some(700), Some(290_000), Some(1000))
        );
        assert_eq!(scaled(b"0.99999999999999999999", 1_000_000_000), Some(1_000_000_000));
        assert_eq!(scaled(b"0.9999999999999999", 1000), Some(999));
        for not in ["", ".5", "1.5e3", "-1", "1.2.3", "99999999999999999999"] {
            assert_eq!(scaled(not.as_bytes(), 1000), None, "{not}");
        }
        assert_eq!(
            (whole(b"4096"), whole(b"4096.0"), whole(b"4096."), whole(b"4096.5")),
            (Some(4096), Some(4096), Some(4096), None)
        );
    }

    #[test]
    fn dates_are_days_since_1970() {
        const S: u64 = 1_000_000_000;
        assert_eq!(date(b"1970-01-01 00:00:00"), Some(0));
        assert_eq!(date(b"2000-02-29T23:59:59.25Z"), Some(951_868_799 * S + S / 4));
        assert_eq!(date(b"2023-11-14 22:13:20"), Some(1_700_000_000 * S));
        assert_eq!(date(b"2023-11-15 00:13:20+02:00"), Some(1_700_000_000 * S));
        assert_eq!(date(b"2023-11-14T20:43:20-0130"), Some(1_700_000_000 * S));
        for not in [
            "",
            "2023-11-14",
            "2023-13-14 00:00:00",
            "2023-02-29 00:00:00",
            "1969-12-31 23:59:59",
            "2023-11-14 24:00:00",
            "2023-11-14 22:13:20 CET",
            "1970-01-01 00:00:00+02:00",
            "9999-12-31 00:00:00",
        ] {
            assert_eq!(date(not.as_bytes()), None, "{not}");
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
