//! How is text with a byte order mark read? The mark is dropped, and UTF-16 becomes UTF-8. Other bytes pass unchanged.

use std::io::{self, Read};

/// The marks: UTF-8, UTF-16 with the low byte first, UTF-16 with the high byte first.
const UTF_8: &[u8] = &[0xef, 0xbb, 0xbf];
const LOW_FIRST: &[u8] = &[0xff, 0xfe];
const HIGH_FIRST: &[u8] = &[0xfe, 0xff];
/// Bytes of UTF-16 converted at once.
const STEP: usize = 64 << 10;

/// True if these first bytes have a mark.
pub(super) fn is_marked(head: &[u8]) -> bool {
    [UTF_8, LOW_FIRST, HIGH_FIRST].iter().any(|mark| head.starts_with(mark))
}

enum State {
    /// Nothing was read.
    Beginning,
    /// The rest passes.
    Passing,
    /// UTF-16; true if the high byte is first.
    Wide(bool),
}

/// Bytes without a mark, in UTF-8.
pub(super) struct Utf8<R> {
    inner: R,
    state: State,
    /// Bytes ready to be returned, from `from` on.
    ready: Vec<u8>,
    from: usize,
    /// Bytes of UTF-16 not converted yet: an incomplete unit or pair.
    wide: Vec<u8>,
}

impl<R: Read> Utf8<R> {
    pub(super) fn new(inner: R) -> Self {
        Utf8 { inner, state: State::Beginning, ready: Vec::new(), from: 0, wide: Vec::new() }
    }

    /// Reads the first bytes.
    fn begin(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        (&mut self.inner).take(UTF_8.len() as u64).read_to_end(&mut head)?;
        self.state = State::Passing;
        if head.starts_with(UTF_8) {
            return Ok(());
        }
        if head.starts_with(LOW_FIRST) || head.starts_with(HIGH_FIRST) {
            self.state = State::Wide(head.starts_with(HIGH_FIRST));
            self.wide.extend_from_slice(&head[2..]);
        } else {
            self.ready = head;
        }
        Ok(())
    }

    /// Converts some bytes; false at the end.
    fn convert(&mut self, high_first: bool) -> io::Result<bool> {
        let had = self.wide.len();
        self.wide.resize(had + STEP, 0);
        let got = match self.inner.read(&mut self.wide[had..]) {
            Ok(got) => got,
            Err(e) => {
                self.wide.truncate(had);
                return Err(e);
            }
        };
        self.wide.truncate(had + got);
        let mut units: Vec<u16> =
            (self.wide.chunks_exact(2))
                .map(|two| {
                    if high_first { u16::from_be_bytes([two[0], two[1]]) } else { u16::from_le_bytes([two[0], two[1]]) }
                })
                .collect();
        // The first half of a pair waits for the second.
        if got > 0 && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
        }
        self.wide.drain(..units.len() * 2);
        let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        (self.ready, self.from) = (text.into_bytes(), 0);
        if got == 0 && !self.wide.is_empty() {
            // Half a unit at the end.
            self.wide.clear();
            self.ready.extend_from_slice("\u{fffd}".as_bytes());
        }
        Ok(got > 0 || !self.ready.is_empty())
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if matches!(self.state, State::Beginning) {
            self.begin()?;
        }
        loop {
            let ready = &self.ready[self.from..];
            if !ready.is_empty() {
                let n = ready.len().min(buf.len());
                buf[..n].copy_from_slice(&ready[..n]);
                self.from += n;
                return Ok(n);
            }
            let State::Wide(high_first) = self.state else { return self.inner.read(buf) };
            if !self.convert(high_first)? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        for step in [1, 2, 3, 5, 100] {
            all.clear();
            Utf8::new(Slow(bytes, step)).read_to_end(&mut all).unwrap();
        }
        all
    }

    #[test]
    fn text_with_a_mark_is_read_as_text_without_one() {
        let text = "time,ö,€,😀\n1,2,3\n";
        let wide: Vec<u16> = "\u{feff}".encode_utf16().chain(text.encode_utf16()).collect();
        let low: Vec<u8> = wide.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let high: Vec<u8> = wide.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [text.as_bytes().to_vec(), format!("\u{feff}{text}").into_bytes(), low, high] {
            assert_eq!(read(&bytes), text.as_bytes());
        }
    }

    #[test]
    fn broken_text_is_replaced_and_other_bytes_pass() {
        assert_eq!(read(&[0xff, 0xfe, b'a', 0, 0, 0xd8, b'b', 0, 7]), "a\u{fffd}b\u{fffd}".as_bytes());
        assert_eq!(read(&[0xff, 0xfe, 0, 0xd8]), "\u{fffd}".as_bytes());
        for bytes in [&b""[..], b"a", &[0xff], &[0xef, 0xbb], &[0xff, 0, 1, 2]] {
            assert_eq!(read(bytes), bytes);
        }
    }
}
