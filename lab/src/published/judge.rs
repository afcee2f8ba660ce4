//! Does our number agree with the published one?
//!
//! A number that is near, or that keeps a bound, agrees; this is computed. For other numbers the authors of
//! `published/` decide whether the difference is explained or contradicts (`verdict` and `why`). A number that the
//! model was fitted to, or that a plan or profile takes over, proves nothing and is counted separately.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Answer, Number, Said};
use crate::claim::{Comparison, How, figures};
use crate::plan::{Experiment, PlanError};
use crate::result::Outcome;

/// Differences up to this are not significant: in percent, or in points if the paper's value has no number. Papers'
/// repeated measurements differ by as much.
pub const NEAR: f64 = 7.0;

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Near, or within the bound.
    Agrees,
    /// Near, but the model or the work was fitted to it.
    Fitted,
    /// Not near, and the reason is known.
    Explained,
    /// Not near, though the same quantity was measured.
    Contradicts,
    /// Not near, without a recorded reason.
    Differs,
    /// Our number would need a recording that is not available.
    NotRun,
    /// A condition or a price that our input copies.
    TakenOver,
    /// We have no number.
    NoNumber,
}

impl Verdict {
    /// All verdicts, in the order of counting.
    pub const ALL: [Verdict; 8] = [
        Verdict::Agrees,
        Verdict::Fitted,
        Verdict::Explained,
        Verdict::Contradicts,
        Verdict::Differs,
        Verdict::NotRun,
        Verdict::TakenOver,
        Verdict::NoNumber,
    ];

    /// The verdict as text.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Fitted => "fitted",
            Verdict::Explained => "explained",
            Verdict::Contradicts => "contradicts",
            Verdict::Differs => "differs",
            Verdict::NotRun => "not run",
            Verdict::TakenOver => "taken over",
            Verdict::NoNumber => "no number",
        }
    }

    /// A symbol for display without colour.
    pub fn sign(self) -> &'static str {
        match self {
            Verdict::Agrees => "✓",
            Verdict::Fitted => "=",
            Verdict::Explained => "≠",
            Verdict::Contradicts => "✗",
            Verdict::Differs => "?",
            Verdict::NotRun => "…",
            Verdict::TakenOver => "→",
            Verdict::NoNumber => "–",
        }
    }

    /// Its meaning, for a legend.
    pub fn meaning(self) -> &'static str {
        match self {
            Verdict::Agrees => "within 7 % of the published number, or within the bound that it is",
            Verdict::Fitted => {
                "within 7 %, but the model or the work was fitted to this number, so that it proves nothing"
            }
            Verdict::Explained => "further off, for a reason that is known",
            Verdict::Contradicts => "measured here as described in the paper, with a different result",
            Verdict::Differs => "further off, for a reason that is not known yet",
            Verdict::NotRun => "ours needs a recording that may not be shipped",
            Verdict::TakenOver => {
                "a condition, a price or a rule that an experiment, a device's profile or the code takes from the paper"
            }
            Verdict::NoNumber => "not measured here; the reason is given",
        }
    }

    /// Its name in a page and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::NotRun => "not-run",
            Verdict::TakenOver => "taken-over",
            Verdict::NoNumber => "no-number",
            other => other.text(),
        }
    }
}

/// Our numbers, by experiment and row of `paper.csv`.
#[derive(Debug, Clone, Default)]
pub struct Ours {
    rows: BTreeMap<(String, String), Measured>,
}

/// Our number, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The published number and ours.
    pub comparison: Comparison,
    /// Why there is no number; otherwise empty.
    pub missing: String,
}

impl Ours {
    /// The numbers stored with the shipped experiments.
    pub fn kept() -> Result<Ours, PlanError> {
        let mut ours = Ours::default();
        for (name, _) in crate::plan::SHIPPED {
            ours.take_kept(&Experiment::find(name)?);
        }
        Ok(ours)
    }

