//! Which state is a volume in when it is measured, and what comes out beside what was published?
//!
//! * [`aging`]: brings a volume into a state: full, fragmented, or as months of use leave it.
//! * [`plan`]: what is run; [`experiments`]: the kinds of work a plan may name.
//! * [`apps`]: what applications of a phone write, with contents.
//! * [`typed`]: segments with holes of given sizes. * `installed`: a system and the programs on it.
//! * [`bench`]: device, meter, clock and volume; [`host`]: how large requests are; [`witness`]: which reach the device;
//!   [`contents`]: which carry contents of files.
//! * [`traces`]: recordings of others, on our devices and volumes; [`theirs`]: where those are that are not shipped.
//! * [`uncached`]: what a file system asks of a disk if nothing is kept in memory, our own or one of Linux.
//! * [`run`]: the variants, in parallel; [`progress`]: how far they are; [`error`]: why one failed.
//! * [`result`]: what came out; [`account`]: for each owner; [`key`]: what it depends on, as one word; [`claim`]: the papers' numbers, [`compare`]: which of ours answers them.
//! * [`kept`]: what a full run measured, in a file beside the plan; [`keep`]: which results may go there, and when they are stale;
//!   [`took`]: how long runs took, and how much memory.
//! * [`published`]: every number that the papers publish, and which of ours answers it.
//! * [`control`]: a plan that compares policies of cleaning has one in which nobody cleans; [`cost`]: what cleaning and
//!   the work after it cost.
//! * [`flame`]: joules by directory, file, cause and component, as stacks and as a picture.
//! * [`report`]: one page of all results, with plots.
#![forbid(unsafe_code)]

pub mod account;
pub mod aging;
pub mod apps;
pub mod bench;
pub mod claim;
pub mod compare;
pub mod contents;
pub mod control;
pub mod cost;
pub mod error;
pub mod experiments;
pub mod flame;
pub mod host;
mod installed;
pub mod keep;
pub mod kept;
pub mod key;
pub mod plan;
pub mod progress;
pub mod published;
mod read_ahead;
pub mod report;
pub mod result;
pub mod run;
mod sqlite_disk;
pub mod theirs;
pub mod took;
pub mod traces;
pub mod typed;
pub mod uncached;
pub mod witness;
