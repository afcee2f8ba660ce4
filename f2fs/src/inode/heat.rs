//! How often was a file read and written lately?
//!
//! Counts alone. Left out: what follows from them (`delta::hotness`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What is known of one file.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    reads: AtomicU32,
    writes: AtomicU32,
    /// It was read often and written seldom in the last window.
    only_read: AtomicBool,
}

impl Heat {
    pub(crate) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn written(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
    /// True if deltas in nodes of their own would only be in the way.
    pub(crate) fn only_read(&self) -> bool {
        self.only_read.load(Ordering::Relaxed)
    }
    pub(crate) fn set_only_read(&self, only_read: bool) {
        self.only_read.store(only_read, Ordering::Relaxed);
    }
    /// Reads and writes of the window that ends.
    pub(crate) fn end_window(&self) -> (u32, u32) {
        (self.reads.swap(0, Ordering::Relaxed), self.writes.swap(0, Ordering::Relaxed))
    }
}