    /// Adds an experiment's stored numbers.
    pub fn take_kept(&mut self, experiment: &Experiment) {
        for claim in &experiment.paper {
            let row = experiment.kept.row(&claim.quantity);
            let missing = match row {
                Some(row) => row.missing.clone(),
                None => format!("{} was not run for it yet", experiment.name),
            };
            let comparison = Comparison { claim: claim.clone(), ours: row.and_then(|r| r.ours) };
            self.rows.insert((experiment.name.clone(), claim.quantity.clone()), Measured { comparison, missing });
        }
    }

    /// Replaces stored numbers by a result's.
    pub fn take(&mut self, outcome: &Outcome) {
        for c in outcome.compared.iter().filter(|c| c.ours.is_some()) {
            let key = (outcome.experiment.clone(), c.claim.quantity.clone());
            self.rows.insert(key, Measured { comparison: c.clone(), missing: String::new() });
        }
    }

    /// Our number for a row.
    pub fn of(&self, experiment: &str, quantity: &str) -> Option<&Measured> {
        self.rows.get(&(experiment.to_owned(), quantity.to_owned()))
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

/// A published number with its verdict.
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
    /// Our numbers; the first is judged.
    pub answers: Vec<Answered>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason.
    pub why: String,
}

/// Judges a number.
pub fn judge(number: &Number, ours: &Ours) -> Judged {
    let main = match number.answer.first() {
        Some(Answer::Measured { experiment, quantity }) => ours.of(experiment, quantity),
        _ => None,
    };
    let verdict = match (number.answer.first(), main) {
        (None, _) => Verdict::NoNumber,
        (Some(Answer::Code { is_test: true, .. }), _) => Verdict::Agrees,
        (Some(Answer::Plan { .. } | Answer::Profile { .. } | Answer::Code { .. }), _) => Verdict::TakenOver,
        (Some(Answer::Measured { .. }), None) => Verdict::NotRun,
        (Some(Answer::Measured { .. }), Some(m)) => of_difference(number, m),
    };
    let missing = main.map_or("", |m| &m.missing);
    let why = match verdict {
        Verdict::NotRun if !missing.is_empty() => missing.to_owned(),
        _ => number.why.clone(),
    };
    Judged {
        place: number.place.clone(),
        quantity: number.quantity.clone(),
        condition: number.condition.clone(),
        published: format!("{} {}", number.value, number.unit).trim_end().to_owned(),
        answers: number.answer.iter().map(|a| answered(a, ours)).collect(),
        verdict,
        why,
    }
}

fn of_difference(number: &Number, m: &Measured) -> Verdict {
    let Some(near) = near(&number.value, &m.comparison) else { return Verdict::NotRun };
    match (near, number.verdict) {
        (true, Some(Said::Fitted)) => Verdict::Fitted,
        (true, _) => Verdict::Agrees,
        (false, Some(Said::Explained)) => Verdict::Explained,
        (false, Some(Said::Contradicts)) => Verdict::Contradicts,
        (false, Some(Said::Fitted) | None) => Verdict::Differs,
    }
}

/// Whether our number is near the published one; none if we have none. A published `<0` or `>0` has only a sign.
fn near(value: &str, c: &Comparison) -> Option<bool> {
    let ours = c.ours?;
    Some(match value.chars().next() {
        _ if c.claim.how == How::AtMost => ours <= c.claim.value * (1.0 + NEAR / 100.0),
        Some('<') if c.claim.value == 0.0 => ours < 0.0,
        Some('>') if c.claim.value == 0.0 => ours > 0.0,
        _ if c.claim.value == 0.0 => ours.abs() <= NEAR,
        _ => c.difference().is_some_and(|d| d.abs() <= NEAR),
    })
}

fn answered(answer: &Answer, ours: &Ours) -> Answered {
    let taken = |by: String, what: String, ours: String| Answered {
        by,
        is_experiment: false,
        what,
        paper: String::new(),
        ours,
        difference: String::new(),
        note: String::new(),
    };
    match answer {
        Answer::Measured { experiment, quantity } => {
            let measured = ours.of(experiment, quantity);
            let text = |of: fn(&Comparison) -> String| measured.map(|m| of(&m.comparison)).unwrap_or_default();
            Answered {
                by: experiment.clone(),
                is_experiment: true,
                what: quantity.clone(),
                paper: text(Comparison::paper_text),
                ours: text(Comparison::ours_text),
                difference: text(Comparison::difference_text),
                note: measured.map_or_else(String::new, |m| m.comparison.claim.note.clone()),
            }
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

/// The number of each verdict.
pub fn count<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> BTreeMap<Verdict, usize> {
    let mut count: BTreeMap<Verdict, usize> = Verdict::ALL.into_iter().map(|v| (v, 0)).collect();
    for j in judged {
        *count.entry(j.verdict).or_default() += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;

    fn comparison(how: How, value: f64, ours: Option<f64>) -> Comparison {
        let text = String::new;
        let (unit, place, note) = ("x".into(), text(), text());
        let claim =
            Claim { quantity: "q".into(), value, unit, place, how, measure: text(), of: text(), over: text(), note };
        Comparison { claim, ours }
    }

    fn number(value: &str, verdict: Option<Said>) -> Number {
        let answer = vec![Answer::Measured { experiment: "e".into(), quantity: "q".into() }];
        let text = String::new;
        Number {
            place: text(),
            quantity: text(),
            condition: text(),
            value: value.into(),
            unit: text(),
            answer,
            verdict,
            why: text(),
        }
    }

    fn verdict(printed: &str, said: Option<Said>, c: Comparison) -> Verdict {
        let mut ours = Ours::default();
        ours.rows.insert(("e".into(), "q".into()), Measured { comparison: c, missing: String::new() });
        judge(&number(printed, said), &ours).verdict
    }

    #[test]
    fn who_is_near_agrees_whatever_people_say_and_who_is_not_needs_their_word() {
        let mean = |ours| comparison(How::Mean, 100.0, Some(ours));
        assert_eq!(verdict("100", None, mean(106.9)), Verdict::Agrees);
        assert_eq!(verdict("100", Some(Said::Contradicts), mean(94.0)), Verdict::Agrees);
        assert_eq!(verdict("100", Some(Said::Fitted), mean(101.0)), Verdict::Fitted);
        assert_eq!(verdict("100", Some(Said::Fitted), mean(108.0)), Verdict::Differs);
        assert_eq!(verdict("100", None, mean(107.1)), Verdict::Differs);
        assert_eq!(verdict("100", Some(Said::Explained), mean(92.0)), Verdict::Explained);
        assert_eq!(verdict("100", Some(Said::Contradicts), mean(-100.0)), Verdict::Contradicts);
        assert_eq!(verdict("100", Some(Said::Explained), comparison(How::Mean, 100.0, None)), Verdict::NotRun);
    }

    #[test]
    fn bounds_and_signs_are_kept_or_not() {
        let at_most = |ours| verdict("<5", None, comparison(How::AtMost, 5.0, Some(ours)));
        assert_eq!([1.0, 6.0].map(at_most), [Verdict::Agrees, Verdict::Differs]);
        let signed = |printed, ours| verdict(printed, None, comparison(How::Increase, 0.0, Some(ours)));
        assert_eq!(signed("<0", -0.1), Verdict::Agrees);
        assert_eq!(signed("<0", 0.1), Verdict::Differs);
        assert_eq!(signed(">0", 20.0), Verdict::Agrees);
        assert_eq!([signed("0", -6.0), signed("0", 8.0)], [Verdict::Agrees, Verdict::Differs]);
    }

    #[test]
    fn signs_and_names_tell_verdicts_apart() {
        let different = |of: fn(Verdict) -> &'static str| {
            Verdict::ALL.map(of).into_iter().collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!([different(Verdict::sign), different(Verdict::text), different(Verdict::name)], [8; 3]);
        assert_eq!(count(&[]).len(), 8);
    }
}
