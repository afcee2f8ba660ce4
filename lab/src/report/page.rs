//! The page's words and tables.

use std::collections::BTreeMap;

use device::energy::Component;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};

use super::{ReportError, plots};
use crate::claim::{Comparison, How, figures};
use crate::cost;
use crate::plan::Experiment;
use crate::result::{Histogram, Measure, Outcome, Phase};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }
h1 { font-size: 1.7rem } h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1.5rem }
table { border-collapse: collapse; margin: 1rem 0; width: 100% } th, td { padding: .25rem .6rem; border-bottom: 1px solid #e5e5e5; text-align: left }
th { font-weight: 600; background: #f6f6f6 } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.far { color: #a33 } .near { color: #276b2b } .note { color: #666; font-size: .87em }
.counted th { white-space: normal !important; vertical-align: bottom }
svg { max-width: 100%; height: auto; display: block; margin: 1rem 0 } details { margin: 1rem 0 } summary { cursor: pointer; font-weight: 600 }
nav a { margin-right: 1rem } .scroll { overflow-x: auto }
";

/// Percent of difference that are no difference to speak of: what the calibration keeps for components.
const NEAR: f64 = 7.0;

pub(super) fn page(outcomes: &[Outcome]) -> Result<String, ReportError> {
    let sections = outcomes.iter().enumerate().map(|(i, o)| section(i, o)).collect::<Result<Vec<_>, _>>()?;
    let body = html! {
        h1 { "JouleFS lab: the papers' numbers and ours" }
        p {
            "Simulated devices in virtual time. Each result repeats to the last picojoule with the same version, "
            "profile, plan and seed. A megabyte is 2" sup { "20" } " bytes."
        }
        nav { @for (i, o) in outcomes.iter().enumerate() { a href={ "#e" (i) } { (o.experiment) } } }
        @for s in &sections { (s) }
    };
    Ok(standing_alone("JouleFS lab", &body))
}

/// A page around a body.
pub(super) fn standing_alone(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn section(index: usize, o: &Outcome) -> Result<Markup, ReportError> {
    let experiment = Experiment::find(&o.experiment).ok();
    let components = plots::by_component(o)?;
    let causes = plots::by_cause(o)?;
    let mut histograms: Vec<(&Histogram, Vec<String>)> = Vec::new();
    let mut times = Vec::new();
    for v in &o.variants {
        for h in &v.histograms {
            match histograms.iter_mut().find(|(seen, _)| *seen == h) {
                Some((_, of)) => of.push(o.name_of(v)),
                None => histograms.push((h, vec![o.name_of(v)])),
            }
        }
        for p in v.phases.iter().filter(|p| p.timeline.len() > 2) {
            times.push(plots::over_time(&format!("{}, {}", o.name_of(v), p.name), p)?);
        }
    }
    let scattered = o.phases().filter(|(_, p)| !p.writes_at.is_empty());
    let scattered: Vec<String> = scattered
        .map(|(v, p)| plots::scatter(&format!("where {} writes, {}", p.name, o.name_of(v)), &p.writes_at))
        .collect::<Result<_, _>>()?;
    // What is the same for several is shown once.
    let histograms = histograms.iter().map(|(h, of)| plots::histogram(&of.join(", "), h));
    let histograms = histograms.collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        h2 id={ "e" (index) } { (o.experiment) ": " (o.title) }
        p.note {
            "JouleFS " (o.version) ", " (list(o.variants.iter().map(|v| v.profile.clone()))) ", seed "
            (list(o.variants.iter().map(|v| v.seed.to_string())))
            @if o.quick { ". " strong { "A quick run: smaller than the plan asks for." } }
        }
        @if let Some(e) = &experiment {
            p { strong { (e.claim()) } }
            details { summary { "What is measured, and how" } (markdown(&e.readme)) }
        }
        @if !o.compared.is_empty() { (comparison(&o.compared)) }
        @for s in &o.skipped { p.note { "Skipped: " (s.variant) ": " (s.why) "." } }
        (costs(o))
        (counted(o))
        h3 { "Who spent it" }
        (PreEscaped(components))
        h3 { "For what" }
        (PreEscaped(causes))
        @if !histograms.is_empty() {
            h3 { "Distributions" }
            @for h in &histograms { (PreEscaped(h)) }
        }
        @if !scattered.is_empty() {
            h3 { "Where writes go" }
            @for s in &scattered { (PreEscaped(s)) }
        }
        @if !times.is_empty() {
            details { summary { "Over time (" (times.len()) " plots)" } @for t in &times { (PreEscaped(t)) } }
        }
        details { summary { "All phases in numbers" } (numbers(o)) }
        @if o.phases().any(|(_, p)| !p.files.is_empty()) {
            details { summary { "What files cost" } (files(o)) }
        }
    })
}

fn list(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<_> = items.collect();
    items.sort();
    items.dedup();
    items.join(", ")
}

fn markdown(text: &str) -> Markup {
    let mut out = String::new();
    let parser = Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES);
    // Its headings stand below the page's own.
    let lower = |level: HeadingLevel| HeadingLevel::try_from(level as usize + 2).unwrap_or(HeadingLevel::H6);
    let events = parser.map(|e| match e {
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Event::Start(Tag::Heading { level: lower(level), id, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        e => e,
    });
    pulldown_cmark::html::push_html(&mut out, events);
    PreEscaped(out)
}

fn comparison(rows: &[Comparison]) -> Markup {
    let class = |c: &Comparison| match c.difference() {
        Some(d) if d.abs() > NEAR => "n far",
        _ if c.ours.is_none() => "n note",
        _ => "n near",
    };
    html! {
        div.scroll { table {
            tr { th { "quantity" } th.n { "paper" } th.n { "here" } th.n { "difference" } th { "where" } }
            @for c in rows {
                tr {
                    td { (c.claim.quantity) @if !c.claim.note.is_empty() { br; span.note { (c.claim.note) } } }
                    td.n { (c.paper_text()) }
                    td.n { (c.ours_text()) }
                    td class=(class(c)) {
                        (c.difference_text())
                        @if c.claim.how == How::AtMost && c.difference().is_none() && c.ours.is_some() { " the bound" }
                    }
                    td.note { (c.claim.place) }
                }
            }
        } }
    }
}

/// What cleaning cost and left, and what the work after it cost.
fn costs(o: &Outcome) -> Markup {
    let rows = cost::rows(o);
    html! {
        @if !rows.is_empty() {
            h3 { "What cleaning cost, and the work after it" }
            div.scroll { table {
                tr { @for (n, head) in cost::HEADS.iter().enumerate() { th.n[n > 0] { (head) } } }
                @for row in &rows { tr { @for (n, cell) in row.iter().enumerate() { td.n[n > 0] { (cell) } } } }
            } }
        }
    }
}

/// What this kind of work counted, a phase a row. The state after aging is among the distributions.
fn counted(o: &Outcome) -> Markup {
    let of = |p: &Phase| -> BTreeMap<String, Measure> {
        let own = p.own_measures().filter(|_| p.name != "aging");
        own.map(|(name, m)| (name.to_owned(), m.clone())).collect()
    };
    let rows: Vec<_> = o.phases().map(|(v, p)| (v, p, of(p))).filter(|(.., own)| !own.is_empty()).collect();
    let units: BTreeMap<&str, &str> =
        rows.iter().flat_map(|(.., own)| own).map(|(n, m)| (n.as_str(), m.unit.as_str())).collect();
    html! {
        @if !rows.is_empty() {
            h3 { "What was counted" }
            div.scroll { table.counted {
                tr {
                    th { "variant" } th { "phase" }
                    @for (name, unit) in &units { th.n { (name.replace('_', " ")) br; span.note { (unit) } } }
                }
                @for (v, p, own) in &rows {
                    tr {
                        td { (o.name_of(v)) } td { (p.name) }
                        @for name in units.keys() {
                            td.n { (own.get(*name).map_or_else(String::new, |m| figures(m.value))) }
                        }
                    }
                }
            } }
        }
    }
}

fn numbers(o: &Outcome) -> Markup {
    html! {
        div.scroll { table {
            tr {
                th { "variant" } th { "phase" } th.n { "energy" }
                @for c in Component::ALL { th.n { (c.text()) } }
                th.n { "time" } th.n { "read" } th.n { "written" }
            }
            @for (v, p) in o.phases() {
                @let measure = |n: &str| p.measures.get(n).map_or_else(String::new, |m| format!("{:.1} {}", m.value, m.unit));
                tr {
                    td { (o.name_of(v)) } td { (p.name) } td.n { (p.total()) }
                    @for c in Component::ALL { td.n { (p.component(c)) } }
                    td.n { (format!("{:.3} s", p.took.0 as f64 / 1e9)) } td.n { (measure("read")) } td.n { (measure("written")) }
                }
            }
        } }
    }
}

fn files(o: &Outcome) -> Markup {
    let name = |p: &Phase, owner: u64| match p.files.get(&owner) {
        Some(path) => path.clone(),
        None if owner == 0 => "no file, or one that is not named".into(),
        None => format!("inode {owner}"),
    };
    html! {
        div.scroll { table {
            tr { th { "variant" } th { "phase" } th { "file" } th.n { "energy" } th.n { "share" } }
            @for (v, p) in o.phases().filter(|(_, p)| !p.files.is_empty()) {
                @for (owner, energy) in p.owners.iter().filter(|(_, e)| e.0 > 0) {
                    tr {
                        td { (o.name_of(v)) } td { (p.name) } td { (name(p, *owner)) } td.n { (energy) }
                        td.n { (format!("{:.1} %", energy.0 as f64 * 100.0 / p.total().0.max(1) as f64)) }
                    }
                }
            }
        } }
    }
}
