//! Which numbers do the papers publish, and which of ours correspond?
//!
//! `published/` has a file for each paper (`papers.toml` in it explains the columns). [`judge`] compares our numbers
//! with them, [`size`] defines how near they must be, [`cited`] finds the numbers that a plan or a profile was fitted
//! to, and [`document`] writes docs/papers.md. Left out on purpose: how our numbers are calculated from measurements
//! ([`crate::compare`]).

pub mod cited;
pub mod document;
pub mod judge;
mod ours;
pub mod size;

pub use ours::QUOTED;

use serde::{Deserialize, Serialize};

/// A paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paper {
    /// Its short name.
    pub short: String,
    /// Its authors.
    pub authors: String,
    /// Its title.
    pub title: String,
    /// Where it appeared.
    pub venue: String,
    /// Its subject, in a sentence.
    pub about: String,
    /// Its numbers, in the order of the text.
    #[serde(skip)]
    pub numbers: Vec<Number>,
}

/// A published number, or several of one row of a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Where it is published.
    pub place: String,
    /// The quantity's name.
    pub quantity: String,
    /// The measured object and the circumstances.
    pub condition: String,
    /// The value as printed, or one of [`size::WORDS`].
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// The corresponding numbers here; the worst is judged.
    #[serde(deserialize_with = "answers")]
    pub answer: Vec<Answer>,
    /// Other numbers of ours to show next to them: reckoned in another way, or measured in other circumstances.
    #[serde(deserialize_with = "answers")]
    pub beside: Vec<Answer>,
    /// The class, where the program cannot decide.
    pub class: Option<Said>,
    /// Why our number differs or is missing.
    pub why: String,
}

/// What corresponds to a published number here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A row of an experiment's `paper.csv`.
    Measured {
        /// The experiment.
        experiment: String,
        /// The row's quantity.
        quantity: String,
    },
    /// A number calculated from several rows of `ours.csv` or `quoted.csv`.
    Reckoned {
        /// How.
        how: Reckoning,
        /// The experiments and the rows' quantities.
        of: Vec<(String, String)>,
    },
    /// A condition that a plan copies.
    Plan {
        /// The experiment.
        experiment: String,
        /// The parameter, anywhere in the plan.
        parameter: String,
        /// Its value in the plan.
        value: String,
    },
    /// A number that a device's profile copies.
    Profile {
        /// The profile.
        profile: String,
        /// The number's name in it.
        number: String,
    },
    /// The number is built into our code or checked by a test.
    Code {
        /// The file.
        path: String,
        /// The text to find in it.
        text: String,
        /// Whether that file is a test.
        is_test: bool,
    },
}

/// How a number is calculated from several rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reckoning {
    /// The mean of all.
    Mean,
    /// By how many percent the first is above the second.
    Increase,
}

/// A class that the program cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// Follows from the paper's own formula, numbers or definition.
    Derived,
    /// A parameter of the model, the profile or the plan was inferred from it.
    Fitted,
    /// It differs, and the reason is known.
    Explained,
    /// The same quantity was measured, and ours contradicts it.
    Contradicts,
}

fn answers<'de, D: serde::Deserializer<'de>>(of: D) -> Result<Vec<Answer>, D::Error> {
    let text = String::deserialize(of)?;
    let all = text.split(" | ").filter(|a| !a.is_empty());
    all.map(|a| Answer::parse(a).ok_or_else(|| serde::de::Error::custom(format!("{a:?} is no answer")))).collect()
}

