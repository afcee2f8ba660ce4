//! When is data durable? Writing a checkpoint.
//!
//! A checkpoint makes everything in memory durable at once: contents, nodes, NAT and SIT, the positions of the logs. It
//! is written into the older of the two packs, its tail last and between two flushes. So after a power cut either the
//! whole new pack or the previous pack is valid.
//!
//! It also writes the contents of regular files, before the nodes (Linux writes them later): a durable size never
//! covers blocks that are not durable. If the log has no space for the contents before a checkpoint frees segments, a
//! first checkpoint leaves them out, as Linux does, and a second one follows (`gc::checkpoint`).

mod invariants;

use crate::context::Context;
use crate::file::Files;
use crate::inode::Inodes;
use crate::invariant::Sound;
use crate::node::Nodes;
use crate::promises::Promises;
use crate::segment::Logs;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use device::Lba;
use format::checkpoint::{CpFlags, LogHead};
use format::sit::{self, LogType, RawSitEntry, SIT_ENTRIES};
use format::summary::{self, JOURNAL_BYTES, SIT_JOURNAL, compact_blocks, encode_compact, encode_sit_journal};
use format::superblock::Features;
use format::{BLOCK, Block, SegNo, bits, orphan};

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::node::write::Mark;
use crate::pack::{PackState, Reason};
use crate::segment::Segments;

/// Checkpoints: all state becomes durable at once.
pub struct Checkpoints {
    ctx: Arc<Context>,
    logs: Arc<Logs>,
    promises: Arc<Promises>,
    nodes: Arc<Nodes>,
    inodes: Arc<Inodes>,
    files: Arc<Files>,
    /// Which counts were right at mount.
    sound: Sound,
    /// Monotonic time of the last checkpoint, in milliseconds.
    pub(crate) last_checkpoint: AtomicU64,
}

impl Checkpoints {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        logs: &Arc<Logs>,
        promises: &Arc<Promises>,
        nodes: &Arc<Nodes>,
        inodes: &Arc<Inodes>,
        files: &Arc<Files>,
        sound: Sound,
    ) -> Arc<Self> {
        Arc::new(Checkpoints {
            ctx: ctx.clone(),
            logs: logs.clone(),
            promises: promises.clone(),
            nodes: nodes.clone(),
            inodes: inodes.clone(),
            files: files.clone(),
            sound,
            last_checkpoint: AtomicU64::new(ctx.mounted_at.as_millis() as u64),
        })
    }
}

impl Checkpoints {
    /// Writes a checkpoint if the NAT needs one: node numbers become free only by a checkpoint, or too many entries are
    /// in memory. Contents for which the log has no space wait for a later one.
    pub(crate) fn relieve_nat(&self) -> Result<()> {
        if self.nodes.nat.wants_checkpoint() {
            let mut pack = self.ctx.cp.write();
            if self.nodes.nat.wants_checkpoint() {
                self.checkpoint_of_what_fits(&mut pack, Reason::Running)?;
            }
        }
        Ok(())
    }

    /// Writes a checkpoint of everything except file contents for which the log has no space; returns the number of
    /// blocks left. It frees the segments emptied since the last checkpoint, which may make space for those blocks. If
    /// the log has no space even for nodes and directories, the volume stays unchanged; after any other error it
    /// refuses changes ([`crate::health`]).
    pub(crate) fn checkpoint_of_what_fits(&self, pack: &mut PackState, reason: Reason) -> Result<u64> {
        self.ctx.check_writable()?;
        let flushed = self.files.flush_all_contents(pack).and_then(|waiting| {
            self.flush_all_nodes(pack, reason.cause(Cause::Node))?;
            self.logs.seg.lock().seat_full_logs()?;
            Ok(waiting)
        });
        let waiting = flushed.inspect_err(|e| match e {
            Error::Fs(vfs::Error::NoSpace) => {}
            Error::Violated(_) => self.ctx.health.fail_for_good(e),
            e => self.ctx.health.fail(failed(e)),
        })?;
        // Blocks are left for a later checkpoint, so this is not the volume's last.
        let reason = if waiting > 0 && reason == Reason::Unmount { Reason::Running } else { reason };
        self.commit_pack(pack, reason).inspect_err(|e| match e {
            Error::Violated(_) => self.ctx.health.fail_for_good(e),
            e => self.ctx.health.fail(failed(e)),
        })?;
        if waiting > 0 {
            self.ctx.changed.store(true, Ordering::Release);
        }
        Ok(waiting)
    }

