//! How does a block stay whole when one thread reads it while another writes it?
//!
//! The host's page cache promises nothing there, so a file's blocks are guarded by a fixed set of
//! locks. A request takes the locks of all chunks it touches, in ascending order: no deadlock.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Lba;

/// Locks: enough that threads on different places seldom meet.
const STRIPES: u64 = 256;
/// Blocks under one turn of a lock; a megabyte takes 4 or 5.
const CHUNK_BLOCKS: u64 = 64;

/// The locks.
#[derive(Debug)]
pub(crate) struct Stripes(Box<[RwLock<()>]>);

/// Held locks of one request; the one-lock case needs no allocation.
#[allow(dead_code)] // Held for their drop.
pub(crate) enum Held<G> {
    One(G),
    Many(Vec<G>),
}

impl Stripes {
    pub(crate) fn new() -> Self {
        Self((0..STRIPES).map(|_| RwLock::new(())).collect())
    }

    /// Keeps writers of these blocks out.
    pub(crate) fn shared(&self, at: Lba, blocks: u64) -> Held<RwLockReadGuard<'_, ()>> {
        self.take(at, blocks, RwLock::read)
    }

    /// Keeps everyone out of these blocks.
    pub(crate) fn alone(&self, at: Lba, blocks: u64) -> Held<RwLockWriteGuard<'_, ()>> {
        self.take(at, blocks, RwLock::write)
    }

    fn take<'a, G>(&'a self, at: Lba, blocks: u64, lock: fn(&'a RwLock<()>) -> G) -> Held<G> {
        let first = at.0 / CHUNK_BLOCKS;
        let last = at.0.saturating_add(blocks.saturating_sub(1)) / CHUNK_BLOCKS;
        if first == last {
            return Held::One(lock(&self.0[(first % STRIPES) as usize]));
        }
        if last - first >= STRIPES {
            return Held::Many(self.0.iter().map(lock).collect());
        }
        let mut order: Vec<usize> = (first..=last).map(|c| (c % STRIPES) as usize).collect();
        order.sort_unstable();
        Held::Many(order.into_iter().map(|i| lock(&self.0[i])).collect())
    }
}
