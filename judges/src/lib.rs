//! Is what a file system did right, as others see it?
//!
//! Others are Linux's kernels and tools ([`oracle`]), a model in memory ([`memfs`]), and checks of damage that was done on
//! purpose ([`damage`], [`forge`]); [`documents`] finds the command lines that the documents show. No file system of this project is named here: a change of one rebuilds no judge.
#![forbid(unsafe_code)]

pub mod bounded;
pub mod churn;
pub mod damage;
pub mod delta_nodes;
pub mod documents;
pub mod entangle;
pub mod fields;
pub mod filling;
pub mod forge;
pub mod host;
pub mod medium;
pub mod memfs;
pub mod misplace;
pub mod oracle;
pub mod payload;
pub mod plain;
pub mod zoo;
