//! A published number, and ours beside it, as people read them.
//!
//! `paper.csv` has one row for each published number: what it is (`quantity`, `value`, `unit`), where it
//! stands (`place`), and what of our results answers it: `how` a number is made of the `measure` of the
//! phases `of` and, for ratios and differences, `over`. Phases are named `variant/phase`; `*` stands for all,
//! `x*` for all that begin with `x`, and a `+` stands between several. `note` says what a reader must know before he
//! compares. Left out on purpose: what was measured (`compare`).

use serde::{Deserialize, Serialize};

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
    /// The mean of such increases, each of a phase `of` above the phase `over` that has its name: of applications, each
    /// weighs the same then.
    MeanIncrease,
    /// That mean less the mean over the phases `over`.
    Difference,
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
    /// The phases it is divided by, or that are taken off; empty where none are.
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
            let beside = matches!(c.how, How::Ratio | How::Increase | How::MeanIncrease | How::Difference);
            if beside == c.over.is_empty() {
                let belongs = "`over` belongs to ratios, increases and differences, and to them alone";
                return Err(format!("{:?}: {belongs}", c.quantity));
            }
            let unit = match c.how {
                How::Ratio => "x",
                How::Increase | How::MeanIncrease => "%",
                How::Mean | How::AtMost | How::Difference => c.unit.as_str(),
            };
            if c.unit != unit {
                return Err(format!("{:?}: its unit is {unit:?}, not {:?}", c.quantity, c.unit));
            }
        }
        Ok(claims)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_to_four_figures() {
        let texts: Vec<_> = [-0.00001, 0.05, 2.5, 2.0, 33.764, 219.04, 12345.6].map(figures).into();
        assert_eq!(texts, ["0", "0.05", "2.5", "2", "33.76", "219", "12346"]);
    }
}
