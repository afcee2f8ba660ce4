//! The wire format of protocol buffers: fields with numbers, one after the other.
//!
//! Read here and not by a library: a trace is some hundred kinds of messages of which a few fields of a few are
//! wanted, as they lie there, and of the others how many there are. Groups, which nobody writes any more, are
//! damage.

/// What is in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Integers, booleans, enumerations; also fixed ones.
    Number(u64),
    /// Strings, bytes, messages, packed numbers.
    Bytes(&'a [u8]),
}

/// Bytes that are no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong;

impl From<Wrong> for String {
    fn from(_: Wrong) -> String {
        "fields that are none".into()
    }
}

/// A number of at most ten bytes; also what follows.
#[inline(always)]
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    if let [first @ 0..0x80, rest @ ..] = bytes {
        return Some((u64::from(*first), rest));
    }
    let mut n = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        n |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some((n, &bytes[place + 1..]));
        }
    }
    None
}

/// The fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next one.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Wrong> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (tag, rest) = varint(self.0).ok_or(Wrong)?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| *n != 0).ok_or(Wrong)?;
        let (value, rest) = match tag & 7 {
            0 => {
                let (n, rest) = varint(rest).ok_or(Wrong)?;
                (Value::Number(n), rest)
            }
            1 => {
                let (fixed, rest) = rest.split_first_chunk::<8>().ok_or(Wrong)?;
                (Value::Number(u64::from_le_bytes(*fixed)), rest)
            }
            2 => {
                let (length, rest) = varint(rest).ok_or(Wrong)?;
                let length = usize::try_from(length).map_err(|_| Wrong)?;
                let (bytes, rest) = rest.split_at_checked(length).ok_or(Wrong)?;
                (Value::Bytes(bytes), rest)
            }
            5 => {
                let (fixed, rest) = rest.split_first_chunk::<4>().ok_or(Wrong)?;
                (Value::Number(u64::from(u32::from_le_bytes(*fixed))), rest)
            }
            _ => return Err(Wrong),
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
    fn half_a_field_is_none() {
        for bad in
            [&[0x08][..], &[0x80], &[0x12, 5, 1], &[0x00, 1], &[0x0b], &[0x0d, 1, 2], &[0x12, 0xff, 0xff], &[0x80; 12]]
        {
            assert_eq!(all(bad), Err(Wrong), "{bad:?}");
        }
    }
}
