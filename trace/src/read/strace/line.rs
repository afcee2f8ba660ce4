//! What is in one line of strace's output?
//!
//! `[PID] TIME [NUMBER] [POINTER] NAME(ARGUMENTS) = RESULT <TOOK>`. PID is bare, or `[pid N]`, or missing; with `-Y` the
//! command follows it, `N<command>`. The number of the call (`-n`) and the instruction pointer (`-i`) are ignored. TIME is seconds (`-ttt`) or the
//! time of day (`-t`, `-tt`), optionally followed by the time since the previous line, or only the latter (`-r`). With
//! `-r` the part before the point has six places, so below a day there are leading spaces, which distinguish it from
//! `-ttt`. A call interrupted by another thread's line has two lines, `<unfinished ...>` and `<... NAME resumed>`.

use crate::read::decimal::{nanoseconds, number, wrong};

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The thread, if the line has it.
    pub(super) pid: Option<u32>,
    /// Nanoseconds since 1970, or since midnight.
    pub(super) time: u64,
    /// True if `time` is since midnight.
    pub(super) of_day: bool,
    /// True if `time` is since the previous line, in the format of `-r`.
    pub(super) relative: bool,
    pub(super) what: What<'a>,
}

/// Type of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// A complete call: from its name to its result.
    Call(&'a [u8]),
    /// The beginning of a call.
    Unfinished(&'a [u8]),
    /// The name of a resumed call, and the rest of it.
    Resumed(&'a [u8], &'a [u8]),
    /// A signal.
    Signal,
    /// The thread has ended.
    Exit,
    /// The thread continues as this one, which called `execve`.
    Superseded(u32),
}

const UNFINISHED: &[u8] = b"<unfinished ...>";

/// A word, and the text after the spaces that follow it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(at) => (&text[..at], text[at..].trim_ascii_start()),
        None => (text, &[]),
    }
}

/// Messages of strace itself.
pub(super) fn is_notice(line: &[u8]) -> bool {
    line.starts_with(b"strace: ") || (line.starts_with(b"Process ") && line.ends_with(b"tached"))
}

fn time(text: &[u8]) -> Option<(u64, bool)> {
    if let [h0, h1, b':', m0, m1, b':', seconds @ ..] = text {
        let whole = number(&[*h0, *h1])?.checked_mul(60)?.checked_add(number(&[*m0, *m1])?)?;
        let passed = nanoseconds(seconds)?;
        return (whole < 24 * 60 && passed < 61_000_000_000).then(|| (whole * 60_000_000_000 + passed, true));
    }
    // Bare numbers are processes.
    memchr::memchr(b'.', text)?;
    Some((nanoseconds(text)?, false))
}

/// Parses a line; an error describes what is wrong.
pub(super) fn line(text: &[u8]) -> Result<Line<'_>, String> {
    let mut rest = text.trim_ascii_start();
    let mut pid = None;
    let as_pid = |text: &[u8]| number(text).and_then(|n| u32::try_from(n).ok());
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    // Column of a time that is not right-aligned.
    let mut left = 0;
    if let Some(inner) = rest.strip_prefix(b"[pid") {
        let named = memchr::memchr(b'<', inner).filter(|at| memchr::memchr(b']', &inner[..*at]).is_none());
        let from = named.map_or(Some(0), |at| command_end(&inner[at..], b"]").map(|end| at + end));
        let end = from.and_then(|from| memchr::memchr(b']', &inner[from..]).map(|end| from + end));
        let end = end.ok_or_else(|| wrong("the process", rest))?;
        let shown = inner[..named.unwrap_or(end)].trim_ascii();
        pid = Some(as_pid(shown).ok_or_else(|| wrong("the process", rest))?);
        rest = inner[end + 1..].trim_ascii_start();
        left = text.len() - inner.len() + end + 2;
    } else if rest.get(digits) == Some(&b'<')
        && let Some(n) = as_pid(&rest[..digits])
    {
        let end = command_end(&rest[digits..], b" ").ok_or_else(|| wrong("the process", rest))?;
        left = text.len() - rest.len() + (digits + end).max(5) + 1;
        (pid, rest) = (Some(n), rest[digits + end..].trim_ascii_start());
    } else if let (first, after) = word(rest)
        && let Some(n) = as_pid(first)
    {
        left = text.len() - rest.len() + first.len().max(5) + 1;
        (pid, rest) = (Some(n), after);
    }
    let moved = text.len() - rest.len() > left;
    let (stamp, mut rest) = word(rest);
    let (time, of_day) = time(stamp).ok_or_else(|| {
        if stamp.first().is_some_and(u8::is_ascii_digit) {
            wrong("the time", stamp)
        } else {
            "it has no time (-ttt)".into()
        }
    })?;
    // `(+     0.000123)`: an additional relative time.
    if let Some(since) = rest.strip_prefix(b"(+ ") {
        let end = memchr::memchr(b')', since).ok_or_else(|| wrong("the time", rest))?;
        rest = since[end + 1..].trim_ascii_start();
    }
    // `[  257]`, `[00007f6e2a1b]`, `[????????????????]`.
    while let Some(inner) = rest.strip_prefix(b"[")
        && let Some(end) = memchr::memchr(b']', inner)
        && inner[..end].iter().all(|b| b.is_ascii_hexdigit() || b" ?x".contains(b))
    {
        rest = inner[end + 1..].trim_ascii_start();
    }
    Ok(Line { pid, time, of_day, relative: moved && !of_day, what: what(rest)? })
}

/// The end of `<command>`, which `after` follows: a command may have any signs.
fn command_end(text: &[u8], after: &[u8]) -> Option<usize> {
    let end = [&b">"[..], after].concat();
    memchr::memmem::find(text, &end).map(|at| at + 1)
}

