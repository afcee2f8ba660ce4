//! What is reported of applications replayed on a volume?
//!
//! Their waiting times, the writes they caused, their cache hits, and the counts of their scripts. Left out: replaying
//! them.

use std::sync::atomic::Ordering::Relaxed;

use device::clock::Clock;
use device::{CountSnapshot, Counts, VirtualClock};
use f2fs::cause::Cause;
use f2fs::{MountOptions, Volume};

use crate::apps::census::Census;
use crate::apps::play::{Made, Player};
use crate::error::LabError;
use sim::result::Phase;

/// Durations of calls, in nanoseconds.
#[derive(Default)]
pub(super) struct Times {
    /// Syncs of files.
    pub syncs: Vec<u64>,
    /// Reads of files.
    pub reads: Vec<u64>,
    /// Number of calls.
    pub calls: u64,
}

impl Times {
    /// Makes a player's next call, without ticks, and records its duration. The caller handles pauses.
    pub fn step(&mut self, player: &mut Player<'_>, volume: &Volume, clock: &VirtualClock) -> Result<Made, LabError> {
        let since = clock.monotonic();
        let made = player.step(volume)?;
        let took = (clock.monotonic() - since).as_nanos() as u64;
        self.calls += took;
        match made {
            Made::Sync => self.syncs.push(took),
            Made::Read => self.reads.push(took),
            Made::Wait(_) | Made::Other => {}
        }
        Ok(made)
    }

    /// Notes the durations.
    pub fn note(mut self, phase: &mut Phase) {
        phase.note("calls_time", self.calls as f64 / 1e6, "ms");
        for (name, times) in [("sync", &mut self.syncs), ("read", &mut self.reads)] {
            distribution(phase, name, times);
            phase.note(&format!("{name}s"), times.len() as f64, "calls");
        }
    }
}

/// Notes mean, median, 99th percentile and maximum of durations in nanoseconds.
pub(super) fn distribution(phase: &mut Phase, name: &str, times: &mut [u64]) {
    times.sort_unstable();
    let us = |n: u64| n as f64 / 1e3;
    let mean = times.iter().sum::<u64>() as f64 / 1e3 / times.len() as f64;
    phase.note(&format!("{name}_time"), mean, "us");
    if let Some(most) = times.last() {
        phase.note(&format!("{name}_time_p50"), us(times[times.len() / 2]), "us");
        phase.note(&format!("{name}_time_p99"), us(times[(times.len() - 1) * 99 / 100]), "us");
        phase.note(&format!("{name}_time_most"), us(*most), "us");
    }
}

const OF_NODES: [Cause; 4] = [Cause::Node, Cause::FsyncNode, Cause::DeltaNode, Cause::DeltaMeta];
const OF_CONTENTS: [Cause; 4] = [Cause::UserData, Cause::Compressed, Cause::DeltaFold, Cause::DeltaBase];

fn sum(counts: &CountSnapshot, causes: &[Cause], of: fn(&Counts) -> u64) -> f64 {
    causes.iter().map(|c| of(&counts[*c as u8])).sum::<u64>() as f64
}

/// Notes the writes, and the share of reads that hit the cache.
pub(super) fn traffic(phase: &mut Phase, asked: &CountSnapshot, device: &CountSnapshot) {
    let written = device.total().blocks_written as f64;
    let (contents, nodes) =
        (sum(device, &OF_CONTENTS, |c| c.blocks_written), sum(device, &OF_NODES, |c| c.blocks_written));
    phase.note("blocks", written, "blocks");
    let (reads, writes) = (device.total().reads as f64, device.total().writes as f64);
    phase.note("volume", written / f64::from(1 << 18), "GB");
    phase.note("requests", reads + writes, "requests");
    phase.note("requests_that_write", 100.0 * writes / (reads + writes), "%");
    phase.note("blocks_contents", contents, "blocks");
    phase.note("blocks_nodes", nodes, "blocks");
    phase.note("blocks_compact", sum(device, &[Cause::DeltaNode], |c| c.blocks_written), "blocks");
    phase.note("blocks_meta", sum(device, &[Cause::DeltaMeta], |c| c.blocks_written), "blocks");
    phase.note("blocks_other", written - contents - nodes, "blocks");
    phase.note("flushes", device.total().flushes as f64, "flushes");
    phase.note("node_reads", sum(device, &OF_NODES, |c| c.blocks_read), "blocks");
    phase.note("base_reads", sum(device, &[Cause::DeltaBase], |c| c.blocks_read), "blocks");
    let read = |counts: &CountSnapshot, causes: &[Cause]| sum(counts, causes, |c| c.blocks_read);
    let hits = |causes: &[Cause]| 100.0 - 100.0 * read(device, causes) / read(asked, causes);
    phase.note("hits_contents", hits(&OF_CONTENTS), "%");
    phase.note("hits_bases", hits(&[Cause::DeltaBase]), "%");
    let erases = phase.counters.get("erases").copied().unwrap_or(0) as f64;
    phase.note("erases", erases, "erases");
    let programmed = phase.counters.get("blocks_programmed").copied().unwrap_or(0) as f64;
    phase.note("programmed", programmed, "blocks");
}

