//! Cleaning (garbage collection): how do used sections become free?
//!
//! * `collect`: moves the valid blocks of a section elsewhere.
//! * `pace`: foreground cleaning, when space is short: when it runs and how much it cleans.
//! * `checkpoint`: writes a checkpoint of everything; cleans if contents find no place.
//! * [`background`]: cleaning ahead of time. [`pacer`]: when that is due.
//! * [`linux`]: the pace of the kernel's thread, by version.
//! * `ledger`: whether the cleaner may spend what the next section costs.
//! * `uses`: how many blocks the next use of the volume will need.
//! * [`settings`]: what a user can set. `cleaner`, `work`: the state between rounds, and the section being emptied.
//! * [`control`]: the settings and counters of a mounted volume.
//! * [`waits`]: how long a request waits during background cleaning.
//! * `room`: cleaning for blocks that must be contiguous.
//! * [`prices`]: what operations cost on a device, for a policy that weighs joules.
//!
//! Left out on purpose: which section to clean (the `victim` crate), and the input of policies (`segment`).

pub mod background;
mod checkpoint;
pub(crate) mod cleaner;
mod collect;
pub mod control;
mod ledger;
pub mod linux;
mod pace;
pub mod pacer;
pub mod prices;
mod room;
pub mod settings;
mod uses;
pub mod waits;
mod work;

use crate::checkpoint::Checkpoints;
use crate::context::Context;
use crate::file::Files;
use crate::gc::pacer::Pacer;
use crate::node::Nodes;
use crate::promises::Promises;
use crate::segment::Logs;
use cleaner::Cleaner;
use parking_lot::Mutex;
use std::sync::Arc;

/// Cleaning: sections with few valid blocks become free.
pub struct Cleaning {
    ctx: Arc<Context>,
    logs: Arc<Logs>,
    promises: Arc<Promises>,
    nodes: Arc<Nodes>,
    files: Arc<Files>,
    checkpoints: Arc<Checkpoints>,
    pub(crate) cleaner: Cleaner,
    /// The current settings of cleaning.
    pub(crate) settings: Mutex<settings::Settings>,
}

impl Cleaning {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        logs: &Arc<Logs>,
        promises: &Arc<Promises>,
        nodes: &Arc<Nodes>,
        files: &Arc<Files>,
        checkpoints: &Arc<Checkpoints>,
    ) -> Arc<Self> {
        Arc::new(Cleaning {
            ctx: ctx.clone(),
            logs: logs.clone(),
            promises: promises.clone(),
            nodes: nodes.clone(),
            files: files.clone(),
            checkpoints: checkpoints.clone(),
            cleaner: Cleaner::new(Pacer::new(&ctx.options.gc, ctx.mounted_at)),
            settings: Mutex::new(ctx.options.gc),
        })
    }
}