    /// Writes every dirty node.
    fn flush_all_nodes(&self, held: &PackState, cause: Cause) -> Result<()> {
        loop {
            let dirty = self.nodes.cache.dirty();
            if dirty.iter().all(|n| !n.is_dirty()) {
                return Ok(());
            }
            self.nodes.write_nodes(held, &dirty, Mark::Plain, cause)?;
        }
    }

    fn commit_pack(&self, pack: &mut PackState, reason: Reason) -> Result<()> {
        self.check_invariants()?;
        let second = !pack.second;
        let start = self.ctx.sb.cp.plus(if second { 512 } else { 0 });
        let tag = reason.cause(Cause::Checkpoint).tag();
        if pack.torn {
            self.ctx.dev.write(Lba(start.0.into()), &[0; BLOCK], tag)?;
            self.ctx.dev.flush(tag)?;
            pack.torn = false;
        }
        let nat = self.nodes.nat.flush(reason.cause(Cause::Nat))?;
        let nat_journal = nat.journal();
        let mut seg = self.logs.seg.lock();
        let seg = &mut *seg;
        seg.save_moved()?;
        seg.close_windows();
        let mut cp = pack.checkpoint.clone();
        // The pack's own state does not change until the new pack is durable.
        let mut sit_entries = pack.sit_journal.clone();
        let sit_journal = self.flush_sit(seg, &mut cp.sit_bitmap, &mut sit_entries, reason.cause(Cause::Sit))?;
        seg.summaries.write_all(&*self.ctx.dev, &self.ctx.sb, reason.cause(Cause::Ssa))?;

        let orphans = self.inodes.orphans.all();
        let orphan_blocks = orphan::encode(&orphans);
        let (data_sums, compact) = data_summaries(seg, &nat_journal, &sit_journal);
        let unmount = reason == Reason::Unmount;
        let node_sums = if unmount { 3 } else { 0 };

        cp.version += 1;
        cp.valid_blocks = self.nodes.space.valid_blocks();
        cp.valid_nodes = self.nodes.space.nodes();
        cp.valid_inodes = self.nodes.space.inodes();
        cp.free_segs = seg.table.free_segments() + seg.table.prefree_segments();
        for (head, log) in cp.logs.iter_mut().zip(&seg.logs) {
            *head = LogHead { seg: log.seg, next: log.next, threaded: log.threaded };
        }
        let keep = CpFlags::LARGE_NAT_BITMAP | CpFlags::QUOTA_NEED_FSCK | CpFlags::FSCK | CpFlags::ERROR;
        cp.flags = (cp.flags & keep) | CpFlags::CRC_RECOVERY;
        cp.flags.set(CpFlags::UMOUNT, unmount);
        cp.flags.set(CpFlags::ORPHAN, !orphans.is_empty());
        cp.flags.set(CpFlags::COMPACT_SUM, compact);
        if self.ctx.has(Features::QUOTA_INO) {
            // Usage in quota files is not maintained here: it is invalid until fsck.f2fs has recounted it.
            cp.flags |= CpFlags::QUOTA_NEED_FSCK;
        }
        cp.start_sum = 1 + self.ctx.sb.cp_payload + orphan_blocks.len() as u32;
        cp.pack_blocks = cp.start_sum + data_sums.len() as u32 + node_sums + 1;
        if cp.pack_blocks > 512 {
            return Err(Error::corrupt(format_args!("{} orphans do not fit a checkpoint", orphans.len())));
        }
        cp.next_free_nid = nat.next_free;
        cp.elapsed = self.ctx.mounted_seconds();
        cp.nat_bitmap.clone_from(&nat.bitmap);

        let mut bytes = cp.encode(&self.ctx.sb);
        let head: Vec<u8> = bytes[..BLOCK].to_vec();
        for b in orphan_blocks.iter().chain(&data_sums) {
            bytes.extend_from_slice(b);
        }
        if unmount {
            for log in &mut seg.logs[3..] {
                summary::journal_mut(&mut log.summary).fill(0);
            }
            let hot = &mut seg.logs[LogType::HotNode.index()].summary;
            summary::set_kbytes_written(summary::journal_mut(hot), pack.kbytes_written);
            for log in &seg.logs[3..] {
                bytes.extend_from_slice(&log.summary[..]);
            }
        }
        pack.torn = true;
        self.ctx.dev.write(Lba(start.0.into()), &bytes, tag)?;
        self.ctx.dev.flush(tag)?;
        let tail = start.plus(cp.pack_blocks - 1);
        self.ctx.dev.write(Lba(tail.0.into()), &head, tag)?;
        self.ctx.dev.flush(tag)?;

        self.ctx.cp_ver.store(cp.version | u64::from(cp.crc) << 32, Ordering::Release);
        (pack.second, pack.torn) = (second, false);
        (pack.checkpoint, pack.sit_journal) = (cp, sit_entries);
        self.nodes.nat.commit(nat);
        let freed = seg.table.commit();
        seg.follow_checkpoint();
        seg.chain_ends = false;
        self.ctx.changed.store(false, Ordering::Release);
        self.ctx.untouched.store(false, Ordering::Release);
        self.nodes.space.checkpointed();
        self.promises.kept(|ino, note| {
            if let Some(node) = self.nodes.cache.get(ino.nid()) {
                note(node.ino, &node.read());
            }
        });
        self.last_checkpoint.store(self.ctx.monotonic_ms(), Ordering::Release);
        self.ctx.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        // A zone is reset when the log starts to write it.
        if self.ctx.options.discard && self.ctx.dev.zones().is_none() {
            self.discard_segments(&freed);
        }
        Ok(())
    }

