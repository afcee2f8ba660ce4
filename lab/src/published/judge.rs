//! Does our number agree with the published one?
//!
//! The program computes whether a number is near ([`super::size`]); of several answers the worst counts. For the rest
//! the authors of `published/` give the class in the columns `class` and `why`: whether a difference is explained or
//! contradicts, and whether a near number was predicted, follows from the paper's own formula, or was fitted. A number
//! that a plan or a profile takes over proves nothing and is counted separately.

use std::collections::BTreeMap;

use serde::Serialize;

pub use super::ours::{Measured, Ours};
use super::size::{Distance, Word, distance};
use super::{Answer, Number, Reckoning, Said};
use crate::claim::{Comparison, figures};

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Near, and no parameter comes from that table.
    Predicted,
    /// Near, as it follows from the paper's own formula, numbers or definition.
    Derived,
    /// Near, but a parameter was inferred from the same table.
    Fitted,
    /// Different for a known reason.
    Explained,
    /// Different, though the same quantity was measured.
    Contradicts,
    /// Different, without a recorded reason.
    Differs,
    /// Our number would need a recording that is not available.
    NotRun,
    /// A condition or a price that our input copies.
    TakenOver,
    /// We have no number.
    NoNumber,
}

impl Class {
    /// All classes, in the order of counting.
    pub const ALL: [Class; 9] = [
        Class::Predicted,
        Class::Derived,
        Class::Fitted,
        Class::Explained,
        Class::Contradicts,
        Class::Differs,
        Class::NotRun,
        Class::TakenOver,
        Class::NoNumber,
    ];

    /// The class as text.
    pub fn text(self) -> &'static str {
        match self {
            Class::Predicted => "predicted",
            Class::Derived => "derived",
            Class::Fitted => "fitted",
            Class::Explained => "explained",
            Class::Contradicts => "contradicts",
            Class::Differs => "differs",
            Class::NotRun => "not run",
            Class::TakenOver => "taken over",
            Class::NoNumber => "no number",
        }
    }

    /// A symbol for display without colour.
    pub fn sign(self) -> &'static str {
        match self {
            Class::Predicted => "✓",
            Class::Derived => "∴",
            Class::Fitted => "=",
            Class::Explained => "≠",
            Class::Contradicts => "✗",
            Class::Differs => "?",
            Class::NotRun => "…",
            Class::TakenOver => "→",
            Class::NoNumber => "–",
        }
    }

    /// Its meaning, for a legend.
    pub fn meaning(self) -> &'static str {
        match self {
            Class::Predicted => "agrees, and no parameter comes from that table",
            Class::Derived => "agrees, but follows from the paper's own formula, numbers or definition",
            Class::Fitted => "agrees, but a parameter of model, profile or plan was inferred from the same table",
            Class::Explained => {
                "differs for a known reason, or agrees only by chance or in circumstances that the paper does not give"
            }
            Class::Contradicts => "measured here as described in the paper, with a different result",
            Class::Differs => "differs for a reason that is not known yet",
            Class::NotRun => "ours needs a recording that may not be shipped",
            Class::TakenOver => {
                "a condition, a price or a rule that an experiment, a device's profile or the code takes from the paper"
            }
            Class::NoNumber => "not measured here; the reason is given",
        }
    }

    /// Its name in a page and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::NotRun => "not-run",
            Class::TakenOver => "taken-over",
            Class::NoNumber => "no-number",
            other => other.text(),
        }
    }
}

/// One of our numbers for a published one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answered {
    /// The experiment, or the place that copies the number.
    pub by: String,
    /// Whether `by` is an experiment.
    pub is_experiment: bool,
    /// The experiment's row; empty for a copied number.
    pub what: String,
    /// The published number as in the row.
    pub paper: String,
    /// Our number.
    pub ours: String,
    /// The difference.
    pub difference: String,
    /// The row's note for readers who compare.
    pub note: String,
}

/// A published number with its class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Where it is published.
    pub place: String,
    /// The quantity's name.
    pub quantity: String,
    /// The measured object and circumstances.
    pub condition: String,
    /// As printed, with its unit.
    pub published: String,
    /// Our numbers; the first is the worst and is judged.
    pub answers: Vec<Answered>,
    /// Other numbers of ours, which are not judged.
    pub not_judged: Vec<Answered>,
    /// The class.
    pub class: Class,
    /// The reason.
    pub why: String,
    /// The measurement behind the first answer of the list: rows with the same one count once. None if nothing is
    /// measured.
    #[serde(skip)]
    pub measurement: Option<String>,
}

