//! What has changed between two snapshots of a volume or a tree?
//!
//! A snapshot is an image, a directory, or an earlier JSON report. Groups, free space and prices are compared as in the
//! reports. Files are compared by path: all of them if both snapshots have all, otherwise those in both lists. Segments
//! are compared bit by bit if both snapshots are images of volumes with one layout.
//!
//! Left out: the identity of files. A file replaced under its name is reported as changed.

pub mod text;

use std::collections::BTreeMap;

use format::BLOCKS_PER_SEG;
use inspect::inode::Kind;
use serde_json::{Map, Value, json};

use super::ground::{Ground, Shows};
use super::machine::SCHEMA;
use super::{Found, Seen};
use crate::Failure;

/// The compared values of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    extents: u64,
    fewest: u64,
    bytes: u64,
    read_pj: u64,
}

impl Row {
    fn excess(self) -> u64 {
        self.extents.saturating_sub(self.fewest)
    }
    fn json(self) -> Value {
        let Row { extents, fewest, bytes, read_pj } = self;
        json!({ "extents": extents, "min_extents": fewest, "size_bytes": bytes, "read_pj": read_pj })
    }
}

/// A snapshot.
pub struct Look {
    /// Its name.
    pub name: String,
    report: Value,
    files: BTreeMap<String, Row>,
    /// True if `files` is complete.
    is_whole: bool,
}

impl Look {
    /// From an inspection just made.
    pub fn of(seen: &Seen<'_>, report: &Value) -> Self {
        let priced = seen.files().iter().zip(&seen.verdict.priced).enumerate();
        let files = priced.filter(|(_, (f, _))| f.kind == Kind::File).map(|(i, (f, p))| {
            let (extents, fewest) = (f.layout.extents.into(), f.layout.min_extents.into());
            (seen.path_inside(i), Row { extents, fewest, bytes: f.size, read_pj: p.read.energy.0 })
        });
        let is_whole = match seen.found {
            Found::Volume(v) => v.findings.is_empty(),
            Found::Mounted(m) => m.left == 0,
        };
        Look { name: seen.source.clone(), report: report.clone(), files: files.collect(), is_whole }
    }

    /// From the JSON of an earlier report.
    ///
    /// # Errors
    /// If it is not such a report.
    pub fn of_json(name: &str, text: &str) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::from(format!("{name}: {what}"));
        let report: Value = serde_json::from_str(text).map_err(|e| wrong(format!("not JSON: {e}")))?;
        // What is compared is the same in both versions.
        let version = report["schema_version"].as_u64().unwrap_or(0);
        if report["schema"] != SCHEMA.0 || !(1..=u64::from(SCHEMA.1)).contains(&version) {
            return Err(wrong(format!(
                "not JSON from `joulefs --json inspect` ({}, version 1 to {})",
                SCHEMA.0, SCHEMA.1
            )));
        }
        let source = report["source"].as_str().unwrap_or_default().trim_end_matches('/');
        let of_directory = report["sample"].is_object();
        let mut files = BTreeMap::new();
        for f in report["worst"].as_array().into_iter().flatten() {
            let n = |key: &str| f[key].as_u64().unwrap_or(0);
            let row =
                Row { extents: n("extents"), fewest: n("min_extents"), bytes: n("size_bytes"), read_pj: n("read_pj") };
            let path = f["path"].as_str().unwrap_or_default();
            let inside = if of_directory { path.strip_prefix(source).unwrap_or(path) } else { path };
            files.insert(inside.to_owned(), row);
        }
        Ok(Look { name: name.to_owned(), report, files, is_whole: false })
    }
}

/// True if a file starts like JSON.
pub fn is_json(file: &std::path::Path) -> bool {
    let mut first = [0; 64];
    let read = std::fs::File::open(file).and_then(|mut f| std::io::Read::read(&mut f, &mut first));
    let begun = read.ok().and_then(|n| first[..n].iter().copied().find(|b| !b.is_ascii_whitespace()));
    file.is_file() && begun == Some(b'{')
}

/// The same numbers before and now.
fn both(before: &Value, now: &Value, names: &[&str]) -> Value {
    let pair = |name: &&str| ((*name).to_owned(), json!({ "before": before[*name], "now": now[*name] }));
    Value::Object(names.iter().map(pair).collect::<Map<_, _>>())
}

const OF_GROUP: [&str; 6] = ["files", "extents", "min_extents", "dof", "size_bytes", "read_pj"];

/// The changes, with at most `most` files.
///
/// # Errors
/// If the two reports are grouped differently.
pub fn between(before: &Look, now: &Look, most: usize) -> Result<Value, Failure> {
    let (old, new) = (&before.report, &now.report);
    for key in ["by", "profile", "read_ahead_bytes"] {
        if old[key] != new[key] {
            let options = match key {
                "by" => "--by",
                "profile" => "--profile",
                _ => "--read-ahead",
            };
            return Err(
                format!("{}: made with {options} {}, not {}; cannot compare", before.name, old[key], new[key]).into()
            );
        }
    }
    let levels = |report: &Value| report["space"]["free_pieces"].as_array().cloned().unwrap_or_default();
    let pieces = levels(old).into_iter().zip(levels(new)).map(|(b, n)| {
        let mut row = both(&b, &n, &["pieces", "blocks"]);
        row["level"] = n["level"].clone();
        row
    });
    let space = (old["space"].is_object() && new["space"].is_object())
        .then(|| both(&old["space"], &new["space"], &["valid_blocks", "free_segments", "mean_f"]));
    let (files, changed) = files(before, now, most);
    Ok(json!({
        "other": before.name,
        "all": both(&old["all"], &new["all"], &[&OF_GROUP[..], &["ideal_read_pj"]].concat()),
        "groups": groups(old, new),
        "space": space,
        "free_pieces": pieces.collect::<Vec<_>>(),
        "files": files,
        "files_changed": changed,
        "files_are_all": before.is_whole && now.is_whole,
    }))
}

