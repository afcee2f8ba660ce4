//! How is a value encoded in few bytes?
//!
//! Numbers are LEB128: seven bits per byte, low ones first; the top bit is set if more bytes follow. Signed numbers are
//! first mapped to unsigned ones (0, -1, 1, -2, ... become 0, 1, 2, 3, ...).

/// Why bytes are not a valid encoding.
pub(crate) type Broken = &'static str;

/// The unread rest of a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }
    pub(crate) fn byte(&mut self) -> Result<u8, Broken> {
        let (first, rest) = self.rest.split_first().ok_or("a record passes the chunk's end")?;
        self.rest = rest;
        Ok(*first)
    }
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Broken> {
        let (bytes, rest) = self.rest.split_at_checked(n).ok_or("a record passes the chunk's end")?;
        self.rest = rest;
        Ok(bytes)
    }
    pub(crate) fn number(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of over 64 bits")
    }
    pub(crate) fn signed(&mut self) -> Result<i64, Broken> {
        let folded = self.number()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }
}

pub(crate) fn encode_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn encode_signed(out: &mut Vec<u8>, value: i64) {
    encode_number(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// The signed distance from `from` to `to`, modulo 2^64.
pub(crate) fn step(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

/// The inverse of [`step`].
pub(crate) fn stepped(from: u64, by: i64) -> u64 {
    from.wrapping_add(by.cast_unsigned())
}

/// A value in a recording.
pub(crate) trait Field: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken>;
}

impl Field for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_number(out, *self);
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        input.number()
    }
}

macro_rules! small {
    ($($t:ty),*) => {$(
        impl Field for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                encode_number(out, u64::from(*self));
            }
            fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
                <$t>::try_from(input.number()?).map_err(|_| "a number too large for its place")
            }
        }
    )*};
}
small!(u8, u16, u32);

impl Field for i64 {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_signed(out, *self);
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        input.signed()
    }
}

impl Field for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("neither yes nor no"),
        }
    }
}

impl Field for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_number(out, self.len() as u64);
        out.extend_from_slice(self);
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        let n = usize::try_from(input.number()?).map_err(|_| "a text longer than its chunk")?;
        Ok(input.bytes(n)?.to_vec())
    }
}

impl Field for String {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_text(out, self);
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        String::from_utf8(Vec::decode(input)?).map_err(|_| "a text that is no UTF-8")
    }
}

pub(crate) fn encode_text(out: &mut Vec<u8>, text: &str) {
    encode_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

impl<T: Field> Field for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(input: &mut Input<'_>) -> Result<Self, Broken> {
        Ok(if bool::decode(input)? { Some(T::decode(input)?) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_small_ones_are_short() {
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            encode_number(&mut out, n);
            assert_eq!(out.len(), ((64 - n.leading_zeros()).max(1) as usize).div_ceil(7));
            assert_eq!(Input::new(&out).number(), Ok(n));
        }
        for n in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            encode_signed(&mut out, n);
            assert_eq!(Input::new(&out).signed(), Ok(n));
        }
        for (a, b) in [(0, u64::MAX), (u64::MAX, 0), (5, 3)] {
            assert_eq!(stepped(a, step(a, b)), b);
        }
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        assert!(Input::new(&[]).number().is_err());
        assert!(Input::new(&[0x80]).number().is_err());
        assert!(Input::new(&[0xff; 10]).number().is_err());
        let past = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert!(Input::new(&past).number().is_err());
        assert!(u8::decode(&mut Input::new(&[0x80, 2])).is_err());
        assert!(Vec::<u8>::decode(&mut Input::new(&[5, 1, 2])).is_err());
    }
}
