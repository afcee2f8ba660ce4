//! May the volume take changes? If not: why, and can what is in memory still be written?
//!
//! A failed write or flush of what a checkpoint needs stops all changes. Memory stays as it is and readers go on. A later
//! [`Volume::sync_all`](crate::volume::Volume) or unmount writes all of it again, and if that succeeds, changes are taken
//! again. Where memory itself may contradict the device (a broken invariant, blocks half moved), no checkpoint is written
//! any more: the volume can only be read, until it is mounted again as of its last checkpoint.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

const SOUND: u8 = 0;
const FAILED: u8 = 1;
const HOPELESS: u8 = 2;

/// Whether changes are taken, and why not.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: AtomicU8,
    why: Mutex<String>,
}

impl Health {
    /// True if changes are taken.
    pub(crate) fn is_sound(&self) -> bool {
        self.state.load(Ordering::Acquire) == SOUND
    }

    /// A request that a checkpoint depends on failed; everything it should have stored is still in memory.
    pub(crate) fn fail(&self, why: impl Display) {
        self.set(FAILED, &why);
    }

    /// Memory and device may contradict each other: nothing more may be written.
    pub(crate) fn fail_for_good(&self, why: impl Display) {
        self.set(HOPELESS, &why);
    }

    fn set(&self, state: u8, why: &dyn Display) {
        let mut text = self.why.lock();
        let before = self.state.load(Ordering::Acquire);
        // The first reason is the cause; what follows from it is not told, unless it is worse.
        if state > before {
            *text = why.to_string();
            self.state.store(state, Ordering::Release);
            log::error!("the volume accepts no more changes: {text}");
        }
    }

    /// Why no changes are taken.
    pub(crate) fn why(&self) -> Option<String> {
        (!self.is_sound()).then(|| self.why.lock().clone())
    }

    /// Before another attempt: it fails anew if it fails. The caller keeps all changes out.
    pub(crate) fn begin_retry(&self) -> bool {
        let _why = self.why.lock();
        self.state.compare_exchange(FAILED, SOUND, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_unless_a_worse_one_comes() {
        let health = Health::default();
        assert!(health.is_sound() && health.why().is_none());
        health.fail("first");
        health.fail("second");
        assert_eq!(health.why().as_deref(), Some("first"));
        assert!(health.begin_retry() && health.is_sound());
        health.fail_for_good("worse");
        health.fail("third");
        assert_eq!(health.why().as_deref(), Some("worse"));
        assert!(!health.begin_retry() && !health.is_sound());
    }
}
