//! An experiment: its claims, its numbers next to the paper's, and, if it was run here, where the energy went.

use std::collections::BTreeMap;

use device::energy::Component;
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};

use sim::plots::{self, drawn};
use sim::replay::judged::percents;

use super::{ReportError, bars, flames};
use crate::claim::{Comparison, How, figures};
use crate::cost;
use crate::plan::Experiment;
use crate::published::judge::Ours;
use crate::published::size::NEAR;
use crate::result::{Outcome, Stored};
use sim::result::{Histogram, Measure, Phase};

/// The section of an experiment, from its files and the available results.
pub(super) fn section(
    name: &str,
    experiment: Option<&Experiment>,
    ours: &Ours,
    outcomes: &[&Outcome],
) -> Result<Markup, ReportError> {
    let title =
        experiment.map(|e| e.plan.title.as_str()).or(outcomes.first().map(|o| o.title.as_str())).unwrap_or(name);
    let results = outcomes.iter().map(|o| result(o)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        h2 id={ "x-" (name) } { (name) ": " (title) }
        @if let Some(e) = experiment {
            div.md { strong { (markdown(&e.claim())) } }
            @if outcomes.is_empty() { (kept(e, ours)) }
            details { summary { "What is measured, how, and what comes out" } div.md { (markdown(&e.readme)) } }
        }
        @for r in &results { (r) }
    })
}

/// The stored numbers of a full run.
fn kept(e: &Experiment, ours: &Ours) -> Markup {
    let rows: Vec<Comparison> =
        e.paper.iter().filter_map(|c| ours.of(&e.name, &c.quantity)).map(|m| m.comparison.clone()).collect();
    let versions = list(e.kept.rows.iter().map(|r| r.version.clone()));
    html! {
        p.note {
            "As kept: JouleFS " (versions) ", " (list(e.kept.rows.iter().map(|r| r.profile.clone()))) ", seed "
            (list(e.kept.rows.iter().map(|r| r.seed.clone()))) "."
        }
        (beside(&rows))
        (comparison(&rows))
    }
}

/// A result.
fn result(o: &Outcome) -> Result<Markup, ReportError> {
    let components = bars::by_component(o)?;
    let causes = bars::by_cause(o)?;
    let mut histograms: Vec<(&Histogram, Vec<String>)> = Vec::new();
    for v in &o.variants {
        for h in &v.histograms {
            match histograms.iter_mut().find(|(seen, _)| *seen == h) {
                Some((_, of)) => of.push(o.name_of(v)),
                None => histograms.push((h, vec![o.name_of(v)])),
            }
        }
    }
    let phases = over_time(o)?;
    let scattered = o.phases().filter(|(_, p)| !p.writes_at.is_empty());
    let scattered: Vec<String> = scattered
        .map(|(v, p)| plots::scatter(&format!("where {} writes, {}", p.name, o.name_of(v)), &p.writes_at))
        .collect::<Result<_, _>>()?;
    // A histogram that several variants share is shown only once.
    let histograms = histograms.iter().map(|(h, of)| plots::histogram(&of.join(", "), h));
    let histograms = histograms.collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        p.note {
            "JouleFS " (o.version) ", " (list(o.variants.iter().map(|v| v.profile.clone()))) ", seed "
            (list(o.variants.iter().map(|v| v.seed.to_string())))
            @if o.quick { ". " strong { "A quick run: smaller than the plan asks for." } }
        }
        @if !o.compared.is_empty() { (beside(&o.compared)) (comparison(&o.compared)) }
        @for s in &o.skipped { p.note { "Skipped: " (s.variant) ": " (s.why) "." } }
        (differences(&o.comparison))
        (costs(o))
        (counted(o))
        h3 { "Energy by owner" }
        (drawn(&components))
        h3 { "Energy by cause" }
        (drawn(&causes))
        (flames::section(o))
        @if !histograms.is_empty() {
            h3 { "Distributions" }
            @for h in &histograms { (drawn(h)) }
        }
        @if !scattered.is_empty() {
            h3 { "Where writes go" }
            @for s in &scattered { (drawn(s)) }
        }
        @if !phases.is_empty() {
            details { summary { "Energy over time (" (phases.len()) " plots)" } @for t in &phases { (drawn(t)) } }
        }
        details { summary { "All phases in numbers" } (numbers(o)) }
        @if o.phases().any(|(_, p)| !p.files.is_empty()) {
            details { summary { "What files cost" } (files(o)) }
        }
    })
}