/// A line of a stack trace, which follows its call (`-k`).
pub(super) fn is_stack(line: &[u8]) -> bool {
    line.starts_with(b" > ")
}

fn what(rest: &[u8]) -> Result<What<'_>, String> {
    if let Some(inner) = rest.strip_prefix(b"<... ") {
        let at = memchr::memmem::find(inner, b" resumed>").ok_or_else(|| wrong("the call that is resumed", rest))?;
        return Ok(What::Resumed(&inner[..at], &inner[at + b" resumed>".len()..]));
    }
    if rest.starts_with(b"---") {
        return if rest.ends_with(b"---") { Ok(What::Signal) } else { Err(wrong("the signal", rest)) };
    }
    if let Some(inner) = rest.strip_prefix(b"+++") {
        let inner = inner.strip_suffix(b"+++").ok_or_else(|| wrong("the end of a process", rest))?.trim_ascii();
        return Ok(match inner.strip_prefix(b"superseded by execve in pid ") {
            Some(by) => {
                // A command may follow (`-Y`).
                let by =
                    number(&by[..memchr::memchr(b'<', by).unwrap_or(by.len())]).and_then(|n| u32::try_from(n).ok());
                What::Superseded(by.ok_or_else(|| wrong("the process", inner))?)
            }
            None => What::Exit,
        });
    }
    let name = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(rest.len());
    if name == 0 || rest.get(name) != Some(&b'(') {
        return Err(wrong("the call", rest));
    }
    if let Some(begun) = rest.strip_suffix(UNFINISHED) {
        return Ok(What::Unfinished(begun.trim_ascii_end()));
    }
    if rest.ends_with(b"<detached ...>") {
        return Ok(What::Unfinished(&rest[..rest.len() - b"<detached ...>".len()]));
    }
    Ok(What::Call(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_stands_bare_or_in_brackets_or_not_at_all() {
        for (text, pid) in [
            ("23081 1.5 close(3) = 0", Some(23081)),
            ("[pid   81] 1.5 close(3) = 0", Some(81)),
            ("1.5 close(3) = 0", None),
        ] {
            let call = What::Call(b"close(3) = 0");
            assert_eq!(
                line(text.as_bytes()),
                Ok(Line { pid, time: 1_500_000_000, of_day: false, relative: false, what: call }),
                "{text}"
            );
        }
        let day = line(b"7 01:02:03.000004 sync() = 0").unwrap();
        assert_eq!((day.time, day.of_day), (3_723_000_004_000, true));
    }

    #[test]
    fn commands_numbers_of_calls_and_pointers_are_left_out() {
        let call = What::Call(b"sync() = 0");
        for text in [
            "81<git> 1.5 sync() = 0",
            "81<Web Content> 1.5 sync() = 0",
            "[pid    81<a> b]>] 1.5 sync() = 0",
            "81 1.5 [ 162] sync() = 0",
            "81 1.5 [00007f6e2a1b3c4d] sync() = 0",
            "81<git> 1.5 [ 162] [????????????????] sync() = 0",
        ] {
            let read = line(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(
                (read.pid, read.time, read.relative, &read.what),
                (Some(81), 1_500_000_000, false, &call),
                "{text}"
            );
        }
        assert!(line(b"81<git>         1.500000 sync() = 0").unwrap().relative);
        assert!(line(b"81<git 1.5 sync() = 0").is_err() && line(b"[pid 81<git 1.5 sync() = 0").is_err());
    }

    #[test]
    fn a_time_since_the_line_before_is_moved_to_the_right_or_stands_in_brackets() {
        for text in
            ["23081      1.500000 sync() = 0", "81         1.500000 sync() = 0", "[pid 23081]      1.500000 sync() = 0"]
        {
            let line = line(text.as_bytes()).unwrap();
            assert_eq!((line.time, line.relative, line.of_day), (1_500_000_000, true, false), "{text}");
        }
        assert!(line(b"     1.500000 sync() = 0").unwrap().relative);
        for text in ["81    1795493105.5 sync() = 0", "[pid    81] 1.5 sync() = 0", "1.5 (+     0.000012) sync() = 0"] {
            let line = line(text.as_bytes()).unwrap();
            assert!(!line.relative && line.what == What::Call(b"sync() = 0"), "{text}");
        }
    }

    #[test]
    fn a_call_may_be_in_two_parts_and_a_process_may_end() {
        let what = |t: &'static str| line(t.as_bytes()).unwrap().what;
        assert_eq!(what("7 1.0 read(3,  <unfinished ...>"), What::Unfinished(b"read(3,"));
        assert_eq!(what("7 1.0 <... read resumed>\"a\", 1) = 1"), What::Resumed(b"read", b"\"a\", 1) = 1"));
        assert_eq!(what("7 1.0 --- SIGCHLD {si_signo=SIGCHLD} ---"), What::Signal);
        assert_eq!(what("7 1.0 +++ exited with 0 +++"), What::Exit);
        assert_eq!(what("7 1.0 +++ killed by SIGKILL (core dumped) +++"), What::Exit);
        assert_eq!(what("7 1.0 +++ superseded by execve in pid 9 +++"), What::Superseded(9));
        let quoted = "write(1, \"<unfinished ...>\", 16) = 16";
        assert_eq!(what("7 1.0 write(1, \"<unfinished ...>\", 16) = 16"), What::Call(quoted.as_bytes()));
    }

    #[test]
    fn a_line_without_time_or_call_is_none() {
        for text in
            ["", "7", "7 close(3) = 0", "close(3) = 0", "7 1.0", "7 1.0 close", "7 25:00:00 sync() = 0", "7 1.0 <... x"]
        {
            assert!(line(text.as_bytes()).is_err(), "{text}");
        }
    }
}