/// An answer's comparison, and why it has no number.
fn measured(answer: &Answer, number: &Number, ours: &Ours) -> Option<(Option<Comparison>, String)> {
    match answer {
        Answer::Measured { experiment, quantity } => Some(match ours.of(experiment, quantity) {
            Some(m) => (Some(m.comparison.clone()), m.missing.clone()),
            None => (None, String::new()),
        }),
        Answer::Reckoned { how, of } => Some((ours.reckoned(*how, of, number), String::new())),
        _ => None,
    }
}

/// How an answer's number is measured, as text: two rows with the same text repeat one measurement.
fn measurement(answer: &Answer, ours: &Ours) -> Option<String> {
    match answer {
        Answer::Measured { experiment, quantity } => {
            let c = &ours.of(experiment, quantity)?.comparison.claim;
            Some(format!("{experiment} {:?} {} {} {}", c.how, c.measure, c.of, c.over))
        }
        Answer::Reckoned { how, of } => Some(format!("{how:?} {of:?}")),
        _ => None,
    }
}

/// Judges a number.
pub fn judge(number: &Number, ours: &Ours) -> Judged {
    let mut answers: Vec<(Answered, Option<Distance>, String)> = Vec::new();
    for answer in &number.answer {
        let (comparison, missing) = measured(answer, number, ours).unwrap_or_default();
        let distance = comparison.as_ref().and_then(|c| distance(&number.value, c));
        answers.push((answered(answer, number, ours), distance, missing));
    }
    let worst = |d: &Option<Distance>| d.map_or((false, true, 0.0), |d| (!d.is_near, false, d.size));
    answers.sort_by(|(_, a, _), (_, b, _)| worst(b).partial_cmp(&worst(a)).unwrap_or(std::cmp::Ordering::Equal));
    let class = match number.answer.first() {
        None => Class::NoNumber,
        Some(Answer::Code { is_test: true, .. }) => Class::Derived,
        Some(Answer::Plan { .. } | Answer::Profile { .. } | Answer::Code { .. }) => Class::TakenOver,
        Some(Answer::Measured { .. } | Answer::Reckoned { .. }) => {
            let distances: Vec<_> = answers.iter().map(|(_, d, _)| *d).collect();
            of_distances(number.class, &distances)
        }
    };
    let missing = answers.iter().map(|(_, _, missing)| missing).find(|m| !m.is_empty());
    let why = match (class, missing) {
        (Class::NotRun, Some(missing)) => missing.clone(),
        _ => number.why.clone(),
    };
    Judged {
        place: number.place.clone(),
        quantity: number.quantity.clone(),
        condition: number.condition.clone(),
        published: match Word::find(&number.value) {
            Some(word) => word.word.to_owned(),
            None => format!("{} {}", number.value, number.unit).trim_end().to_owned(),
        },
        answers: answers.into_iter().map(|(a, ..)| a).collect(),
        not_judged: number.beside.iter().map(|a| answered(a, number, ours)).collect(),
        class,
        why,
        measurement: number.answer.first().and_then(|a| measurement(a, ours)),
    }
}

/// The class of a row, by all of its answers. An answer without a number cannot agree.
fn of_distances(said: Option<Said>, distances: &[Option<Distance>]) -> Class {
    let is_outside = distances.iter().flatten().any(|d| !d.is_near);
    if !is_outside && distances.iter().any(Option::is_none) {
        return Class::NotRun;
    }
    match (is_outside, said) {
        // The authors may withdraw an agreement, not claim one.
        (_, Some(Said::Explained)) => Class::Explained,
        (_, Some(Said::Contradicts)) => Class::Contradicts,
        (true, Some(Said::Fitted | Said::Derived) | None) => Class::Differs,
        (false, Some(Said::Fitted)) => Class::Fitted,
        (false, Some(Said::Derived)) => Class::Derived,
        (false, None) => Class::Predicted,
    }
}

