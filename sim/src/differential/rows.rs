//! How do runs become rows of measured workloads, from which prices are fitted?

use serde::{Deserialize, Serialize};

use super::Answer;

/// A column with energies of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FitColumn {
    /// The processor.
    Cpu,
    /// The storage device.
    Storage,
    /// Memory and the board.
    Rest,
}

impl FitColumn {
    const ALL: [FitColumn; 3] = [FitColumn::Cpu, FitColumn::Storage, FitColumn::Rest];

    fn text(self) -> &'static str {
        match self {
            FitColumn::Cpu => "cpu",
            FitColumn::Storage => "storage",
            FitColumn::Rest => "rest",
        }
    }
}

/// A run's requests to a device. A megabyte is 1,048,576 bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Megabytes read.
    pub mb_read: f64,
    /// Megabytes written.
    pub mb_written: f64,
    /// Read requests.
    pub read_requests: f64,
    /// Write requests.
    pub write_requests: f64,
    /// Pages of the device's map that it fetched.
    pub map_accesses: f64,
    /// Source of the numbers.
    pub source: String,
}

/// Why runs give no rows.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// No component has a column, or no run has a workload.
    #[error("no rows: components need fit = \"cpu\", \"storage\" or \"rest\", and runs a [run.workload]")]
    None,
    /// A row's energies must be above 0.
    #[error("run {run:?}: {column} is {joules} J, which cannot be a row")]
    Nothing {
        /// The run.
        run: String,
        /// The column.
        column: &'static str,
        /// The energy.
        joules: f64,
    },
}

/// CSV of the runs with a workload; energies in millijoules.
pub(super) fn rows(
    columns: &[Option<FitColumn>],
    workloads: &[Option<Workload>],
    answer: &Answer,
) -> Result<String, FitError> {
    let mut out =
        String::from("workload,mb_read,mb_written,read_requests,write_requests,map_accesses,cpu,storage,rest,source\n");
    let mut some = false;
    for (run, workload) in answer.runs.iter().zip(workloads) {
        let Some(w) = workload else { continue };
        let mut cells = Vec::new();
        for column in FitColumn::ALL {
            let mut of = columns.iter().zip(&run.parts).filter(|(c, _)| **c == Some(column)).peekable();
            if of.peek().is_none() {
                cells.push(String::new());
                continue;
            }
            let joules = measured(of.map(|(_, joules)| joules).sum());
            if joules <= 0.0 {
                return Err(FitError::Nothing { run: run.name.clone(), column: column.text(), joules });
            }
            cells.push(format!("{:.3}", joules * 1e3).trim_end_matches('0').trim_end_matches('.').to_owned());
            some = true;
        }
        let counts = [w.mb_read, w.mb_written, w.read_requests, w.write_requests, w.map_accesses];
        let counts: Vec<String> = counts.iter().map(f64::to_string).collect();
        out += &format!("{},{},{},{}\n", cell(&run.name), counts.join(","), cells.join(","), cell(&w.source));
    }
    if some { Ok(out) } else { Err(FitError::None) }
}

/// Rounds joules to the microjoule: no meter is more precise, and the rest is rounding noise.
fn measured(joules: f64) -> f64 {
    (joules * 1e6).round() / 1e6
}

/// A CSV field, quoted if necessary.
fn cell(text: &str) -> String {
    let quoted = text.contains([',', '"', '\n', '\r']) || text.starts_with('#') || text.trim() != text;
    if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
