//! Since when is something not durable, and who is to be woken for it?

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// When something changed that is not durable yet, in milliseconds of the clock. Kept only where [`vfs::Commit`] asks for it.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) first: AtomicU64,
    pub(crate) last: AtomicU64,
    /// Asks for a turn sooner than the last one said.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Changes {
    /// Something changes. `first`: since the last checkpoint nothing did.
    pub(crate) fn note(&self, now: u64, first: bool) {
        self.last.store(now, Ordering::Release);
        if first {
            self.first.store(now, Ordering::Release);
            if let Some(wake) = self.wake.get() {
                wake();
            }
        }
    }

    /// Who is to be asked for a turn. Only the first one counts.
    pub(crate) fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(wake);
    }
}
