//! What does a machine get at a refresh: an object in one line, and counters for who scrapes them.

use std::fmt::Write as _;

use device::energy::Component;
use serde_json::{Map, Value, json};

use super::measured::Look;
use super::view::{Amounts, DiskRow, Row, Shown, sum};

fn components(energy: &Amounts) -> Map<String, Value> {
    Component::ALL.iter().zip(energy).map(|(c, e)| (c.text().to_lowercase(), json!(e.0))).collect()
}

fn row(r: &Row) -> Value {
    json!({
        "process": r.process,
        "pj": sum(&r.energy).0,
        "components_pj": components(&r.energy),
        "watts": r.watts,
        "requests": r.asked.requests,
        "bytes_read": r.asked.read,
        "bytes_written": r.asked.written,
        "requests_per_s": r.requests,
        "bytes_per_s": r.bytes,
    })
}

fn disk(d: &DiskRow) -> Value {
    json!({
        "device": d.id.to_string(),
        "name": d.about.name,
        "profile": d.about.profile,
        "device_bytes": d.about.bytes,
        "full": d.about.full,
        "smaller_than_disk": d.about.folded,
        "watts": d.watts,
        "pj": sum(&d.energy).0,
        "replay_pj": d.of_requests.0,
        "components_pj": components(&d.energy),
        "requests": d.requests,
        "refused": d.failed.0,
        "first_refusal": d.failed.1,
        "processes": d.rows.iter().map(row).collect::<Value>(),
    })
}

/// A refresh. Energies are whole picojoules since the start.
pub fn json(shown: &Shown) -> Value {
    let notes: Map<String, Value> = shown.notes.iter().map(|(what, n)| ((*what).to_owned(), json!(n))).collect();
    json!({
        "seconds": shown.since,
        "interval_s": shown.interval,
        "ended": shown.ended,
        "watts": shown.watts(),
        "total_pj": shown.total().0,
        "joules": shown.total().joules(),
        "notes": notes,
        "damage": shown.damage,
        "disks": shown.disks.iter().map(disk).collect::<Value>(),
        "alumet": shown.alumet.as_ref().map(Look::json),
    })
}

/// A label's value.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The same as OpenMetrics text.
pub fn metrics(shown: &Shown) -> String {
    let mut out = String::new();
    let head = |out: &mut String, name: &str, kind: &str, unit: &str, help: &str| {
        let _ = writeln!(out, "# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}");
    };
    head(&mut out, "joulefs_joules", "counter", "joules", "Energy on the simulated device of a profile.");
    let rows = || shown.disks.iter().flat_map(|d| d.rows.iter().map(move |r| (label(&d.about.name), r)));
    for (disk, r) in rows() {
        let process = label(&r.process);
        for (c, e) in Component::ALL.iter().zip(&r.energy) {
            let component = c.text().to_lowercase();
            let labels = format!("device=\"{disk}\",process=\"{process}\",component=\"{component}\"");
            let _ = writeln!(out, "joulefs_joules_total{{{labels}}} {}", e.joules());
        }
    }
    head(&mut out, "joulefs_requests", "counter", "requests", "Requests to the device.");
    for (disk, r) in rows().filter(|(_, r)| r.asked.requests > 0) {
        let process = label(&r.process);
        let n = r.asked.requests;
        let _ = writeln!(out, "joulefs_requests_total{{device=\"{disk}\",process=\"{process}\"}} {n}");
    }
    head(&mut out, "joulefs_bytes", "counter", "bytes", "Bytes read and written.");
    for (disk, r) in rows().filter(|(_, r)| r.asked.requests > 0) {
        let process = label(&r.process);
        for (direction, n) in [("read", r.asked.read), ("write", r.asked.written)] {
            let labels = format!("device=\"{disk}\",process=\"{process}\",direction=\"{direction}\"");
            let _ = writeln!(out, "joulefs_bytes_total{{{labels}}} {n}");
        }
    }
    head(&mut out, "joulefs_power_watts", "gauge", "watts", "Power between the last two refreshes.");
    for d in &shown.disks {
        let _ = writeln!(out, "joulefs_power_watts{{device=\"{}\"}} {}", label(&d.about.name), d.watts);
    }
    if let Some(alumet) = &shown.alumet {
        out += &alumet.metrics(|id| shown.name(id), label);
    }
    out + "# EOF\n"
}
