//! How is the wire format of protocol buffers read: numbered fields, one after the other?
//!
//! Without a library: of some hundred kinds of messages, only a few fields of a few are needed, without copying, and
//! the number of the others. Groups, which are obsolete, are treated as damage.

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Integers, booleans, enumerations; also fixed-size ones.
    Number(u64),
    /// Strings, bytes, messages, packed numbers.
    Bytes(&'a [u8]),
}

/// Invalid bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong;

impl From<Wrong> for String {
    fn from(_: Wrong) -> String {
        "fields that are none".into()
    }
}

/// A number of at most ten bytes, and the rest.
#[inline(always)]
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    if let [first @ 0..0x80, rest @ ..] = bytes {
        return Some((u64::from(*first), rest));
    }
    // Join the 7-bit groups of the bytes: pairs, fours, eights.
    let eight = first_eight(bytes);
    let last = !eight & 0x8080_8080_8080_8080;
    if last == 0 {
        return long_varint(bytes);
    }
    let rest = bytes.get(last.trailing_zeros() as usize / 8 + 1..)?;
    let sevens = eight & (last ^ (last - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    Some((fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4, rest))
}

/// The first eight bytes as a little-endian number; missing bytes are 0.
#[inline(always)]
fn first_eight(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
        return u64::from(low) | u64::from(high) << (8 * (bytes.len() - 4));
    }
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// A number with more than eight bytes.
#[cold]
fn long_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut n = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        n |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some((n, &bytes[place + 1..]));
        }
    }
    None
}

/// A fixed-size number of 8 or 4 bytes.
#[cold]
fn fixed(tag: u64, rest: &[u8]) -> Result<(Value<'_>, &[u8]), Wrong> {
    match tag & 7 {
        1 => {
            let (fixed, rest) = rest.split_first_chunk::<8>().ok_or(Wrong)?;
            Ok((Value::Number(u64::from_le_bytes(*fixed)), rest))
        }
        5 => {
            let (fixed, rest) = rest.split_first_chunk::<4>().ok_or(Wrong)?;
            Ok((Value::Number(u64::from(u32::from_le_bytes(*fixed))), rest))
        }
        _ => Err(Wrong),
    }
}

/// The fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Wrong> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (tag, rest) = varint(self.0).ok_or(Wrong)?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| *n != 0).ok_or(Wrong)?;
        // Tested one after the other: these two are almost all, and a jump table would be predicted worse.
        let (value, rest) = if tag & 7 == 0 {
            let (n, rest) = varint(rest).ok_or(Wrong)?;
            (Value::Number(n), rest)
        } else if tag & 7 == 2 {
            let (length, rest) = varint(rest).ok_or(Wrong)?;
            let length = usize::try_from(length).map_err(|_| Wrong)?;
            let (bytes, rest) = rest.split_at_checked(length).ok_or(Wrong)?;
            (Value::Bytes(bytes), rest)
        } else {
            fixed(tag, rest)?
        };
        self.0 = rest;
        Ok(Some((number, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Wrong> {
        let (mut fields, mut out) = (Fields(bytes), Vec::new());
        while let Some(field) = fields.next()? {
            out.push(field);
        }
        Ok(out)
    }

    #[test]
    fn the_examples_of_the_format_are_read() {
        assert_eq!(all(&[0x08, 0x96, 0x01]), Ok(vec![(1, Value::Number(150))]));
        assert_eq!(all(b"\x12\x07testing"), Ok(vec![(2, Value::Bytes(b"testing"))]));
        assert_eq!(
            all(&[0x1d, 1, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 0, 0, 0]),
            Ok(vec![(3, Value::Number(1)), (2, Value::Number(2))])
        );
        let minus_one = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(all(&minus_one), Ok(vec![(1, Value::Number(u64::MAX))]));
    }

    #[test]
    fn numbers_of_every_length_are_read_with_and_without_something_behind() {
        for bits in 0..=64 {
            for n in [
                u64::MAX.checked_shl(bits).map_or(0, |n| !n),
                1_u64.checked_shl(bits).unwrap_or(0),
                0x5a5a_1234 << (bits / 2),
            ] {
                let (mut bytes, mut rest) = (Vec::new(), n);
                while rest >= 0x80 {
                    bytes.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                bytes.push(rest as u8);
                for behind in 0..12 {
                    let with = [bytes.clone(), vec![0xff; behind]].concat();
                    assert_eq!(varint(&with), Some((n, &vec![0xff; behind][..])), "{n}");
                }
                assert_eq!(varint(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn half_a_field_is_none() {
        for bad in
            [&[0x08][..], &[0x80], &[0x12, 5, 1], &[0x00, 1], &[0x0b], &[0x0d, 1, 2], &[0x12, 0xff, 0xff], &[0x80; 12]]
        {
            assert_eq!(all(bad), Err(Wrong), "{bad:?}");
        }
    }
}
