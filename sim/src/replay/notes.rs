//! What is reported about a recording besides its cost? Each note is a line of text.

use trace::requests::Requests;
use trace::stacks::LeftOut;
use trace::timing::Timing;

use crate::traces::requeued::{DISCARDS, TOLD_AGAIN};
use crate::words;

/// A time, from nanoseconds, in plain letters.
fn time(nanos: u64) -> String {
    words::time(nanos).replace('µ', "u")
}

/// Properties of a recording's times that affect its numbers.
pub fn of_timing(t: &Timing) -> Vec<String> {
    let mut all = Vec::new();
    if t.before > 0 {
        all.push(format!("{} before the session skipped", t.before));
    }
    if t.after > 0 {
        all.push(format!("{} after the session skipped", t.after));
    }
    if t.opened_before > 0 {
        all.push(format!(
            "{} files were opened before the session; they are opened at their first use",
            t.opened_before
        ));
    }
    if let (Some(each), 1..) = (t.pause_counts_ns, t.pauses) {
        all.push(format!("{} pauses, {} in total, shortened to {} each", t.pauses, time(t.pauses_ns), time(each)));
    }
    if t.late > 0 {
        all.push(format!("{} events out of time order, by {} at most", t.late, time(t.late_ns)));
    }
    all
}

/// The devices left out so that no request counts twice.
pub fn of_left_out(left_out: &[LeftOut]) -> Vec<String> {
    let note = |l: &LeftOut| format!("{} requests of {} skipped: it {}", l.count, l.device, l.reason());
    left_out.iter().filter(|l| l.has_requests()).map(note).collect()
}

/// Invalid lines, duplicate requests, and requests recorded as another kind; none for most recordings.
pub fn of_cleared(requests: &Requests) -> Vec<String> {
    let texts = [(TOLD_AGAIN, "duplicate requests skipped"), (DISCARDS, "discards marked as reads corrected")];
    let counted = |(key, text): (&str, &str)| requests.other_counts().get(key).map(|n| format!("{n} {text}"));
    trace::invalid_lines(requests.other_counts()).into_iter().chain(texts.into_iter().filter_map(counted)).collect()
}
