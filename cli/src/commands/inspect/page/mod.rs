//! The page of `joulefs inspect --html`: the report of `machine` with a map.
//!
//! One file without a library. Verdict and price come first and, like all tables, need no script. Each number is taken
//! from the report that `--json` prints, which is embedded in the page; `data-at` has its path in the report, `data-as`
//! its format. `map.js` draws the segments in three levels; `pack` encodes them.
//!
//! Left out: anything that is fetched, and anything that would change the volume.

mod numbers;
mod pack;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use self::numbers::Numbers;
use super::ground::{Ground, Shows};
use super::{Seen, text};
use crate::Failure;
use crate::hidden::shown_json;
use crate::output::plain;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("map.js");
/// Maximum number of rows in the table of classes, applications or directories.
const GROUPS: usize = 12;

/// The page. `report` is the output of `--json`; `before` are the segments to compare with those of `ground`.
pub fn page(
    seen: &Seen<'_>,
    report: &Value,
    ground: &Ground<'_>,
    before: Option<&Ground<'_>>,
) -> Result<String, Failure> {
    let failed = |e: std::io::Error| format!("packing the map: {e}");
    let segments = pack::segments(ground).map_err(failed)?;
    let old = before.map(pack::segments).transpose().map_err(failed)?.unwrap_or_default();
    let (files, known) = pack::files(seen).map_err(failed)?;
    let modes = modes(ground, before.is_some());
    let names = format::sit::LogType::ALL.map(text::log_name).into_iter().chain(["of no type"]);
    let (cell, cells) = if ground.has_logs { ("Segment", "segments") } else { ("Stretch", "stretches of 2 MiB") };
    let given = json!({
        "segments": ground.segments.segments(),
        "blocks": ground.segments.blocks(),
        "first": ground.first,
        "per_section": ground.per_section.max(1),
        "shows": if ground.shows == Shows::Valid { "valid" } else { "files" },
        "modes": modes.iter().map(|m| m.0).collect::<Vec<_>>(),
        "logs": names.collect::<Vec<_>>(),
        "cell": cell,
        "cells": cells,
    });
    let n = Numbers(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "joulefs inspect " (plain(&seen.source)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(&n))
                main {
                    div.first { (advice(report)) }
                    div.map { (map(&modes, known, seen.files().len(), ground)) (changed(&n)) (logs(&n)) }
                    div.beside { (worst(&n)) (groups(&n)) (free(&n)) }
                }
                (words(seen))
                (blob("given", "application/json", &in_script(&given)))
                (blob("report", "application/json", &in_script(report)))
                (blob("segments", "text/plain", &segments))
                (blob("before", "text/plain", &old))
                (blob("files", "text/plain", &files))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(page.into_string())
}

/// JSON with visible characters only that cannot close its script element: `<` occurs only in strings.
fn in_script(value: &Value) -> String {
    shown_json(&value.to_string()).replace('<', "\\u003c")
}

fn blob(id: &str, kind: &str, text: &str) -> Markup {
    html! { script id=(id) type=(kind) { (PreEscaped(text)) } }
}

/// The properties that can colour the map.
fn modes(ground: &Ground<'_>, compared: bool) -> Vec<(&'static str, &'static str)> {
    let of_volume = ground.shows == Shows::Valid;
    let all = [
        (compared, "changed", "Changed"),
        (true, "occupancy", if of_volume { "Occupancy" } else { "Files looked at" }),
        (of_volume, "f", "Fragmented free space, f"),
        (ground.has_logs, "temperature", "Temperature"),
        (ground.now.is_some(), "age", "Age"),
    ];
    all.into_iter().filter(|(is, ..)| *is).map(|(_, id, name)| (id, name)).collect()
}

fn head(n: &Numbers<'_>) -> Markup {
    let excess = n.number("/verdict/excess_extents_of_all");
    html! {
        h1 { "joulefs inspect " (n.text("/source")) }
        @for finding in n.0["damage"].as_array().into_iter().flatten() {
            p.damage { "Damaged: " span data-text { (plain(finding.as_str().unwrap_or_default())) } }
        }
        // Without a checkpoint, no files are known.
        @if n.has("/sample") || n.has("/volume/checkpoint_version") {
            @if excess == 0 {
                p.verdict { "No file has excess extents; there is nothing to gain" }
            } @else {
                p.verdict {
                    (n.count("/verdict/worst_files")) " of " (n.count("/all/files")) " files hold "
                    (n.share("/verdict/excess_extents", "/verdict/excess_extents_of_all")) " of the "
                    (n.count("/verdict/excess_extents_of_all")) " excess extents"
                }
                p.price {
                    "Copying these costs " (n.joules("/verdict/treatment/pj"))
                    @if n.number("/verdict/saved_per_read_pj") == 0 {
                        " and saves nothing: the cost is never repaid"
                    } @else {
                        " and saves " (n.joules("/verdict/saved_per_read_pj")) " a read: the cost is repaid after "
                        (n.count("/verdict/pays_after_reads")) " full reads"
                    }
                }
            }
            p.note {
                "Reading all files once: " (n.joules("/all/read_pj")) ", " (n.time("/all/read_ns")) " now; "
                (n.joules("/all/ideal_read_pj")) ", " (n.time("/all/ideal_read_ns")) " at best, by the profile "
                (n.text("/profile")) "."
            }
        }
        p.note { (what(n)) }
    }
}

/// The subject of the report.
fn what(n: &Numbers<'_>) -> Markup {
    let files = html! { (n.count("/counts/files")) " files in " (n.count("/counts/directories")) " directories" };
    html! {
        @if n.has("/sample") {
            (n.text("/file_system")) " of " (n.bytes("/volume/bytes")) ", " (n.bytes("/volume/free_bytes"))
            " free; visited " (files)
            @if n.0["sample"]["is_whole"] == false {
                ". A sample: " (n.count("/sample/directories_left")) " directories were found and not visited"
            }
            @for (at, what) in [
                ("/sample/unreadable", " are not readable"),
                ("/sample/files_without_answer", " do not report where they lie"),
                ("/sample/blocks_without_address", " blocks have no address yet"),
            ] {
                @if n.number(at) > 0 { "; not counted: " (n.count(at)) (what) }
            }
            "."
        } @else {
            "F2FS volume of " (n.bytes("/volume/bytes"))
            @if n.number("/volume/user_blocks") > 0 {
                ", " (n.share("/counts/blocks", "/volume/user_blocks")) " in use; " (files) ", "
                (n.count("/counts/nodes")) " nodes; checkpoint " (n.count("/volume/checkpoint_version"))
                @if n.0["volume"]["clean_unmount"] == true { ", unmounted" } @else { ", not unmounted" }
            }
            "."
        }
    }
}

fn map(modes: &[(&str, &str)], known: usize, all: usize, ground: &Ground<'_>) -> Markup {
    let drawn = ground.segments.segments() > 0;
    html! {
        h2 { "Map of the " @if ground.shows == Shows::Valid { "volume" } @else { "device's addresses" } }
        @if ground.shows == Shows::Files {
            p.note {
                "This file system does not report which blocks are in use. The map shows the visited files; nothing is \
                 known about the other blocks."
            }
        }
        @if drawn {
            div.modes {
                @for (i, (id, name)) in modes.iter().enumerate() {
                    button type="button" data-mode=(id) aria-pressed=(if i == 0 { "true" } else { "false" }) { (name) }
                }
            }
            div.legend #legend data-live {}
            div.search {
                input #word type="search" placeholder="Type a part of a path to highlight its extents"
                    aria-label="Search a path";
                button #clear type="button" { "Clear" }
            }
            @if known < all {
                p.note { "The search covers " span data-live { (known) } " of " span data-live { (all) } " inodes, the \
                    most fragmented and the largest." }
            }
            ul #hits data-live {}
            div #chosen data-live hidden { p {} p.note {} }
            div.view {
                span { "Volume: a cell for each " @if ground.has_logs { "segment" } @else { "stretch of 2 MiB" span data-fixed {} } ", row by row in order of address" }
                canvas #volume tabindex="0" role="img" aria-label="Map of all segments" {}
            }
            div.view {
                span { "Sections around the selected place, one dot per block" }
                canvas #sections tabindex="0" role="img" aria-label="Map of neighbouring segments" {}
            }
            div.view {
                span #level3 data-live {}
                canvas #blocks role="img" aria-label="Map of the blocks of one segment" {}
            }
            p #here data-live {}
        } @else {
            p.note { "There is nothing to draw: it is unknown which blocks are in use." }
        }
    }
}

fn advice(report: &Value) -> Markup {
    let all = report["advice"].as_array();
    html! {
        @if let Some(all) = all.filter(|all| !all.is_empty()) {
            h2 { "What would help" }
            ul.advice { @for a in all { li { span data-text { (a["text"].as_str().unwrap_or_default()) } } } }
        }
    }
}

fn worst(n: &Numbers<'_>) -> Markup {
    let all = n.0["worst"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !all.is_empty() {
            h2 { "Most fragmented files" }
            p.note { "Click a row to select its file on the map." }
            div.scroll { table #worst {
                tr { th { "file" } th.n { "extents" } th.n { "read" } th.n { "could be" } th.n { "earned" } }
                @for (i, file) in all.iter().enumerate() {
                    @let at = |name: &str| format!("/worst/{i}/{name}");
                    tr.pick tabindex="0" aria-selected="false" data-worst=(i) {
                        td.path {
                            @if file["path_is_sure"] == false { "~" }
                            bdi data-text { (plain(file["path"].as_str().unwrap_or_default())) }
                        }
                        td.n { (n.count(&at("extents"))) }
                        td.n { (n.joules(&at("read_pj"))) }
                        td.n { (n.joules(&at("ideal_read_pj"))) }
                        td.n { (n.reads(&at("pays_after_reads"))) }
                    }
                }
            } }
        }
    }
}

