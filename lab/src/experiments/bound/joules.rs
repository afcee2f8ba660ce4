//! How many joules must overwriting take at least, whatever the cleaning?
//!
//! **Claim.** On flash, by a profile's own prices (docs/energy-model.md), the work of [`Work`] costs at least the sum
//! of
//!
//! * for each block written: processor, memory, link and programming of its bytes, and the board while the link
//!   transfers them;
//! * for each node that a batch must write: the same, since the batch's sync is a checkpoint, and a checkpoint writes
//!   every changed node;
//! * for each block moved (at least the number from [`super::proved`]): reading it, and writing it;
//! * for each batch: a request and a flush.
//!
//! *Proof.* A block that a batch overwrites is written at least once, and programmed before the flush of the
//! batch's sync completes, since no batch overwrites a block twice. A moved block is programmed at its new place before
//! the checkpoint that frees the old place completes. The price per byte does not depend on the request size. The link
//! transfers one request at a time, and each request waits for its own transfer. So the time during which some request
//! waits, for which the board is paid once, is no shorter than the sum of the transfers. Two blocks of a file that
//! are [`ADDRS_PER_BLOCK`] or more apart have their addresses in different nodes. Nothing is counted twice. ∎
//!
//! Assumptions: a cleaner reads the blocks it moves from the device, and a checkpoint writes nodes. These omissions
//! make the bound low: further requests of a batch, reads from the flash chips, tables and summaries, nodes of moved
//! blocks, the flash's mapping table and its own cleaning. A disk's prices depend on the arm's position, so there is no
//! bound for disks.

use device::energy::profile::{DeviceSpec, Profile};
use device::energy::{Energy, Nanos};
use format::node::ADDRS_PER_BLOCK;

use super::overwrites::Overwrites;

/// The minimum of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Work {
    /// Blocks written, nodes included.
    pub written: u64,
    /// Nodes among them.
    pub nodes: u64,
    /// Blocks moved.
    pub moved: f64,
    /// Syncs with something to write.
    pub syncs: u64,
}

impl Work {
    /// The work of overwriting while `moved` blocks are moved.
    pub fn of(work: &Overwrites, moved: f64) -> Work {
        let blocks: usize = work.batches.iter().map(Vec::len).sum();
        let nodes: u64 = work.batches.iter().map(|batch| nodes(batch)).sum();
        Work { written: blocks as u64 + nodes, nodes, moved, syncs: work.batches.len() as u64 }
    }
}

/// Minimum number of nodes with the addresses of these blocks, which are in order, wherever the file's first node
/// begins.
fn nodes(blocks: &[u32]) -> u64 {
    let (mut count, mut from) = (0, 0);
    for &block in blocks {
        if count == 0 || block >= from {
            (count, from) = (count + 1, block + ADDRS_PER_BLOCK);
        }
    }
    count
}

/// Minimum energy in joules. `None`: the device is not flash.
pub(super) fn least(profile: &Profile, work: Work) -> Option<f64> {
    let DeviceSpec::Flash(flash) = &profile.device else { return None };
    let (host, link, nand) = (profile.host.prices(), &flash.link, &flash.nand);
    let busy = |time| flash.busy.as_ref().map_or(Energy::ZERO, |busy| busy.value.over(time));
    let waits = |time: Nanos| host.board.over(time) + busy(time);
    let bytes = device::BLOCK as u64;
    let both = host.cpu_byte.of(bytes) + host.dram_byte.of(bytes);
    let write = both
        + link.write_energy.value.of(bytes)
        + nand.program_energy.value.of(bytes)
        + waits(link.write.value.of(bytes));
    let read = both + link.read_energy.value.of(bytes) + waits(link.read.value.of(bytes));
    let request = host.cpu_request
        + link.request_energy.value
        + waits(link.write_request.as_ref().unwrap_or(&link.request).value)
        + flash.flush_energy.value;
    let joules = |energy: Energy, times: f64| energy.joules() * times;
    let written = joules(write, work.written as f64);
    Some(written + joules(read + write, work.moved) + joules(request, work.syncs as f64))
}

