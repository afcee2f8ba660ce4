//! Least squares on the logarithms, so that relative differences have the same weight in every number.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{Const, Dyn, OMatrix, OVector};

use super::FitError;
use super::parameters::{Guess, N, Parameters};
use super::rows::{Row, Rows};

/// Measured quantities of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// Energy of the processor.
    Cpu,
    /// Energy of the device.
    Storage,
    /// Energy of DRAM and board.
    Rest,
    /// Total energy.
    Total,
    /// Duration as a multiple of another row's.
    Times,
}

impl Quality {
    /// Text for reports.
    pub fn text(self) -> &'static str {
        match self {
            Quality::Cpu => "CPU, mJ",
            Quality::Storage => "storage, mJ",
            Quality::Rest => "rest, mJ",
            Quality::Total => "total, mJ",
            Quality::Times => "time, ratio",
        }
    }
}

/// A measured number and its computed counterpart.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The row.
    pub workload: String,
    /// The quantity.
    pub quality: Quality,
    /// As measured.
    pub measured: f64,
    /// As computed.
    pub computed: f64,
}

impl Comparison {
    /// Difference of the computed number from the measured one, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * (self.computed / self.measured - 1.0)
    }
}

/// Parameters that fit numbers best, with what is left of each as a logarithm, and its slopes.
pub(super) struct Solved {
    pub parameters: Parameters,
    pub residuals: OVector<f64, Dyn>,
    pub slopes: OMatrix<f64, Dyn, Const<N>>,
}

pub(super) fn solve(rows: &[Row], data: &[Datum]) -> Result<Solved, FitError> {
    if data.len() < N {
        return Err(FitError::TooFew { numbers: data.len() });
    }
    let start = start(rows, data);
    let (problem, report) = LevenbergMarquardt::new().with_patience(500).minimize(Problem {
        rows,
        data,
        logs: OVector::from_iterator_generic(Const::<N>, Const::<1>, start.0.iter().map(|v| v.ln())),
    });
    if !report.termination.was_successful() {
        return Err(FitError::NoMinimum(format!("{:?}", report.termination)));
    }
    let lost = || FitError::NoMinimum("a prediction that is no number".into());
    let residuals = problem.residuals().ok_or_else(lost)?;
    let slopes = problem.jacobian().ok_or_else(lost)?;
    Ok(Solved { parameters: problem.values(), residuals, slopes })
}

/// A measured number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datum {
    pub row: usize,
    pub quality: Quality,
    pub measured: f64,
}

impl Datum {
    pub(super) fn guess(&self, p: &Parameters, rows: &[Row]) -> Guess {
        let row = &rows[self.row];
        match self.quality {
            Quality::Cpu => p.cpu_of(row),
            Quality::Storage => p.storage_of(row),
            Quality::Rest => p.rest_of(row),
            Quality::Total => p.total_of(row),
            Quality::Times => {
                let other = row.times.map_or(row, |(_, other)| &rows[other]);
                let (a, b) = (p.time_of(row), p.time_of(other));
                let mut slope = [0.0; N];
                for (s, (a_slope, b_slope)) in slope.iter_mut().zip(a.slope.iter().zip(b.slope)) {
                    *s = (a_slope - a.value / b.value * b_slope) / b.value;
                }
                Guess { value: a.value / b.value, slope }
            }
        }
    }
}

/// The measured numbers, row by row; with `to_fit`, without totals that follow from components.
pub(super) fn data(rows: &[Row], to_fit: bool) -> Vec<Datum> {
    let mut out = Vec::new();
    for (row, r) in rows.iter().enumerate() {
        let m = r.measured;
        let components = m.cpu.is_some() && m.storage.is_some() && m.rest.is_some();
        let total = m.total.filter(|_| !(to_fit && components));
        for (quality, measured) in [
            (Quality::Cpu, m.cpu),
            (Quality::Storage, m.storage),
            (Quality::Rest, m.rest),
            (Quality::Total, total),
            (Quality::Times, r.times.map(|t| t.0)),
        ] {
            out.extend(measured.map(|measured| Datum { row, quality, measured }));
        }
    }
    out
}

pub(super) fn data_of_all(rows: &Rows) -> Vec<Datum> {
    data(&rows.rows, false)
}

pub(super) fn comparison(p: &Parameters, rows: &Rows, d: &Datum) -> Comparison {
    Comparison {
        workload: rows.rows[d.row].workload.clone(),
        quality: d.quality,
        measured: d.measured,
        computed: d.guess(p, &rows.rows).value,
    }
}

/// The usual start values, with energies scaled to the measured ones.
fn start(rows: &[Row], data: &[Datum]) -> Parameters {
    let usual = Parameters::START;
    let energies: Vec<f64> = data
        .iter()
        .filter(|d| d.quality != Quality::Times)
        .map(|d| (d.measured / d.guess(&usual, rows).value).ln())
        .collect();
    usual.dearer((energies.iter().sum::<f64>() / energies.len().max(1) as f64).exp())
}

struct Problem<'a> {
    rows: &'a [Row],
    data: &'a [Datum],
    /// Logarithms, which keep every parameter above 0.
    logs: OVector<f64, Const<N>>,
}

impl Problem<'_> {
    fn values(&self) -> Parameters {
        Parameters(std::array::from_fn(|i| self.logs[i].exp()))
    }
}

impl LeastSquaresProblem<f64, Dyn, Const<N>> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Const<N>>;
    type ParameterStorage = Owned<f64, Const<N>>;

    fn set_params(&mut self, x: &OVector<f64, Const<N>>) {
        self.logs.copy_from(x);
    }
    fn params(&self) -> OVector<f64, Const<N>> {
        self.logs
    }
    fn residuals(&self) -> Option<OVector<f64, Dyn>> {
        let p = self.values();
        let ln = |d: &Datum| (d.guess(&p, self.rows).value / d.measured).ln();
        let out = OVector::<f64, Dyn>::from_iterator(self.data.len(), self.data.iter().map(ln));
        out.iter().all(|r| r.is_finite()).then_some(out)
    }
    fn jacobian(&self) -> Option<OMatrix<f64, Dyn, Const<N>>> {
        let p = self.values();
        let mut out = OMatrix::<f64, Dyn, Const<N>>::zeros(self.data.len());
        for (row, d) in self.data.iter().enumerate() {
            let guess = d.guess(&p, self.rows);
            for i in 0..N {
                out[(row, i)] = guess.slope[i] * p.0[i] / guess.value;
            }
        }
        out.iter().all(|r| r.is_finite()).then_some(out)
    }
}