    /// Discards freed segments, adjacent ones as one range. Discard is advice: if the device refuses it, the checkpoint
    /// is still durable.
    fn discard_segments(&self, freed: &[SegNo]) {
        for run in freed.chunk_by(|a, b| a.0 + 1 == b.0) {
            let at = self.ctx.sb.seg_start(run[0]);
            if let Err(e) = self.ctx.dev.discard(Lba(at.0.into()), run.len() as u64 * 512, Cause::Checkpoint.tag()) {
                log::warn!("freed segments are not discarded: {e}");
                return;
            }
        }
    }

    /// Writes changed SIT entries to the journal, or to the other copy of their block.
    fn flush_sit(
        &self,
        seg: &Segments,
        bitmap: &mut [u8],
        journal: &mut BTreeMap<SegNo, RawSitEntry>,
        cause: Cause,
    ) -> Result<[u8; JOURNAL_BYTES]> {
        let mut groups: BTreeMap<u32, Vec<SegNo>> = BTreeMap::new();
        let changed: Vec<SegNo> = seg.table.changed().collect();
        let new = changed.iter().filter(|s| !journal.contains_key(s)).count();
        for s in &changed {
            groups.entry(s.0 / SIT_ENTRIES).or_default().push(*s);
        }
        if journal.len() + new > SIT_JOURNAL {
            for s in std::mem::take(journal).into_keys() {
                let g = groups.entry(s.0 / SIT_ENTRIES).or_default();
                if !g.contains(&s) {
                    g.push(s);
                }
            }
        }
        let mut by_size: Vec<(u32, Vec<SegNo>)> = groups.into_iter().collect();
        by_size.sort_by_key(|(n, g)| (g.len(), *n));
        let mut blocks = Vec::new();
        for (n, group) in by_size {
            let extra = group.iter().filter(|s| !journal.contains_key(s)).count();
            if journal.len() + extra <= SIT_JOURNAL {
                for s in group {
                    journal.insert(s, seg.table.segment(s).to_entry().to_raw());
                }
            } else {
                blocks.push(n);
            }
        }
        blocks.sort_unstable();
        for n in blocks {
            let mut b: Box<Block> = Box::new([0; 4096]);
            for i in 0..SIT_ENTRIES {
                let s = SegNo(n * SIT_ENTRIES + i);
                if s.0 < self.ctx.sb.main_segs {
                    sit::put(&mut b, i as usize, &seg.table.segment(s).to_entry().to_raw());
                }
            }
            let second = !bits::msb_test(bitmap, n as usize);
            let at = self.ctx.sb.sit_block(n, second);
            self.ctx.dev.write(Lba(at.0.into()), &*b, cause.tag())?;
            bits::msb_put(bitmap, n as usize, second);
            // The block now holds these entries; remove older ones from the journal.
            journal.retain(|s, _| s.0 / SIT_ENTRIES != n);
        }
        let entries: Vec<(SegNo, RawSitEntry)> = journal.iter().map(|(s, e)| (*s, *e)).collect();
        Ok(encode_sit_journal(&entries))
    }
}

