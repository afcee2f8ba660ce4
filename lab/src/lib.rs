//! Which state is a volume in when it is measured, and what comes out beside what was published?
//!
//! * [`aging`]: brings a volume into a state: full, fragmented, or as months of use leave it.
#![forbid(unsafe_code)]

pub mod aging;