/// Notes the script's counts, which do not depend on how updates are stored.
pub(super) fn census(phase: &mut Phase, c: &Census) {
    phase.note("script_pages", c.pages as f64, "pages");
    phase.note("update_ratio", c.update_ratio(), "%");
    phase.note("update_difference", c.update_difference(), "%");
    phase.note("updates_of_sqlite", c.of_updates(c.sqlite_updates), "%");
    phase.note("updates_of_temporary", c.of_updates(c.temporary_updates), "%");
    phase.note("updates_per_page", c.updates as f64 / c.updated_pages.max(1) as f64, "1");
    phase.note("small_files", c.of_files(c.small_files), "%");
    phase.note("files_of_sqlite", c.of_files(c.sqlite_files), "%");
    phase.note("files_temporary", c.of_files(c.temporary_files), "%");
    phase.note("free_in_inodes", c.free_in_inodes(), "%");
    if !c.sizes {
        return;
    }
    phase.note("updates_below_256", c.of_updates(c.below_256), "%");
    phase.note("updates_below_819", c.of_updates(c.below_819), "%");
    phase.note("updates_as_deltas", c.of_updates(c.ours), "%");
    phase.note("size_as_delta", c.our_bytes as f64 / c.ours.max(1) as f64, "B");
    phase.note("page_compression", c.page_compression(), "%");
    phase.note("delta_compression", c.delta_compression(), "%");
    for (n, packed) in c.thresholds() {
        phase.note(&format!("written_with_{n}_to_a_page"), packed, "%");
    }
    let written = |n: usize| c.thresholds().find(|(to_a_page, _)| *to_a_page == n).map_or(f64::NAN, |(_, w)| w);
    phase.note("five_for_six_to_a_page", 100.0 * (written(5) / written(6) - 1.0), "%");
    phase.note("two_for_three_to_a_page", 100.0 * (written(2) / written(3) - 1.0), "%");
}

/// Deltas and in-place blocks so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept([u64; 6]);

impl Kept {
    /// Counts since the mount.
    pub fn so_far(volume: &Volume) -> Self {
        let c = &volume.counters;
        Kept([&c.deltas, &c.delta_bytes, &c.folded, &c.in_place, &c.restored, &c.packed].map(|n| n.load(Relaxed)))
    }

    /// Notes the counts since `self`.
    pub fn note(self, volume: &Volume, phase: &mut Phase) {
        let to = Kept::so_far(volume);
        let [made, bytes, folded, in_place, restored, packed] = std::array::from_fn(|i| (to.0[i] - self.0[i]) as f64);
        phase.note("deltas", made, "deltas");
        phase.note("packed", packed, "pages");
        phase.note("delta_size", bytes / made, "B");
        phase.note("folded", folded, "deltas");
        phase.note("in_place", in_place, "blocks");
        phase.note("restored", restored, "deltas");
        let (nodes, of_deltas) = volume.nodes_in_memory();
        phase.note("nodes_at_the_end", nodes as f64, "nodes");
        phase.note("delta_nodes_at_the_end", of_deltas as f64, "nodes");
        phase.note("delta_nodes_of_cache", 100.0 * of_deltas as f64 / MountOptions::default().node_cache as f64, "%");
        if let Some(reads) = phase.measures.get("base_reads").map(|m| m.value) {
            phase.note("base_reads_per_delta", reads / made, "1");
        }
    }
}
