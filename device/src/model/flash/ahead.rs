//! What does the device do while nobody asks it anything?
//!
//! UFS and eMMC call it background operations: the device cleans ahead, so that later writes find erased blocks. Which
//! blocks, how many and after which pause is the maker's secret; here blocks as cleaning under a writer chooses them
//! (`clean.rs`), one at a time on each die that keeps fewer erased ones than the profile's `nand.ahead` says, after
//! [`PAUSE`]. A read that comes meanwhile goes before what has not begun (`dies.rs`). Without the number the device
//! cleans for writers alone.

use super::Flash;
use super::clean::KEPT;
use crate::energy::{Bill, Nanos};

/// So long nothing was asked or done; assumed.
const PAUSE: Nanos = Nanos(10_000_000);
/// A block with less than this part of it to win is left: it is worn for little.
const LEAST_GAIN: u32 = 16;

impl Flash {
    /// Cleans in the time up to `now`, which nobody asked anything in since the last request.
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

    /// Begins to clean a block of each die that keeps too few erased ones; false if there is none to win by.
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
