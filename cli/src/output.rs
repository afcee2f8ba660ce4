//! How answers and failures are printed.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::schema;

/// Prints a failure: one line, or an object with `error`.
pub fn failure(text: &str, as_json: bool) {
    if as_json {
        line(&schema::error(text));
    }
    if !as_json || LOST.get().is_some() {
        eprintln!("joulefs: {text}");
    }
}

/// Prints a JSON value on standard output, with its schema.
pub fn print(value: &Value) {
    line(&schema::text(value));
}

/// The first failure to print.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints a line on standard output. If the reader has closed the pipe (`joulefs ls ... | head`), the program goes on in
/// silence, so that it leaves volumes clean. After any other failure to print it goes on too, and [`lost`] tells at the
/// end.
pub fn line(text: &str) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => _ = LOST.set(e.to_string()),
        _ => {}
    }
}

/// The failure of a command whose output could not be printed.
pub fn lost() -> Option<crate::Failure> {
    LOST.get().map(|why| format!("standard output: {why}").into())
}

/// Prints what was done, for machines only: a person sees success by the absence of a failure.
pub fn done(as_json: bool, what: &Value) {
    if as_json {
        print(what);
    }
}

/// A name from somebody else's file, without what would move a terminal's cursor.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A text in lines of at most so many columns, of which each but the first begins with so many blanks.
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

/// Bytes as people write them.
pub fn bytes(n: u64) -> String {
    lab::report::words::bytes(n)
}
