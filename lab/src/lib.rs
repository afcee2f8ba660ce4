//! What comes out of the papers' experiments, beside what was published?
//!
//! * [`plan`]: what is run; [`experiments`]: the kinds of work a plan may name; [`apps`]: what applications of a phone
//!   write, with contents; `installed`: a system and the programs on it; [`uncached`]: what a file system asks of a disk if
//!   nothing is kept in memory, our own or one of Linux.
//! * [`run`]: the variants, in parallel; [`error`]: why one failed; [`theirs`]: where recordings are that are not shipped.
//! * [`result`]: what came out; [`key`]: what it depends on, as one word; [`claim`]: the papers' numbers, [`compare`]: which
//!   of ours answers them.
//! * [`kept`]: what a full run measured, in a file beside the plan; [`keep`]: which results may go there, and when they are stale;
//!   [`took`]: how long runs took, and how much memory.
//! * [`published`]: every number that the papers publish, and which of ours answers it.
//! * [`control`]: a plan that compares policies of cleaning has one in which nobody cleans; [`cost`]: what cleaning and
//!   the work after it cost.
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
