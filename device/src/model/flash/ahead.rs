//! Background work of an idle device.
//!
//! UFS and eMMC call it background operations: the device cleans ahead, so that later writes find erased blocks.
//! Real devices do not document which blocks, how many, and after which pause. The model chooses blocks like
//! cleaning for a writer (`clean.rs`), one at a time on each die with fewer erased blocks than the profile's
//! `nand.ahead`, after [`PAUSE`]. A read that arrives meanwhile precedes work that has not begun (`dies.rs`).
//! Without the number the device cleans only for writers.

use super::Flash;
use super::clean::KEPT;
use crate::energy::{Bill, Nanos};

/// Idle time before background work; assumed.
const PAUSE: Nanos = Nanos(10_000_000);
/// A block with a smaller reclaimable share is skipped: the wear would gain too little.
const LEAST_GAIN: u32 = 16;

impl Flash {
    /// Cleans in the idle time between the last request and `now`.
    pub(super) fn clean_ahead(&mut self, now: Nanos, bill: &mut Bill) {
        if self.prices.ahead == 0 {
            return;
        }
        let mut at = Nanos(self.last.0.saturating_add(PAUSE.0));
        loop {
            let began = at;
            while self.dies.quiet_since().is_none() {
                if self.dies.next().is_none_or(|next| next > now) {
                    self.idle.busy(now, bill);
                    return;
                }
                self.step(&mut at);
            }
            if at > now {
                return;
            }
            if at > began {
                self.idle.busy(at, bill);
            }
            if !self.clean_once(at, bill) {
                return;
            }
        }
    }

    /// Begins to clean a block on each die with too few erased ones; false if none is worth it.
    fn clean_once(&mut self, at: Nanos, bill: &mut Bill) -> bool {
        let (kept, units) = (KEPT + self.prices.ahead, self.geometry.block_units());
        let mut any = false;
        for die in 0..self.geometry.dies {
            let few = self.blocks.erased[die as usize].len() < kept;
            let Some(found) = few.then(|| self.look(die)).flatten() else { continue };
            let (valid, victim) = found.emptiest;
            if valid > units - units / LEAST_GAIN {
                continue;
            }
            if !any {
                self.idle.pay(at, self.rest(at), bill);
                self.write_journal(at, bill);
            }
            self.clean(die, victim, None, at, bill);
            any = true;
        }
        any
    }
}
