//! Does the volume accept changes? If not: why, and can the state in memory still be written?
//!
//! A failed write or flush that a checkpoint needs stops all changes. Memory stays unchanged and readers continue. A
//! later [`Volume::sync_all`](crate::volume::Volume) or unmount writes all of it again; if that succeeds, changes are
//! accepted again. If memory itself may contradict the device (a broken invariant, blocks half moved), no checkpoint is
//! written any more: the volume is read-only until it is mounted again from its last checkpoint.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

const SOUND: u8 = 0;
const FAILED: u8 = 1;
const HOPELESS: u8 = 2;

/// Whether changes are accepted, and why not.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: AtomicU8,
    why: Mutex<String>,
}

impl Health {
    /// True if changes are accepted.
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
        // The first reason is the cause; later ones are ignored unless they are worse.
        if state > before {
            *text = why.to_string();
            self.state.store(state, Ordering::Release);
            log::error!("the volume accepts no more changes: {text}");
        }
    }

    /// Why changes are refused.
    pub(crate) fn why(&self) -> Option<String> {
        (!self.is_sound()).then(|| self.why.lock().clone())
    }

    /// Prepares another attempt; a new failure is recorded again. The caller prevents all changes.
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
