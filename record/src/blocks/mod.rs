//! How are requests to a block device recorded and replayed?

mod event;
mod recorder;
mod replay;

pub use event::{Event, Events, Request};
pub use recorder::Recorder;
pub use replay::{Replayed, replay};
