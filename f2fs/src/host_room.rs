//! Does the host have room for everything that this volume has accepted?
//!
//! A sparse image cannot grow if its host's file system is full. [`HostRoom`](device::HostRoom) holds ballast there,
//! and every change first checks that the ballast covers all blocks that a checkpoint would write ([`Files::debt`]).
//! Left out: what happens otherwise (`volume::host_room`).

use std::sync::atomic::Ordering::Relaxed;

use device::host_room::Change as Room;
use format::sit::SIT_ENTRIES;

use crate::file::Files;

/// Most blocks that a change adds, not counting admitted contents.
pub(crate) const BROUGHT: u64 = 64;
/// Blocks of a checkpoint pack (without payload) and of the logs' summaries.
const PACK: u64 = 32;
/// Minimum average of blocks that a log writes to a segment before it leaves it and writes its summary.
const BLOCKS_PER_SUMMARY: u64 = 64;

impl Files {
    /// Most blocks that a checkpoint of everything accepted would write; writers add `brought` more blocks of contents.
    pub(crate) fn debt(&self, brought: u64) -> u64 {
        let contents = self.logs.pressure.data.load(Relaxed) + self.logs.pressure.dents.load(Relaxed) + brought;
        // Worst case: each content block changes a different node, each node a different NAT block, each block a
        // different segment.
        let nodes = (self.nodes.cache.dirty_count() + contents).min(self.nodes.space.nodes().into());
        let nat = (self.nodes.nat.dirty_count() + nodes).min(self.ctx.sb.nat_blocks().into());
        let written = contents + nodes;
        let changed = self.logs.seg.lock().table.changed_count() as u64;
        let sit = (changed + written).min(self.ctx.sb.main_segs.div_ceil(SIT_ENTRIES).into());
        written + nat + sit + written / BLOCKS_PER_SUMMARY + PACK + u64::from(self.ctx.sb.cp_payload)
    }

    /// True if the host has room for everything accepted, plus `brought` blocks of contents.
    pub(crate) fn host_covers(&self, brought: u64) -> bool {
        let Some(room) = &self.ctx.options.host_room else { return true };
        !room.is_short() && room.covers(self.debt(brought) + BROUGHT, Room::Takes)
    }

    /// True if the host has room for everything accepted, plus copies of a section's blocks.
    pub(crate) fn host_allows_cleaning(&self) -> bool {
        let Some(room) = &self.ctx.options.host_room else { return true };
        let section = u64::from(self.ctx.sb.segs_per_sec) * 512;
        !room.is_short() && room.covers(self.debt(self.writers.brought()) + section, Room::Gives)
    }

    /// True if users get no space although the volume has some.
    pub(crate) fn host_is_short(&self) -> bool {
        self.ctx.options.host_room.as_ref().is_some_and(|room| room.is_short())
    }
}