fn answered(answer: &Answer, number: &Number, ours: &Ours) -> Answered {
    let taken = |by: String, what: String, ours: String| Answered {
        by,
        is_experiment: false,
        what,
        paper: String::new(),
        ours,
        difference: String::new(),
        note: String::new(),
    };
    // The difference from a word's 0 is our number.
    let is_word = Word::find(&number.value).is_some();
    let compared = |by: &str, what: String, c: Option<Comparison>| {
        let text = |of: fn(&Comparison) -> String| c.as_ref().map(of).unwrap_or_default();
        Answered {
            by: by.into(),
            is_experiment: true,
            what,
            paper: text(Comparison::paper_text),
            ours: text(Comparison::ours_text),
            difference: if is_word { String::new() } else { text(Comparison::difference_text) },
            note: c.as_ref().map_or_else(String::new, |c| c.claim.note.clone()),
        }
    };
    let comparison = measured(answer, number, ours).and_then(|(c, _)| c);
    match answer {
        Answer::Measured { experiment, quantity } => compared(experiment, quantity.clone(), comparison),
        Answer::Reckoned { how, of } => {
            let rows: Vec<_> = of.iter().map(|(_, quantity)| quantity.as_str()).collect();
            let what = match how {
                Reckoning::Mean => format!("mean of {}", rows.join(" and ")),
                Reckoning::Increase => rows.join(" against "),
            };
            compared(of.first().map_or("", |(experiment, _)| experiment), what, comparison)
        }
        Answer::Plan { experiment, parameter, value } => {
            let (by, same) = (experiment.clone(), format!("{parameter} = {value}"));
            Answered { is_experiment: true, ..taken(by, String::new(), same) }
        }
        Answer::Profile { profile, number } => {
            let ours = profile_number(profile, number).map(|(n, unit)| format!("{} {unit}", figures(n)));
            taken(profile.clone(), number.clone(), ours.unwrap_or_default())
        }
        Answer::Code { path, text, .. } => taken(path.clone(), text.clone(), String::new()),
    }
}

/// A number in a profile, and its unit.
pub fn profile_number(profile: &str, number: &str) -> Option<(f64, String)> {
    let profile = device::energy::profile::Profile::find(profile).ok()?;
    profile.numbers().into_iter().find(|n| n.name == number).map(|n| (n.value, n.unit))
}

/// All numbers of all papers, judged.
pub fn all(papers: &[super::Paper], ours: &Ours) -> Vec<Vec<Judged>> {
    papers.iter().map(|p| p.numbers.iter().map(|n| judge(n, ours)).collect()).collect()
}

/// The number of rows of each class.
pub fn rows<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> BTreeMap<Class, usize> {
    tally(judged.into_iter().map(|j| j.class))
}

/// The number of each class, rows that repeat one measurement counted once, as the last of their classes in the order
/// of [`Class::ALL`].
pub fn count<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> BTreeMap<Class, usize> {
    let (mut once, mut others) = (BTreeMap::<&str, Class>::new(), Vec::new());
    for j in judged {
        match &j.measurement {
            None => others.push(j.class),
            Some(key) => {
                let class = once.entry(key).or_insert(j.class);
                *class = j.class.max(*class);
            }
        }
    }
    tally(once.into_values().chain(others))
}

