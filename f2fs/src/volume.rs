//! What is a mounted volume made of, and under which locks does every change run?
//!
//! # Locking order
//! 0. An inode's `turn` and `shift` locks ([`crate::inode::Steps`]): held over several changes. Then admission
//!    ([`crate::file::admission`]): a writer of contents waits for other writers before it takes any other lock.
//! 1. `cp`: shared by every operation that changes something, exclusive for checkpoint and cleaning. Readers do not
//!    take it.
//! 2. `renames`: renames between directories, one at a time.
//! 3. Inode locks ([`crate::inode::Inode::content`]): parent before child; of two directories the upper one first,
//!    unrelated ones (only under `renames`) in order of inode number.
//! 4. `node_io`: order of node writes. `data_io`: order of data writes, on a zoned device; never both.
//! 5. Node bytes: inode before its nodes, parent before child.
//! 6. Innermost locks: the section being cleaned, segments, orphans, fsync's promises, caches, NAT; one at a time, or
//!    in this order. (The names of deleted files come before node bytes.)
//!
//! Cleaning changes addresses without inode locks. A reader notices it by the node's
//! [`moves`](crate::node::cache::Node) and repeats the read.

mod begin;
mod host_room;
mod public;
mod report;
mod restore;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;

use crate::checkpoint::Checkpoints;
use crate::context::Context;
use crate::counters::Counters;
use crate::delta::Deltas;
use crate::dir::Names;
use crate::file::Files;
use crate::gc::Cleaning;
use crate::inode::Inodes;
use crate::node::Nodes;
use crate::promises::Promises;
use crate::promises::flush_gate::FlushGate;
use crate::segment::Logs;
use crate::xattr::Xattrs;

/// A mounted volume.
pub struct Volume {
    pub(crate) ctx: Arc<Context>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) promises: Arc<Promises>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) xattrs: Arc<Xattrs>,
    pub(crate) deltas: Arc<Deltas>,
    pub(crate) files: Arc<Files>,
    pub(crate) names: Arc<Names>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) cleaning: Arc<Cleaning>,
    pub(crate) flushes: FlushGate,
    /// The last shortage of the host for which everything was made durable.
    pub(crate) relieved: AtomicU64,
    /// Monotonic time of the last writeback, in milliseconds.
    pub(crate) last_writeback: AtomicU64,
    /// Monotonic time at which background work last saw that the volume was in use.
    pub(crate) last_seen_used: Mutex<Duration>,
    /// See [`vfs::Volume::account_by`].
    pub(crate) accountant: Mutex<Option<vfs::Accountant>>,
    /// See [`vfs::Volume::report_too`].
    pub(crate) reported_too: Mutex<Option<vfs::Reporter>>,
    /// Counters for users and operators.
    pub counters: Arc<Counters>,
}
