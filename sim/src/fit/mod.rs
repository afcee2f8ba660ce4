//! Which prices explain what was measured?
//!
//! [`Rows`] are measured workloads: what they asked for, and energy by component. [`Fit`] finds the eight
//! numbers of [`Parameters`] that explain them best, says how well, and predicts others; [`calibrate`]
//! writes them into a profile. Left out: measuring.

mod apply;
mod parameters;
mod probe;
mod rows;
mod solve;

pub use apply::calibrate;
pub use parameters::{Parameter, Parameters};
pub use probe::{Probe, Timed, probe};
pub use rows::{Measured, Row, Rows};
pub use solve::{Comparison, Fit, Quality};

use std::path::PathBuf;

use device::energy::profile::ProfileError;

/// A fit that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a table of rows.
    #[error("{from}: {message}")]
    Malformed {
        /// The file.
        from: String,
        /// What and where.
        message: String,
    },
    /// The rows hold fewer numbers than there are parameters.
    #[error("{numbers} measured numbers cannot determine 8 parameters")]
    TooFew {
        /// How many there are.
        numbers: usize,
    },
    /// A parameter could be anything.
    #[error("the rows do not determine {0}: measure workloads in which it matters more, or less")]
    Undetermined(String),
    /// No minimum was found.
    #[error("the fit found no minimum: {0}")]
    NoMinimum(String),
    /// The base profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// It is no flash device.
    #[error("profile {0} is not a flash device with an anchor, so it cannot be fitted")]
    NotFlash(String),
    /// The base profile's flash alone is dearer or slower than what was measured.
    #[error(
        "{what}: the flash of the base profile alone takes {flash:.3} {unit}, but the measurement leaves {left:.3}: \
         lower the profile's device.nand or device.map numbers"
    )]
    NothingLeft {
        /// Which number has no room.
        what: &'static str,
        /// What the flash takes.
        flash: f64,
        /// What there is.
        left: f64,
        /// Of both.
        unit: &'static str,
    },
}