impl Answer {
    fn parse(text: &str) -> Option<Answer> {
        let (head, tail) = text.split_once(": ")?;
        let (experiment, quantity) = (head.to_owned(), tail.to_owned());
        match head.split_once(' ') {
            None => Some(Answer::Measured { experiment, quantity }),
            Some((kind @ ("mean" | "increase"), name)) => {
                let rest = tail.split(" ; ").skip(1).map(|row| row.split_once(": "));
                let first = (name, tail.split(" ; ").next()?);
                let of: Option<Vec<_>> = std::iter::once(Some(first)).chain(rest).collect();
                let of: Vec<_> = of?.into_iter().map(|(e, q)| (e.to_owned(), q.to_owned())).collect();
                let how = if kind == "mean" { Reckoning::Mean } else { Reckoning::Increase };
                (of.len() > 1 && (how == Reckoning::Mean || of.len() == 2)).then_some(Answer::Reckoned { how, of })
            }
            Some(("plan", name)) => {
                let (parameter, value) = tail.split_once('=')?;
                Some(Answer::Plan { experiment: name.into(), parameter: parameter.into(), value: value.into() })
            }
            Some(("profile", name)) => Some(Answer::Profile { profile: name.into(), number: tail.into() }),
            Some((kind @ ("code" | "test"), path)) => {
                Some(Answer::Code { path: path.into(), text: tail.into(), is_test: kind == "test" })
            }
            Some(_) => None,
        }
    }
}

/// `published/papers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    paper: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    short: String,
    authors: String,
    title: String,
    venue: String,
    about: String,
}

const INDEX: &str = include_str!("../../../published/papers.toml");

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../published/", $name, ".csv")))),*]
    };
}

/// The papers' lists by name.
pub const FILES: &[(&str, &str)] = files!["fagc", "medfs", "mohan", "ji", "scherl"];

/// All papers with all their numbers; an error names file and line.
pub fn papers() -> Result<Vec<Paper>, String> {
    let index: Index = toml::from_str(INDEX).map_err(|e| format!("published/papers.toml: {e}"))?;
    let paper = |e: Entry| {
        let (_, text) = FILES
            .iter()
            .find(|(name, _)| *name == e.file)
            .ok_or_else(|| format!("published/{}.csv is not here", e.file))?;
        let numbers = parse(text).map_err(|m| format!("published/{}.csv: {m}", e.file))?;
        let Entry { short, authors, title, venue, about, .. } = e;
        Ok(Paper { short, authors, title, venue, about, numbers })
    };
    index.paper.into_iter().map(paper).collect()
}

fn parse(text: &str) -> Result<Vec<Number>, String> {
    csv::Reader::from_reader(text.as_bytes()).deserialize().collect::<Result<_, _>>().map_err(|e| e.to_string())
}

/// The numbers in a text, with their digits as printed: `16.5-20 %` has 16.5 and 20.
pub fn numbers_in(text: &str) -> Vec<f64> {
    let text = text.replace(',', "");
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    parts.filter_map(|part| part.trim_matches('.').parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "place,quantity,condition,value,unit,answer,beside,class,why\n";

    #[test]
    fn an_answer_is_a_row_a_parameter_a_price_or_a_test() {
        let row = "T1,q,c,5,x,a-1: read: energy | plan b-2: n=5 | profile p: device.size | test x/y.rs: 5,increase a-1: p ; b-2: q: r,explained,w\n";
        let numbers = parse(&format!("{HEAD}{row}")).unwrap();
        let text = str::to_owned;
        assert_eq!(
            numbers[0].answer,
            [
                Answer::Measured { experiment: text("a-1"), quantity: text("read: energy") },
                Answer::Plan { experiment: text("b-2"), parameter: text("n"), value: text("5") },
                Answer::Profile { profile: text("p"), number: text("device.size") },
                Answer::Code { path: text("x/y.rs"), text: text("5"), is_test: true },
            ]
        );
        let of = vec![(text("a-1"), text("p")), (text("b-2"), text("q: r"))];
        assert_eq!(numbers[0].beside, [Answer::Reckoned { how: Reckoning::Increase, of }]);
        assert_eq!(numbers[0].class, Some(Said::Explained));
        for wrong in [
            "T1,q,c,5,x,somewhere,,,\n",
            "T1,q,c,5,x,plan b: n,,,\n",
            "T1,q,c,5,x,increase a: p,,,\n",
            "T1,q,c,5,x,,,well,\n",
        ] {
            assert!(parse(&format!("{HEAD}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_found_in_ranges_and_rows() {
        assert_eq!(numbers_in("16.5-20 % of 1,704 (1/2)."), [16.5, 20.0, 1704.0, 1.0, 2.0]);
        assert!(numbers_in("bars without numbers").is_empty());
    }
}
