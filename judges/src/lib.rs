//! Does a file system work correctly according to independent judges?
//!
//! These are Linux's kernels and tools ([`oracle`]), a model in memory ([`memfs`]), and tests with deliberate damage
//! ([`damage`], [`forge`]); [`documents`] finds the command lines in the documents. This crate does not depend on the
//! project's file systems, so that a change to one does not rebuild it.
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
