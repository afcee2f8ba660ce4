//! Which state does a mounted volume report?
//!
//! Left out on purpose: the interface to users (the `fuse` crate) and printing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use format::checkpoint::CpFlags;
use format::{BlockAddr, Ino};

use super::Volume;
use crate::error::Result;
use crate::gc::settings::Urgency;

/// The reported state.
#[derive(Debug, Clone)]
pub struct State {
    /// Inodes in use.
    pub inodes: u32,
    /// Nodes in use.
    pub nodes: u32,
    /// Segments without a valid block that can be written.
    pub free_segments: u32,
    /// Segments without a valid block that become free with the next checkpoint.
    pub prefree_segments: u32,
    /// Segments with valid and invalid blocks.
    pub dirty_segments: u32,
    /// Segments reserved for cleaning.
    pub reserved_segments: u32,
    /// Version of the valid checkpoint.
    pub checkpoint_version: u64,
    /// True if that checkpoint was written by an unmount.
    pub clean_unmount: bool,
    /// True if usage in quota files is invalid until fsck.f2fs has recounted it.
    pub quotas_need_fsck: bool,
    /// The logs: type, segment, next block, whether it fills holes.
    pub logs: Vec<(format::sit::LogType, u32, u16, bool)>,
}

impl Volume {
    /// The address of an inode on the device.
    ///
    /// # Errors
    /// If the node table cannot be read.
    pub fn inode_address(&self, ino: Ino) -> Result<BlockAddr> {
        Ok(self.nodes.nat.get(ino.nid())?.addr)
    }

    /// The current state.
    pub fn state(&self) -> State {
        let (checkpoint_version, flags) = {
            let cp = &self.ctx.cp.read().checkpoint;
            (cp.version, cp.flags)
        };
        let seg = self.logs.seg.lock();
        State {
            inodes: self.nodes.space.inodes(),
            nodes: self.nodes.space.nodes(),
            free_segments: seg.table.free_segments(),
            prefree_segments: seg.table.prefree_segments(),
            dirty_segments: seg.table.dirty_count(),
            reserved_segments: seg.reserved_segs,
            checkpoint_version,
            clean_unmount: flags.contains(CpFlags::UMOUNT),
            quotas_need_fsck: flags.contains(CpFlags::QUOTA_NEED_FSCK),
            logs: format::sit::LogType::ALL
                .into_iter()
                .zip(&seg.logs)
                .map(|(t, l)| (t, l.seg.0, l.next, l.threaded))
                .collect(),
        }
    }

    /// Counters and settings as name and value, in display order.
    pub fn report(&self) -> Vec<(String, String)> {
        let s = self.cleaning();
        let c = &self.counters;
        let n = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed).to_string();
        let ms = |d: Duration| d.as_millis().to_string();
        let state = self.state();
        let free = self.logs.free_fragments();
        let (small, small_blocks) = free.fragments();
        let tuning = self.logs.seg.lock().chooser.tuning;
        let waits = c.waits.so_far();
        let wait = |percent| waits.percentile(percent).unwrap_or_default().as_micros().to_string();
        let urgency = match s.urgency {
            Urgency::Normal => 0,
            Urgency::High => 1,
            Urgency::Low => 2,
            Urgency::Mid => 3,
        };
        let since = self.ctx.monotonic_ms().saturating_sub(self.checkpoints.last_checkpoint.load(Ordering::Relaxed));
        let health = vfs::state::State {
            failed: self.ctx.health.why(),
            checkpoint: Some(state.checkpoint_version),
            age_s: Some(since / 1000),
        };
        let account = self.cleaning.account();
        let mut out = vec![
            ("gc", s.policy.name().to_owned()),
            ("power", s.power.name().to_owned()),
            ("background_gc", if s.on { "on" } else { "off" }.to_owned()),
            ("gc_urgent", urgency.to_string()),
            ("gc_urgent_sleep_time", ms(s.intervals.urgent)),
            ("gc_min_sleep_time", ms(s.intervals.min)),
            ("gc_max_sleep_time", ms(s.intervals.max)),
            ("gc_no_gc_sleep_time", ms(s.intervals.none)),
            ("gc_idle_interval", ms(s.intervals.idle)),
            ("gc_step_blocks", s.step_blocks.to_string()),
            ("gc_quiet_step_blocks", s.pace.quiet_step.to_string()),
            ("gc_turn_sections", s.pace.sections.to_string()),
            ("gc_keep_free", s.keep_free.to_string()),
            ("atgc_age_threshold", tuning.age_threshold.to_string()),
            ("max_victim_search", tuning.max_victim_search.to_string()),
            ("gc_background_calls", n(&c.background_gc)),
            ("gc_foreground_calls", n(&c.foreground_gc)),
            ("gc_nothing_to_clean", n(&c.nothing_to_clean)),
            ("gc_in_use_pj", account.in_use.to_string()),
            ("gc_saved_pj", account.saved.to_string()),
            ("gc_spent_pj", account.spent.to_string()),
            ("gc_data_victims", n(&c.data_victims)),
            ("gc_node_victims", n(&c.node_victims)),
            ("moved_blocks_background", n(&c.moved_background)),
            ("moved_blocks_foreground", n(&c.moved_foreground)),
            ("moved_blocks_threaded", n(&c.moved_threaded)),
            ("defragmented_blocks", n(&c.defragmented)),
            ("longest_pause_us", n(&c.longest_pause)),
            ("gc_held_off_us", waits.time().as_micros().to_string()),
            ("gc_wait_p50_us", wait(50.0)),
            ("gc_wait_p99_us", wait(99.0)),
            ("gc_wait_most_us", c.waits.longest().as_micros().to_string()),
            ("deltas", n(&c.deltas)),
            ("delta_files_barred", n(&c.delta_barred)),
            ("checkpoints", n(&c.checkpoints)),
            ("in_place_blocks", n(&c.in_place)),
            ("free_segments", state.free_segments.to_string()),
            ("dirty_segments", state.dirty_segments.to_string()),
            ("reserved_segments", state.reserved_segments.to_string()),
            ("free_pieces", free.total().to_string()),
            ("free_fragments", small.to_string()),
            ("free_fragment_blocks", small_blocks.to_string()),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect::<Vec<_>>();
        out.splice(0..0, health.lines().into_iter().chain(self.ctx.options.in_effect()));
        for (level, count) in free.count.iter().enumerate() {
            out.push((format!("free_pieces_{}", vfs::FreeFragments::name(level)), count.to_string()));
        }
        if let Some(more) = &*self.reported_too.lock() {
            out.extend(more());
        }
        out
    }
}