#[cfg(test)]
mod tests {
    use device::energy::profile::SHIPPED;
    use device::{BlockDevice, Lba, Rng};
    use f2fs::cause::Cause;

    use super::*;
    use sim::bench::{Bench, blocks_of_mib};
    use sim::progress::Progress;

    #[test]
    fn nodes_are_no_more_than_a_file_has_wherever_its_first_one_begins() {
        let mut rng = Rng::new(4);
        for _ in 0..200 {
            let mut blocks: Vec<u32> = (0..rng.index(300)).map(|_| rng.below(100_000) as u32).collect();
            blocks.sort_unstable();
            blocks.dedup();
            for first in [1, 873, 923, ADDRS_PER_BLOCK] {
                let mut held: Vec<u32> =
                    blocks.iter().map(|b| (b + ADDRS_PER_BLOCK - first) / ADDRS_PER_BLOCK).collect();
                held.dedup();
                assert!(nodes(&blocks) <= held.len() as u64);
                assert!(blocks.is_empty() || 2 * nodes(&blocks) >= held.len() as u64, "half of them are far apart");
            }
        }
    }

    /// Checks the claim without nodes on every flash profile: batches of blocks written in requests of any size, some
    /// moved, flushed.
    #[test]
    fn no_flash_does_it_for_less() {
        let mut flashes = 0;
        for (name, text) in SHIPPED {
            let profile = Profile::parse(text, name).unwrap();
            let zero = Work { written: 0, nodes: 0, moved: 0.0, syncs: 0 };
            if least(&profile, zero).is_none() {
                continue;
            }
            flashes += 1;
            for most in [1, 8, 512] {
                let bench = Bench::new(&profile, blocks_of_mib(64)).unwrap();
                let (mut rng, mut done) = (Rng::new(most), zero);
                let phase = bench.measure("overwriting", 6, &Progress::new(&|_| ()), |recorder| {
                    let dev = bench.device();
                    let mut at = 0;
                    for _ in 0..6 {
                        let end = at + 1024;
                        while at < end {
                            let blocks = (1 + rng.below(most)).min(end - at);
                            let data = vec![7; blocks as usize * device::BLOCK];
                            dev.write(Lba(at), &data, Cause::UserData.tag()).map_err(vfs::Error::device)?;
                            (at, done.written) = (at + blocks, done.written + blocks);
                        }
                        // Older blocks move behind this batch, in longer and shorter extents.
                        let mut from = end.saturating_sub(2048);
                        while from < end.saturating_sub(1024) {
                            let blocks = (1 + rng.below(most)).min(end.saturating_sub(1024) - from);
                            let mut data = vec![0; blocks as usize * device::BLOCK];
                            let tag = Cause::BackgroundGcData.tag();
                            dev.read(Lba(from), &mut data, tag).map_err(vfs::Error::device)?;
                            dev.write(Lba(8192 + from), &data, tag).map_err(vfs::Error::device)?;
                            (from, done.moved) = (from + blocks, done.moved + blocks as f64);
                        }
                        dev.flush(Cause::Checkpoint.tag()).map_err(vfs::Error::device)?;
                        done.syncs += 1;
                        recorder.step()?;
                    }
                    Ok(0)
                });
                let (spent, least) = (phase.unwrap().total().joules(), least(&profile, done).unwrap());
                assert!(done.moved > 5000.0 && done.written == 6144);
                assert!(spent >= least, "{name}, requests of up to {most}: {spent} J, and {least} J at least");
                // A bound far below the cost of large requests would be useless.
                assert!(most < 512 || least > spent / 3.0, "{name}: {spent} J, and only {least} J at least");
            }
        }
        assert!(flashes >= 5);
    }
}
