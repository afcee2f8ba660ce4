//! How long does an experiment run, and how much memory does it use?
//!
//! `took.csv` is next to `ours.csv` and has a row for a full and one for a quick run, each on some machine. It is a
//! separate file because it differs from run to run: stored numbers are compared to the last digit, these are not. Left
//! out: how a process measures itself.

use serde::{Deserialize, Serialize};

/// A `took.csv`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Took {
    /// At most one row for each size of run.
    pub rows: Vec<Run>,
}

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// As in the plan.
    Full,
    /// With `--quick`.
    Quick,
}

/// Run time and memory of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The size.
    pub run: Size,
    /// CPU time in seconds, which other programs on the machine hardly affect.
    pub cpu_seconds: f64,
    /// Elapsed seconds.
    pub seconds: f64,
    /// The process's peak memory.
    pub peak_bytes: u64,
    /// Maximum number of variants in parallel.
    pub threads: usize,
    /// Processors of the machine.
    pub processors: usize,
    /// The processors' name.
    pub processor: String,
    /// Build type: `debug` or `release`.
    pub build: String,
    /// The program's version.
    pub version: String,
}

impl Took {
    /// Parses the text of the file.
    pub fn parse(text: &str) -> Result<Took, String> {
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let rows: Vec<Run> = reader.deserialize().collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        match rows.windows(2).find(|pair| pair[0].run >= pair[1].run) {
            Some(pair) => Err(format!("two rows of a {:?} run, or not the full one first", pair[1].run)),
            None => Ok(Took { rows }),
        }
    }

    /// The text of the file.
    pub fn text(&self, experiment: &str) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            // OK to unwrap: writing to memory does not fail, and a row is flat.
            writer.serialize(row).unwrap();
        }
        let rows = String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default();
        format!("# Made by `joulefs lab run {experiment} --keep-time`, and with --quick.\n{rows}")
    }

    /// A run of this size.
    pub fn of(&self, size: Size) -> Option<&Run> {
        self.rows.iter().find(|row| row.run == size)
    }

    /// Replaces the run of the same size.
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
