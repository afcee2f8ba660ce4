//! What does it cost to do this work on that device, from this state of the volume?
//!
//! * [`aging`]: brings a volume into a state: full, fragmented, or as months of use leave it; [`typed`]: segments with
//!   holes of given sizes.
//! * [`mod@bench`]: device, meter, clock and volume; [`host`]: how large requests are; [`witness`]: which reach the device;
//!   [`contents`]: which carry contents of files; [`progress`]: how far work is.
//! * [`traces`]: recordings, on simulated devices and volumes.
//! * [`result`]: what was spent, and how long it took; [`account`]: for each owner; [`flame`]: by directory, file, cause and
//!   component, as stacks and as a picture; [`words`]: sizes and times as people read them.
//! * [`mod@file_calls`]: reads and writes of one file, and what they cost; [`prices`]: what requests cost by such a table.
//! * [`fit`]: a profile's prices from measured rows; [`differential`]: what each component spent, from measured runs.
//! * [`recording`]: what is in a recording, as a page; [`mod@page`] and [`plots`]: its frame and its plots.
//! * [`error`]: why it failed.
//!
//! Left out: what is compared with what, and with which published numbers (`lab`).
#![forbid(unsafe_code)]

pub mod account;
pub mod aging;
pub mod bench;
pub mod contents;
pub mod differential;
pub mod error;
pub mod file_calls;
pub mod fit;
pub mod flame;
pub mod host;
pub mod page;
pub mod plots;
pub mod prices;
pub mod progress;
pub mod recording;
pub mod result;
pub mod traces;
pub mod typed;
pub mod witness;
pub mod words;

/// What options, plans and results call cleaning in the background that does not take place.
pub const NOBODY: &str = "none";
