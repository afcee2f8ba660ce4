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
    // A reader that went away wants no more.
    let _ = writeln!(std::io::stdout(), "{value:#}");
}

/// Bytes as people write them.
pub fn bytes(n: u64) -> String {
    indicatif::BinaryBytes(n).to_string()
}
