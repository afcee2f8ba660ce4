//! What are a call's arguments and result?
//!
//! Arguments are split at commas outside of strings, structures, comments and the descriptor annotations of `-y`.

use std::borrow::Cow;

use crate::read::decimal::number;

/// Most arguments parsed; no relevant call has more.
const MOST: usize = 8;

/// A complete call.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) name: &'a [u8],
    list: [&'a [u8]; MOST],
    pub(super) result: Returned<'a>,
    /// Nanoseconds.
    pub(super) took: Option<u64>,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Returned<'a> {
    /// Success: the number, and the text after it.
    Value(i64, &'a [u8]),
    /// -1: the name of the error.
    Failed(&'a [u8]),
    /// It did not return, or will be restarted.
    Nothing,
}

/// A descriptor, with the path or other name shown by `-y`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor<'a> {
    /// `None` is `AT_FDCWD`.
    pub(super) number: Option<i32>,
    pub(super) shown: Option<&'a [u8]>,
}

/// The end of a string whose opening quotation mark is at `text[at]`: the position after the closing one.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The end of an annotation of `-y` that begins with `<` at `text[at]`; `None` if it is something else.
fn shown_end(text: &[u8], at: usize) -> Option<usize> {
    if !text[..at].last().is_some_and(|b| b.is_ascii_alphanumeric())
        || matches!(text.get(at + 1), Some(b'<' | b' ' | b'='))
    {
        return None;
    }
    let mut end = at;
    loop {
        end += memchr::memchr(b'>', text.get(end..)?)? + 1;
        if matches!(text.get(end), None | Some(b',' | b')' | b' ' | b']' | b'}' | b'(' | b'=')) {
            return Some(end);
        }
    }
}

/// Splits a list or structure, without its brackets, at its commas. `None` if a bracket or string is not closed.
pub(super) fn parts(text: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut all, mut at, mut from, mut depth) = (Vec::new(), 0, 0, 0_u32);
    while let Some(b) = text.get(at) {
        match b {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                all.push(text[from..at].trim_ascii());
                from = at + 1;
            }
            b'<' => {
                if let Some(end) = shown_end(text, at) {
                    at = end;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if !text[from..].trim_ascii().is_empty() {
        all.push(text[from..].trim_ascii());
    }
    (depth == 0).then_some(all)
}

/// A field of a split structure.
pub(super) fn field<'a>(parts: &[&'a [u8]], name: &[u8]) -> Option<&'a [u8]> {
    parts.iter().find_map(|part| part.strip_prefix(name)?.strip_prefix(b"="))
}

/// The name of a call.
pub(super) fn name(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(b'(', text).unwrap_or(text.len())]
}

/// Splits a call, from its name on. `None` if it is incomplete.
pub(super) fn call(text: &[u8]) -> Option<Call<'_>> {
    let name = name(text);
    let mut at = name.len() + 1;
    let (mut list, mut n, mut from, mut depth) = ([&[][..]; MOST], 0, at, 0_u32);
    let rest = loop {
        match *text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                if let Some(last) = list.get_mut(n) {
                    *last = text[from..at].trim_ascii();
                }
                break &text[at + 1..];
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                if let Some(next) = list.get_mut(n) {
                    *next = text[from..at].trim_ascii();
                }
                n += 1;
                from = at + 1;
            }
            b'<' => {
                if let Some(end) = shown_end(text, at) {
                    at = end;
                    continue;
                }
            }
            b'/' if text.get(at + 1) == Some(&b'*') => {
                at += memchr::memmem::find(&text[at..], b"*/")? + 2;
                continue;
            }
            _ => {}
        }
        at += 1;
    };
    let (result, took) = result(rest)?;
    Some(Call { name, list, result, took })
}

/// `= 3</path> <0.000012>`, `= -1 ENOENT (No such file or directory)`, `= ?`.
fn result(rest: &[u8]) -> Option<(Returned<'_>, Option<u64>)> {
    let mut rest = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let mut took = None;
    if let Some(open) = memchr::memrchr(b'<', rest)
        && rest.ends_with(b">")
        && let Some(time) = crate::read::decimal::nanoseconds(&rest[open + 1..rest.len() - 1])
    {
        took = Some(time);
        rest = rest[..open].trim_ascii_end();
    }
    let end = rest.iter().position(|b| matches!(b, b' ' | b'<')).unwrap_or(rest.len());
    let (value, behind) = rest.split_at(end);
    let returned = if value == b"?" {
        Returned::Nothing
    } else if value == b"-1" {
        let error = behind.trim_ascii_start();
        let end = error.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(error.len());
        Returned::Failed(&error[..end])
    } else if let Some(hex) = value.strip_prefix(b"0x") {
        // An address; its value is not used.
        Returned::Value(i64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).unwrap_or(i64::MAX), behind)
    } else if let Some(below) = value.strip_prefix(b"-") {
        number(below)?;
        Returned::Failed(value)
    } else {
        Returned::Value(i64::try_from(number(value)?).unwrap_or(i64::MAX), behind)
    };
    Some((returned, took))
}

