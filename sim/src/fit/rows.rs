//! Measured workloads, one per line.
//!
//! CSV with a header; lines that begin with `#` are comments. Columns: `workload` (its name), `mb_read`,
//! `mb_written` (of 1,048,576 bytes), `read_requests`, `write_requests`, `map_accesses` (pages of the device's map
//! that had to be fetched); energies in millijoules `total`, `cpu`, `storage`, `rest` (DRAM and board), each a
//! number, a share of the total such as `17.91%`, or empty if not measured; `times` and `as_long_as` (duration as a
//! multiple of the named row's); `source`. Missing columns count as empty; only `workload` is needed.

use std::path::Path;

use serde::Deserialize;

use super::{FitError, check_columns, without_mark};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    workload: String,
    #[serde(default)]
    mb_read: f64,
    #[serde(default)]
    mb_written: f64,
    #[serde(default)]
    read_requests: f64,
    #[serde(default)]
    write_requests: f64,
    #[serde(default)]
    map_accesses: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    cpu: String,
    #[serde(default)]
    storage: String,
    #[serde(default)]
    rest: String,
    #[serde(default)]
    times: Option<f64>,
    #[serde(default)]
    as_long_as: String,
    #[serde(default)]
    source: String,
}

/// Energies in millijoules, if measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// Of the processor.
    pub cpu: Option<f64>,
    /// Of the storage device.
    pub storage: Option<f64>,
    /// Of DRAM and board together; if not given, the rest of the total.
    pub rest: Option<f64>,
    /// The total; if not given, the sum of the three.
    pub total: Option<f64>,
}

/// A measured workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub workload: String,
    /// Megabytes read.
    pub mb_read: f64,
    /// Megabytes written.
    pub mb_written: f64,
    /// Requests of both kinds.
    pub requests: f64,
    /// Pages of the device's map fetched.
    pub map_accesses: f64,
    /// The measurements.
    pub measured: Measured,
    /// Its duration is this multiple of the row with this index.
    pub times: Option<(f64, usize)>,
    /// Its source.
    pub source: String,
    /// Its line in the file.
    pub line: u64,
}

/// The rows of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<Row>,
}

impl Rows {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, FitError> {
        let unreadable = |source| FitError::Unreadable { path: path.into(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses the text of a file; `from` is its name for errors.
    pub fn parse(text: &str, from: &str) -> Result<Self, FitError> {
        let malformed = |message: String| FitError::Malformed { from: from.into(), message };
        let text = without_mark(text);
        let mut reader =
            csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
        let wrong = |e: csv::Error| malformed(e.to_string());
        let headers = reader.headers().map_err(wrong)?.clone();
        check_columns(&headers, &["workload"], "a table of workloads").map_err(malformed)?;
        let (mut written, mut lines): (Vec<Written>, Vec<u64>) = (Vec::new(), Vec::new());
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            written.push(record.deserialize(Some(&headers)).map_err(wrong)?);
            lines.push(record.position().map_or(0, |at| line_of(text, at)));
        }
        let row = |(w, line): (&Written, &u64)| {
            let row = row(w, &written).map_err(|e| malformed(format!("{}: {e}", w.workload)))?;
            Ok(Row { line: *line, ..row })
        };
        let rows = written.iter().zip(&lines).map(row).collect::<Result<Vec<_>, FitError>>()?;
        if rows.is_empty() {
            return Err(malformed("no rows".into()));
        }
        Ok(Rows { rows })
    }

    /// Their sources, without duplicates.
    pub fn sources(&self) -> String {
        let mut sources: Vec<&str> = self.rows.iter().map(|r| r.source.as_str()).filter(|s| !s.is_empty()).collect();
        sources.dedup();
        sources.join("; ")
    }
}

/// The line of a record that begins at `at`, or after the comments and empty lines there.
fn line_of(text: &str, at: &csv::Position) -> u64 {
    let rest = usize::try_from(at.byte()).ok().and_then(|at| text.get(at..)).unwrap_or_default();
    let skipped = rest.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty()).count();
    at.line() + skipped as u64
}

fn row(w: &Written, all: &[Written]) -> Result<Row, String> {
    let counters = [w.mb_read, w.mb_written, w.read_requests, w.write_requests, w.map_accesses];
    if counters.iter().any(|n| !n.is_finite() || *n < 0.0) || w.mb_read + w.mb_written <= 0.0 {
        return Err("counters must be numbers of at least 0, and some data read or written".into());
    }
    if w.read_requests + w.write_requests <= 0.0 {
        return Err("no requests".into());
    }
    let total = w.total.map(|t| positive(t, "total")).transpose()?;
    let [cpu, storage, rest] = [("cpu", &w.cpu), ("storage", &w.storage), ("rest", &w.rest)]
        .map(|(name, cell)| amount(cell, total).and_then(|a| a.map(|a| positive(a, name)).transpose()));
    let mut measured = Measured { cpu: cpu?, storage: storage?, rest: rest?, total };
    match measured {
        Measured { cpu: Some(c), storage: Some(s), rest: None, total: Some(t) } => {
            measured.rest = Some(positive(t - c - s, "rest, what cpu and storage leave of the total,")?);
        }
        Measured { cpu: Some(c), storage: Some(s), rest: Some(r), total: None } => measured.total = Some(c + s + r),
        _ => {}
    }
    let times = match (w.times, w.as_long_as.as_str()) {
        (None, "") => None,
        (Some(t), other) => {
            let as_long = all.iter().position(|o| o.workload == other);
            let as_long = as_long.ok_or_else(|| format!("as_long_as names {other:?}, which is not a row"))?;
            Some((positive(t, "times")?, as_long))
        }
        (None, _) => return Err("as_long_as without times".into()),
    };
    Ok(Row {
        workload: w.workload.clone(),
        mb_read: w.mb_read,
        mb_written: w.mb_written,
        requests: w.read_requests + w.write_requests,
        map_accesses: w.map_accesses,
        measured,
        times,
        source: w.source.clone(),
        line: 0,
    })
}

fn positive(n: f64, name: &str) -> Result<f64, String> {
    if n.is_finite() && n > 0.0 { Ok(n) } else { Err(format!("{name} is {n}, not a number above 0")) }
}

fn amount(cell: &str, total: Option<f64>) -> Result<Option<f64>, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("{cell:?} is not a number"));
    match (cell.strip_suffix('%'), total) {
        _ if cell.is_empty() => Ok(None),
        (Some(share), Some(total)) => Ok(Some(number(share)? / 100.0 * total)),
        (Some(_), None) => Err(format!("{cell} of a total that is not given")),
        (None, _) => number(cell).map(Some),
    }
}
