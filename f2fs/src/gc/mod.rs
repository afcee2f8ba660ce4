//! Cleaning: making free sections out of used ones.
//!
//! * [`policy`]: whom to clean; pure functions of a read-only view.
//! * `collect`: moving the valid blocks of one section elsewhere.
//! * `pace`: when cleaning runs, and how much of it.

mod collect;
mod pace;
pub mod policy;

use std::sync::atomic::AtomicU32;

use format::addr::SecNo;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

/// What cleaning remembers from round to round.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// Sections with valid blocks nobody owns: they cannot be emptied, so they are not chosen again.
    hopeless: Mutex<FxHashSet<SecNo>>,
    /// Free sections when cleaning last gained nothing more; another round waits until there are
    /// fewer. `u32::MAX` after a round that reached its goal.
    gave_up_at: AtomicU32,
}

impl Cleaner {
    pub(crate) fn new() -> Self {
        Cleaner { hopeless: Mutex::default(), gave_up_at: AtomicU32::new(u32::MAX) }
    }
}
