//! How answers and failures are printed.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use serde_json::{Value, json};

/// Prints a failure: one line, or an object with `error`.
pub fn failure(text: &str, as_json: bool) {
    if as_json {
        print(&json!({ "error": text }));
    }
    if !as_json || LOST.get().is_some() {
        eprintln!("joulefs: {text}");
    }
}

/// Prints a JSON value on standard output.
pub fn print(value: &Value) {
    line(&format!("{value:#}"));
}

/// Why something was not printed.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints a line on standard output. A reader that went away (`joulefs ls ... | head`) wants no more:
/// the program goes on to leave volumes clean, in silence. So it does where nothing can be written, which [`lost`] says
/// at the end.
pub fn line(text: &str) {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => _ = LOST.set(e.to_string()),
        _ => {}
    }
}

/// A failure if something could not be printed that somebody waits for.
pub fn lost() -> Option<crate::Failure> {
    LOST.get().map(|why| format!("standard output: {why}").into())
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
