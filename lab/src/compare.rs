//! The paper's number, ours beside it, and the difference.
//!
//! `paper.csv` has one row for each published number: what it is (`quantity`, `value`, `unit`), where it
//! stands (`place`), and what of our results answers it: `how` a number is made of the `measure` of the
//! phases `of` and, for ratios, `over`. Phases are named `variant/phase`; `*` stands for all. `note` says
//! what a reader must know before he compares.

use serde::{Deserialize, Serialize};

use crate::result::Outcome;

/// How a number is made of measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The mean over the phases `of`.
    Mean,
    /// That mean divided by the mean over the phases `over`.
    Ratio,
    /// By how many percent the mean `of` is above the mean `over`.
    Increase,
    /// The mean, which the paper bounds from above.
    AtMost,
}

/// A published number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What it is.
    pub quantity: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it stands.
    pub place: String,
    /// How ours is made.
    pub how: How,
    /// The measure it is made of.
    pub measure: String,
    /// The phases it is made of.
    pub of: String,
    /// The phases it is divided by; empty where it is not.
    pub over: String,
    /// What a reader must know before he compares.
    pub note: String,
}

/// A published number and ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The published one.
    #[serde(flatten)]
    pub claim: Claim,
    /// Ours; none if the phases it is made of did not run.
    pub ours: Option<f64>,
}

impl Claim {
    /// From the text of a `paper.csv`; an error names the line.
    pub fn parse_all(text: &str) -> Result<Vec<Claim>, String> {
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let claims: Vec<Claim> = reader.deserialize().collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        for c in &claims {
            let divided = matches!(c.how, How::Ratio | How::Increase);
            if divided == c.over.is_empty() {
                return Err(format!("{:?}: `over` belongs to ratios and increases, and to them alone", c.quantity));
            }
            let unit = match c.how {
                How::Ratio => "x",
                How::Increase => "%",
                How::Mean | How::AtMost => c.unit.as_str(),
            };
            if c.unit != unit {
                return Err(format!("{:?}: its unit is {unit:?}, not {:?}", c.quantity, c.unit));
            }
        }
        Ok(claims)
    }

    /// Our number, out of what was measured.
    pub fn answer(&self, outcome: &Outcome) -> Option<f64> {
        let of = self.mean(outcome, &self.of)?;
        match self.how {
            How::Mean | How::AtMost => Some(of),
            How::Ratio => Some(of / self.mean(outcome, &self.over)?),
            How::Increase => Some(100.0 * (of / self.mean(outcome, &self.over)? - 1.0)),
        }
    }

    fn mean(&self, outcome: &Outcome, select: &str) -> Option<f64> {
        let found: Vec<f64> = outcome
            .phases()
            .filter(|(v, p)| selects(select, &v.name, &p.name))
            .filter_map(|(_, p)| p.measures.get(&self.measure))
            .filter(|m| self.how != How::Mean || m.unit == self.unit)
            .map(|m| m.value)
            .collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }
}

fn selects(select: &str, variant: &str, phase: &str) -> bool {
    let fits = |pattern: &str, name: &str| pattern == "*" || pattern == name;
    select.split_once('/').is_some_and(|(v, p)| fits(v, variant) && fits(p, phase))
}

impl Comparison {
    /// By how many percent ours is above the paper's; none if there is none to compare, or if the paper's
    /// is a bound that ours keeps.
    pub fn difference(&self) -> Option<f64> {
        let ours = self.ours?;
        if self.claim.how == How::AtMost && ours <= self.claim.value {
            return None;
        }
        (self.claim.value != 0.0).then(|| 100.0 * (ours / self.claim.value - 1.0))
    }

    /// The difference as people read it. Two percentages differ by points.
    pub fn difference_text(&self) -> String {
        match (self.ours, self.difference()) {
            (None, _) => "not run".into(),
            (Some(ours), _) if self.claim.unit == "%" => format!("{:+.1} points", ours - self.claim.value),
            (Some(_), None) => "within".into(),
            (Some(_), Some(d)) => format!("{d:+.1} %"),
        }
    }

    /// The paper's number as people read it.
    pub fn paper_text(&self) -> String {
        let bound = if self.claim.how == How::AtMost { "<= " } else { "" };
        format!("{bound}{} {}", figures(self.claim.value), self.claim.unit)
    }

