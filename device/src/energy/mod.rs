//! Energy of operations, by component, purpose and owner.
//!
//! Prices come from a [`Profile`](profile::Profile), one file per device. Only [`Meter`] converts them to joules,
//! and [`Ledger`] records these. Amounts are integers in picojoules, so sums do not depend on their order, and runs
//! are reproducible to the last picojoule.
//!
//! Left out: durations, and the internal work of a device ([`crate::model`]).

mod drawn;
mod ledger;
mod meter;
pub mod nvme;
mod pauses;
pub mod profile;
mod purpose;
mod range;
mod table;
mod units;
mod waiting;

pub use ledger::{Ledger, Spent};
pub use meter::{Bill, Meter, Processor};
pub use pauses::{Pause, Pauses};
pub use purpose::{Operation, Purpose, Work};
pub use range::{Draws, Range};
pub use units::{Component, Energy, Nanos, Part, Power};
