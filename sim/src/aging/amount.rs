//! How are amounts written in a recipe? `4K`, `1.5G`, `2%`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use volume::size;

/// Bytes, or a share of the space for files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Bytes on a volume of the recipe's reference size; scaled on others.
    Bytes(u64),
    /// Percent.
    Percent(f64),
}

/// A plain number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        size::parse(text).map(Bytes).ok_or_else(|| format!("{text:?} is not a size; write e.g. 4K, 2M or 1.5G"))
    }
}

impl FromStr for Amount {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let amount = match text.trim().strip_suffix('%') {
            Some(p) => p.trim().parse().ok().filter(|p| (0.0..=100.0).contains(p)).map(Amount::Percent),
            None => size::parse(text).map(Amount::Bytes),
        };
        amount.ok_or_else(|| format!("{text:?} is not an amount; write e.g. 2M, 1.5G or 80%"))
    }
}

fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(d: D) -> Result<T, D::Error> {
    String::deserialize(d)?.parse().map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        from_text(d)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= 1 << 30 => (1u64 << 30, "G"),
            n if n >= 1 << 20 => (1 << 20, "M"),
            n if n >= 1 << 10 => (1 << 10, "K"),
            _ => (1, ""),
        };
        match self.0.is_multiple_of(unit) {
            true => write!(f, "{}{name}", self.0 / unit),
            false => write!(f, "{:.1}{name}", self.0 as f64 / unit as f64),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(n) => Bytes(*n).fmt(f),
            Amount::Percent(p) => write!(f, "{p}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_bytes_in_powers_of_1024_or_percent() {
        assert_eq!("1.5G".parse(), Ok(Amount::Bytes(3 << 29)));
        assert_eq!("2 MiB".parse(), Ok(Bytes(2 << 20)));
        assert_eq!("2MB".parse(), Ok(Bytes(2_000_000)));
        assert_eq!("80%".parse(), Ok(Amount::Percent(80.0)));
        for bad in ["", "much", "-1K", "101%", "NaN", "1e30G", "1e3K"] {
            assert!(bad.parse::<Amount>().is_err(), "{bad}");
        }
        assert_eq!(format!("{} {} {}", Bytes(3 << 29), Bytes(8192), Amount::Percent(2.5)), "1.5G 8K 2.5%");
    }
}
