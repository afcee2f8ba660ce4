//! What does it take to run an experiment: how long, and how much memory?
//!
//! `took.csv` stands beside `ours.csv` and says it of a full and of a quick run, each on some machine. It is a file of its own
//! because it differs from run to run: numbers that are kept are compared to the last digit, these are not. Left out:
//! how a process learns what it took, which is its own affair.

use serde::{Deserialize, Serialize};

/// A `took.csv`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Took {
    /// At most one row for each size of run.
    pub rows: Vec<Run>,
}

/// Which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// What the plan says.
    Full,
    /// With `--quick`.
    Quick,
}

/// What a run took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Which.
    pub run: Size,
    /// Seconds of processors' time, which another program on the machine does not change much.
    pub cpu_seconds: f64,
    /// Seconds that went by.
    pub seconds: f64,
    /// The most memory that the process had at any time.
    pub peak_bytes: u64,
    /// Variants that ran at once, at most.
    pub threads: usize,
    /// Processors of the machine.
    pub processors: usize,
    /// Their name.
    pub processor: String,
    /// How the program was built: `debug` or `release`.
    pub build: String,
    /// Its version.
    pub version: String,
}

impl Took {
    /// From the text of its file.
    pub fn parse(text: &str) -> Result<Took, String> {
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let rows: Vec<Run> = reader.deserialize().collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        match rows.windows(2).find(|pair| pair[0].run >= pair[1].run) {
            Some(pair) => Err(format!("two rows of a {:?} run, or not the full one first", pair[1].run)),
            None => Ok(Took { rows }),
        }
    }

    /// The text of its file.
    pub fn text(&self, experiment: &str) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            // OK to unwrap: memory takes everything, and a row is flat.
            writer.serialize(row).unwrap();
        }
        let rows = String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default();
        format!("# Made by `joulefs lab run {experiment} --keep-time`, and with --quick.\n{rows}")
    }

    /// A run of this size.
    pub fn of(&self, size: Size) -> Option<&Run> {
        self.rows.iter().find(|row| row.run == size)
    }

    /// The same, with a run in the place of the last one of its size.
    pub fn with(mut self, run: Run) -> Took {
        self.rows.retain(|row| row.run != run.run);
        self.rows.push(run);
        self.rows.sort_by_key(|row| row.run);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(run: Size, cpu_seconds: f64) -> Run {
        Run {
            run,
            cpu_seconds,
            seconds: 2.5,
            peak_bytes: 1 << 20,
            threads: 1,
            processors: 2,
            processor: "A, \"processor\"".into(),
            build: "debug".into(),
            version: "0".into(),
        }
    }

    #[test]
    fn a_run_takes_the_place_of_the_last_one_of_its_size_and_comes_back_from_the_file() {
        let took = Took::default().with(run(Size::Quick, 1.0)).with(run(Size::Full, 9.0)).with(run(Size::Quick, 2.0));
        let back = Took::parse(&took.text("x")).unwrap();
        assert_eq!(back, took);
        let seconds = [Size::Full, Size::Quick].map(|size| back.of(size).unwrap().cpu_seconds);
        assert_eq!((seconds, back.rows.len()), ([9.0, 2.0], 2));
        assert_eq!(Took::parse("").unwrap(), Took::default());
        assert!(Took::parse(&(took.text("x") + "quick,1,1,1,1,1,p,debug,0\n")).unwrap_err().contains("two rows"));
    }
}
