//! How are the equations solved?

use nalgebra::{DMatrix, DVector};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Component, Per, Run};

/// A number with the half width of its 95 % confidence interval, if known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Number {
    /// The number.
    pub value: f64,
    /// Half width of the interval; unknown if a run it depends on was measured only once.
    pub bar: Option<f64>,
}

/// Energy of a component.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What its energy is proportional to.
    pub per: Per,
    /// Energy per unit of that quantity.
    pub price: Number,
    /// Joules in the run that is split.
    pub joules: Number,
    /// Share of that run's energy, in percent of the sum over all components.
    pub percent: Number,
}

/// A run compared to the sum of its components.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunFit {
    /// Its name.
    pub name: String,
    /// Number of measurements.
    pub repeats: usize,
    /// Joules, mean of the repeats.
    pub measured: Number,
    /// Sum over its components.
    pub computed: f64,
    /// Joules of each component, in order; 0 if inactive.
    pub parts: Vec<f64>,
}

impl RunFit {
    /// Joules that the components do not explain.
    pub fn residual(&self) -> f64 {
        self.measured.value - self.computed
    }

    /// True if the residual exceeds the spread of the repeats: a component's share of the work differs between runs, or
    /// a component is missing.
    pub fn is_contradicted(&self) -> bool {
        self.measured.bar.is_some_and(|bar| self.residual().abs() > bar + 1e-9 * self.measured.value.abs())
    }
}

/// The components' energies that fit the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The run that is split.
    pub of: String,
    /// Energy of its components together, in joules.
    pub total: Number,
    /// Each component.
    pub parts: Vec<Part>,
    /// Each run.
    pub runs: Vec<RunFit>,
}

/// Why the runs do not determine the components' energies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undetermined {
    /// Some components are undetermined.
    #[error(
        "the runs do not determine {}: add a run that separates it from the other components, or has it in another \
         proportion", .0.join(" and ")
    )]
    Components(Vec<String>),
    /// A measurement is not a valid number.
    #[error("run {0:?} is not measured by finite numbers, of at least 0 for time, operations and bytes")]
    NoNumber(String),
    /// The sum of the components is not positive, so there are no shares.
    #[error("run {0:?}: its components add up to {1} J, which cannot be divided into shares")]
    Nothing(String, String),
    /// The input is empty.
    #[error("no components, no runs, or a run without measurements or with unknown components")]
    Empty,
}

/// Eigenvalues below this part of the largest count as zero: the components' ratio is undetermined.
const SINGULAR: f64 = 1e-10;

/// Uncertainty of the mean of a run's repeats.
#[derive(Clone, Copy)]
struct Spread {
    variance: f64,
    /// Degrees of freedom.
    freedom: f64,
}

/// Splits the energy of run number `of` among its components.
///
/// Runs are weighted by their repeats and inversely by their energy: a relative error weighs the same in each, as is
/// usual for meters. With as many runs as components, weights do not matter. Bars use Student's t with the degrees of
/// freedom of Welch and Satterthwaite, since runs differ in their spread.
pub fn solve(components: &[Component], runs: &[Run], of: usize) -> Result<Answer, Undetermined> {
    let (rows, columns) = (runs.len(), components.len());
    let whole = |r: &Run| !r.repeats.is_empty() && r.active.iter().all(|c| *c < columns);
    if columns == 0 || of >= rows || !runs.iter().all(whole) {
        return Err(Undetermined::Empty);
    }
    for run in runs {
        let good = |n: f64| n.is_finite() && n >= 0.0;
        let fine = run
            .repeats
            .iter()
            .all(|r| r.joules.is_finite() && [r.seconds, r.operations, r.bytes].map(good) == [true; 3]);
        if !fine || run.error.is_some_and(|e| !good(e)) {
            return Err(Undetermined::NoNumber(run.name.clone()));
        }
    }
    let quantities =
        DMatrix::from_fn(rows, columns, |r, c| mean(&runs[r], |k| active(&runs[r], c, k.quantity(components[c].per))));
    let energies = DVector::from_iterator(rows, runs.iter().map(|r| mean(r, |k| k.joules)));
    let solution = inverse(components, runs, &quantities, &energies)?;
    let prices = &solution * &energies;
    let spreads: Vec<Option<Spread>> = runs.iter().map(|r| spread(r, components, &prices)).collect();

    let number = |value: f64, slope: &DVector<f64>| Number { value, bar: bar(slope, &spreads) };
    // Derivatives of each component's energy, in the run that is split, by the runs' energies.
    let joules: Vec<f64> = (0..columns).map(|c| prices[c] * quantities[(of, c)]).collect();
    let slopes: Vec<DVector<f64>> = (0..columns).map(|c| solution.row(c).transpose() * quantities[(of, c)]).collect();
    let total: f64 = joules.iter().sum();
    let total_slope: DVector<f64> = slopes.iter().fold(DVector::zeros(rows), |sum, s| sum + s);
    if total <= 0.0 || !total.is_finite() {
        return Err(Undetermined::Nothing(runs[of].name.clone(), format!("{total:.6}")));
    }
    let part = |c: usize| {
        let share = joules[c] / total;
        let share_slope = (&slopes[c] - &total_slope * share) * (100.0 / total);
        Part {
            name: components[c].name.clone(),
            per: components[c].per,
            price: number(prices[c], &solution.row(c).transpose()),
            joules: number(joules[c], &slopes[c]),
            percent: number(100.0 * share, &share_slope),
        }
    };
    let run = |r: usize| {
        let only = DVector::from_fn(rows, |i, _| f64::from(u8::from(i == r)));
        let parts: Vec<f64> = (0..columns).map(|c| prices[c] * quantities[(r, c)]).collect();
        RunFit {
            name: runs[r].name.clone(),
            repeats: runs[r].repeats.len(),
            measured: number(energies[r], &only),
            computed: parts.iter().sum(),
            parts,
        }
    };
    Ok(Answer {
        of: runs[of].name.clone(),
        total: number(total, &total_slope),
        parts: (0..columns).map(part).collect(),
        runs: (0..rows).map(run).collect(),
    })
}

