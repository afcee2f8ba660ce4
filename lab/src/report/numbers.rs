//! Every published number next to ours, with the class and the reason, grouped by paper.
//!
//! The reader selects a class or a paper with buttons that need no script: CSS hides the other rows.

use maud::{Markup, PreEscaped, html};

use crate::published::Paper;
use crate::published::judge::{Answered, Class, Judged, count, rows};

/// The buttons' inputs, placed before all content they control, and the CSS rules that hide rows.
pub(super) fn picks(papers: &[Paper]) -> Markup {
    let mut rules = String::new();
    for v in Class::ALL.map(Class::name) {
        rules += &format!("#v-{v}:checked~main .numbers tbody tr:not(.{v}){{display:none}}\n");
    }
    for n in 0..papers.len() {
        rules += &format!("#p-{n}:checked~main .paper:not(.of-{n}){{display:none}}\n");
    }
    let ids =
        Class::ALL.map(|v| format!("v-{}", v.name())).into_iter().chain((0..papers.len()).map(|n| format!("p-{n}")));
    for id in ids.chain(["v-all".into(), "p-all".into()]) {
        rules += &format!("#{id}:checked~main label[for={id}]{{outline:2px solid currentColor}}\n");
        rules += &format!("#{id}:focus-visible~main label[for={id}]{{outline:3px dashed currentColor}}\n");
    }
    html! {
        style { (PreEscaped(rules)) }
        input.pick type="radio" name="class" id="v-all" checked aria-label="every class";
        @for v in Class::ALL { input.pick type="radio" name="class" id={ "v-" (v.name()) } aria-label=(v.text()); }
        input.pick type="radio" name="paper" id="p-all" checked aria-label="every paper";
        @for (n, p) in papers.iter().enumerate() { input.pick type="radio" name="paper" id={ "p-" (n) } aria-label=(p.short); }
    }
}

/// The number of each class, in a sentence, as buttons, and as shares.
pub(super) fn headline(papers: &[Paper], judged: &[Vec<Judged>]) -> Markup {
    let once = count(judged.iter().flatten());
    let all: usize = once.values().sum();
    let of = |v: Class| once[&v];
    let shown = rows(judged.iter().flatten());
    let compared = all - of(Class::NotRun) - of(Class::TakenOver) - of(Class::NoNumber);
    html! {
        p.lead {
            "The " (papers.len()) " papers publish " strong { (all) } " numbers and statements, a row of a table and rows of "
            "one measurement counted once. " strong { (compared) } " have one of ours next to them: "
            strong { (of(Class::Predicted)) } " are predicted; " (of(Class::Derived)) " follow from the paper's own formula; to "
            (of(Class::Fitted)) " the model or the plan was fitted; " strong { (of(Class::Explained)) }
            " differ for a known reason; " strong { (of(Class::Contradicts)) } " contradict."
            @if of(Class::Differs) > 0 { " " (of(Class::Differs)) " differ for a reason that is not known yet." }
            @if of(Class::NotRun) > 0 { " " (of(Class::NotRun)) " wait for a recording that may not be shipped." }
            " " (of(Class::TakenOver)) " are conditions and prices that are taken over, and " (of(Class::NoNumber))
            " are not measured here; the reason is given for each."
        }
        div.share aria-hidden="true" {
            @for (v, n) in shown.iter().filter(|(_, n)| **n > 0) { i class=(v.name()) style=(format!("flex-grow:{n}")) {} }
        }
        ul.counts {
            li.all { label for="v-all" { b { (judged.iter().map(Vec::len).sum::<usize>()) } " " span.word { "all" } small { "every row; choose what is shown" } } }
            @for (v, n) in shown.iter().filter(|(_, n)| **n > 0) {
                li class=(v.name()) {
                    label for={ "v-" (v.name()) } data-count=(n) {
                        b { (n) } " " span.word { (v.sign()) " " (v.text()) } small { (v.meaning()) }
                    }
                }
            }
        }
        div.picks {
            label for="p-all" { "all papers" }
            @for (n, p) in papers.iter().enumerate() { label for={ "p-" (n) } { (p.short) } }
        }
    }
}

/// The tables, one for each paper.
pub(super) fn tables(papers: &[Paper], judged: &[Vec<Judged>]) -> Markup {
    html! {
        @for (n, (p, judged)) in papers.iter().zip(judged).enumerate() {
            section class={ "paper of-" (n) } {
                h2 { (p.short) }
                p { (p.about) " " span.note { (p.authors) ": " em { (p.title) } ". " (p.venue) "." } }
                table.numbers {
                    thead { tr {
                        th.what { "what" } th.n.published { "published" } th.n.ours { "ours" } th.class { "class" } th { "why, and who says it" }
                    } }
                    tbody { @for j in judged { (row(j)) } }
                }
            }
        }
    }
}

fn row(j: &Judged) -> Markup {
    let first = j.answers.first();
    html! {
        tr class=(j.class.name()) {
            td.what { (j.quantity) small { @if !j.condition.is_empty() { (j.condition) br; } (j.place) } }
            td.n.published data-label="published" { (j.published) }
            td.n.ours data-label="ours" {
                @if let Some(a) = first { (a.ours) @if !a.difference.is_empty() { small { " " (a.difference) } } }
            }
            td.class { (j.class.sign()) " " (j.class.text()) }
            td.why {
                @if !j.why.is_empty() { p { (marked(&j.why)) } }
                @if let Some(a) = first { small { (by(a)) @if !a.what.is_empty() { ": " (marked(&a.what)) } } }
                @if j.answers.len() > 1 { (others(&j.answers[1..], " more")) }
                @if !j.not_judged.is_empty() { (others(&j.not_judged, " not judged")) }
            }
        }
    }
}

fn others(answers: &[Answered], kind: &str) -> Markup {
    html! {
        details {
            summary { (answers.len()) (kind) @if answers.len() == 1 { " reading" } @else { " readings" } }
            ul { @for a in answers {
                li { (a.ours) @if !a.difference.is_empty() { " (" (a.difference) ")" } ": " (a.what) small { (by(a)) @if !a.note.is_empty() { ": " (a.note) } } }
            } }
        }
    }
}

fn by(a: &Answered) -> Markup {
    html! { @if a.is_experiment { a href={ "#x-" (a.by) } { (a.by) } } @else { code { (a.by) } } }
}

/// A sentence with the words between backticks as code.
fn marked(text: &str) -> Markup {
    html! { @for (n, part) in text.split('`').enumerate() { @if n % 2 == 1 { code { (part) } } @else { (part) } } }
}
