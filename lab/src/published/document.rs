//! docs/papers.md: every published number next to ours.

use std::fmt::Write as _;

use super::Paper;
use super::judge::{Judged, Verdict, count};

/// The document.
pub fn render(papers: &[Paper], judged: &[Vec<Judged>]) -> String {
    let mut out = String::from(
        "# The papers' numbers and ours\n\n\
         Made from `published/` and from what the experiments keep (`experiments/*/ours.csv`) by `lab/tests/papers.rs`; change\n\
         those, and run `JOULEFS_RENEW=1 cargo test -p joulefs-lab --test together papers::`. `joulefs lab report` makes a page of the same.\n\n\
         For another number: a row in an experiment's `paper.csv`, a full run that is kept (`joulefs lab run --help`), its answer in\n\
         the paper's list in `published/` (`papers.toml` there says how), and this document anew. The test names what is missing.\n\n",
    );
    verdicts(&mut out, papers, judged);
    for (paper, judged) in papers.iter().zip(judged) {
        section(&mut out, paper, judged);
    }
    out
}

// OK to unwrap in all of these: writing to a string does not fail.

fn verdicts(out: &mut String, papers: &[Paper], judged: &[Vec<Judged>]) {
    let all = count(judged.iter().flatten());
    write!(out, "| |").unwrap();
    papers.iter().for_each(|p| write!(out, " {} |", p.short).unwrap());
    writeln!(out, " all | |").unwrap();
    writeln!(out, "|---|{}---|", "---:|".repeat(papers.len() + 1)).unwrap();
    let counts: Vec<_> = judged.iter().map(count).collect();
    for v in Verdict::ALL.into_iter().filter(|v| all[v] > 0) {
        write!(out, "| {} {} |", v.sign(), v.text()).unwrap();
        counts.iter().for_each(|c| write!(out, " {} |", c[&v]).unwrap());
        writeln!(out, " {} | {} |", all[&v], v.meaning()).unwrap();
    }
    write!(out, "| all |").unwrap();
    judged.iter().for_each(|j| write!(out, " {} |", j.len()).unwrap());
    writeln!(out, " {} | |", judged.iter().map(Vec::len).sum::<usize>()).unwrap();
}

fn section(out: &mut String, paper: &Paper, judged: &[Judged]) {
    let Paper { short, authors, title, venue, about, .. } = paper;
    writeln!(out, "\n## {short}\n\n{authors}: *{title}*. {venue}. {about}\n").unwrap();
    writeln!(out, "| where | what | published | ours | difference | verdict | experiment |").unwrap();
    writeln!(out, "|---|---|---:|---:|---:|---|---|").unwrap();
    for j in judged {
        let what = match j.condition.as_str() {
            "" => cell(&j.quantity),
            condition => format!("{}: {}", cell(&j.quantity), cell(condition)),
        };
        let verdict = format!("{} {}", j.verdict.sign(), j.verdict.text());
        let verdict = if j.why.is_empty() { verdict } else { format!("{verdict}: {}", cell(&j.why)) };
        let first = j.answers.first();
        let of = |of: fn(&super::judge::Answered) -> &String| first.map_or_else(String::new, |a| cell(of(a)));
        let (ours, difference) = (of(|a| &a.ours), of(|a| &a.difference));
        let by = first.map_or_else(String::new, by);
        let (place, published) = (cell(&j.place), cell(&j.published));
        writeln!(out, "| {place} | {what} | {published} | {ours} | {difference} | {verdict} | {by} |").unwrap();
        for a in j.answers.iter().skip(1) {
            let (ours, difference) = (cell(&a.ours), cell(&a.difference));
            writeln!(out, "| | as {} | | {ours} | {difference} | | {} |", cell(&a.what), by_name(a)).unwrap();
        }
    }
}

fn by(a: &super::judge::Answered) -> String {
    match a.what.as_str() {
        "" => by_name(a),
        what => format!("{}: {}", by_name(a), cell(what)),
    }
}

fn by_name(a: &super::judge::Answered) -> String {
    match a.is_experiment {
        true => format!("[{0}](../experiments/{0}/README.md)", a.by),
        false => format!("`{}`", a.by),
    }
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
