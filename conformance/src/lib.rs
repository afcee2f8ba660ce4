//! What do the crates cost and promise together?
//!
//! Benchmarks, and measurements that need several crates; the tests check the whole system, with `judges` and `trials`.
#![forbid(unsafe_code)]

pub mod bench;
pub mod packing;
#[path = "../../trace/tests/drivers/recordings.rs"]
pub mod recordings;
