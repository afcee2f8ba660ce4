//! How is a small update of a page stored in its inode instead of its own block?
//!
//! After MedFS (FAST'25), made durable. On a volume with [`format::superblock::Features::DELTA`] a dirty page that
//! differs in few bytes from its block on the device, its *base*, is not written: the difference goes into the *zone*
//! of the inode ([`format::delta`]), which an fsync or a checkpoint writes anyway, or into a delta node of the file
//! ([`format::node::delta`]). So an fsync of small changes writes one block, and its flush is the only one.
//!
//! A page is a hole, reserved, plain (its block holds its contents) or a delta (its block is the base). Memory may have
//! newer contents of any of these.
//! * [`Costs`]: what deltas cost on a device.
//! * [`plan`]: which dirty pages become deltas, and which older deltas make room.
//! * [`bases`]: which bases need not be read.
//! * [`nodes`]: where deltas go that do not fit in the inode.
//! * `leave`: which pages are written whole together when deltas end.
//! * [`kept`]: how blocks of journals and logs become deltas of the pages that they contain.
//! * [`packed`]: which new pages (without a base) are stored in delta nodes too.
//! * [`hotness`]: which files are often read or written; pages that are read move out of delta nodes
//!   (`volume::restore`).
//! * [`read`]: the contents of a page with a delta.
//! * [`study`]: other uses of delta nodes, for comparison.
//! * How a volume gets deltas, and becomes plain F2FS again: [`crate::settle`].
//!
//! Three rules keep base and delta together. When a slot gets another address, it loses its delta in the zone in the
//! same change of the node, and its deltas in delta nodes before the inode's lock is released (except when cleaning
//! moves the base). (An fsync writes all changed nodes of the file, a checkpoint those of all files, and roll-forward
//! replays up to the last node of an fsync: so both or neither become durable.) A page with a delta is never
//! overwritten in place: the nodes on the device may still need the base. A delta is dropped only in exchange for the
//! whole page or for nothing (the page is gone), so no version of the file that could become durable has lost it.
//!
//! Left out: the format of a zone, and how pages are compared (`format::delta`).

pub(crate) mod bases;
mod choose;
pub(crate) mod costs;
pub(crate) mod encoded;
pub(crate) mod hotness;
pub(crate) mod kept;
mod leave;
pub(crate) mod nodes;
mod packed;
pub(crate) mod places;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod study;

use crate::context::Context;
use crate::inode::Inodes;
use crate::node::Nodes;
use crate::promises::Promises;
use crate::replacement::Cache;
use bases::Bases;
use format::{Block, Ino};
use hotness::Hotness;
use parking_lot::Mutex;
use std::sync::Arc;

/// Deltas: small updates of pages that live in nodes.
pub struct Deltas {
    ctx: Arc<Context>,
    promises: Arc<Promises>,
    nodes: Arc<Nodes>,
    inodes: Arc<Inodes>,
    /// The cache of bases above the device, if the mount creates deltas.
    pub(crate) bases: Option<Arc<Bases>>,
    pub(crate) hotness: Mutex<Hotness>,
    /// Database pages in delta nodes, by inode, generation and id.
    kept_pages: Mutex<Cache<(Ino, u32, u32), Box<Block>>>,
}

impl Deltas {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        promises: &Arc<Promises>,
        nodes: &Arc<Nodes>,
        inodes: &Arc<Inodes>,
        bases: Option<Arc<Bases>>,
    ) -> Arc<Self> {
        Arc::new(Deltas {
            ctx: ctx.clone(),
            promises: promises.clone(),
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            bases,
            hotness: Mutex::default(),
            kept_pages: Mutex::new(Cache::new(kept::IN_MEMORY, kept::IN_MEMORY / 8)),
        })
    }
}

pub use costs::Costs;
pub use hotness::{Class, FileHeat};
pub use places::{Places, Reads};
pub use study::{Beside, LONGEST, Study};
