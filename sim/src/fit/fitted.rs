//! What does a fit give: the parameters, how sure they are, and which numbers do not go with the others?

use nalgebra::{Const, Dyn, OMatrix, SMatrix};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::FitError;
use super::outliers::{Outlier, taken_out};
use super::parameters::{N, Parameters};
use super::rows::Rows;
use super::solve::{Comparison, Datum, Solved, comparison, data, data_of_all, solve};

/// Fitted parameters and the quality of the fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Their values.
    pub parameters: Parameters,
    /// Standard error of each in percent. Unknown if there are no more numbers than parameters.
    pub errors: Option<[f64; N]>,
    /// Covariances of their logarithms, if known.
    pub(super) covariances: Option<SMatrix<f64, N, N>>,
    /// The measured numbers that do not go with the others.
    pub outliers: Vec<Outlier>,
    /// Whether they were left out.
    pub left_out: bool,
    /// Every measured number, fitted ones and totals.
    pub comparisons: Vec<Comparison>,
    /// Root mean square of the fitted numbers' differences, in percent.
    pub rms: f64,
    /// Number of fitted numbers.
    pub numbers: usize,
}

impl Fit {
    /// Fits all eight parameters. Totals are compared, and fitted only if the components were not measured.
    pub fn new(rows: &Rows) -> Result<Self, FitError> {
        let data = data(&rows.rows, true);
        let outliers = taken_out(rows, &mut data.clone());
        Self::to(rows, &data, outliers, false)
    }

    /// The same without the outliers.
    pub fn without_outliers(rows: &Rows) -> Result<Self, FitError> {
        let mut data = data(&rows.rows, true);
        let outliers = taken_out(rows, &mut data);
        Self::to(rows, &data, outliers, true)
    }

    fn to(rows: &Rows, data: &[Datum], outliers: Vec<Outlier>, left_out: bool) -> Result<Self, FitError> {
        let Solved { parameters, residuals, slopes } = solve(&rows.rows, data)?;
        let squares = residuals.norm_squared();
        let errors = errors(&slopes, squares, data.len())?;
        let free = data.len() - N;
        let inverse = errors.and_then(|_| slopes.tr_mul(&slopes).try_inverse());
        let covariances = inverse.map(|inverse| inverse * (squares / free as f64));
        let comparisons = data_of_all(rows).iter().map(|d| comparison(&parameters, rows, d)).collect();
        let squares: f64 =
            data.iter().map(|d| (d.guess(&parameters, &rows.rows).value / d.measured - 1.0).powi(2)).sum();
        let rms = 100.0 * (squares / data.len() as f64).sqrt();
        Ok(Fit { parameters, errors, covariances, outliers, left_out, comparisons, rms, numbers: data.len() })
    }

    /// Predictions for rows that were not used in the fit.
    pub fn predict(&self, rows: &Rows) -> Vec<Comparison> {
        data_of_all(rows).iter().map(|d| comparison(&self.parameters, rows, d)).collect()
    }

    /// Student's t within which nine of ten fits lie on both sides of the true number, with this fit's degrees of
    /// freedom; `None` if it has none.
    pub(super) fn within(&self) -> Option<f64> {
        let free = self.numbers.checked_sub(N).filter(|free| *free > 0)?;
        StudentsT::new(0.0, 1.0, free as f64).ok().map(|t| t.inverse_cdf(0.95))
    }
}

/// Standard errors in percent, from the residuals and their slopes; rejects undetermined parameters.
fn errors(slopes: &OMatrix<f64, Dyn, Const<N>>, squares: f64, numbers: usize) -> Result<Option<[f64; N]>, FitError> {
    let normal = slopes.tr_mul(slopes);
    let eigen = normal.symmetric_eigen();
    let largest = eigen.eigenvalues.iter().copied().fold(0.0, f64::max);
    for (value, vector) in eigen.eigenvalues.iter().zip(eigen.eigenvectors.column_iter()) {
        if *value <= largest * 1e-9 {
            let names = Parameters::ALL.iter().zip(vector.iter()).filter(|(_, v)| v.abs() > 0.2);
            let names: Vec<_> = names.map(|(p, _)| p.name).collect();
            return Err(FitError::Undetermined(names.join(" and ")));
        }
    }
    let Some(free) = numbers.checked_sub(N).filter(|f| *f > 0) else { return Ok(None) };
    let mut out = [0.0; N];
    for (i, error) in out.iter_mut().enumerate() {
        let columns = eigen.eigenvalues.iter().zip(eigen.eigenvectors.column_iter());
        let variance: f64 = columns.map(|(value, vector)| vector[i] * vector[i] / value).sum();
        *error = 100.0 * (variance * squares / free as f64).sqrt();
    }
    Ok(Some(out))
}
