//! MWHFB: a stand-in for the background cleaning of Li et al. (SAC'19), whose text is not public.
//!
//! What is known of it: it looks for idle moments far more often than the kernel, to clean a little
//! whenever it can. So it chooses as the kernel's default does ([`cost_benefit`](super::cost_benefit))
//! and looks every [`EVERY`] instead of every 30 to 60 seconds. Its thresholds for synchronous writes
//! are not part of this.

use std::time::Duration;

use super::View;
use super::memory::{Ask, Choice, Memory, Tuning};

/// How often it looks whether the volume is idle. Assumed.
pub const EVERY: Duration = Duration::from_secs(1);

/// The unit with the best ratio of benefit to cost.
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask) -> (Option<Choice>, Memory) {
    super::cost_benefit::choose(view, memory, tuning, ask)
}
