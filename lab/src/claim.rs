//! A published number next to ours, as text.
//!
//! `paper.csv` has one row for each published number: the number (`quantity`, `value`, `unit`), where it is published
//! (`place`), and how our number is calculated: `how` combines the `measure` of the phases `of` and, for ratios and
//! differences, `over`. Phases are named `variant/phase`; `*` matches all, `x*` all that begin with `x`; `+` separates
//! several. `note` has what a reader must know before comparing. Left out on purpose: the measurements (`compare`).

use serde::{Deserialize, Serialize};

/// How a number is calculated from measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The mean over the phases `of`.
    Mean,
    /// The mean over `of` divided by the mean over `over`.
    Ratio,
    /// By how many percent the mean over `of` exceeds the mean over `over`.
    Increase,
    /// The mean of increases, each of a phase in `of` over the phase in `over` with the same name; every application
    /// weighs the same.
    MeanIncrease,
    /// The mean over `of` minus the mean over `over`.
    Difference,
    /// The mean; the paper gives an upper bound.
    AtMost,
}

/// A published number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The quantity's name.
    pub quantity: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it is published.
    pub place: String,
    /// How our number is calculated.
    pub how: How,
    /// The measure used.
    pub measure: String,
    /// The phases used.
    pub of: String,
    /// The phases of the divisor or subtrahend; empty if not needed.
    pub over: String,
    /// What a reader must know before comparing.
    pub note: String,
}

/// A published number and ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The published number.
    #[serde(flatten)]
    pub claim: Claim,
    /// Our number; none if its phases did not run.
    pub ours: Option<f64>,
}

impl Claim {
    /// Parses the text of a `paper.csv`; an error names the line.
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
    /// By how many percent our number is above the paper's; none if there is no number to compare, or if ours keeps the
    /// paper's bound.
    pub fn difference(&self) -> Option<f64> {
        let ours = self.ours?;
        if self.claim.how == How::AtMost && ours <= self.claim.value {
            return None;
        }
        (self.claim.value != 0.0).then(|| 100.0 * (ours / self.claim.value - 1.0))
    }

    /// The difference as text. Two percentages differ by points.
    pub fn difference_text(&self) -> String {
        match (self.ours, self.difference()) {
            (None, _) => "not run".into(),
            (Some(ours), _) if self.claim.unit == "%" => format!("{:+.1} points", ours - self.claim.value),
            (Some(_), None) => "within".into(),
            (Some(_), Some(d)) => format!("{d:+.1} %"),
        }
    }

    /// The paper's number as text.
    pub fn paper_text(&self) -> String {
        let bound = if self.claim.how == How::AtMost { "<= " } else { "" };
        format!("{bound}{} {}", figures(self.claim.value), self.claim.unit)
    }

    /// Our number as text.
    pub fn ours_text(&self) -> String {
        self.ours.map_or_else(|| "-".into(), |n| format!("{} {}", figures(n), self.claim.unit))
    }
}

/// A number with about four significant digits.
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
