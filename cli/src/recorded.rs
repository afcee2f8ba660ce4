//! Progress bars over recordings by other programs, and what is reported about a replay of calls.

use std::process::ExitCode;

use indicatif::ProgressBar;
use record::calls::Prepared;
use sim::replay::{Job, Progress, Total};
use trace::TraceError;

use crate::{output, progress};

/// Whether a replay of calls wrote the programs' real data, in one line.
pub fn contents_of(before: &Prepared, written: u64, generated: u64) -> String {
    let bytes = output::bytes;
    let written = match (written, generated) {
        (0, _) => String::new(),
        (_, 0) => "contents: as recorded".into(),
        (all, some) if all == some => "contents: generated, since the recording has none; results that depend on \
            contents (deltas, compression) mean nothing"
            .into(),
        (_, some) => format!("contents: as recorded, but for {} that are generated", bytes(some)),
    };
    let there = match (before.files, before.generated) {
        (0, _) => String::new(),
        (files, 0) => format!("{files} files were created before, with their recorded contents"),
        (files, some) => format!("{files} files were created before, with {} of generated contents", bytes(some)),
    };
    let both: Vec<_> = [written, there].into_iter().filter(|part| !part.is_empty()).collect();
    both.join("; ")
}

/// The exit code of a command that read a recording up to a damaged place. Prints the damage, unless the JSON value
/// contains it.
pub fn end(damage: Option<&TraceError>, as_json: bool) -> ExitCode {
    let Some(e) = damage else { return ExitCode::SUCCESS };
    if !as_json {
        output::failure(&e.to_string(), false);
    }
    ExitCode::FAILURE
}

/// A progress bar over the bytes of a recording, and the function that moves it.
pub fn bar(length: u64, what: &str) -> (ProgressBar, impl Fn(u64) + use<>) {
    let bar = progress::bytes(length, what);
    let moved = bar.clone();
    (bar, move |at| {
        moved.set_position(at);
        progress::show_if_slow(&moved);
    })
}

/// Shows progress as bars.
pub struct Bars;

impl Progress for Bars {
    fn begin(&self, what: &str, total: Total) -> Box<dyn Job + '_> {
        Box::new(Bar(match total {
            Total::Bytes(n) => progress::bytes(n, what),
            Total::Steps(n) => progress::steps(n, what),
        }))
    }
}

/// A bar that disappears when it is dropped.
struct Bar(ProgressBar);

impl Job for Bar {
    fn add(&self, more: u64) {
        self.0.inc(more);
        progress::show_if_slow(&self.0);
    }

    fn name(&self, step: &str) {
        self.0.set_message(step.to_owned());
        progress::show_if_slow(&self.0);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