fn mean(run: &Run, of: impl Fn(&super::Repeat) -> f64) -> f64 {
    run.repeats.iter().map(of).sum::<f64>() / run.repeats.len() as f64
}

fn active(run: &Run, component: usize, quantity: f64) -> f64 {
    if run.active.contains(&component) { quantity } else { 0.0 }
}

/// The matrix that maps energies to prices: the weighted pseudo-inverse.
fn inverse(
    components: &[Component],
    runs: &[Run],
    quantities: &DMatrix<f64>,
    energies: &DVector<f64>,
) -> Result<DMatrix<f64>, Undetermined> {
    let floor = 1e-3 * energies.amax();
    let weight = |(run, energy): (&Run, &f64)| {
        let energy = energy.abs().max(floor);
        if energy > 0.0 { (run.repeats.len() as f64).sqrt() / energy } else { 1.0 }
    };
    let weights =
        DMatrix::from_diagonal(&DVector::from_iterator(runs.len(), runs.iter().zip(energies.iter()).map(weight)));
    let weighted = &weights * quantities;
    let never = |c: &usize| weighted.column(*c).norm() == 0.0;
    let missing: Vec<String> = (0..components.len()).filter(never).map(|c| components[c].name.clone()).collect();
    if !missing.is_empty() {
        return Err(Undetermined::Components(missing));
    }
    // Normalize the columns, so that the units of prices do not matter.
    let scale = DMatrix::from_diagonal(&DVector::from_fn(components.len(), |c, _| 1.0 / weighted.column(c).norm()));
    let scaled = weighted * &scale;
    let eigen = scaled.tr_mul(&scaled).symmetric_eigen();
    let largest = eigen.eigenvalues.amax();
    let mut open = vec![false; components.len()];
    for (value, vector) in eigen.eigenvalues.iter().zip(eigen.eigenvectors.column_iter()) {
        if *value <= largest * SINGULAR {
            open.iter_mut().zip(vector.iter()).for_each(|(o, v)| *o |= v.abs() > 1e-3);
        }
    }
    if open.contains(&true) {
        let names = components.iter().zip(open).filter(|(_, open)| *open).map(|(c, _)| c.name.clone());
        return Err(Undetermined::Components(names.collect()));
    }
    let inverted = DMatrix::from_diagonal(&eigen.eigenvalues.map(|v| 1.0 / v));
    let normal = &eigen.eigenvectors * inverted * eigen.eigenvectors.transpose();
    Ok(&scale * normal * scaled.transpose() * weights)
}

/// Uncertainty of the mean of a run's repeats, without what differences in time, operations and bytes explain.
fn spread(run: &Run, components: &[Component], prices: &DVector<f64>) -> Option<Spread> {
    let count = run.repeats.len() as f64;
    if let Some(error) = run.error {
        return Some(Spread { variance: error * error / count, freedom: f64::INFINITY });
    }
    if run.repeats.len() < 2 {
        return None;
    }
    let left = |k: &super::Repeat| {
        let explained: f64 = run.active.iter().map(|c| prices[*c] * k.quantity(components[*c].per)).sum();
        k.joules - explained
    };
    let middle = mean(run, left);
    let squares: f64 = run.repeats.iter().map(|k| (left(k) - middle).powi(2)).sum();
    Some(Spread { variance: squares / (count - 1.0) / count, freedom: count - 1.0 })
}

/// Half width of the 95 % confidence interval of a value with these derivatives by the runs' energies.
fn bar(slope: &DVector<f64>, spreads: &[Option<Spread>]) -> Option<f64> {
    let smallest = 1e-9 * slope.amax();
    let (mut variance, mut fourth) = (0.0, 0.0);
    for (slope, spread) in slope.iter().zip(spreads) {
        if slope.abs() <= smallest {
            continue;
        }
        let spread = (*spread)?;
        let one = slope * slope * spread.variance;
        variance += one;
        fourth += one * one / spread.freedom;
    }
    if variance == 0.0 {
        return Some(0.0);
    }
    let freedom = if fourth > 0.0 { variance * variance / fourth } else { f64::INFINITY };
    // Beyond this, Student's distribution equals the normal one.
    let quantile = match StudentsT::new(0.0, 1.0, freedom) {
        Ok(t) if freedom < 1e6 => t.inverse_cdf(0.975),
        _ => 1.959_963_984_540_054,
    };
    Some(quantile * variance.sqrt())
}
