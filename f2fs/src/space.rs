//! How many blocks, nodes and inodes are in use, and what are the limits?
//!
//! Blocks in use are of two kinds. Written ones are valid in the segment table. The others are *unwritten*: reserved
//! slots without a block yet (address `NEW`), and marks of compressed clusters whose saved blocks are still reserved.
//! At mount their number is known only as a difference; from then on it follows the slots, so that a checkpoint can
//! compare both kinds with the counts ([`crate::invariant`]).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Volume-wide counts.
#[derive(Debug)]
pub struct Space {
    user: u64,
    max_nodes: i64,
    valid: AtomicU64,
    /// `valid` at the last checkpoint, and blocks allocated since.
    checkpointed: AtomicU64,
    taken: AtomicU64,
    unwritten: AtomicI64,
    nodes: AtomicI64,
    inodes: AtomicI64,
}

impl Space {
    /// Counts from a checkpoint; `written` blocks are valid in its segment table.
    pub fn new(user: u64, max_nid: u32, (valid, written): (u64, u64), nodes: u32, inodes: u32) -> Self {
        Space {
            user,
            max_nodes: i64::from(max_nid) - 3,
            valid: AtomicU64::new(valid),
            checkpointed: AtomicU64::new(valid),
            taken: AtomicU64::new(0),
            unwritten: AtomicI64::new(valid as i64 - written as i64),
            nodes: AtomicI64::new(nodes.into()),
            inodes: AtomicI64::new(inodes.into()),
        }
    }
    /// Blocks available to users.
    pub fn user_blocks(&self) -> u64 {
        self.user
    }
    /// Blocks in use, including reserved ones.
    pub fn valid_blocks(&self) -> u64 {
        self.valid.load(Ordering::Relaxed)
    }
    /// Blocks in use without a valid block in the segment table.
    pub fn unwritten(&self) -> i64 {
        self.unwritten.load(Ordering::Relaxed)
    }
    /// Changes the number of unwritten blocks.
    pub fn unwritten_by(&self, more: i64) {
        self.unwritten.fetch_add(more, Ordering::Relaxed);
    }
    /// Nodes in use.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(0) as u32
    }
    /// Inodes in use.
    pub fn inodes(&self) -> u32 {
        self.inodes.load(Ordering::Relaxed).max(0) as u32
    }
    /// Takes `n` blocks or none.
    pub fn take(&self, n: u64) -> Result<()> {
        self.valid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |v| (v + n <= self.user).then_some(v + n))
            .map_err(|_| Error::no_space())?;
        self.taken.fetch_add(n, Ordering::Relaxed);
        Ok(())
    }
    /// A block moved to another slot. The count stays; a replay adds the block at its new slot before it knows the old
    /// one.
    pub fn moved(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
    /// Notes that a checkpoint was written.
    pub fn checkpointed(&self) {
        self.checkpointed.store(self.valid_blocks(), Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
    }
    /// True if all blocks allocated since the checkpoint fit in addition to all blocks in use then: roll-forward adds
    /// blocks without knowing which were freed (kernel `space_for_roll_forward`).
    pub fn fits_roll_forward(&self) -> bool {
        self.checkpointed.load(Ordering::Relaxed) + self.taken.load(Ordering::Relaxed) <= self.user
    }
    /// Gives `n` blocks back.
    pub fn give(&self, n: u64) {
        // Saturating: a count on disk that is too low must not wrap.
        let _ = self.valid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |v| Some(v.saturating_sub(n)));
    }
    /// Takes a block for a node.
    pub fn take_node(&self, inode: bool) -> Result<()> {
        if self.nodes.load(Ordering::Relaxed) >= self.max_nodes {
            return Err(Error::no_space());
        }
        self.take(1)?;
        self.nodes.fetch_add(1, Ordering::Relaxed);
        if inode {
            self.inodes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
    /// Gives a node's block back.
    pub fn give_node(&self, inode: bool) {
        self.give(1);
        self.nodes.fetch_sub(1, Ordering::Relaxed);
        if inode {
            self.inodes.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