/// Groups by name: current ones in their order, then those that disappeared.
fn groups(old: &Value, new: &Value) -> Vec<Value> {
    let list = |report: &Value| report["groups"].as_array().cloned().unwrap_or_default();
    let (old, new) = (list(old), list(new));
    let none = Value::Null;
    let find = |all: &[Value], name: &Value| all.iter().find(|g| g["name"] == *name).cloned();
    let row = |name: &Value, b: &Value, n: &Value| {
        let mut row = both(b, n, &OF_GROUP);
        row["name"] = name.clone();
        row
    };
    let here = new.iter().map(|g| row(&g["name"], &find(&old, &g["name"]).unwrap_or(Value::Null), g));
    let gone = old.iter().filter(|g| find(&new, &g["name"]).is_none()).map(|g| row(&g["name"], g, &none));
    here.chain(gone).collect()
}

/// The files whose excess changed most, and the number of changed files.
fn files(before: &Look, now: &Look, most: usize) -> (Vec<Value>, usize) {
    let whole = before.is_whole && now.is_whole;
    let paths = before.files.keys().chain(now.files.keys().filter(|path| !before.files.contains_key(*path)));
    let mut all: Vec<(&String, Option<Row>, Option<Row>)> = paths
        .map(|path| (path, before.files.get(path).copied(), now.files.get(path).copied()))
        .filter(|(_, b, n)| b != n && (whole || (b.is_some() && n.is_some())))
        .collect();
    let excess = |row: &Option<Row>| row.map_or(0, Row::excess);
    all.sort_by_key(|(_, b, n)| std::cmp::Reverse(excess(b).abs_diff(excess(n))));
    let row = |(path, b, n): &(&String, Option<Row>, Option<Row>)| json!({ "path": path, "before": b.map(Row::json), "now": n.map(Row::json) });
    (all.iter().take(most).map(row).collect(), all.len())
}

/// Changes of segments; `None` unless both are volumes with one layout.
pub fn segments(before: &Ground<'_>, now: &Ground<'_>) -> Option<Value> {
    let comparable = before.first == now.first
        && before.segments.segments() == now.segments.segments()
        && [before.shows, now.shows] == [Shows::Valid; 2];
    if !comparable {
        return None;
    }
    let (mut changed, mut begun, mut emptied) = (0_u64, 0_u64, 0_u64);
    let (mut new, mut gone, mut same) = (0_u64, 0_u64, 0_u64);
    for ((_, b), (_, n)) in before.segments.iter().zip(now.segments.iter()) {
        changed += u64::from(b.map != n.map);
        begun += u64::from(b.valid == 0 && n.valid > 0);
        emptied += u64::from(b.valid > 0 && n.valid == 0);
        for k in 0..BLOCKS_PER_SEG as u16 {
            match (b.has(k), n.has(k)) {
                (true, true) => same += 1,
                (false, true) => new += 1,
                (true, false) => gone += 1,
                (false, false) => {}
            }
        }
    }
    Some(json!({
        "changed": changed, "newly_used": begun, "emptied": emptied,
        "blocks_new": new, "blocks_gone": gone, "blocks_same": same,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str, is_whole: bool, files: &[(&str, u64)]) -> Look {
        let row = |extents| Row { extents, fewest: 1, bytes: 4096, read_pj: extents };
        let files = files.iter().map(|(path, extents)| ((*path).to_owned(), row(*extents))).collect();
        let report = json!({ "schema": SCHEMA.0, "schema_version": SCHEMA.1, "by": "class" });
        Look { name: name.into(), report, files, is_whole }
    }

    #[test]
    fn a_file_that_is_not_listed_is_gone_only_if_all_are_listed() {
        let old = [("/a", 3), ("/b", 1), ("/c", 9)];
        let new = [("/a", 5), ("/b", 1), ("/d", 4)];
        let paths = |whole| {
            let diff = between(&look("x", whole, &old), &look("y", whole, &new), 10).unwrap();
            diff["files"].as_array().unwrap().iter().map(|f| f["path"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(paths(true), ["/c", "/d", "/a"]);
        assert_eq!(paths(false), ["/a"]);
    }

    #[test]
    fn what_is_summed_up_otherwise_is_not_compared() {
        let mut other = look("x", true, &[]);
        other.report["by"] = "app".into();
        let Err(e) = between(&other, &look("y", true, &[]), 10) else { panic!() };
        assert!(format!("{e:?}").contains("--by"), "{e:?}");
        assert!(Look::of_json("z", "{\"schema\": \"other\"}").is_err());
    }
}
