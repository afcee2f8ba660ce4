//! Which measurements are stored with an experiment?
//!
//! `ours.csv` is next to `paper.csv`. For each row of `paper.csv` it has the number from a full run of the plan, to the
//! last digit, with profile, seed and version, or the reason why there is none. It has no date and nothing about the
//! machine. [`crate::keep`] writes it and decides when it is stale; it is not edited by hand.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// An `ours.csv`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// The inputs of the measurement; none if nothing is stored.
    pub of: Option<Origin>,
    /// A row for each published number that the experiment reproduces, in the order of `paper.csv`.
    pub rows: Vec<Row>,
}

/// The inputs of a result, as fingerprints ([`crate::keep`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Of the plan, of its prices and recipes, and of the columns of `paper.csv` that define how a number is
    /// calculated.
    pub plan: String,
    /// Of the recordings next to the plan.
    pub recordings: String,
}

/// Our number for a published one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The row's `quantity` in `paper.csv`.
    pub quantity: String,
    /// The number; none if its phases did not run.
    pub ours: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// The devices it was measured on.
    pub profile: String,
    /// The random seeds.
    pub seed: String,
    /// The version of the program.
    pub version: String,
    /// Why there is no number.
    pub missing: String,
}

/// Prefix of the line with the fingerprints.
const ORIGIN: &str = "# of plan ";
/// Separator between the two fingerprints.
const RECORDINGS: &str = ", recordings ";

impl Kept {
    /// Parses the text of an `ours.csv`; an error says what is wrong.
    pub fn parse(text: &str) -> Result<Kept, String> {
        let origin = text.lines().find_map(|line| line.strip_prefix(ORIGIN)?.split_once(RECORDINGS));
        let of = origin.map(|(plan, recordings)| Origin { plan: plan.into(), recordings: recordings.into() });
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let rows: Vec<Row> = reader.deserialize().collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        if of.is_none() && !rows.is_empty() {
            return Err(format!("it has numbers and no line {ORIGIN:?}"));
        }
        if let Some(row) = rows.iter().find(|r| r.ours.is_some() != r.missing.is_empty()) {
            return Err(format!("{:?}: either a number or why there is none", row.quantity));
        }
        Ok(Kept { of, rows })
    }

    /// The text of the file.
    pub fn text(&self, experiment: &str) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            // OK to unwrap: writing to memory does not fail, and a row is flat.
            writer.serialize(row).unwrap();
        }
        let rows = String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default();
        let mut out = format!("# Made by `joulefs lab run {experiment} --keep`.\n");
        if let Some(of) = &self.of {
            // OK to unwrap: writing to a string does not fail.
            writeln!(out, "{ORIGIN}{}{RECORDINGS}{}", of.plan, of.recordings).unwrap();
        }
        out + &rows
    }

    /// The measurement for a row of `paper.csv`.
    pub fn row(&self, quantity: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: Option<f64>, missing: &str) -> Row {
        let text = str::to_owned;
        Row {
            quantity: text("read, \"quoted\""),
            ours,
            unit: text("mJ"),
            profile: text("p"),
            seed: text("1"),
            version: text("0"),
            missing: text(missing),
        }
    }

    fn kept(rows: Vec<Row>) -> Kept {
        Kept { of: Some(Origin { plan: "ab".into(), recordings: "cd".into() }), rows }
    }

    #[test]
    fn what_was_written_is_read_to_the_last_digit() {
        let kept = kept(vec![row(Some(0.1 + 0.2), ""), row(None, "no recording")]);
        let back = Kept::parse(&kept.text("x")).unwrap();
        assert_eq!(back, kept);
        assert_eq!(back.rows[0].ours.unwrap().to_bits(), (0.1_f64 + 0.2).to_bits());
    }

    #[test]
    fn a_number_without_origin_or_a_row_without_number_and_reason_is_refused() {
        assert!(Kept::parse(&kept(vec![row(None, "")]).text("x")).unwrap_err().contains("either a number"));
        assert!(Kept::parse(&kept(vec![row(Some(1.0), "none")]).text("x")).unwrap_err().contains("either a number"));
        let text = kept(vec![row(Some(1.0), "")]).text("x").replace("# of", "# off");
        assert!(Kept::parse(&text).unwrap_err().contains("no line"));
        assert_eq!(Kept::parse("").unwrap(), Kept::default());
    }
}
