//! How many joules did an operation cost, which component spent them, for what and for whom?
//!
//! Prices come from a [`Profile`](profile::Profile), one file per device. Only [`Meter`] turns them into joules, and
//! [`Ledger`] records these. Amounts are integers of picojoules, so sums do not depend on their order, and runs repeat
//! to the last picojoule.
//!
//! Left out: how long things take and what a device does inside ([`crate::model`]).

mod ledger;
mod meter;
pub mod nvme;
pub mod profile;
mod purpose;
mod table;
mod units;

pub use ledger::{Ledger, Spent};
pub use meter::{Bill, Meter, Processor};
pub use purpose::{Operation, Purpose};
pub use units::{Component, Energy, Nanos, Part, Power};
