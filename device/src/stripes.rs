//! Locks that make reads and writes of blocks atomic to each other.
//!
//! The host's page cache does not guarantee that, so a fixed set of locks protects a file's blocks. A request takes
//! the locks of all its chunks in ascending order: no deadlock.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Lba;

/// Number of locks: enough that threads at different places seldom share one.
const STRIPES: u64 = 256;
/// Consecutive blocks under one lock; a megabyte takes 4 or 5 locks.
const CHUNK_BLOCKS: u64 = 64;

/// The locks.
#[derive(Debug)]
pub(crate) struct Stripes(Box<[RwLock<()>]>);

/// Locks held by one request; a single lock needs no allocation.
#[allow(dead_code)] // held for their drop
pub(crate) enum Held<G> {
    One(G),
    Many(Vec<G>),
}

impl Stripes {
    pub(crate) fn new() -> Self {
        Self((0..STRIPES).map(|_| RwLock::new(())).collect())
    }

    /// Excludes writers of these blocks.
    pub(crate) fn shared(&self, at: Lba, blocks: u64) -> Held<RwLockReadGuard<'_, ()>> {
        self.lock(at, blocks, RwLock::read)
    }

    /// Excludes all other requests for these blocks.
    pub(crate) fn exclusive(&self, at: Lba, blocks: u64) -> Held<RwLockWriteGuard<'_, ()>> {
        self.lock(at, blocks, RwLock::write)
    }

    fn lock<'a, G>(&'a self, at: Lba, blocks: u64, lock: fn(&'a RwLock<()>) -> G) -> Held<G> {
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