fn groups(n: &Numbers<'_>) -> Markup {
    let all = n.0["groups"].as_array().map_or(&[][..], Vec::as_slice);
    let what = match n.0["by"].as_str() {
        Some("app") => "application",
        Some("dir") => "directory",
        _ => "class",
    };
    let most = all.iter().filter_map(|g| g["dof"].as_f64()).fold(1.0, f64::max);
    html! {
        @if !all.is_empty() {
            h2 { "Degree of fragmentation by " (what) }
            table {
                tr { th { (what) } th.n { "files" } th.n { "extents" } th.n { "DoF" } th.may-go { "(logarithm)" } }
                @for (i, group) in all.iter().take(GROUPS).enumerate() {
                    @let at = |name: &str| format!("/groups/{i}/{name}");
                    tr {
                        td.path { bdi data-text { (plain(group["name"].as_str().unwrap_or_default())) } }
                        td.n { (n.count(&at("files"))) }
                        td.n { (n.count(&at("extents"))) }
                        td.n { (n.ratio(&at("dof"))) }
                        td.bar.may-go { (bar(group["dof"].as_f64().unwrap_or(1.0).ln() / most.ln().max(1e-9))) }
                    }
                }
            }
            @if all.len() > GROUPS { p.note { "and " span data-live { (all.len() - GROUPS) } " more" } }
        }
    }
}

