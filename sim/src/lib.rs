//! What does this work cost on that device, starting from this state of the volume?
//!
//! * [`aging`]: brings a volume into a state: full, fragmented, or as months of use leave it; [`typed`]: segments with
//!   holes of given sizes.
//! * [`mod@bench`]: device, meter, clock and volume; [`host`]: request sizes; [`witness`]: requests that reach the
//!   device; [`contents`]: requests that carry file contents; [`progress`]: progress of a job.
//! * [`traces`]: replay of recordings on simulated devices and volumes; [`replay`]: comparisons of such replays, with
//!   settings as text.
//! * [`result`]: energy and time spent; [`account`]: by owner; [`labels`]: names of owners and causes; [`flame`]: by directory, file, cause and component, as
//!   stacks and as a picture; [`words`]: sizes and times as text.
//! * [`error`]: why a simulation failed.
//! * [`fit`]: a profile's prices from measured rows; [`differential`]: what each component spent, from measured runs.
//! * [`recording`]: what is in a recording, as a page; [`mod@page`] and [`plots`]: its frame and its plots.
//! * [`error`]: why it failed.
//!
//! Left out: comparisons of policies and with published numbers (`lab`).
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
pub mod labels;
pub mod page;
pub mod plots;
pub mod prices;
pub mod progress;
pub mod recording;
pub mod replay;
pub mod result;
pub mod traces;
pub mod typed;
pub mod witness;
pub mod words;

/// Name of "no background cleaning" in options, plans and results.
pub const NOBODY: &str = "none";
