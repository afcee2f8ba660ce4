//! Cleaning: making free sections out of used ones.
//!
//! * `collect`: moving the valid blocks of one section elsewhere.
//! * `pace`: when cleaning must run because space is short, and how much of it.
//! * [`background`]: when it runs ahead of time.
//! * [`control`]: the knobs and counters of a mounted volume.
//! * [`prices`]: what operations cost on a device, for a policy that weighs joules.
//!
//! Left out on purpose: whom to clean (the `victim` crate) and what a policy sees of the volume
//! (`segment`).

pub mod background;
mod collect;
pub mod control;
mod pace;
pub mod prices;

use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use background::Pacer;
use collect::Work;

/// What cleaning remembers from round to round.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// Free sections when cleaning last gained nothing more; another round waits until there are
    /// fewer. `u32::MAX` after a round that reached its goal.
    gave_up_at: AtomicU32,
    /// The section the background is emptying.
    begun: Mutex<Option<Work>>,
    /// When the background cleans next.
    pacer: Mutex<Pacer>,
}

impl Cleaner {
    pub(crate) fn new(pacer: Pacer) -> Self {
        Cleaner { gave_up_at: AtomicU32::new(u32::MAX), begun: Mutex::default(), pacer: Mutex::new(pacer) }
    }
}
