//! What does cleaning remember from round to round?

use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::pacer::Pacer;
use super::uses::Uses;
use super::work::Work;

/// What cleaning remembers from round to round.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// The number of free sections when a round last gained nothing: the next round waits until there are fewer.
    /// `u32::MAX` after a round that reached its goal.
    pub(super) gave_up_at: AtomicU32,
    /// The section that the background is emptying.
    pub(super) begun: Mutex<Option<Work>>,
    /// When the background cleans next.
    pub(super) pacer: Mutex<Pacer>,
    /// What the volume was used for, as far as that concerns cleaning.
    pub(super) uses: Mutex<Uses>,
}

impl Cleaner {
    pub(crate) fn new(pacer: Pacer) -> Self {
        Cleaner {
            gave_up_at: AtomicU32::new(u32::MAX),
            begun: Mutex::default(),
            pacer: Mutex::new(pacer),
            uses: Mutex::default(),
        }
    }
    /// True if, as far as the pacer was told, nobody uses the volume.
    pub(crate) fn is_idle(&self, now: std::time::Duration) -> bool {
        self.pacer.lock().is_idle(now)
    }
}
