//! Decoder for LZO1X streams in both of Linux's dialects.
//!
//! Follows "LZO stream format as understood by Linux's LZO decompressor" (kernel documentation, `staging/lzo`).
//! Version 1, marked by a first byte of 17, adds an instruction for runs of zeroes.

/// Faults of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LzoError {
    /// It ends inside an instruction, or without an end mark.
    #[error("ends too early")]
    InputOverrun,
    /// The output exceeds the buffer.
    #[error("holds more than a cluster")]
    OutputOverrun,
    /// It copies from before the start of the output.
    #[error("copies from before its beginning")]
    LookBehind,
    /// Its end mark has the wrong length.
    #[error("has a damaged end mark")]
    BadEnd,
    /// Bytes follow the end mark.
    #[error("has bytes after its end")]
    Trailing,
    /// It has an unknown version.
    #[error("is of version {0}")]
    Version(u8),
}

/// A first byte with this value announces the stream's version.
const VERSION_MARK: u8 = 17;
/// Shortest stream with a version mark.
const SHORTEST_VERSIONED: usize = 5;
/// Greatest distance of the instruction without extra range; with a zero extra distance it is the end mark.
const FAR: usize = 16_384;
/// Shortest run of zeroes.
const MIN_RUN: usize = 4;
/// Length in the end mark.
const END_LENGTH: usize = 3;

struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, LzoError> {
        let (&b, rest) = self.bytes.split_first().ok_or(LzoError::InputOverrun)?;
        self.bytes = rest;
        Ok(b)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], LzoError> {
        let (head, rest) = self.bytes.split_at_checked(n).ok_or(LzoError::InputOverrun)?;
        self.bytes = rest;
        Ok(head)
    }

    fn word(&mut self) -> Result<usize, LzoError> {
        Ok(usize::from(self.byte()?) | usize::from(self.byte()?) << 8)
    }

    /// Decodes a length whose field in the instruction is `field`. If that is 0, the length is `full`, plus 255 for
    /// each following zero byte, plus the first other byte.
    fn length(&mut self, field: u8, full: usize) -> Result<usize, LzoError> {
        if field != 0 {
            return Ok(field.into());
        }
        let mut n = full;
        loop {
            match self.byte()? {
                0 => n += 255,
                b => return Ok(n + usize::from(b)),
            }
        }
    }
}

struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    /// Space for the next `n` output bytes.
    fn room(&mut self, n: usize) -> Result<&mut [u8], LzoError> {
        let end = self.len.checked_add(n).ok_or(LzoError::OutputOverrun)?;
        let room = self.bytes.get_mut(self.len..end).ok_or(LzoError::OutputOverrun)?;
        self.len = end;
        Ok(room)
    }

    fn literals(&mut self, from: &mut Input<'_>, n: usize) -> Result<(), LzoError> {
        self.room(n)?.copy_from_slice(from.take(n)?);
        Ok(())
    }

    fn zeroes(&mut self, n: usize) -> Result<(), LzoError> {
        self.room(n)?.fill(0);
        Ok(())
    }

    /// Repeats `n` bytes from `distance` back; they may overlap the output.
    fn repeat(&mut self, distance: usize, n: usize) -> Result<(), LzoError> {
        let mut from = self.len.checked_sub(distance).ok_or(LzoError::LookBehind)?;
        let mut at = self.len;
        self.room(n)?;
        let end = self.len;
        while at < end {
            // `distance` bytes are valid from `from` on, and each round doubles them.
            let step = (end - at).min(at - from);
            self.bytes.copy_within(from..from + step, at);
            from += step;
            at += step;
        }
        Ok(())
    }
}

