//! How are nodes (inodes and blocks of addresses) stored and used?
//!
//! * [`cache`]: nodes in memory, clean and dirty.
//! * [`index`]: which entries in delta nodes are live.
//! * [`map`]: finding the address of a file block; creating and freeing nodes.
//! * [`free`]: freeing addresses (truncate), step by step.
//! * [`mod@write`]: writing dirty nodes to their logs.

pub mod cache;
pub mod free;
pub(crate) mod index;
pub mod map;
pub mod write;

use crate::context::Context;
use crate::nat::Nat;
use crate::promises::Promises;
use crate::segment::Logs;
use crate::space::Space;
use cache::NodeCache;
use parking_lot::Mutex;
use std::sync::Arc;

/// The nodes of a mounted volume: their numbers, their addresses, those in memory, and the blocks that they count.
pub struct Nodes {
    ctx: Arc<Context>,
    logs: Arc<Logs>,
    promises: Arc<Promises>,
    pub(crate) nat: Nat,
    pub(crate) cache: NodeCache,
    pub(crate) space: Space,
    /// Keeps the order of node writes.
    pub(crate) node_io: Mutex<()>,
}

impl Nodes {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        logs: &Arc<Logs>,
        promises: &Arc<Promises>,
        nat: Nat,
        space: Space,
    ) -> Arc<Self> {
        Arc::new(Nodes {
            ctx: ctx.clone(),
            logs: logs.clone(),
            promises: promises.clone(),
            nat,
            cache: NodeCache::new(ctx.options.node_cache, logs.pressure.clone()),
            space,
            node_io: Mutex::new(()),
        })
    }
}
