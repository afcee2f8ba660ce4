//! A refresh for machines: a JSON object on one line, and counters for scrapers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use device::energy::{Component, Nanos, Power};
use serde_json::{Map, Value, json};

use super::view::{Amounts, DiskRow, Row, Shown, lumped, sum};
use crate::output;

fn components(energy: &Amounts) -> Map<String, Value> {
    Component::ALL.iter().zip(energy).map(|(c, e)| (c.text().to_lowercase(), json!(e.0))).collect()
}

fn row(r: &Row) -> Value {
    let mut out = json!({
        "process": r.process,
        "pj": sum(&r.energy).0,
        "components_pj": components(&r.energy),
        "power_uw": Power::from_watts(r.watts),
        "requests": r.asked.requests,
        "bytes_read": r.asked.read,
        "bytes_written": r.asked.written,
        "requests_per_s": r.requests,
        "bytes_per_s": r.bytes,
    });
    if let Some((file, by)) = &r.file {
        out["file"] = json!(file);
        out["dirtied_by"] = json!(by);
    }
    out
}

fn disk(d: &DiskRow, most: usize) -> Value {
    json!({
        "device": d.id.to_string(),
        "name": d.about.name,
        "profile": d.about.profile,
        "device_bytes": d.about.bytes,
        "full": d.about.full,
        "smaller_than_disk": d.about.folded,
        "power_uw": Power::from_watts(d.watts),
        "pj": sum(&d.energy).0,
        "replay_pj": d.of_requests.0,
        "components_pj": components(&d.energy),
        "requests": d.requests,
        "refused": d.failed.0,
        "first_refusal": d.failed.1,
        "processes": lumped(&d.rows, most).iter().map(row).collect::<Value>(),
    })
}

/// A refresh, with at most `most` written-back files by name. Energies are whole picojoules since the start.
pub fn json(shown: &Shown, most: usize) -> Value {
    let notes: Map<String, Value> = shown.notes.iter().map(|n| (n.key.to_owned(), json!(n.count))).collect();
    json!({
        "time_ns": Nanos::from_seconds(shown.since),
        "interval_ns": Nanos::from_seconds(shown.interval),
        "ended": shown.ended,
        "power_uw": Power::from_watts(shown.watts()),
        "total_pj": shown.total().0,
        "notes": notes,
        "damage": shown.damage,
        "disks": shown.disks.iter().map(|d| disk(d, most)).collect::<Value>(),
    })
}

/// A label's value. People read it too, so hidden characters are escaped.
pub fn label(text: &str) -> String {
    output::plain(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// The labels of a row: written-back files with the same dirtiers share one series, to limit the number of series.
fn labels(disk: &str, r: &Row) -> String {
    let by = r.file.as_ref().map_or(String::new(), |(_, by)| format!(",dirtied_by=\"{}\"", label(&by.join(", "))));
    format!("device=\"{}\",process=\"{}\"{by}", label(disk), label(&r.process))
}

/// The refresh as OpenMetrics text.
pub fn metrics(shown: &Shown) -> String {
    let mut out = String::new();
    let head = |out: &mut String, name: &str, kind: &str, unit: &str, help: &str| {
        let _ = writeln!(out, "# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}");
    };
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (name, row) in shown.disks.iter().flat_map(|d| d.rows.iter().map(move |r| (&d.about.name, r))) {
        let sum = rows.entry(labels(name, row));
        sum.and_modify(|sum| sum.add(row)).or_insert_with(|| row.clone());
    }
    head(&mut out, "joulefs_joules", "counter", "joules", "Energy on the simulated device of a profile.");
    for (who, r) in &rows {
        for (c, e) in Component::ALL.iter().zip(&r.energy) {
            let component = c.text().to_lowercase();
            let _ = writeln!(out, "joulefs_joules_total{{{who},component=\"{component}\"}} {}", e.joules());
        }
    }
    head(&mut out, "joulefs_requests", "counter", "requests", "Requests to the device.");
    let asked = || rows.iter().filter(|(_, r)| r.asked.requests > 0);
    for (who, r) in asked() {
        let _ = writeln!(out, "joulefs_requests_total{{{who}}} {}", r.asked.requests);
    }
    head(&mut out, "joulefs_bytes", "counter", "bytes", "Bytes read and written.");
    for (who, r) in asked() {
        for (direction, n) in [("read", r.asked.read), ("write", r.asked.written)] {
            let _ = writeln!(out, "joulefs_bytes_total{{{who},direction=\"{direction}\"}} {n}");
        }
    }
    head(&mut out, "joulefs_power_watts", "gauge", "watts", "Power between the last two refreshes.");
    for d in &shown.disks {
        let _ = writeln!(out, "joulefs_power_watts{{device=\"{}\"}} {}", label(&d.about.name), d.watts);
    }
    out + "# EOF\n"
}
