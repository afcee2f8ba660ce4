//! How many blocks are admitted writers writing?

use parking_lot::{Condvar, Mutex};

/// The admitted writers.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    /// Number of their blocks, written or not.
    pub(super) bringing: Mutex<u64>,
    pub(super) one_left: Condvar,
}

impl Writers {
    /// Number of blocks of admitted writers.
    pub(crate) fn brought(&self) -> u64 {
        *self.bringing.lock()
    }
}

/// The right to write an admitted number of blocks; released on drop.
pub(crate) struct Admitted<'v> {
    pub(super) writers: &'v Writers,
    pub(super) blocks: u64,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        *self.writers.bringing.lock() -= self.blocks;
        self.writers.one_left.notify_all();
    }
}
