//! A stand-in for MWHFB (Li et al., "Optimizing fragmentation and segment cleaning for CPS based
//! storage devices", SAC'19), whose text is not public.
//!
//! Known properties: several thresholds for synchronous writes against fragmented files, and a cleaner that
//! looks for idle time far more often. In FAGC TACO'23, Table 6, it cleans a little more than F2FS and leaves
//! the fewest fragments. Ours chooses victims as [`cost_benefit`] does, and looks for idle time every second
//! instead of every 30 to 60 seconds. The thresholds are left out.

use std::time::Duration;

use crate::cost_benefit;
use crate::memory::{Ask, Choice, Memory, Tuning};
use crate::view::View;

/// Interval at which the background looks for idle time.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The unit with the greatest benefit, see [`cost_benefit::choose`].
pub fn choose(view: &dyn View, memory: &Memory, tuning: &Tuning, ask: Ask<'_>) -> (Option<Choice>, Memory) {
    cost_benefit::choose(view, memory, tuning, ask)
}
