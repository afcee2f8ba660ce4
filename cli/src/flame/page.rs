//! The page of `--flame FILE.html`: for each run an icicle graph that zooms on a click, and a table of the costliest
//! places. The colours of a run that has a control are those of a differential flame graph (Gregg): widths are the run's
//! joules, red frames cost more than the control's, blue ones less.
//!
//! One file without a library. The embedded SVG and the tables need no script; `flame.js` redraws the graph from the
//! embedded tree, so that narrow frames can be enlarged. Each number of a table has its path in the report (`data-at`)
//! and its format (`data-as`), as on the page of `joulefs inspect`.
//!
//! Left out: anything loaded from elsewhere.

use device::energy::{Component, Energy};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};
use sim::flame::icicle::{self, Node, ROW};

use super::Graph;
use crate::joules;

const STYLE: &str = include_str!("../commands/inspect/page/style.css");
const OWN_STYLE: &str = include_str!("flame.css");
const SCRIPT: &str = include_str!("flame.js");
/// Places drawn individually.
const PLACES: usize = 2_000;
/// Rows of the table.
const ROWS: usize = 20;

/// The page of these runs.
pub fn page(title: &str, graphs: &[Graph]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(icicle::STYLE)) (PreEscaped(OWN_STYLE)) }
            }
            body {
                h1 { bdi data-text { (title) } }
                @for n in 0..graphs.len() { (section(title, graphs, n)) }
                p.note { "Made by joulefs " span data-fixed { (env!("CARGO_PKG_VERSION")) } "." }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// The `n`th run. The ids of its elements end with its number, but those of the first.
fn section(title: &str, graphs: &[Graph], n: usize) -> Markup {
    let graph = &graphs[n];
    let end = if n == 0 { String::new() } else { format!("-{n}") };
    let id = |name: &str| format!("{name}{end}");
    let mut tree = icicle::tree(&graph.flame, "all", PLACES);
    let control = graph.control.and_then(|c| graphs.get(c));
    let compared = control.map(|control| {
        let whole = icicle::tree(&control.flame, "all", usize::MAX);
        tree.compare(&whole);
        json!({ "name": control.name, "pj": whole.energy.0, "gone_pj": tree.gone(&whole).0 })
    });
    let report = report(title, graph, &tree, compared);
    html! {
        section id=(id("graph")) {
            @if graphs.len() > 1 { h2 { bdi data-text { (graph.name) } } }
            p.verdict {
                (shown(&report, "/all/pj")) " in " (span(&report, "time", "/all/ns")) " of the device's time"
                @if let Some(control) = control {
                    ", " (span(&report, "difference", "/all/beyond_pj")) " against " bdi data-text { (control.name) }
                }
            }
            p.note {
                "Frames below a frame are its parts: directories, file or process, cause, component. Widths are joules."
            }
            @if control.is_some() {
                p.note {
                    "Red: costs more than the control's frame; blue: less; the darker, the larger the difference. \
                     Frames of the control that are missing here: " (shown(&report, "/control/gone_pj")) "."
                }
            } @else {
                (legend())
            }
            @if tree.energy == Energy::ZERO {
                p.note { "Nothing was spent." }
            } @else {
                div.search id=(id("search")) hidden {
                    input id=(id("word")) type="search" placeholder="Part of a name" aria-label="Search a name";
                    button id=(id("clear")) type="button" { "Clear" }
                    button id=(id("out")) type="button" { "Show all" }
                }
                p.note id=(id("keys")) hidden {
                    "Click a frame to zoom in. Keys: arrows select, Enter zooms in, Escape shows all, / searches."
                }
                div.picture id=(id("picture")) { (icicle::svg(&tree)) }
                p id=(id("here")) data-live aria-live="polite" {}
                div.tip id=(id("tip")) data-live hidden {}
            }
            (places(&report))
            script id=(id("report")) type="application/json" { (PreEscaped(in_script(&report))) }
        }
    }
}

/// JSON that cannot close its script element: `<` occurs only in strings.
fn in_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

/// The data embedded in the page.
fn report(title: &str, graph: &Graph, tree: &Node, control: Option<Value>) -> Value {
    let places = graph.flame.places();
    let of = |component: Component| {
        let energy = graph.flame.component(component);
        json!({ "name": component.text(), "pj": energy.0 })
    };
    json!({
        "title": title,
        "control": control,
        "widest": tree.widest(),
        "all": { "pj": tree.energy.0, "ns": graph.took, "places": places.len(), "beyond_pj": tree.beyond },
        "components": Component::ALL.map(of),
        "places": places.iter().take(ROWS).map(|(p, e)| json!({ "name": shown_place(p), "pj": e.0 })).collect::<Value>(),
        "row": ROW,
        "tree": node(tree),
    })
}

/// A place in one line.
fn shown_place(place: &str) -> String {
    let path = place.strip_prefix("/;").map(|rest| format!("/{}", rest.replace(';', "/")));
    path.unwrap_or_else(|| place.replace(";/;", " /").replace(';', "/"))
}

fn node(n: &Node) -> Value {
    let mut value = json!({ "n": n.text, "k": n.kind.class(), "v": n.energy.0 });
    if let Some(beyond) = n.beyond {
        value["d"] = json!(beyond);
    }
    if !n.below.is_empty() {
        value["c"] = n.below.iter().map(node).collect();
    }
    value
}

fn number(report: &Value, at: &str) -> u64 {
    report.pointer(at).and_then(Value::as_u64).unwrap_or(0)
}

fn span(report: &Value, kind: &str, at: &str) -> Markup {
    let text = match kind {
        "time" => joules::time(number(report, at)),
        "count" => number(report, at).to_string(),
        "difference" => icicle::signed(report.pointer(at).and_then(Value::as_i64).unwrap_or(0)),
        _ => Energy(number(report, at)).to_string(),
    };
    html! { span data-as=(kind) data-at=(at) { (text) } }
}

fn shown(report: &Value, at: &str) -> Markup {
    span(report, "joules", at)
}

fn share(report: &Value, at: &str) -> Markup {
    let part = number(report, at) as f64 / number(report, "/all/pj").max(1) as f64;
    html! { span data-as="share" data-at={ (at) " /all/pj" } { (icicle::share(part)) } }
}

fn legend() -> Markup {
    let kinds = [
        ("outer", "directory"),
        ("place", "file or process"),
        ("cause", "spent for"),
        ("cpu", "CPU"),
        ("dram", "DRAM"),
        ("storage", "storage"),
        ("board", "board"),
    ];
    html! {
        div.legend.icicle-colours {
            @for (class, text) in kinds { span { i class=(class) {} (text) } }
        }
    }
}

fn places(report: &Value) -> Markup {
    let all = report["places"].as_array().map_or(&[][..], Vec::as_slice);
    let components = report["components"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        h3 { "Largest shares" }
        div.scroll { table {
            tr { th { "place" } th.n { "joules" } th.n { "share" } }
            @for (i, place) in all.iter().enumerate() {
                tr {
                    td.path { bdi data-text { (place["name"].as_str().unwrap_or_default()) } }
                    td.n { (shown(report, &format!("/places/{i}/pj"))) }
                    td.n { (share(report, &format!("/places/{i}/pj"))) }
                }
            }
        } }
        @if number(report, "/all/places") > all.len() as u64 {
            p.note { "The most expensive of " (span(report, "count", "/all/places")) " places." }
        }
        h3 { "By component" }
        table {
            tr { th { "component" } th.n { "joules" } th.n { "share" } }
            @for (i, component) in components.iter().enumerate() {
                tr {
                    td { (component["name"].as_str().unwrap_or_default()) }
                    td.n { (shown(report, &format!("/components/{i}/pj"))) }
                    td.n { (share(report, &format!("/components/{i}/pj"))) }
                }
            }
        }
    }
}
