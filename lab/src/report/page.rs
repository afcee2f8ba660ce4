//! The page's frame: introduction, all published numbers next to ours, then each experiment.

use maud::html;
use sim::page::standing_alone;

use super::{ReportError, experiment, numbers};
use crate::plan::{Experiment, SHIPPED};
use crate::published::judge::{Judged, Ours};
use crate::published::{Paper, judge};
use crate::result::Outcome;

pub(super) fn page(papers: &[Paper], ours: &Ours, outcomes: &[Outcome]) -> Result<String, ReportError> {
    let judged: Vec<Vec<Judged>> = judge::all(papers, ours);
    let shipped: Vec<Experiment> =
        SHIPPED.iter().map(|(name, _)| Experiment::find(name)).collect::<Result<_, _>>().map_err(ReportError::Plan)?;
    let mut sections = Vec::new();
    for e in &shipped {
        let own: Vec<&Outcome> = outcomes.iter().filter(|o| o.experiment == e.name).collect();
        sections.push((e.name.clone(), experiment::section(&e.name, Some(e), ours, &own)?));
    }
    for o in outcomes.iter().filter(|o| shipped.iter().all(|e| e.name != o.experiment)) {
        sections.push((o.experiment.clone(), experiment::section(&o.experiment, None, ours, &[o])?));
    }
    let body = html! {
        (numbers::picks(papers))
        main {
            h1 { "What five papers measured of storage and its energy, measured again" }
            p.lead {
                "JouleFS is F2FS in user space, above simulated devices that count every joule. Its lab repeats what the papers "
                "did, and this page puts each number that they publish beside ours."
            }
            (numbers::headline(papers, &judged))
            (numbers::tables(papers, &judged))
            h2 id="experiments" { "The experiments" }
            p {
                "Each repeats to the last picojoule with the same version, profile, plan and seed. A megabyte is 2" sup { "20" }
                " bytes. " code { "joulefs lab run NAME" } " runs one; "
                code { "joulefs lab report" } " then also shows energy by owner, by cause and over time."
            }
            nav { @for (name, _) in &sections { a href={ "#x-" (name) } { (name) } } }
            @for (_, s) in &sections { (s) }
        }
    };
    Ok(standing_alone("JouleFS lab: the papers' numbers and ours", &body))
}
