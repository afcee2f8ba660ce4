//! Does the whole keep its promises, as others see it?
//!
//! Judges from outside ([`oracle`]) and trees worth judging ([`zoo`]) for the system tests.
#![forbid(unsafe_code)]

pub mod bench;
pub mod bounded;
pub mod churn;
pub mod contents;
pub mod crash;
pub mod damage;
pub mod delta_nodes;
pub mod entangle;
pub mod fields;
pub mod filling;
pub mod forge;
pub mod host;
pub mod medium;
pub mod memfs;
pub mod misplace;
pub mod oracle;
pub mod packing;
pub mod payload;
pub mod plain;
#[path = "../../trace/tests/drivers/recordings.rs"]
pub mod recordings;
pub mod subject;
pub mod worn;
pub mod zoo;
