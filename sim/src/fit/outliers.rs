//! Which measured numbers do not go with the others?
//!
//! The number that differs most for its weight in the fit is left out, and predicted by a fit to the others. It is an
//! outlier if it is off by more than [`FAR`] of their standard deviations and by more than [`LEAST`]. The standard
//! deviation is taken from the median of their differences, so that one of them cannot widen it. Then the next one is
//! tried. Left out: why a number is off.

use nalgebra::{Const, Dyn, OMatrix, OVector, SMatrix};

use super::parameters::N;
use super::rows::{Row, Rows};
use super::solve::{Comparison, Datum, Solved, comparison, solve};

/// Standard deviations from which a number is an outlier.
const FAR: f64 = 4.0;
/// Difference, as a logarithm, up to which no number is one.
const LEAST: f64 = 0.05;
/// Standard deviation of the normal distribution in medians of its absolute differences.
const BY_MEDIAN: f64 = 1.4826;
/// Weight in the fit from which a number determines a parameter alone, so that the others say nothing about it.
const ALONE: f64 = 0.99;

/// A measured number that does not go with the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// Its line in the file.
    pub line: u64,
    /// The number, and what a fit to the others gives.
    pub comparison: Comparison,
    /// How far it is off, in standard deviations of the others.
    pub deviations: f64,
}

/// Removes the outliers from `data`, and returns them.
pub(super) fn taken_out(rows: &Rows, data: &mut Vec<Datum>) -> Vec<Outlier> {
    let mut out = Vec::new();
    // At least one number more than parameters must be left, or every fit is exact.
    while data.len() > N + 1 {
        let Some((place, outlier)) = farthest(rows, data) else { break };
        data.remove(place);
        out.push(outlier);
    }
    out.sort_by_key(|o: &Outlier| o.line);
    out
}

/// The farthest number, if it is an outlier.
fn farthest(rows: &Rows, data: &[Datum]) -> Option<(usize, Outlier)> {
    let all = Weighed::new(&solve(&rows.rows, data).ok()?)?;
    let weights = all.scaled.iter().enumerate().filter_map(|(n, scaled)| Some((n, (*scaled)?)));
    let (place, _) = weights.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut others = data.to_vec();
    let tried = others.remove(place);
    let solved = solve(&rows.rows, &others).ok()?;
    let rest = Weighed::new(&solved)?;
    let mut usual: Vec<f64> = rest.scaled.iter().filter_map(|s| *s).collect();
    usual.sort_by(f64::total_cmp);
    let deviation = BY_MEDIAN * usual.get(usual.len() / 2)?;
    let (off, slopes) = solved.tried(&tried, &rows.rows)?;
    let variance = (slopes.transpose() * rest.inverse * slopes)[(0, 0)];
    let deviations = off.abs() / (deviation.max(1e-6) * (1.0 + variance).sqrt());
    let is_one = deviations > FAR && off.abs() > LEAST;
    is_one.then(|| {
        let comparison = comparison(&solved.parameters, rows, &tried);
        (place, Outlier { line: rows.rows[tried.row].line, comparison, deviations })
    })
}

/// The differences of a fit, for their weights in it.
struct Weighed {
    /// Inverse of the normal matrix.
    inverse: SMatrix<f64, N, N>,
    /// Each difference, without its sign; none of a number that determines a parameter alone.
    scaled: Vec<Option<f64>>,
}

impl Weighed {
    fn new(solved: &Solved) -> Option<Self> {
        let slopes: &OMatrix<f64, Dyn, Const<N>> = &solved.slopes;
        let residuals: &OVector<f64, Dyn> = &solved.residuals;
        let inverse = slopes.tr_mul(slopes).try_inverse()?;
        let scaled = slopes.row_iter().zip(residuals.iter()).map(|(row, residual)| {
            let weight = (row * inverse * row.transpose())[(0, 0)];
            (weight < ALONE).then(|| residual.abs() / (1.0 - weight).sqrt())
        });
        Some(Weighed { inverse, scaled: scaled.collect() })
    }
}

/// The slopes of one number.
pub(super) type Slopes = SMatrix<f64, N, 1>;

impl Solved {
    /// The difference of a number that was not fitted, and its slopes.
    fn tried(&self, datum: &Datum, rows: &[Row]) -> Option<(f64, Slopes)> {
        let guess = datum.guess(&self.parameters, rows);
        let off = (guess.value / datum.measured).ln();
        let slopes = Slopes::from_fn(|i, _| guess.slope[i] * self.parameters.0[i] / guess.value);
        off.is_finite().then_some((off, slopes))
    }
}