impl<'a> Call<'a> {
    /// An argument's text; empty if missing.
    pub(super) fn text(&self, n: usize) -> &'a [u8] {
        self.list.get(n).copied().unwrap_or_default()
    }

    /// An argument as a number.
    pub(super) fn number(&self, n: usize) -> Option<u64> {
        number(self.text(n))
    }

    /// An argument as a descriptor.
    pub(super) fn descriptor(&self, n: usize) -> Option<Descriptor<'a>> {
        descriptor(self.text(n))
    }

    /// An argument as a string, as it was in memory.
    pub(super) fn string(&self, n: usize) -> Option<Cow<'a, [u8]>> {
        string(self.text(n))
    }

    /// True if an argument has this flag.
    pub(super) fn has(&self, n: usize, flag: &[u8]) -> bool {
        self.text(n).split(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).any(|f| f == flag)
    }

    /// The number behind a pointer before the call: `[8192]`, `[0] => [4096]`; `None` for `NULL`.
    pub(super) fn pointed(&self, n: usize) -> Option<u64> {
        let inner = self.text(n).strip_prefix(b"[")?;
        number(&inner[..memchr::memchr(b']', inner)?])
    }

    /// Two descriptors in brackets.
    pub(super) fn pair(&self, n: usize) -> Option<[Descriptor<'a>; 2]> {
        let inner = self.text(n).strip_prefix(b"[")?.strip_suffix(b"]")?;
        let comma = memchr::memmem::find(inner, b", ")?;
        Some([descriptor(&inner[..comma])?, descriptor(&inner[comma + 2..])?])
    }
}

/// `3`, `3</path>`, `AT_FDCWD</path>`.
pub(super) fn descriptor(text: &[u8]) -> Option<Descriptor<'_>> {
    let end = memchr::memchr(b'<', text).unwrap_or(text.len());
    let number = match &text[..end] {
        b"AT_FDCWD" | b"-100" => None,
        digits => Some(number(digits).and_then(|n| i32::try_from(n).ok())?),
    };
    let shown = text.get(end + 1..).and_then(|rest| {
        // `</dev/pts/1<char 136:1>>`, `</tmp/x>(deleted)`.
        Some(&rest[..rest.iter().position(|b| matches!(b, b'<' | b'>'))?])
    });
    Some(Descriptor { number, shown })
}

/// A string as it was in memory; text that strace left out (`"abc"...`) is missing.
pub(super) fn string(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if text.first() != Some(&b'"') {
        return None;
    }
    let end = string_end(text, 0)?;
    Some(unescaped(&text[1..end - 1]))
}