fn free(n: &Numbers<'_>) -> Markup {
    let levels = n.0["space"]["free_pieces"].as_array().map_or(&[][..], Vec::as_slice);
    let most = levels.iter().filter_map(|l| l["blocks"].as_f64()).fold(1.0, f64::max);
    let sizes =
        ["4 KiB", "8 KiB", "to 16 KiB", "to 32 KiB", "to 64 KiB", "to 128 KiB", "to 256 KiB", "to 512 KiB", "larger"];
    html! {
        h2 { "Free space by fragment size" }
        @if levels.is_empty() {
            p.note { "Not known: this file system does not report where its free space lies." }
        } @else {
            table {
                tr { th { "piece" } th.n { "pieces" } th.n { "MiB" } th { "" } }
                @for ((i, level), size) in levels.iter().enumerate().zip(sizes) {
                    tr {
                        td { span data-fixed { (level["level"].as_str().unwrap_or_default()) " " } span.note data-fixed { (size) } }
                        td.n { (n.count(&format!("/space/free_pieces/{i}/pieces"))) }
                        td.n { (n.mebibytes(&format!("/space/free_pieces/{i}/blocks"))) }
                        td.bar { (bar(level["blocks"].as_f64().unwrap_or(0.0) / most)) }
                    }
                }
            }
        }
    }
}

fn bar(share: f64) -> Markup {
    html! { @if share > 0.0 { div style=(format!("width:{:.1}%", share.clamp(0.0, 1.0) * 100.0)) {} } }
}

