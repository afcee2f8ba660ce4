//! Which state does cleaning keep between rounds?

use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use super::ledger::Ledger;
use super::pacer::Pacer;
use super::uses::Uses;
use super::work::Work;

/// The state that cleaning keeps between rounds.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// Free sections when a round last gained nothing: the next round waits until there are fewer. `u32::MAX` after a
    /// round that reached its goal.
    pub(super) gave_up_at: AtomicU32,
    /// The section that the background is emptying.
    pub(super) begun: Mutex<Option<Work>>,
    /// When the background cleans next.
    pub(super) pacer: Mutex<Pacer>,
    /// Past use of the volume, as far as cleaning needs it.
    pub(super) uses: Mutex<Uses>,
    /// What cleaning cost.
    pub(super) ledger: Mutex<Ledger>,
}

impl Cleaner {
    pub(crate) fn new(pacer: Pacer) -> Self {
        Cleaner {
            gave_up_at: AtomicU32::new(u32::MAX),
            begun: Mutex::default(),
            pacer: Mutex::new(pacer),
            uses: Mutex::default(),
            ledger: Mutex::default(),
        }
    }
    /// True if the pacer has seen no recent request.
    pub(crate) fn is_idle(&self, now: std::time::Duration) -> bool {
        self.pacer.lock().is_idle(now)
    }
}
