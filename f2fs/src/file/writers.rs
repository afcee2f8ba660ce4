//! Which writers bring contents now, and how many blocks?

use parking_lot::{Condvar, Mutex};

/// The writers that bring contents now.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    /// How many blocks they bring, written or not.
    pub(super) bringing: Mutex<u64>,
    pub(super) one_left: Condvar,
}

impl Writers {
    /// How many blocks admitted writers bring.
    pub(crate) fn brought(&self) -> u64 {
        *self.bringing.lock()
    }
}

/// The right to bring so many blocks; it ends when dropped.
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
