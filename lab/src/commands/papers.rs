//! Every published number next to ours, as text.

use std::path::PathBuf;

use lab::published::Paper;
use lab::published::judge::{Class, Judged, all, count, rows};
use serde_json::json;
use terminal::{Failure, output, table};

/// `joulefs lab papers`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs lab papers\n  joulefs lab papers --paper ji --class explained\n  joulefs lab papers --json\n\n\
    Our numbers are those stored with the experiments, or with --results those of your own run."
)]
pub struct PapersArgs {
    /// Only papers with this word in name or title.
    #[arg(long)]
    paper: Option<String>,
    /// Only numbers of this class; may be given more than once.
    #[arg(long, value_parser = classes())]
    class: Vec<String>,
    /// Use results of full runs from this directory instead of the stored numbers.
    #[arg(long)]
    results: Option<PathBuf>,
}

fn classes() -> clap::builder::PossibleValuesParser {
    Class::ALL.map(Class::name).into()
}

/// Prints the numbers.
pub fn run(args: &PapersArgs, as_json: bool) -> Result<(), Failure> {
    let outcomes = match &args.results {
        Some(dir) => lab::report::load(dir).map_err(|e| e.to_string())?,
        None => Vec::new(),
    };
    let papers = chosen(args)?;
    let ours = lab::report::ours(&outcomes).map_err(|e| e.to_string())?;
    let mut judged = all(&papers, &ours);
    if !args.class.is_empty() {
        let wanted = |j: &Judged| args.class.iter().any(|v| v == j.class.name());
        judged.iter_mut().for_each(|of_paper| of_paper.retain(wanted));
    }
    if as_json {
        output::print(&as_value(&papers, &judged));
        return Ok(());
    }
    for (paper, judged) in papers.iter().zip(&judged).filter(|(_, judged)| !judged.is_empty()) {
        said("", 0, &format!("{}: {}", paper.short, paper.title));
        judged.iter().for_each(show);
        output::line("");
    }
    let counts = count(judged.iter().flatten());
    let counted = counts.iter().filter(|(_, n)| **n > 0).map(|(v, n)| format!("{n} {} {}", v.sign(), v.text()));
    said("", 0, &counted.collect::<Vec<_>>().join(", "));
    Ok(())
}

/// The value that `--json` prints; the page uses the same judgements.
pub fn as_value(papers: &[Paper], judged: &[Vec<Judged>]) -> serde_json::Value {
    let named = |counts: std::collections::BTreeMap<Class, usize>| {
        counts.iter().map(|(v, n)| (v.name().to_owned(), json!(n))).collect::<serde_json::Map<_, _>>()
    };
    let (once, rows) = (named(count(judged.iter().flatten())), named(rows(judged.iter().flatten())));
    let papers = papers.iter().zip(judged).map(|(p, numbers)| json!({ "paper": p, "numbers": numbers }));
    json!({ "classes": once, "rows": rows, "papers": papers.collect::<Vec<_>>() })
}

fn chosen(args: &PapersArgs) -> Result<Vec<Paper>, Failure> {
    let all = lab::report::papers().map_err(|e| e.to_string())?;
    let Some(word) = args.paper.as_ref().map(|w| w.to_lowercase()) else { return Ok(all) };
    let known: Vec<_> = all.iter().map(|p| p.short.clone()).collect();
    let is_it = |p: &Paper| [&p.short, &p.title].into_iter().any(|text| text.to_lowercase().contains(&word));
    let found: Vec<_> = all.into_iter().filter(is_it).collect();
    match found.is_empty() {
        true => Err(Failure::usage(format!("--paper {word}: no such paper: there are {}", known.join(", ")))),
        false => Ok(found),
    }
}

fn show(j: &Judged) {
    let what = if j.condition.is_empty() { j.quantity.clone() } else { format!("{}, {}", j.quantity, j.condition) };
    let ours = j.answers.first().filter(|a| !a.ours.is_empty());
    let ours = ours.map_or_else(String::new, |a| format!("; ours {} {}", a.ours, a.difference).trim_end().to_owned());
    said(&format!("  {} ", j.class.sign()), 4, &format!("{what} ({}): {}{ours}", j.place, j.published));
    if !j.why.is_empty() {
        said("      ", 6, &format!("{}: {}", j.class.text(), j.why));
    }
}

/// Prints a line; in a terminal, wraps it with an indent.
fn said(begin: &str, indent: usize, text: &str) {
    let text = table::columns().map_or_else(|| text.to_owned(), |columns| output::wrapped(text, indent, columns));
    output::lines(&format!("{begin}{text}"));
}
