//! How are the columns of a line parsed, up to the event?
//!
//! ```text
//!           mount-113     (    113) [001] d.h1.     5.793116: block_bio_queue: 254,0 R 0 + 8 [mount]
//! ```
//!
//! Process, thread group (if recorded), CPU, interrupt state (if shown), seconds, the event's name.

use crate::read::decimal::{nanoseconds, number, wrong};

/// A line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) process: &'a [u8],
    pub(super) pid: u32,
    pub(super) cpu: u32,
    /// Nanoseconds.
    pub(super) time: u64,
    /// `None`: a function call.
    pub(super) name: Option<&'a [u8]>,
    pub(super) arguments: &'a [u8],
}

/// Splits a line; an error describes what is wrong.
pub(super) fn line(text: &[u8]) -> Result<Line<'_>, String> {
    let mut from = 0;
    // A process name may contain anything: it ends where everything up to the CPU fits.
    let (process, pid, cpu, rest) = loop {
        let Some(bracket) = memchr::memchr(b'[', &text[from..]).map(|at| from + at) else {
            return Err("no processor like `[001]`".into());
        };
        if let Some(found) = processor(&text[bracket..])
            && let Some((process, pid)) = process(&text[..bracket])
        {
            break (process, pid, found.0, found.1);
        }
        from = bracket + 1;
    };
    let mut rest = rest.trim_ascii_start();
    let mut word = first(rest);
    if !word.ends_with(b":") {
        rest = rest[word.len()..].trim_ascii_start();
        word = first(rest);
    }
    let Some(seconds) = word.strip_suffix(b":") else { return Err(wrong("the time", word)) };
    if memchr::memchr(b'.', seconds).is_none() && number(seconds).is_some() {
        return Err(format!("{}; its trace_clock counts no seconds", wrong("the time", seconds)));
    }
    let time = nanoseconds(seconds).ok_or_else(|| wrong("the time", seconds))?;
    let said = rest[word.len()..].trim_ascii_start();
    let (name, arguments) = match said.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_') {
        Some(colon) if said[colon] == b':' && colon > 0 => (Some(&said[..colon]), said[colon + 1..].trim_ascii_start()),
        _ => (None, said),
    };
    Ok(Line { process, pid, cpu, time, name, arguments })
}

/// The text up to the first space.
fn first(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(b' ', text).unwrap_or(text.len())]
}

/// `[001] `, and the rest.
fn processor(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text[1..].iter().take(7).position(|b| !b.is_ascii_digit())?;
    let rest = text[1 + digits..].strip_prefix(b"] ")?;
    Some((u32::try_from(number(&text[1..=digits])?).ok()?, rest))
}

/// `name-pid`, with an optional `(thread group)`.
fn process(text: &[u8]) -> Option<(&[u8], u32)> {
    let mut text = text.trim_ascii_end();
    if let Some(open) = text.strip_suffix(b")").and_then(|t| t.iter().rposition(|b| *b == b'(')) {
        let group = text[open + 1..text.len() - 1].trim_ascii();
        if group.iter().all(u8::is_ascii_digit) || group.iter().all(|b| *b == b'-') {
            text = text[..open].trim_ascii_end();
        }
    }
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let name = text[..text.len() - digits].strip_suffix(b"-")?;
    Some((name.trim_ascii_start(), u32::try_from(number(&text[text.len() - digits..])?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, u32, u32, u64, String, String) {
        let l = line(text.as_bytes()).unwrap();
        let string = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
        (string(l.process), l.pid, l.cpu, l.time, string(l.name.unwrap_or_default()), string(l.arguments))
    }

    #[test]
    fn all_sorts_of_columns_are_understood() {
        let expected = |process: &str, pid, cpu, time| {
            (process.to_owned(), pid, cpu, time, "block_plug".to_owned(), "[dd]".to_owned())
        };
        for (text, e) in [
            (
                "              dd-113     [001] ...1.     5.793116: block_plug: [dd]",
                expected("dd", 113, 1, 5_793_116_000),
            ),
            ("dd-113 [001] 5.793116: block_plug: [dd]", expected("dd", 113, 1, 5_793_116_000)),
            (
                "              dd-113   [001]     5.793116789: block_plug:           [dd]",
                expected("dd", 113, 1, 5_793_116_789),
            ),
            ("dd-1 (-----) [012] d..3 5.000001: block_plug: [dd]", expected("dd", 1, 12, 5_000_001_000)),
            ("dd-1 (  113) [012] d..3 5.000001: block_plug: [dd]", expected("dd", 1, 12, 5_000_001_000)),
            ("a [1] b-c-2-1 [000] 0.1: block_plug: [dd]", expected("a [1] b-c-2", 1, 0, 100_000_000)),
            ("<...>-7 [000] 0.1: block_plug: [dd]", expected("<...>", 7, 0, 100_000_000)),
            ("kworker/u4:1 (x)-7 [000] 0.1: block_plug: [dd]", expected("kworker/u4:1 (x)", 7, 0, 100_000_000)),
        ] {
            assert_eq!(parsed(text), e, "{text}");
        }
    }

    #[test]
    fn an_invalid_line_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "processor"),
            ("8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]", "processor"),
            ("dd-1 [000]", "processor"),
            ("dd-1 [000] ", "time"),
            ("dd-1 [000] 5.79", "time"),
            ("dd-1 [000] 512334: block_plug: [dd]", "counts no seconds"),
            ("dd-1 [000] 5.x: block_plug: [dd]", "time"),
            ("dd-1 [000] 99999999999999999999.0: block_plug: [dd]", "time"),
        ] {
            let e = line(text.as_bytes()).unwrap_err();
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
