//! How are calls to a file system recorded and replayed?

mod before;
mod call;
mod event;
mod prepare;
mod recorder;
mod replay;
mod strip;
mod words;

pub use call::{Call, Contents, OldFile};
pub use event::{Event, Events, Failure};
pub use prepare::{PrepareError, Prepared, prepare};
pub use recorder::Recorder;
pub use replay::{Divergence, Replayed, Replayer, replay};
pub use strip::{StripError, without_contents};

/// Longest recorded contents, of one call or of a file from before. For longer ones only the length is recorded; for
/// calls, which are rare, the fingerprint too.
const MOST: u64 = 64 << 20;
/// Longest piece of contents, so that one fits a chunk.
pub(crate) const PART: usize = 256 << 10;
/// A plain-text notice at the beginning of the file.
pub(crate) const NOTICE: &str = "This recording contains the contents of the files that were written while it was made. Anyone who has it can read \
     them.";
