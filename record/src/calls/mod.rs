//! Calls to a file system.

mod before;
mod call;
mod event;
mod prepare;
mod recorder;
mod replay;
mod strip;
mod words;

pub use call::{Call, Contents, Was};
pub use event::{Event, Events, Failure};
pub use prepare::{PrepareError, Prepared, prepare};
pub use recorder::Recorder;
pub use replay::{Divergence, Replayed, Replayer, replay};
pub use strip::{StripError, without_contents};

/// The longest contents of one call, and of a file that was there before, that a recording has. Of longer ones it has the
/// length; those of calls, which are rare, the fingerprint too.
const MOST: u64 = 64 << 20;
/// Contents are in pieces of so many bytes at most, so that a chunk has room for one.
pub(crate) const PART: usize = 256 << 10;
/// What whoever looks at the file itself reads.
pub(crate) const NOTICE: &str = "This recording contains the contents of the files that were written while it was made. Anyone who has it can read \
     them.";