/// Decodes a whole stream and returns the number of bytes written to `out`.
pub(super) fn decompress(stream: &[u8], out: &mut [u8]) -> Result<usize, LzoError> {
    let mut input = Input { bytes: stream };
    let mut out = Output { bytes: out, len: 0 };
    let mut runs = false;
    if stream.len() >= SHORTEST_VERSIONED && stream.first() == Some(&VERSION_MARK) {
        input.byte()?;
        match input.byte()? {
            0 => {}
            1 => runs = true,
            v => return Err(LzoError::Version(v)),
        }
    }
    // Number of literals of the last instruction: 0 to 3, or 4 for more. It decides the meaning of instructions
    // below 16.
    let mut literals = 0;
    if let Some(n) = input.bytes.first().and_then(|b| b.checked_sub(VERSION_MARK)).filter(|n| *n > 0) {
        input.byte()?;
        out.literals(&mut input, n.into())?;
        literals = n.min(4);
    }
    loop {
        let op = input.byte()?;
        let (distance, length, next) = match (op, literals) {
            (0..=15, 0) => {
                let n = 3 + input.length(op, 15)?;
                out.literals(&mut input, n)?;
                literals = 4;
                continue;
            }
            (0..=15, _) => {
                let d = usize::from(op >> 2) + (usize::from(input.byte()?) << 2);
                if literals == 4 { (d + 2049, 3, op & 3) } else { (d + 1, 2, op & 3) }
            }
            (16..=31, _) => {
                // Checked before the length is read: the bytes of a long length may look like this, and compressors
                // must avoid them.
                if runs
                    && op & 8 != 0
                    && let [low, 0xFF, more, ..] = *input.bytes
                    && low & 0xFC == 0xFC
                {
                    input.take(3)?;
                    out.zeroes((usize::from(more) << 3 | usize::from(op & 7)) + MIN_RUN)?;
                    (0, 0, low & 3)
                } else {
                    let length = 2 + input.length(op & 7, 7)?;
                    let word = input.word()?;
                    let beyond = (usize::from(op & 8) << 11) + (word >> 2);
                    if beyond == 0 {
                        return end(&input, length).map(|()| out.len);
                    }
                    (FAR + beyond, length, (word & 3) as u8)
                }
            }
            (32..=63, _) => {
                let length = 2 + input.length(op & 31, 31)?;
                let word = input.word()?;
                ((word >> 2) + 1, length, (word & 3) as u8)
            }
            (64.., _) => {
                let d = usize::from(op >> 2 & 7) + (usize::from(input.byte()?) << 3);
                (d + 1, usize::from(op >> 5) + 1, op & 3)
            }
        };
        if length > 0 {
            out.repeat(distance, length)?;
        }
        out.literals(&mut input, next.into())?;
        literals = next;
    }
}

fn end(rest: &Input<'_>, length: usize) -> Result<(), LzoError> {
    if length != END_LENGTH {
        Err(LzoError::BadEnd)
    } else if rest.bytes.is_empty() {
        Ok(())
    } else {
        Err(LzoError::Trailing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(stream: &[u8], room: usize) -> Result<Vec<u8>, LzoError> {
        let mut out = vec![0xEE; room];
        decompress(stream, &mut out).map(|n| out[..n].to_vec())
    }

    #[test]
    fn an_empty_stream_is_an_end_mark() {
        assert_eq!(decode(&[0x11, 0, 0], 10), Ok(vec![]));
        assert_eq!(decode(&[], 10), Err(LzoError::InputOverrun));
        assert_eq!(decode(&[0x11, 0], 10), Err(LzoError::InputOverrun));
        assert_eq!(decode(&[0x11, 0, 0, 0], 10), Err(LzoError::Trailing));
        assert_eq!(decode(&[18, 9, 0x12, 0, 0], 10), Err(LzoError::BadEnd));
    }

    #[test]
    fn a_run_of_zeroes_exists_only_in_version_1() {
        // Literal "a", then a run of 4 + (2 << 3 | 5) zeroes and one literal "b", then the end.
        let body = [18, b'a', 0x1D, 0xFD, 0xFF, 2, b'b', 0x11, 0, 0];
        let mut want = vec![b'a'];
        want.resize(1 + 25, 0);
        want.push(b'b');
        assert_eq!(decode(&[&[17, 1][..], &body].concat(), 100), Ok(want));
        // In version 0 this is a copy from 49151 back.
        assert_eq!(decode(&body, 100), Err(LzoError::LookBehind));
        assert_eq!(decode(&[&[17, 0][..], &body].concat(), 100), Err(LzoError::LookBehind));
        assert_eq!(decode(&[&[17, 2][..], &body].concat(), 100), Err(LzoError::Version(2)));
    }

    #[test]
    fn short_copies_mean_different_things_after_few_and_many_literals() {
        // Three literals, then "copy 2 from 3 back".
        assert_eq!(decode(&[20, 1, 2, 3, 8, 0, 0x11, 0, 0], 9), Ok(vec![1, 2, 3, 1, 2]));
        // After four or more literals the same bytes reach 2049 bytes further.
        assert_eq!(decode(&[21, 1, 2, 3, 4, 8, 0, 0x11, 0, 0], 9), Err(LzoError::LookBehind));
    }

    #[test]
    fn a_copy_may_overlap_what_it_writes() {
        // "ab", then 10 bytes from 2 back.
        let stream = [19, b'a', b'b', 0x20 | 8, 4, 0, 0x11, 0, 0];
        assert_eq!(decode(&stream, 12), Ok(b"abababababab".to_vec()));
        assert_eq!(decode(&stream, 11), Err(LzoError::OutputOverrun));
    }
}
