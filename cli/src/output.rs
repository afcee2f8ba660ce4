//! How answers and failures are printed.

use std::io::Write;

use serde_json::{Value, json};

/// Prints a failure: one line, or an object with `error`.
pub fn failure(text: &str, as_json: bool) {
    if as_json {
        print(&json!({ "error": text }));
    } else {
        eprintln!("joulefs: {text}");
    }
}

/// Prints a JSON value on standard output.
pub fn print(value: &Value) {
    line(&format!("{value:#}"));
}

/// Prints a line on standard output. A reader that went away (`joulefs ls ... | head`) wants no more:
/// the program goes on to leave volumes clean, in silence.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints what was done, for machines only: people see it by there being no complaint.
pub fn done(as_json: bool, what: &Value) {
    if as_json {
        print(what);
    }
}

/// A name from somebody else's file, without what would move a terminal's cursor.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Bytes as people write them.
pub fn bytes(n: u64) -> String {
    lab::report::words::bytes(n)
}
