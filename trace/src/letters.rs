//! Which letters does Linux use for a request and its flags? `R`, `WS`, `FWFSM`, `DS`...
//!
//! First `F` for a flush before the request, then the operation (`R`, `W`, `D`, `N` for none; `DE`, `WZ`, `Z` and one
//! more for zones, and another `F` for a flush in newer kernels), then `F` for FUA, `A` for read-ahead, `S`, `M`.

use crate::block::{Flags, Op};

/// Corrects the categories of an event. A write without sectors and with a preflush is a flush; an event without
/// sectors and operation is irrelevant.
pub(crate) fn judged(op: Op, mut flags: Flags, sectors: u64) -> (Op, Flags) {
    if sectors == 0 && flags.contains(Flags::PREFLUSH) && op != Op::Discard {
        flags.remove(Flags::PREFLUSH);
        return (Op::Flush, flags);
    }
    (op, flags)
}

/// Parses the letters of a request with `sectors`; `None` if they are invalid.
pub(crate) fn read(letters: &[u8], sectors: u64) -> Option<(Op, Flags)> {
    let mut flags = Flags::empty();
    let mut rest = letters;
    if let [b'F', after @ ..] = rest
        && !after.is_empty()
    {
        flags |= Flags::PREFLUSH;
        rest = after;
    }
    let (op, rest) = match rest {
        [b'D', b'E', rest @ ..] => (Op::SecureErase, rest),
        [b'W', b'Z', rest @ ..] => (Op::WriteZeroes, rest),
        [b'Z', b'A', rest @ ..] => (Op::Write, rest),
        [b'Z', b'R', b'A', rest @ ..] | [b'Z', b'R' | b'F' | b'O' | b'C', rest @ ..] => (Op::Other, rest),
        [b'R', rest @ ..] => (Op::Read, rest),
        [b'W', rest @ ..] => (Op::Write, rest),
        [b'D', rest @ ..] => (Op::Discard, rest),
        [b'N', rest @ ..] => (Op::Other, rest),
        [b'F', rest @ ..] => {
            flags |= Flags::PREFLUSH;
            (Op::Other, rest)
        }
        _ => return None,
    };
    for letter in rest {
        flags |= match letter {
            b'F' => Flags::FUA,
            b'A' => Flags::AHEAD,
            b'S' => Flags::SYNC,
            b'M' => Flags::META,
            // Barriers of kernels before 2.6.37.
            b'B' => Flags::PREFLUSH,
            // An atomic write.
            b'U' => Flags::empty(),
            _ => return None,
        };
    }
    Some(judged(op, flags, sectors))
}

/// The letters of a request, readable by [`read`].
pub(crate) fn write(op: Op, flags: Flags, out: &mut Vec<u8>) {
    if op == Op::Flush || flags.contains(Flags::PREFLUSH) {
        out.push(b'F');
    }
    out.extend_from_slice(match op {
        Op::Read => b"R",
        Op::Write => b"W",
        Op::Discard => b"D",
        Op::SecureErase => b"DE",
        Op::WriteZeroes => b"WZ",
        // A flush from above is an empty write; the block layer's own has no operation.
        Op::Flush if flags.contains(Flags::SYNC) => b"W",
        Op::Flush | Op::Other => b"N",
    });
    for (flag, letter) in [(Flags::FUA, b'F'), (Flags::AHEAD, b'A'), (Flags::SYNC, b'S'), (Flags::META, b'M')] {
        if flags.contains(flag) {
            out.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_mean_what_linux_means_by_them() {
        let said = |letters: &str, sectors| read(letters.as_bytes(), sectors);
        assert_eq!(said("R", 8), Some((Op::Read, Flags::empty())));
        assert_eq!(said("RA", 8), Some((Op::Read, Flags::AHEAD)));
        assert_eq!(said("WSM", 8), Some((Op::Write, Flags::SYNC | Flags::META)));
        assert_eq!(said("FWFS", 8), Some((Op::Write, Flags::PREFLUSH | Flags::FUA | Flags::SYNC)));
        assert_eq!(said("WFS", 8), Some((Op::Write, Flags::FUA | Flags::SYNC)));
        assert_eq!(said("FWS", 0), Some((Op::Flush, Flags::SYNC)));
        assert_eq!(said("FN", 0), Some((Op::Flush, Flags::empty())));
        assert_eq!(said("FF", 0), Some((Op::Flush, Flags::empty())));
        assert_eq!(said("DS", 8), Some((Op::Discard, Flags::SYNC)));
        assert_eq!(said("DE", 8), Some((Op::SecureErase, Flags::empty())));
        assert_eq!(said("N", 0), Some((Op::Other, Flags::empty())));
        assert_eq!(said("ZRA", 8), Some((Op::Other, Flags::empty())));
        assert_eq!(said("ZA", 8), Some((Op::Write, Flags::empty())));
        for strange in ["", "Q", "WQ", "Z", "WW"] {
            assert_eq!(said(strange, 8), None, "{strange}");
        }
    }

    #[test]
    fn written_letters_are_read_back_unchanged() {
        for op in Op::ALL {
            for flags in (0..32).map(Flags::from_bits_truncate) {
                let sectors = u64::from(op != Op::Flush) * 8;
                if op == Op::Flush && flags.contains(Flags::PREFLUSH) {
                    continue;
                }
                let mut letters = Vec::new();
                write(op, flags, &mut letters);
                assert_eq!(read(&letters, sectors), Some((op, flags)), "{}", String::from_utf8_lossy(&letters));
            }
        }
    }
}
