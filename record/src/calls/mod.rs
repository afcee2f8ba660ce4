//! Calls to a file system.

mod call;
mod event;
mod recorder;
mod replay;
mod words;

pub use call::{Call, Contents};
pub use event::{Event, Events, Failure};
pub use recorder::Recorder;
pub use replay::{Divergence, Replayed, replay};
