//! docs/papers.md: every published number next to ours.

use std::fmt::Write as _;

use super::Paper;
use super::judge::{Answered, Class, Judged, count};
use super::size::{NEAR, WORDS};

/// The document.
pub fn render(papers: &[Paper], judged: &[Vec<Judged>]) -> String {
    let mut out = String::from(
        "# The papers' numbers and ours\n\n\
         Made from `published/` and from what the experiments keep (`experiments/*/ours.csv`) by `lab/tests/papers.rs`; change\n\
         those, and run `JOULEFS_RENEW=1 cargo test -p joulefs-lab --test together papers::`. `joulefs lab report` makes a page of the same.\n\n\
         For another number: a row in an experiment's `paper.csv`, a full run that is kept (`joulefs lab run --help`), its answer in\n\
         the paper's list in `published/` (`papers.toml` there says how), and this document anew. The test names what is missing.\n\n",
    );
    classes(&mut out, papers, judged);
    words(&mut out);
    for (paper, judged) in papers.iter().zip(judged) {
        section(&mut out, paper, judged);
    }
    out
}

// OK to unwrap in all of these: writing to a string does not fail.

fn classes(out: &mut String, papers: &[Paper], judged: &[Vec<Judged>]) {
    let all = count(judged.iter().flatten());
    write!(out, "| |").unwrap();
    papers.iter().for_each(|p| write!(out, " {} |", p.short).unwrap());
    writeln!(out, " all | |").unwrap();
    writeln!(out, "|---|{}---|", "---:|".repeat(papers.len() + 1)).unwrap();
    let counts: Vec<_> = judged.iter().map(count).collect();
    for v in Class::ALL.into_iter().filter(|v| all[v] > 0) {
        write!(out, "| {} {} |", v.sign(), v.text()).unwrap();
        counts.iter().for_each(|c| write!(out, " {} |", c[&v]).unwrap());
        writeln!(out, " {} | {} |", all[&v], v.meaning()).unwrap();
    }
    write!(out, "| all |").unwrap();
    counts.iter().for_each(|c| write!(out, " {} |", c.values().sum::<usize>()).unwrap());
    writeln!(out, " {} | rows that repeat one measurement count once |", all.values().sum::<usize>()).unwrap();
    write!(out, "| rows below |").unwrap();
    judged.iter().for_each(|j| write!(out, " {} |", j.len()).unwrap());
    writeln!(out, " {} | |", judged.iter().map(Vec::len).sum::<usize>()).unwrap();
}

fn words(out: &mut String) {
    write!(
        out,
        "\nA printed number agrees if ours is within {NEAR} %. Of several answers the worst counts. Lines marked *not judged* have the same\n\
         quantity reckoned in our way or measured in other circumstances. A statement without a number agrees if ours has the size of\n\
         its word:\n\n| word | ours, in percent |\n|---|---|\n"
    )
    .unwrap();
    WORDS.iter().for_each(|w| writeln!(out, "| {} | {} |", w.word, w.size()).unwrap());
}

fn section(out: &mut String, paper: &Paper, judged: &[Judged]) {
    let Paper { short, authors, title, venue, about, .. } = paper;
    writeln!(out, "\n## {short}\n\n{authors}: *{title}*. {venue}. {about}\n").unwrap();
    writeln!(out, "| where | what | published | ours | difference | class | experiment |").unwrap();
    writeln!(out, "|---|---|---:|---:|---:|---|---|").unwrap();
    for j in judged {
        let what = match j.condition.as_str() {
            "" => cell(&j.quantity),
            condition => format!("{}: {}", cell(&j.quantity), cell(condition)),
        };
        let class = format!("{} {}", j.class.sign(), j.class.text());
        let class = if j.why.is_empty() { class } else { format!("{class}: {}", cell(&j.why)) };
        let first = j.answers.first();
        let of = |of: fn(&Answered) -> &String| first.map_or_else(String::new, |a| cell(of(a)));
        let (ours, difference) = (of(|a| &a.ours), of(|a| &a.difference));
        let by = first.map_or_else(String::new, by);
        let (place, published) = (cell(&j.place), cell(&j.published));
        writeln!(out, "| {place} | {what} | {published} | {ours} | {difference} | {class} | {by} |").unwrap();
        let judged = j.answers.iter().skip(1).map(|a| (a, ""));
        for (a, mark) in judged.chain(j.not_judged.iter().map(|a| (a, "not judged"))) {
            let (ours, difference) = (cell(&a.ours), cell(&a.difference));
            writeln!(out, "| | as {} | | {ours} | {difference} | {mark} | {} |", cell(&a.what), by_name(a)).unwrap();
        }
    }
}

fn by(a: &Answered) -> String {
    match a.what.as_str() {
        "" => by_name(a),
        what => format!("{}: {}", by_name(a), cell(what)),
    }
}

fn by_name(a: &Answered) -> String {
    match a.is_experiment {
        true => format!("[{0}](../experiments/{0}/README.md)", a.by),
        false => format!("`{}`", a.by),
    }
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