/// How the energy of each phase added up, as SVG: the runs of a phase in one plot, a line for each.
fn over_time(o: &Outcome) -> Result<Vec<String>, ReportError> {
    let mut phases: Vec<(&str, Vec<(String, &Phase)>)> = Vec::new();
    for (v, p) in o.phases().filter(|(_, p)| p.timeline.len() > 2) {
        let run = (o.name_of(v), p);
        match phases.iter_mut().find(|(name, runs)| *name == p.name && runs.iter().all(|(other, _)| *other != run.0)) {
            Some((_, runs)) => runs.push(run),
            None => phases.push((&p.name, vec![run])),
        }
    }
    let mut pictures = Vec::new();
    for (name, runs) in &phases {
        let runs: Vec<(&str, &Phase)> = runs.iter().map(|(run, p)| (run.as_str(), *p)).collect();
        // A plot has no more colours.
        for runs in runs.chunks(plots::KINDS) {
            pictures.push(plots::over_time(name, runs)?);
        }
    }
    Ok(pictures)
}

fn list(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<_> = items.filter(|item| !item.is_empty()).collect();
    items.sort();
    items.dedup();
    items.join(", ")
}

fn markdown(text: &str) -> Markup {
    let mut out = String::new();
    let parser = Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES);
    // Headings of the README are levels below the page's own.
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

fn far(c: &Comparison) -> bool {
    c.difference().is_some_and(|d| d.abs() > NEAR)
}

/// The papers' numbers and ours as bars, each pair with its own scale.
fn beside(rows: &[Comparison]) -> Markup {
    let pairs = rows.iter().filter_map(|c| Some((c, c.claim.value, c.ours?)));
    let pairs = pairs.filter(|(_, paper, ours)| *paper != 0.0 || *ours != 0.0);
    html! {
        div.beside aria-hidden="true" {
            @for (c, paper, ours) in pairs {
                @let most = paper.abs().max(ours.abs());
                @let against = paper * ours < 0.0;
                div.pair {
                    span { (c.claim.quantity) @if against { span.note { " (the other way)" } } }
                    div.bar { "paper" span.track { i style=(width(paper, most)) {} span { (c.paper_text()) } } }
                    div class={ "bar ours " @if far(c) || against { "explained" } @else { "predicted" } } {
                        "ours" span.track { i style=(width(ours, most)) {} span { (c.ours_text()) } }
                    }
                }
            }
        }
    }
}

fn width(n: f64, most: f64) -> String {
    format!("--w:{:.4}", n.abs() / most)
}

fn comparison(rows: &[Comparison]) -> Markup {
    let class = |c: &Comparison| match c.ours {
        None => "n note",
        Some(_) if far(c) => "n far",
        Some(_) => "n near",
    };
    html! {
        details { summary { "In numbers" } div.scroll { table {
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
        } } }
    }
}

/// The variants next to their controls, and how sure the differences are.
fn differences(all: &[Stored]) -> Markup {
    let most = all.iter().map(|c| c.seeds.len()).max().unwrap_or(0);
    let seeds = all.first().map_or(String::new(), |c| list(c.seeds.iter().map(u64::to_string)));
    let prices = |c: &Stored| c.price_range_percent.map_or(String::new(), |(low, high)| percents(low, high));
    html! {
        @if all.len() > 1 {
            h3 { "Differences between the variants" }
            p.note {
                "Energy of all phases but preparation, against the control, with the interval of 95 % and the limits of the "
                "difference in nine of ten draws of the device's prices. "
                @if most > 1 { "A difference is the mean over pairs of runs with equal seeds: " (seeds) "." }
            }
            div.scroll { table {
                tr {
                    th { "variant" } th { "control" } th.n { "mean" } th.n { "difference" } th.n { "95 % interval" }
                    th.n { "90 % by prices" } th { "verdict" }
                }
                @for c in all {
                    @let (difference, interval) = c.difference().map(|d| d.texts()).unwrap_or_default();
                    tr {
                        td { (c.name) } td { (c.against.as_deref().unwrap_or_default()) } td.n { (c.mean) }
                        td.n { (difference) } td.n { (interval) } td.n { (prices(c)) }
                        td { (c.verdict) @for why in &c.why { br; span.note { (why) } } }
                    }
                }
            } }
        }
    }
}

/// What cleaning cost, the free space it left, and what the work after it cost.
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

/// The counts of this kind of work, one row per phase. The state after aging is among the distributions.
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
