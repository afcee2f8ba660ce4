//! What did it cost, which component spent it, for what and for whom?
//!
//! Prices come from a [`Profile`](profile::Profile), one file per device; [`Meter`] is the only place
//! where they become joules, [`Ledger`] what it has written down. Amounts are whole picojoules, so
//! sums do not depend on their order and runs repeat to the last one.
//!
//! Left out: how long things take and what a device does inside ([`crate::model`]).

pub mod fit;
mod ledger;
mod meter;
pub mod profile;
mod units;

pub use ledger::{Ledger, Operation, Spent};
pub use meter::{Bill, Meter};
pub use units::{Component, Energy, Nanos, Part, Power};
