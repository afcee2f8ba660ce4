//! How does a number of the report get into the page?
//!
//! By its path in the report (a JSON pointer), formatted as the command prints it, in an element with both. So every
//! number in a table is the report's, which can be checked (`cli/tests/inspect_page/check.js`).

use device::energy::Energy;
use maud::{Markup, html};
use serde_json::Value;

use super::super::text;
use crate::joules::time;
use crate::output::{bytes, plain};

/// The report's numbers, as HTML elements.
pub struct Numbers<'a>(pub &'a Value);

impl Numbers<'_> {
    fn shown(&self, kind: &str, at: &str, text: &str) -> Markup {
        html! { span data-as=(kind) data-at=(at) { (text) } }
    }
    /// True if the report has a value there.
    pub fn has(&self, at: &str) -> bool {
        self.0.pointer(at).is_some_and(|v| !v.is_null())
    }
    /// A whole number; 0 if absent.
    pub fn number(&self, at: &str) -> u64 {
        self.0.pointer(at).and_then(Value::as_u64).unwrap_or(0)
    }
    fn real(&self, at: &str) -> f64 {
        self.0.pointer(at).and_then(Value::as_f64).unwrap_or(0.0)
    }
    /// A text.
    pub fn text(&self, at: &str) -> Markup {
        let text = self.0.pointer(at).and_then(Value::as_str).unwrap_or_default();
        html! { bdi data-text { (plain(text)) } }
    }
    /// A number unchanged, or a dash.
    pub fn count(&self, at: &str) -> Markup {
        let text = if self.has(at) { self.number(at).to_string() } else { "-".into() };
        self.shown("count", at, &text)
    }
    /// The number of reads after which a cost is recovered.
    pub fn reads(&self, at: &str) -> Markup {
        let text = if self.has(at) { self.number(at).to_string() } else { "never".into() };
        self.shown("reads", at, &text)
    }
    /// Bytes.
    pub fn bytes(&self, at: &str) -> Markup {
        self.shown("bytes", at, &bytes(self.number(at)))
    }
    /// Blocks of 4 KiB, as mebibytes.
    pub fn mebibytes(&self, at: &str) -> Markup {
        self.shown("mebibytes", at, &format!("{:.1}", self.number(at) as f64 / 256.0))
    }
    /// Picojoules.
    pub fn joules(&self, at: &str) -> Markup {
        self.shown("joules", at, &Energy(self.number(at)).to_string())
    }
    /// Nanoseconds.
    pub fn time(&self, at: &str) -> Markup {
        self.shown("time", at, &time(self.number(at)))
    }
    /// Nanoseconds of mounted time, in larger units.
    pub fn age(&self, at: &str) -> Markup {
        let text = if self.has(at) { text::age((self.real(at) / 1e9) as u64) } else { "-".into() };
        self.shown("age", at, &text)
    }
    /// A ratio, or a dash.
    pub fn ratio(&self, at: &str) -> Markup {
        let text = if self.has(at) { format!("{:.2}", self.real(at)) } else { "-".into() };
        self.shown("ratio", at, &text)
    }
    /// One number as a share of another.
    pub fn share(&self, part: &str, of: &str) -> Markup {
        let share = self.real(part) * 100.0 / self.real(of).max(1.0);
        self.shown("share", &format!("{part} {of}"), &format!("{share:.1} %"))
    }
    /// Blocks as a share of all blocks in `segments`.
    pub fn of_segments(&self, blocks: &str, segments: &str) -> Markup {
        let share = self.real(blocks) * 100.0 / (self.real(segments).max(1.0) * 512.0);
        self.shown("of_segments", &format!("{blocks} {segments}"), &format!("{share:.1} %"))
    }
}
