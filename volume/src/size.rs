//! Sizes as people write them, and sizes of volumes.

use std::ops::RangeInclusive;

use scherlfs_format::BLOCKS_MAX;
use scherlfs_format::superblock::BLOCKS_MIN;

/// Possible sizes of a ScherlFS volume, in blocks.
pub const SCHERLFS_BLOCKS: RangeInclusive<u64> = BLOCKS_MIN..=BLOCKS_MAX;

/// Bytes from `4096`, `512M`, `1.5G`, `512MiB` or `8GB`. As in coreutils `K`, `M`, `G`, `T`, `P` alone and with
/// `iB` are powers of 1024, with `B` powers of 1000; case does not matter. A fraction needs a unit, and is rounded
/// to whole bytes. `None`: not a size, or too large for 64 bits.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], unit(text[end..].trim_start())?);
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let Some(fraction) = fraction else { return Some(whole) };
    if unit == 1 || fraction.is_empty() || fraction.len() > 18 || !fraction.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // Below 10^18 times 2^50.
    let ten = 10_u128.pow(fraction.len() as u32);
    let part = (fraction.parse::<u128>().ok()? * u128::from(unit) + ten / 2) / ten;
    whole.checked_add(u64::try_from(part).ok()?)
}

/// Bytes in a unit.
fn unit(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (power, ending) = match text.chars().next() {
        None | Some('b') => return (text.len() <= 1).then_some(1),
        Some(letter) => ("kmgtp".find(letter)? as u32 + 1, &text[1..]),
    };
    match ending {
        "" | "i" | "ib" => Some(1024_u64.pow(power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_alone_is_a_power_of_1024_and_with_a_b_one_of_1000() {
        let sizes = [
            ("4096", 4096),
            ("4096B", 4096),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("8GiB", 8 << 30),
            ("8Gi", 8 << 30),
            ("8GB", 8_000_000_000),
            ("8gb", 8_000_000_000),
            ("512 MiB", 512 << 20),
            ("4kB", 4000),
            ("4k", 4096),
            ("3T", 3 << 40),
            ("1P", 1 << 50),
            ("16383P", 16383 << 50),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn a_fraction_of_a_unit_is_a_size() {
        assert_eq!(parse("1.5G"), Some(3 << 29));
        assert_eq!(parse("0.5KiB"), Some(512));
        assert_eq!(parse("1.5GB"), Some(1_500_000_000));
        assert_eq!(parse("0.001G"), Some(1_073_742));
        assert_eq!(parse("1.9G"), Some(2_040_109_466));
        assert_eq!(parse("16383.9999999P"), Some(18_446_744_073_596_961_625));
        assert_eq!(parse("16383.999999999999999999P"), None, "2^64");
    }

    #[test]
    fn what_is_no_size_is_none() {
        let wrong = [
            "",
            "much",
            "G",
            "B",
            "-1",
            "+1",
            "1.5",
            "1.5B",
            "1.",
            ".5G",
            "1.G",
            "1.5.5G",
            "1,5G",
            "8GG",
            "8GBB",
            "8iB",
            "8Bi",
            "0x10",
            "1e3",
            "8 G B",
            "1.0000000000000000000G",
            "16384P",
            "99999999999T",
            "99999999999999999999",
        ];
        for text in wrong {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