fn logs(n: &Numbers<'_>) -> Markup {
    let logs = n.0["space"]["logs"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !logs.is_empty() {
            h2 { "Segments by log" }
            div.scroll { table {
                tr { th { "log" } th.n { "segments" } th.n { "full" } th.n { "in use" } th.n { "f" } th.n { "age" } }
                @for (i, log) in logs.iter().enumerate().filter(|(_, l)| l["segments"].as_u64() > Some(0)) {
                    @let at = |name: &str| format!("/space/logs/{i}/{name}");
                    tr {
                        td { (log["log"].as_str().unwrap_or_default()) }
                        td.n { (n.count(&at("segments"))) }
                        td.n { (n.count(&at("full_segments"))) }
                        td.n { (n.of_segments(&at("valid_blocks"), &at("segments"))) }
                        td.n { (n.share(&at("mean_f"), "/space/most_f")) }
                        td.n { (n.age(&at("mean_age_ns"))) }
                    }
                }
                tr { td { "free" } td.n { (n.count("/space/free_segments")) } td {} td {} td {} td {} }
            } }
        }
    }
}

/// Changes since another report.
fn changed(n: &Numbers<'_>) -> Markup {
    let diff = &n.0["diff"];
    let files = diff["files"].as_array().map_or(&[][..], Vec::as_slice);
    let groups = diff["groups"].as_array().map_or(&[][..], Vec::as_slice);
    let pair = |at: String| {
        html! {
            td.n { (n.count(&format!("{at}/before"))) }
            td.n { (n.count(&format!("{at}/now"))) }
        }
    };
    html! {
        @if diff.is_object() {
            h2 { "What changed since " (n.text("/diff/other")) }
            p {
                "Reading all files once costs " (n.joules("/diff/all/read_pj/now")) ", "
                (n.joules("/diff/all/read_pj/before")) " before"
                @if diff["segments"].is_object() {
                    "; " (n.count("/diff/segments/changed")) " segments changed, "
                    (n.count("/diff/segments/newly_used")) " of them newly used, "
                    (n.count("/diff/segments/emptied")) " emptied; "
                    (n.count("/diff/segments/blocks_new")) " blocks are new, "
                    (n.count("/diff/segments/blocks_gone")) " no longer used"
                }
                "."
            }
            div.scroll { table {
                tr { th { "group" } th.n { "files before" } th.n { "now" } th.n { "extents before" } th.n { "now" } }
                @for (i, group) in groups.iter().enumerate() {
                    tr {
                        td.path { bdi data-text { (plain(group["name"].as_str().unwrap_or_default())) } }
                        (pair(format!("/diff/groups/{i}/files"))) (pair(format!("/diff/groups/{i}/extents")))
                    }
                }
            } }
            p.note {
                (n.count("/diff/files_changed")) " files changed"
                @if diff["files_are_all"] == false { ", counting those in both lists" }
                "."
            }
            @if !files.is_empty() {
                div.scroll { table {
                    tr { th { "file" } th.n { "extents before" } th.n { "now" } }
                    @for (i, file) in files.iter().enumerate() {
                        tr {
                            td.path { bdi data-text { (plain(file["path"].as_str().unwrap_or_default())) } }
                            @for when in ["before", "now"] {
                                td.n { @if file[when].is_object() { (n.count(&format!("/diff/files/{i}/{when}/extents"))) } @else { "-" } }
                            }
                        }
                    }
                } }
            }
        }
    }
}

fn words(seen: &Seen<'_>) -> Markup {
    html! {
        details {
            summary { "What the words mean" }
            p {
                "An extent is a run of a file's blocks at consecutive addresses; fewest is the minimum number of \
                 extents, one per range between holes. DoF, the degree of fragmentation, is extents divided by fewest. \
                 read is the energy of reading the whole file once as it lies; could be, with the fewest extents; \
                 earned, the number of full reads that repay copying it. f is the factor of fragmented free space as a \
                 share of its maximum; age is the mounted time since a segment was last written. A path after ~ may be \
                 outdated."
            }
            p.note {
                "Made by joulefs " span data-fixed { (env!("CARGO_PKG_VERSION")) } " from "
                span data-text { (plain(&seen.source)) } "."
            }
        }
    }
}