/// Why the volume refuses changes after a failed checkpoint.
fn failed(e: &Error) -> String {
    let hint = match e {
        Error::Device(e) if e.is_full() => {
            " (the file system that holds the image is full; make room there and run `joulefs ctl DIR retry`)"
        }
        _ => "",
    };
    format!("a checkpoint failed: {e}{hint}")
}

/// The summary blocks of the data logs, compact or not (kernel: compact if two blocks suffice).
fn data_summaries(seg: &mut Segments, nat: &[u8; JOURNAL_BYTES], sit: &[u8; JOURNAL_BYTES]) -> (Vec<Block>, bool) {
    let counts: Vec<usize> = seg.logs[..3].iter().map(|l| if l.threaded { 512 } else { l.next.into() }).collect();
    let total = counts.iter().sum();
    if compact_blocks(total) < 3 {
        let entries: Vec<_> =
            seg.logs[..3].iter().zip(&counts).flat_map(|(l, n)| (0..*n).map(|i| summary::get(&l.summary, i))).collect();
        return (encode_compact(nat, sit, entries.into_iter()), true);
    }
    let blocks = seg.logs[..3]
        .iter_mut()
        .enumerate()
        .map(|(k, l)| {
            let journal = summary::journal_mut(&mut l.summary);
            match LogType::ALL[k] {
                LogType::HotData => journal.copy_from_slice(nat),
                LogType::ColdData => journal.copy_from_slice(sit),
                _ => journal.fill(0),
            }
            *l.summary
        })
        .collect();
    (blocks, false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::volume::Volume;
    use vfs::FileSystem;

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    /// More blocks than a log's segment holds.
    const MANY: usize = 1200;

    #[test]
    fn contents_that_find_no_place_go_out_after_the_checkpoint_that_frees_one() {
        let (dev, vol) = mounted(256, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(MANY));
        empty_segments(&vol, &take_free_segments(&vol));
        vol.cleaning.checkpoint(Reason::Running).unwrap();
        assert_eq!(vol.logs.pressure.data.load(Ordering::Relaxed), 0, "all of it is durable");
        assert!(read(&vol, f) == blocks(MANY));
        judge(&dev, &vol);
    }

    #[test]
    fn a_checkpoint_for_the_nat_is_written_though_contents_find_no_place() {
        let (dev, vol) = mounted(256, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(MANY));
        let taken = take_free_segments(&vol);
        let (now, later) = taken.split_at(1);
        empty_segments(&vol, now);
        vol.nodes.nat.want_checkpoint();
        vol.checkpoints.relieve_nat().unwrap();
        assert!(vol.logs.pressure.data.load(Ordering::Relaxed) > 0);
        empty_segments(&vol, later);
        assert!(read(&vol, f) == blocks(MANY));
        judge(&dev, &vol);
    }

    #[test]
    fn contents_that_find_no_place_are_in_the_checkpoint_of_an_unmount() {
        let (dev, vol) = mounted(256, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(MANY));
        empty_segments(&vol, &take_free_segments(&vol));
        judge(&dev, &vol);
        let clock = vol.ctx.clock.clone();
        let vol = Volume::mount(dev, clock, MountOptions::default()).unwrap();
        assert!(read(&vol, f) == blocks(MANY));
    }

    /// Runs `work`, which begins while there is space and is kept from the contents of `f` until there is none.
    fn while_room_vanishes<T: Send>(vol: &Volume, f: vfs::Ino, work: impl FnOnce() -> T + Send) -> T {
        let inode = vol.names.outer(f).unwrap();
        std::thread::scope(|s| {
            let content = inode.content.read();
            let worker = s.spawn(work);
            std::thread::sleep(A_WHILE);
            assert!(vol.ctx.cp.try_write().is_none(), "it has begun");
            empty_segments(vol, &take_free_segments(vol));
            drop(content);
            worker.join().unwrap()
        })
    }

    #[test]
    fn an_fsync_whose_room_is_taken_by_others_makes_a_checkpoint() {
        let (dev, vol) = mounted(256, MountOptions::default());
        let f = file(&vol, "f");
        vol.sync().unwrap();
        write(&vol, f, 0, &blocks(MANY));
        while_room_vanishes(&vol, f, || vol.fsync(f, false)).unwrap();
        assert_eq!(vol.logs.pressure.data.load(Ordering::Relaxed), 0);
        assert!(read(&vol, f) == blocks(MANY));
        judge(&dev, &vol);
    }

    #[test]
    fn what_the_clock_writes_back_waits_where_there_is_no_place() {
        let options = MountOptions { writeback_after: Duration::ZERO, ..MountOptions::default() };
        let (dev, vol) = mounted(256, options);
        let f = file(&vol, "f");
        vol.sync().unwrap();
        write(&vol, f, 0, &blocks(MANY));
        while_room_vanishes(&vol, f, || vol.tick()).unwrap();
        let waits = vol.logs.pressure.data.load(Ordering::Relaxed);
        assert!((1..MANY as u64).contains(&waits), "{waits} blocks wait; what had a place does not");
        assert!(read(&vol, f) == blocks(MANY));
        judge(&dev, &vol);
    }

    /// Fills the segment of the warm data log and leaves no other.
    fn full_log(vol: &Volume) -> Vec<SegNo> {
        vol.sync().unwrap();
        let taken = take_free_segments(vol);
        let left = 512 - vol.logs.seg.lock().logs[LogType::WarmData.index()].next;
        let f = file(vol, "f");
        write(vol, f, 0, &blocks(left.into()));
        vol.files.flush_all_contents(&mut vol.ctx.cp.write()).unwrap();
        assert!(vol.logs.seg.lock().logs[LogType::WarmData.index()].is_full());
        taken
    }

    #[test]
    fn a_checkpoint_puts_a_log_without_room_into_a_segment_that_it_frees() {
        let (dev, vol) = mounted(64, MountOptions { inline: false, ..MountOptions::default() });
        let taken = full_log(&vol);
        empty_segments(&vol, &taken);
        vol.cleaning.checkpoint(Reason::Running).unwrap();
        write(&vol, file(&vol, "g"), 0, &blocks(600));
        judge(&dev, &vol);
    }

    #[test]
    fn a_checkpoint_that_finds_a_segment_for_one_log_of_two_takes_none() {
        let (dev, vol) = mounted(64, MountOptions { inline: false, ..MountOptions::default() });
        let taken = full_log(&vol);
        let standing = {
            let mut seg = vol.logs.seg.lock();
            // Skip the rest of its segment.
            seg.logs[LogType::HotData.index()].next = 512;
            seg.logs.each_ref().map(|l| l.seg)
        };
        empty_segments(&vol, &taken[..1]);
        assert_eq!(vol.logs.seg.lock().table.prefree_segments(), 1);
        let out = vol.cleaning.checkpoint_locked(&mut vol.ctx.cp.write(), Reason::Running);
        assert!(matches!(out, Err(Error::Fs(vfs::Error::NoSpace))), "{out:?}");
        assert_eq!(vol.logs.seg.lock().logs.each_ref().map(|l| l.seg), standing);
        empty_segments(&vol, &taken[1..]);
        vol.cleaning.checkpoint(Reason::Running).unwrap();
        judge(&dev, &vol);
    }

    #[test]
    fn a_checkpoint_that_finds_no_segment_for_a_log_changes_nothing_and_can_be_tried_again() {
        let (dev, vol) = mounted(64, MountOptions { inline: false, ..MountOptions::default() });
        let taken = full_log(&vol);
        let out = vol.cleaning.checkpoint_locked(&mut vol.ctx.cp.write(), Reason::Running);
        assert!(matches!(out, Err(Error::Fs(vfs::Error::NoSpace))), "{out:?}");
        empty_segments(&vol, &taken);
        vol.cleaning.checkpoint(Reason::Running).unwrap();
        judge(&dev, &vol);
    }
}