    /// Ours as people read it.
    pub fn ours_text(&self) -> String {
        self.ours.map_or_else(|| "-".into(), |n| format!("{} {}", figures(n), self.claim.unit))
    }
}

/// A number to about four figures.
pub fn figures(n: f64) -> String {
    let places = match n.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1,
        x if x >= 1.0 => 2,
        0.0 => 0,
        _ => 4,
    };
    let text = format!("{n:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// Every published number of an experiment with ours.
pub fn compare(claims: &[Claim], outcome: &Outcome) -> Vec<Comparison> {
    claims.iter().map(|c| Comparison { claim: c.clone(), ours: c.answer(outcome) }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::energy::Nanos;

    use super::*;
    use crate::result::{Measure, Phase, VariantResult};

    fn phase(name: &str, value: f64) -> Phase {
        Phase {
            name: name.into(),
            stage: crate::result::Stage::default(),
            bytes: 0,
            took: Nanos(0),
            spent: vec![],
            operations: vec![],
            owners: vec![],
            files: BTreeMap::new(),
            traffic: vec![],
            counters: BTreeMap::new(),
            timeline: vec![],
            measures: [("energy".to_owned(), Measure { value, unit: "mJ".into() })].into(),
        }
    }

    fn outcome() -> Outcome {
        let variant = |name: &str, read, write| VariantResult {
            name: name.into(),
            profile: "p".into(),
            seed: 1,
            parameters: toml::Table::new(),
            phases: vec![phase("read", read), phase("write", write)],
            histograms: vec![],
            costs: None,
        };
        Outcome {
            experiment: "x".into(),
            title: "x".into(),
            version: "0".into(),
            quick: false,
            variants: vec![variant("old", 2.0, 10.0), variant("new", 4.0, 20.0)],
            skipped: vec![],
            compared: vec![],
        }
    }

    const HEAD: &str = "quantity,value,unit,place,how,measure,of,over,note\n";

    fn ours(row: &str) -> Comparison {
        let claims = Claim::parse_all(&format!("{HEAD}{row}\n")).unwrap();
        compare(&claims, &outcome()).remove(0)
    }

    #[test]
    fn a_mean_takes_every_phase_the_selector_names() {
        let c = ours("q,2.5,mJ,T1,mean,energy,*/read,,");
        assert_eq!((c.ours, c.difference_text().as_str()), (Some(3.0), "+20.0 %"));
        assert_eq!(ours("q,3,mJ,T1,mean,energy,new/read,,").ours, Some(4.0));
    }

    #[test]
    fn ratios_and_increases_divide_means() {
        assert_eq!(ours("q,6,x,T1,ratio,energy,*/write,*/read,").ours, Some(5.0));
        let c = ours("q,90,%,T1,increase,energy,new/*,old/*,");
        assert_eq!((c.ours, c.difference_text().as_str()), (Some(100.0), "+10.0 points"));
    }

    #[test]
    fn a_bound_that_is_kept_is_no_difference() {
        assert_eq!(ours("q,5,mJ,T1,at-most,energy,*/read,,").difference_text(), "within");
        assert_eq!(ours("q,2,mJ,T1,at-most,energy,*/read,,").difference_text(), "+50.0 %");
    }

    #[test]
    fn what_did_not_run_or_has_another_unit_is_not_compared() {
        assert_eq!(ours("q,5,mJ,T1,mean,energy,third/read,,").ours, None);
        assert_eq!(ours("q,5,J,T1,mean,energy,*/read,,").ours, None);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_refused() {
        for row in ["q,5,x,T1,ratio,energy,*/read,,", "q,5,mJ,T1,mean,energy,*/read,*/write,", "q,5,mJ,T1,magic,e,a,,"]
        {
            assert!(Claim::parse_all(&format!("{HEAD}{row}\n")).is_err(), "{row}");
        }
    }

    #[test]
    fn numbers_are_read_to_four_figures() {
        let texts: Vec<_> = [-0.00001, 0.05, 2.5, 2.0, 33.764, 219.04, 12345.6].map(figures).into();
        assert_eq!(texts, ["0", "0.05", "2.5", "2", "33.76", "219", "12346"]);
    }
}
