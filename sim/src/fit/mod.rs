//! Which prices explain the measurements?
//!
//! [`Rows`] are measured workloads: requests, and energy by component. [`Fit`] finds the eight numbers of
//! [`Parameters`] that explain them best, reports the quality of the fit, and predicts others; [`calibrate`] writes
//! them into a profile. [`watts`] does the same for a drive alone, of which watts at known loads are published. Left out:
//! measuring.

mod apply;
mod fitted;
mod outliers;
mod parameters;
mod probe;
mod rows;
mod solve;
pub mod watts;

pub use apply::{Data, calibrate};
pub use fitted::Fit;
pub use outliers::Outlier;
pub use parameters::{Parameter, Parameters};
pub use probe::{Probe, Timed, probe};
pub use rows::{Measured, Row, Rows};
pub use solve::{Comparison, Quality};

use std::path::PathBuf;

use device::energy::profile::ProfileError;

/// Why a fit failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a table of rows.
    #[error("{from}: {message}")]
    Malformed {
        /// The file.
        from: String,
        /// The error and its place.
        message: String,
    },
    /// The rows hold fewer numbers than there are parameters.
    #[error("{numbers} measured numbers cannot determine 8 parameters")]
    TooFew {
        /// The number of measurements.
        numbers: usize,
    },
    /// The loads of a drive are fewer than its prices.
    #[error("too few loads ({loads}) to tell their prices: at least {needed} of reads or writes are needed, 2 of each")]
    TooFewLoads {
        /// The loads.
        loads: usize,
        /// Two for reads, two for writes.
        needed: usize,
    },
    /// A drive that draws less the more it does is not explained by prices.
    #[error(
        "watts fall with the load: {less_load} {more}, {more_load} {less}; check the columns watts, bytes and per_second, \
         or leave out loads during which something else changed"
    )]
    Falling {
        /// The name of the lighter load.
        less_load: String,
        /// Its rate and power.
        more: String,
        /// The name of the heavier load.
        more_load: String,
        /// Its rate and power.
        less: String,
    },
    /// The rows do not determine this parameter.
    #[error("the rows do not determine {0}: measure workloads in which it matters more, or less")]
    Undetermined(String),
    /// No minimum was found.
    #[error("the fit found no minimum: {0}")]
    NoMinimum(String),
    /// The base profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The profile is not a flash device.
    #[error("profile {0} is not a flash device with an anchor, so it cannot be fitted")]
    NotFlash(String),
    /// The base profile's flash alone uses more energy or time than measured.
    #[error(
        "{what}: the flash of the base profile alone takes {flash:.3} {unit}, but the measurement leaves {left:.3}: \
         lower the profile's device.nand or device.map numbers"
    )]
    NothingLeft {
        /// The quantity.
        what: &'static str,
        /// What the flash uses.
        flash: f64,
        /// What was measured.
        left: f64,
        /// Unit of both.
        unit: &'static str,
    },
}

/// The text of a table without the byte order mark that some programs put before it.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Names the first of the needed columns that a table lacks; `what` is such a table.
fn check_columns(headers: &csv::StringRecord, needed: &[&str], what: &str) -> Result<(), String> {
    match needed.iter().find(|column| !headers.iter().any(|head| head == **column)) {
        Some(column) => Err(format!("no column {column}: {what} has {}", needed.join(", "))),
        None => Ok(()),
    }
}
