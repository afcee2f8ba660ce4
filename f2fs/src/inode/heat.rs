//! How often was a file recently read and written?
//!
//! Left out: the classes that follow from these counts (`delta::hotness`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Activity of one file.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    reads: AtomicU32,
    writes: AtomicU32,
    /// In the last window it was read often and written seldom.
    only_read: AtomicBool,
}

impl Heat {
    pub(crate) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn written(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
    /// True if deltas in delta nodes would only slow down reads.
    pub(crate) fn only_read(&self) -> bool {
        self.only_read.load(Ordering::Relaxed)
    }
    pub(crate) fn set_only_read(&self, only_read: bool) {
        self.only_read.store(only_read, Ordering::Relaxed);
    }
    /// Reads and writes in the window that ends.
    pub(crate) fn end_window(&self) -> (u32, u32) {
        (self.reads.swap(0, Ordering::Relaxed), self.writes.swap(0, Ordering::Relaxed))
    }
}
