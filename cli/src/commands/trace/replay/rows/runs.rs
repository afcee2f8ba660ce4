//! A run in one row: its identity, its inputs, its cost, its events.

use std::path::Path;

use device::energy::{Component, Draws};
use serde_json::{Value, json};
use sim::replay::{Done, OnDevice};
use sim::traces;

use super::Run;
use crate::rows::cells::Cells;
use crate::rows::word;
use crate::{Failure, output, program};

/// The row.
pub fn cells(recording: &Path, run: &Run<'_>) -> Result<Cells, Failure> {
    let Run { point, known, outcome } = run;
    let mut row = Cells::new();
    let mut put = |name: &str, value: Value| row.push((name.to_owned(), value));
    put("run", json!(point.number));
    put("key", json!(known.key));
    put("name", json!(point.name()));
    put("control", json!(known.control));
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("build", json!(program::build()));
    put("recording", json!(recording.display().to_string()));
    put("recording_digest", json!(known.recording));
    put("kind", json!(if matches!(outcome.done, Done::Blocks(_)) { "blocks" } else { "calls" }));
    put("owners", json!(outcome.owners()));
    for (name, value) in &known.parameters {
        put(name, value.clone());
    }
    let (ledger, took) = (&outcome.run.ledger, outcome.run.took);
    put("total_pj", json!(ledger.total().0));
    let range = Draws::of(&outcome.profile, ledger).range();
    put("range_low_pj", json!(range.low.0));
    put("range_high_pj", json!(range.high.0));
    for component in Component::ALL {
        put(&format!("{}_pj", word(component)), json!(ledger.component(component).0));
    }
    let device_bytes = outcome.device_bytes();
    // Its energy in the same time if idle.
    let idle = traces::idle(&outcome.profile, device_bytes / 4096, took).map_err(|e| e.to_string())?;
    put("idle_pj", json!(idle.0));
    put("time_ns", json!(took));
    put("recorded_ns", json!(outcome.recorded()));
    put("device_bytes", json!(device_bytes));
    match &outcome.done {
        Done::Blocks(OnDevice { done, plan, .. }) => {
            put("recorded_device", json!(plan.of.to_string()));
            put("requests", json!(done.requests));
            put("read_bytes", json!(done.read));
            put("written_bytes", json!(done.written));
            put("of_others", json!(done.of_others));
            put("left_out", json!(done.left_out));
            put("failed", json!(done.failed));
            put("assumed_flushes", json!(done.assumed_flushes));
            put("most_at_once", json!(done.most_at_once));
            put("queued_at_most", json!(done.queue));
        }
        Done::Calls(done) => {
            let (all, calls) = (done.counts.total(), &done.calls);
            put("calls", json!(calls.calls));
            put("read_bytes", json!(calls.read));
            put("written_bytes", json!(calls.written));
            put("generated_bytes", json!(calls.generated));
            put("left_out", json!(calls.left_out));
            put("failed", json!(calls.failed));
            put("blocks_read", json!(all.blocks_read));
            put("blocks_written", json!(all.blocks_written));
            put("flushes", json!(all.flushes));
            put("deltas", json!(done.deltas));
            put("sections_cleaned", json!(done.cleaned.sections));
            put("sections_cleaned_while_waited_for", json!(done.cleaned.waited_for));
            put("blocks_moved", json!(done.cleaned.moved));
            put("free_segments_held", json!(done.free_segments));
            put("began_full", json!(done.began.full));
            put("began_free_segments", json!(done.began.free_segments));
            put("began_waits_for_age", json!(done.began.waits_for_age));
        }
    }
    put("write_amplification_of_file_system", json!(outcome.amplification_above()));
    put("write_amplification_of_device", json!(outcome.amplification_inside()));
    for (name, count) in &outcome.run.counters {
        put(&format!("model_{name}"), json!(count));
    }
    put("said", json!((!outcome.notes.is_empty()).then(|| outcome.notes.join("\n"))));
    put("damage", json!(outcome.damage().map(|e| output::plain(&e.to_string()))));
    Ok(row)
}
