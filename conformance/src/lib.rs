//! What do the parts cost and promise together?
//!
//! Benches, and measurements that need more than one crate; the tests judge the whole, with `judges` and `trials`.
#![forbid(unsafe_code)]

pub mod bench;
pub mod packing;
#[path = "../../trace/tests/drivers/recordings.rs"]
pub mod recordings;
