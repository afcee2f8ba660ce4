//! How answers and failures are printed.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::hidden::{escape, is_hidden};
use crate::schema;

/// Prints a failure as one line, or as a JSON object with `error`.
pub fn failure(text: &str, as_json: bool) {
    if as_json {
        put(&schema::error(text));
    }
    if !as_json || LOST.get().is_some() {
        warn(text);
    }
}

/// Prints a one-line warning on standard error.
pub fn warn(text: &str) {
    aside(&format!("joulefs: {}", plain(text)));
}

/// Prints lines on standard error.
pub fn aside(text: &str) {
    // If standard error is closed, the message is dropped.
    let _ = writeln!(std::io::stderr(), "{}", shown(text));
}

/// Prints a JSON value on standard output, with its schema.
pub fn print(value: &Value) {
    put(&schema::text(value));
}

/// The first failure to print.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints a line on standard output. If the reader has closed the pipe (`joulefs ls ... | head`), the program continues
/// silently, so that it leaves volumes clean. It also continues after any other output error; [`lost`] reports that
/// error at the end.
pub fn line(text: &str) {
    put(&escaped(text, |c| c != '\t'));
}

/// Like [`line()`], for several lines whose names are already [`plain`]: a table.
pub fn lines(text: &str) {
    put(&shown(text));
}

fn put(text: &str) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => _ = LOST.set(e.to_string()),
        _ => {}
    }
}

/// The failure of a command whose output could not be printed.
pub fn lost() -> Option<crate::Failure> {
    LOST.get().map(|why| format!("standard output: {why}").into())
}

/// Prints the result as JSON only. For people, silence means success.
pub fn done(as_json: bool, what: &Value) {
    if as_json {
        print(what);
    }
}

fn escaped(text: &str, also: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && also(c) { escape(c, &mut out) } else { out.push(c) }
    }
    out
}

/// Escapes a name, label or other text from an image or a file for printing. Hidden characters become escapes (`\x1b`,
/// `\n`, `\u{202e}`), so that the text stays on its line and moves no cursor.
pub fn plain(name: &str) -> String {
    escaped(name, |_| true)
}

/// Like [`plain`], for bytes that may not be valid text.
pub fn name(bytes: &[u8]) -> String {
    plain(&String::from_utf8_lossy(bytes))
}

/// Final filter for every line before it reaches a terminal. Only line ends and tabs pass unescaped.
pub fn shown(text: &str) -> String {
    escaped(text, |c| c != '\n' && c != '\t')
}

/// Wraps a text at `columns` columns; every line but the first is indented by `indent` blanks.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let mut out = String::new();
    let mut at = indent;
    for word in text.split(' ') {
        let width = word.width();
        if at > indent && at + 1 + width > columns {
            out += &format!("\n{:indent$}", "");
            at = indent;
        } else if at > indent {
            out.push(' ');
            at += 1;
        }
        out += word;
        at += width;
    }
    out
}

/// Formats a byte count for people.
pub fn bytes(n: u64) -> String {
    sim::words::bytes(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden::shown_json;

    const NASTY: &str =
        "a\u{1b}[31mb\u{7}c\u{9b}2Jd\u{202e}e\u{2066}f\u{7f}g\r\u{2028}\t\n\u{200e}\u{200b}\u{2060}\u{feff}z";

    #[test]
    fn what_is_hidden_is_written_out_and_what_is_shown_stays() {
        let escaped = "a\\x1b[31mb\\x07c\\u{9b}2Jd\\u{202e}e\\u{2066}f\\x7fg\\r\\u{2028}\\t\\n\\u{200e}\\u{200b}\\u{2060}\\u{feff}z";
        assert_eq!(plain(NASTY), escaped);
        assert_eq!(plain(escaped), escaped);
        let letters = "photo \u{76f8}\u{7247}, e\u{301}, \u{5e9}\u{5dc}, a\\b, \u{1f468}\u{1f3fd}, \u{2764}\u{fe0f}";
        assert_eq!((plain(letters), shown(letters)), (letters.into(), letters.into()));
        assert_eq!(shown("a\tb\n\u{1b}c"), "a\tb\n\\x1bc");
        assert_eq!(name(b"\x1b\xff"), "\\x1b\u{fffd}");
    }

    #[test]
    fn json_says_the_same_and_hides_nothing() {
        for text in [serde_json::to_string(NASTY).unwrap(), serde_json::to_string_pretty(&[NASTY]).unwrap()] {
            let shown = shown_json(&text);
            assert!(!shown.chars().any(|c| is_hidden(c) && c != '\n'), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}
