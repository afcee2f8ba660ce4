//! A progress bar for work that takes over a second, on a terminal.

use std::io::IsTerminal;
use std::sync::LazyLock;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `bytes` bytes. Nothing is drawn in the first second, or without a terminal.
pub fn bytes(bytes: u64, what: &str) -> ProgressBar {
    bar(bytes, what, "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}")
}

/// A bar over `steps` steps.
pub fn steps(steps: u64, what: &str) -> ProgressBar {
    bar(steps, what, "{msg} [{bar:30}] {percent}% {eta}")
}

fn bar(len: u64, what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr_with_hz(10));
    // OK to unwrap: both templates above are constants that parse.
    bar.set_style(ProgressStyle::with_template(template).unwrap().progress_chars("=> "));
    bar.set_message(what.to_owned());
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar
}

/// Shows the bar after one second of work.
pub fn show_if_slow(bar: &ProgressBar) {
    // Cached: copying a million files gets here a million times.
    static ON_A_TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stderr().is_terminal());
    if *ON_A_TERMINAL && bar.is_hidden() && bar.elapsed() > Duration::from_secs(1) {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    }
}