/// Undoes C escapes: letters, one to three octal digits, `x` and two digits.
pub(super) fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(b) = text.get(at) {
        at += 1;
        if *b != b'\\' {
            out.push(*b);
            continue;
        }
        let Some(letter) = text.get(at) else { break };
        at += 1;
        let mut number = |base: u32, most: usize, first: u32| {
            let mut value = first;
            for _ in 0..most {
                let Some(digit) = text.get(at).and_then(|b| char::from(*b).to_digit(base)) else { break };
                value = value * base + digit;
                at += 1;
            }
            value as u8
        };
        out.push(match letter {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'0'..=b'7' => number(8, 2, u32::from(letter - b'0')),
            b'x' => number(16, 2, 0),
            other => *other,
        });
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &'static str) -> Vec<&'static str> {
        let call = call(text.as_bytes()).unwrap();
        call.list.iter().take_while(|t| !t.is_empty()).map(|t| std::str::from_utf8(t).unwrap()).collect()
    }

    #[test]
    fn commas_inside_of_something_cut_nothing() {
        assert_eq!(
            texts(r#"write(1</tmp/a(b,c)>, "x\", \", 1)\n"..., 9) = 9"#),
            ["1</tmp/a(b,c)>", r#""x\", \", 1)\n"..."#, "9"]
        );
        assert_eq!(texts("writev(3, [{iov_base=\"a,b\", iov_len=3}, {iov_base=\"\", iov_len=0}], 2) = 3").len(), 3);
        assert_eq!(texts("execve(\"/a\", [\"b\", \"c\"], 0x7f /* 35, vars) */) = 0").len(), 3);
        assert_eq!(texts("f(0x1 /* 1<<0 */, 1<<2, {a=1<<3, b}) = 0").len(), 3);
        assert_eq!(
            texts("read(3<TCP:[127.0.0.1:80->127.0.0.1:99]>, \"\", 5) = 0")[0],
            "3<TCP:[127.0.0.1:80->127.0.0.1:99]>"
        );
        assert_eq!(texts("sync() = 0").len(), 0);
        assert!(call(b"read(3, \"abc").is_none() && call(b"read(3, 4").is_none() && call(b"read(3]) = 0").is_none());
    }

    #[test]
    fn lists_and_structures_are_cut_as_arguments_are() {
        let cut = |t: &'static str| {
            let all = parts(t.as_bytes())?;
            Some(all.into_iter().map(|p| std::str::from_utf8(p).unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(cut("{a=1, b=\"},{\"...}, {c=[1, 2], d=3</tmp/a,b>}").unwrap().len(), 2);
        let fields = parts(b"a=1, ab=[{x=2, a=3}], b=4</x>").unwrap();
        assert_eq!(
            ["a", "ab", "b", "x"].map(|n| field(&fields, n.as_bytes())),
            [Some(&b"1"[..]), Some(b"[{x=2, a=3}]"), Some(b"4</x>"), None]
        );
        assert_eq!(cut(""), Some(vec![]));
        assert!(cut("{a").is_none() && cut("a}").is_none() && cut("\"a").is_none());
    }

    #[test]
    fn results_are_numbers_errors_or_nothing() {
        let result = |t: &'static str| {
            let call = call(t.as_bytes()).unwrap();
            (call.result, call.took)
        };
        assert_eq!(result("close(3)        = 0 <0.000025>"), (Returned::Value(0, b""), Some(25_000)));
        assert_eq!(result("open(\"a\", 0) = 3</tmp/a> <1.5>"), (Returned::Value(3, b"</tmp/a>"), Some(1_500_000_000)));
        assert_eq!(
            result("access(\"a\", 0) = -1 ENOENT (No such file or directory)"),
            (Returned::Failed(b"ENOENT"), None)
        );
        assert_eq!(result("exit_group(0) = ?"), (Returned::Nothing, None));
        assert_eq!(
            result("read(0, 0x1, 2) = ? ERESTARTSYS (To be restarted) <0.1>"),
            (Returned::Nothing, Some(100_000_000))
        );
        assert_eq!(
            result("fcntl(3, F_GETFD) = 0x1 (flags FD_CLOEXEC)"),
            (Returned::Value(1, b" (flags FD_CLOEXEC)"), None)
        );
        assert!(call(b"close(3)").is_none() && call(b"close(3) = x").is_none() && call(b"close(3) =").is_none());
    }

    #[test]
    fn descriptors_may_show_what_they_are() {
        let of = |text: &'static str| descriptor(text.as_bytes()).map(|d| (d.number, d.shown));
        assert_eq!(of("3"), Some((Some(3), None)));
        assert_eq!(of("3</tmp/x>(deleted)"), Some((Some(3), Some(&b"/tmp/x"[..]))));
        assert_eq!(of("1</dev/pts/1<char 136:1>>"), Some((Some(1), Some(&b"/dev/pts/1"[..]))));
        assert_eq!(of("AT_FDCWD</tmp>"), Some((None, Some(&b"/tmp"[..]))));
        assert_eq!(of("-1"), None);
    }

    #[test]
    fn strings_are_what_they_were_in_memory() {
        for (text, expected) in [
            (r#""plain""#, &b"plain"[..]),
            (r#""a\n\t\"\\b""#, b"a\n\t\"\\b"),
            (r#""\0\1019\3777""#, b"\0A9\xff7"),
            (r#""\x41\x7e"..."#, b"A~"),
        ] {
            assert_eq!(string(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(string(b"NULL"), None);
        assert_eq!(string(b"\"open"), None);
    }
}
