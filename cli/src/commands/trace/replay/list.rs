//! Which runs would be made? `--list` prints them.

use std::path::Path;

use serde_json::{Value, json};
use sim::replay::{Known, Point};

use crate::output;

/// Name and version of the schema.
const SCHEMA: (&str, u32) = ("joulefs-replay-runs", 1);

/// Prints the runs of a recording.
pub fn print(recording: &Path, points: &[Point], as_json: bool) {
    let known = || points.iter().filter_map(|p| Some((p, p.known.as_ref()?)));
    if as_json {
        let run = |(p, k): (&Point, &Known)| json!({ "run": p.number, "key": k.key, "control": k.control, "name": p.name(), "parameters": k.parameters });
        output::print(&json!({
            "schema": SCHEMA.0,
            "schema_version": SCHEMA.1,
            "recording": recording.display().to_string(),
            "recording_digest": points.first().and_then(|p| Some(&p.known.as_ref()?.recording)),
            "version": env!("CARGO_PKG_VERSION"),
            "runs": known().map(run).collect::<Value>(),
        }));
        return;
    }
    output::line(&format!("{:<32}  {:<32}  run", "key", "compared with"));
    for (p, k) in known() {
        output::line(&format!("{:<32}  {:<32}  {}", k.key, k.control.as_deref().unwrap_or(""), p.name()));
    }
}
