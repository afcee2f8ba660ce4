//! A refresh on the screen.

use super::view::{Row, Shown, WAITING, sum};
use crate::output;

/// Formats a power for people.
pub fn watts(w: f64) -> String {
    match w.abs() {
        x if x >= 1.0 => format!("{w:.2} W"),
        x if x >= 1e-3 => format!("{:.1} mW", w * 1e3),
        x if x > 0.0 => format!("{:.1} uW", w * 1e6),
        _ => "0 W".into(),
    }
}

/// Formats a time since the start.
pub fn seconds(s: f64) -> String {
    let whole = s as u64;
    format!("{}:{:02}:{:04.1}", whole / 3600, whole / 60 % 60, s - (whole / 60 * 60) as f64)
}

/// A refresh as text with at most `most` processes.
pub fn text(shown: &Shown, most: usize) -> String {
    let mut out = format!("{}, {} in {}", watts(shown.watts()), shown.total(), seconds(shown.since));
    for note in shown.notes.iter().filter(|note| note.count > 0) {
        out += &format!("; {} {}", note.count, note.text);
    }
    if shown.disks.is_empty() {
        return out + "\nno disk requests yet";
    }
    let width = |longest: Option<usize>, least: usize| longest.unwrap_or(0).max(least);
    let names: Vec<String> = shown.disks.iter().map(|d| output::plain(&d.about.name)).collect();
    let disk = width(names.iter().map(|name| name.chars().count()).max(), 4);
    out += &format!("\n\n{:<disk$}  {:>10}  {:>10}  {:>9}  as", "disk", "watts", "joules", "requests");
    for (d, name) in shown.disks.iter().zip(&names) {
        let about = &d.about;
        out += &format!(
            "\n{:<disk$}  {:>10}  {:>10}  {:>9}  {} of {}{}{}",
            name,
            watts(d.watts),
            sum(&d.energy).to_string(),
            d.requests,
            about.profile,
            output::bytes(about.bytes),
            if about.full { ", full" } else { "" },
            if about.folded { ", smaller than the disk" } else { "" }
        );
        if let (n @ 1.., Some(why)) = (d.failed.0, &d.failed.1) {
            out += &format!("; {n} refused, the first: {}", output::plain(why));
        }
    }
    let mut rows: Vec<(&str, &Row)> =
        shown.disks.iter().zip(&names).flat_map(|(d, name)| d.rows.iter().map(move |r| (name.as_str(), r))).collect();
    rows.sort_by_key(|(_, r)| (r.process == WAITING, std::cmp::Reverse(sum(&r.energy))));
    let left_out = rows.len().saturating_sub(most);
    rows.truncate(most);
    let process = width(rows.iter().map(|(_, r)| r.text().chars().count()).max(), 7);
    out += &format!(
        "\n\n{:<process$}  {:<disk$}  {:>10}  {:>10}  {:>10}  {:>8}",
        "process", "disk", "watts", "joules", "requests/s", "MB/s"
    );
    for (name, r) in rows {
        out += &format!(
            "\n{:<process$}  {name:<disk$}  {:>10}  {:>10}  {:>10.1}  {:>8.2}",
            r.text(),
            watts(r.watts),
            sum(&r.energy).to_string(),
            r.requests,
            r.bytes / 1e6
        );
    }
    if left_out > 0 {
        out += &format!("\n{left_out} more");
    }
    out
}
