//! Since when have there been changes that are not durable, and who is woken for them?

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time of the first change that is not durable yet, in milliseconds of the clock. Kept only if [`vfs::Commit`] needs
/// it.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) first: AtomicU64,
    pub(crate) last: AtomicU64,
    /// Requests a tick earlier than the last one announced.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Changes {
    /// Notes a change. `first`: it is the first since the last checkpoint.
    pub(crate) fn note(&self, now: u64, first: bool) {
        self.last.store(now, Ordering::Release);
        if first {
            self.first.store(now, Ordering::Release);
            if let Some(wake) = self.wake.get() {
                wake();
            }
        }
    }

    /// Registers the function that requests a tick. Only the first call counts.
    pub(crate) fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(wake);
    }
}