fn tally(classes: impl Iterator<Item = Class>) -> BTreeMap<Class, usize> {
    let mut count: BTreeMap<Class, usize> = Class::ALL.into_iter().map(|v| (v, 0)).collect();
    for class in classes {
        *count.entry(class).or_default() += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Claim, How};

    fn comparison(how: How, value: f64, ours: Option<f64>) -> Comparison {
        let text = String::new;
        let (unit, place, note) = ("x".into(), text(), text());
        let claim =
            Claim { quantity: "q".into(), value, unit, place, how, measure: text(), of: text(), over: text(), note };
        Comparison { claim, ours }
    }

    fn number(value: &str, class: Option<Said>, answer: Vec<Answer>) -> Number {
        let text = String::new;
        Number {
            place: text(),
            quantity: text(),
            condition: text(),
            value: value.into(),
            unit: text(),
            answer,
            beside: vec![],
            class,
            why: text(),
        }
    }

    fn row(quantity: &str) -> Answer {
        Answer::Measured { experiment: "e".into(), quantity: quantity.into() }
    }

    /// A row judged by several answers.
    fn judged(printed: &str, said: Option<Said>, all: &[Comparison]) -> Judged {
        let mut ours = Ours::default();
        let names: Vec<String> = (0..all.len()).map(|n| format!("q{n}")).collect();
        for (c, name) in all.iter().zip(&names) {
            let mut c = c.clone();
            c.claim.quantity.clone_from(name);
            c.claim.of.clone_from(name);
            ours.add("e", Measured { comparison: c, missing: String::new() });
        }
        judge(&number(printed, said, names.iter().map(|name| row(name)).collect()), &ours)
    }

    #[test]
    fn a_near_number_is_predicted_derived_or_fitted_and_another_needs_a_reason() {
        let class = |said, ours| judged("100", said, &[comparison(How::Mean, 100.0, ours)]).class;
        assert_eq!(class(None, Some(106.9)), Class::Predicted);
        assert_eq!(class(Some(Said::Derived), Some(101.0)), Class::Derived);
        assert_eq!(class(Some(Said::Fitted), Some(101.0)), Class::Fitted);
        assert_eq!(class(Some(Said::Explained), Some(101.0)), Class::Explained, "agrees by chance");
        assert_eq!(class(Some(Said::Fitted), Some(108.0)), Class::Differs);
        assert_eq!(class(None, Some(107.1)), Class::Differs);
        assert_eq!(class(Some(Said::Explained), Some(92.0)), Class::Explained);
        assert_eq!(class(Some(Said::Contradicts), Some(-100.0)), Class::Contradicts);
        assert_eq!(class(None, None), Class::NotRun);
    }

    #[test]
    fn the_worst_of_several_answers_counts_and_comes_first() {
        let of = |ours: [Option<f64>; 3]| judged("100", None, &ours.map(|o| comparison(How::Mean, 100.0, o)));
        assert_eq!(of([Some(100.0), Some(101.0), Some(99.0)]).class, Class::Predicted);
        let outside = of([Some(100.0), Some(80.0), Some(120.1)]);
        assert_eq!((outside.class, outside.answers[0].ours.as_str()), (Class::Differs, "120.1 x"));
        assert_eq!(of([Some(100.0), None, Some(99.0)]).class, Class::NotRun, "an answer without a number cannot agree");
        assert_eq!(of([Some(50.0), None, Some(99.0)]).class, Class::Differs);
    }

    #[test]
    fn a_number_beside_is_shown_and_not_judged() {
        let mut ours = Ours::default();
        for (name, value) in [("q", 100.0), ("other", 5.0)] {
            let mut c = comparison(How::Mean, 100.0, Some(value));
            c.claim.quantity = name.into();
            ours.add("e", Measured { comparison: c, missing: String::new() });
        }
        let judged = judge(&Number { beside: vec![row("other")], ..number("100", None, vec![row("q")]) }, &ours);
        assert_eq!((judged.class, judged.not_judged[0].ours.as_str()), (Class::Predicted, "5 x"));
    }

    #[test]
    fn means_and_increases_are_calculated_from_several_rows() {
        let mut ours = Ours::default();
        for (name, value) in [("a", -0.8), ("b", 25.6)] {
            let mut c = comparison(How::Increase, 3.0, Some(value));
            c.claim.quantity = name.into();
            ours.add("e", Measured { comparison: c, missing: String::new() });
        }
        let of = |names: &[&str]| names.iter().map(|n| ("e".to_owned(), (*n).to_owned())).collect::<Vec<_>>();
        let judged = |how, names: &[&str]| {
            let answer = vec![Answer::Reckoned { how, of: of(names) }];
            judge(&Number { unit: "%".into(), ..number("+3.0", Some(Said::Explained), answer) }, &ours)
        };
        let mean = judged(Reckoning::Mean, &["a", "b"]);
        assert_eq!((mean.answers[0].ours.as_str(), mean.answers[0].difference.as_str()), ("12.4 %", "+9.4 points"));
        assert_eq!(judged(Reckoning::Increase, &["b", "a"]).answers[0].ours, "-3300 %");
        let missing = judge(&number("3", None, vec![Answer::Reckoned { how: Reckoning::Mean, of: of(&["c"]) }]), &ours);
        assert_eq!(missing.class, Class::NotRun);
    }

    #[test]
    fn rows_that_repeat_one_measurement_count_once_as_the_worst() {
        let near = judged("100", None, &[comparison(How::Mean, 100.0, Some(100.0))]);
        let far = judged("50", Some(Said::Explained), &[comparison(How::Mean, 50.0, Some(100.0))]);
        let none = judge(&number("5", None, vec![]), &Ours::default());
        let all = [near, far.clone(), far, none.clone(), none];
        assert_eq!((rows(&all)[&Class::Predicted], rows(&all)[&Class::Explained]), (1, 2));
        let once = count(&all);
        assert_eq!([once[&Class::Predicted], once[&Class::Explained], once[&Class::NoNumber]], [0, 1, 2]);
    }

    #[test]
    fn signs_and_names_tell_classes_apart() {
        let different = |of: fn(Class) -> &'static str| {
            Class::ALL.map(of).into_iter().collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!([different(Class::sign), different(Class::text), different(Class::name)], [9; 3]);
        assert_eq!(count(&[]).len(), 9);
    }
}
