//! What do the papers' experiments measure here, next to what was published?
//!
//! * [`plan`]: what is run; [`experiments`]: the kinds of work a plan may name; [`apps`]: what a phone's applications
//!   write, with contents; `installed`: a system and its programs; [`uncached`]: requests of a file system without a
//!   cache, ours or one of Linux.
//! * [`run`]: runs the variants, in parallel; [`error`]: why one failed; [`theirs`]: where external recordings are.
//! * [`result`]: the results; [`key`]: a hash of their inputs; [`claim`]: the papers' numbers; [`compare`]: which of
//!   ours corresponds to them.
//! * [`kept`]: the measurements of a full run, in a file next to the plan; [`keep`]: which results may go into it, and
//!   when they are stale; [`took`]: run time and memory.
//! * [`published`]: every number that the papers publish, and our number for it.
//! * [`control`]: a plan that compares cleaning policies has a variant without background cleaning; [`cost`]: what
//!   cleaning and the work after it cost.
//! * [`judged`]: variants next to their controls, and how sure the difference is.
//! * [`report`]: one page of all results, with plots.
//!
//! Devices, volumes, aging and replaying are in `sim`.
#![forbid(unsafe_code)]

pub mod apps;
pub mod claim;
pub mod compare;
pub mod control;
pub mod cost;
pub mod error;
pub mod experiments;
mod installed;
pub mod judged;
pub mod keep;
pub mod kept;
pub mod key;
pub mod plan;
pub mod published;
mod read_ahead;
pub mod report;
pub mod result;
pub mod run;
mod sqlite_disk;
pub mod theirs;
pub mod took;
pub mod uncached;
