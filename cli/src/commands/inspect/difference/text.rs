//! Prints changes for people: sums first, then groups, free space and files, in 40 lines of 100 columns.

use device::energy::Energy;
use serde_json::Value;

use crate::commands::inspect::text::fit;
use crate::output::{bytes, plain};

/// Maximum number of groups.
const GROUPS: usize = 8;
/// Default number of files.
pub const FILES: usize = 12;

fn number(v: &Value) -> Option<u64> {
    v.as_u64()
}

/// Both numbers, or a placeholder for a missing one.
fn pair(v: &Value, show: &dyn Fn(&Value) -> Option<String>) -> (String, String) {
    let one = |v: &Value| show(v).unwrap_or_else(|| "-".into());
    (one(&v["before"]), one(&v["now"]))
}

fn count(v: &Value) -> Option<String> {
    number(v).map(|n| n.to_string())
}

fn energy(v: &Value) -> Option<String> {
    number(v).map(|n| Energy(n).to_string())
}

fn ratio(v: &Value) -> Option<String> {
    v.as_f64().map(|x| format!("{x:.2}"))
}

/// All lines about `now` and the differences in `diff`.
pub fn lines(now: &str, diff: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let other = fit(&plain(diff["other"].as_str().unwrap_or_default()), 40);
    let all = &diff["all"];
    let excess =
        |when: &str| number(&all["extents"][when]).zip(number(&all["min_extents"][when])).map(|(e, m)| e - m.min(e));
    let excess = |when| excess(when).map_or("-".into(), |n| n.to_string());
    out.push(format!("{}: {} excess extents, {} in {other}", fit(&plain(now), 40), excess("now"), excess("before")));
    let (before, read) = pair(&all["read_pj"], &energy);
    out.push(format!("reading all files once: {read}, {before} before"));
    let segments = &diff["segments"];
    if segments.is_object() {
        out.push(format!(
            "{} segments changed, {} of them newly used, {} emptied",
            segments["changed"], segments["newly_used"], segments["emptied"]
        ));
        out.push(format!(
            "{} blocks are new, {} no longer used, {} unchanged",
            segments["blocks_new"], segments["blocks_gone"], segments["blocks_same"]
        ));
    }
    out.push(String::new());
    groups(diff, &mut out);
    free(diff, &mut out);
    files(diff, &mut out);
    out
}

fn groups(diff: &Value, out: &mut Vec<String>) {
    out.push(format!(
        "{:<22} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>10} {:>9}",
        "", "files", "before", "extents", "before", "DoF", "before", "read", "before"
    ));
    let groups = diff["groups"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = groups.iter().take(GROUPS).map(|g| (plain(g["name"].as_str().unwrap_or_default()), g));
    for (name, g) in rows.chain([("all".to_owned(), &diff["all"])]) {
        let cells = [("files", count as fn(&Value) -> _), ("extents", count), ("dof", ratio), ("read_pj", energy)];
        let cells = cells.map(|(key, show)| pair(&g[key], &show));
        let [files, extents, dof, read] = &cells;
        out.push(format!(
            "{:<22} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>10} {:>9}",
            fit(&name, 22),
            files.1,
            files.0,
            extents.1,
            extents.0,
            dof.1,
            dof.0,
            read.1,
            read.0
        ));
    }
    if groups.len() > GROUPS {
        out.push(format!("and {} more", groups.len() - GROUPS));
    }
}

fn free(diff: &Value, out: &mut Vec<String>) {
    let pieces = diff["free_pieces"].as_array().map_or(&[][..], Vec::as_slice);
    if pieces.is_empty() {
        return;
    }
    let row = |head: &str, cell: &dyn Fn(&Value) -> String| {
        format!("{head:<16}{}", pieces.iter().map(|p| format!(" {:>8}", cell(p))).collect::<String>())
    };
    out.push(String::new());
    out.push(row("free pieces", &|p| p["level"].as_str().unwrap_or_default().to_owned()));
    out.push(row("now", &|p| pair(&p["pieces"], &count).1));
    out.push(row("before", &|p| pair(&p["pieces"], &count).0));
}

fn files(diff: &Value, out: &mut Vec<String>) {
    let files = diff["files"].as_array().map_or(&[][..], Vec::as_slice);
    out.push(String::new());
    let of = if diff["files_are_all"] == true { "all files" } else { "the files in both lists" };
    out.push(format!(
        "{} of {of} changed{}",
        diff["files_changed"],
        if files.is_empty() { "" } else { ", most of all:" }
    ));
    if files.is_empty() {
        return;
    }
    out.push(format!("{:>8} {:>8} {:>11} {:>11}  {}", "extents", "before", "bytes", "before", "file"));
    for f in files {
        let cell = |when: &str, key: &str, show: &dyn Fn(u64) -> String| number(&f[when][key]).map_or("-".into(), show);
        out.push(format!(
            "{:>8} {:>8} {:>11} {:>11}  {}",
            cell("now", "extents", &|n| n.to_string()),
            cell("before", "extents", &|n| n.to_string()),
            cell("now", "size_bytes", &bytes),
            cell("before", "size_bytes", &bytes),
            fit(&plain(f["path"].as_str().unwrap_or_default()), 58)
        ));
    }
}
