//! Which blocks of segments are valid, and where does the next block go?
//!
//! * [`table`]: valid maps, counts, ages; which segments are free, dirty, prefree.
//! * [`log`]: the six logs, and how each finds its next segment.
//! * `tally`: how many blocks the logs placed, and the cost of holes.
//! * `windows`: preallocated blocks for growing files.
//! * [`migration`]: where age-based cleaning moves blocks.
//! * `candidates`: what policies see of the table, as victims and as targets.
//! * `pieces`: the free fragments, by size.
//! * `dead`: the holes that the device still stores.
//! * [`shadow`]: the segments as they would be if nobody had cleaned.
//! * `zones`: how logs follow the write pointers of a zoned device.
//! * `audit`: checks the counts of a segment against its map.
//! * [`temperature`]: which log a content block goes to, or whether it is overwritten in place.
//! * [`summary`]: the owner of each block of a segment, in memory until written to the device.
//!
//! One mutex guards all of it ([`Segments`] is the state inside). A caller holds it for the bookkeeping of one block or
//! a run of blocks, and for the rare read of a summary when a log starts threading. Left out on purpose: writing the
//! blocks themselves, which section to clean (the `victim` crate), and when (`gc`).

mod audit;
mod candidates;
pub(crate) mod dead;
pub mod log;
pub mod migration;
mod pieces;
mod placed;
pub(crate) mod shadow;
pub mod summary;
pub mod table;
pub(crate) mod tally;
pub mod temperature;
pub(crate) mod windows;
mod word_set;
pub(crate) mod zones;

use crate::context::Context;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::BlockDevice;
use format::addr::SecNo;
use format::sit::LogType;
use format::summary::Summary;
use format::superblock::SuperBlock;
use format::{BlockAddr, SegNo};

use victim::chooser::{Destination, Moment};
use victim::{Candidate, Chooser, Hurry, Outlook};

use crate::error::{Error, Result};
use crate::invariant::Violation;
use candidates::Candidates;
use log::Log;
use summary::PendingSummaries;
use table::SegmentTable;
use tally::Tally;

/// The logs of a mounted volume: its segments, and the order of requests to them.
pub struct Logs {
    pub(crate) ctx: Arc<Context>,
    pub(crate) seg: Mutex<Segments>,
    pub(crate) pressure: Arc<Pressure>,
    /// Keeps data writes in allocation order, on a zoned device.
    data_io: Mutex<()>,
}

impl Logs {
    pub(crate) fn new(ctx: &Arc<Context>, segments: Segments, pressure: Arc<Pressure>) -> Arc<Self> {
        Arc::new(Logs { ctx: ctx.clone(), seg: Mutex::new(segments), pressure, data_io: Mutex::new(()) })
    }
}

/// Dirty blocks in memory that will need space in the log; input of the allocation rules.
#[derive(Debug, Default)]
pub struct Pressure {
    /// Dirty node blocks.
    pub nodes: AtomicU64,
    /// Dirty directory blocks.
    pub dents: AtomicU64,
    /// Dirty blocks of file contents.
    pub data: AtomicU64,
}

impl Pressure {
    fn sections(counter: &AtomicU64, per_section: u64) -> u64 {
        counter.load(Ordering::Relaxed).div_ceil(per_section)
    }
}

/// The address of a newly placed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its address.
    pub addr: BlockAddr,
    /// The next free block of the same log, for node footers.
    pub next: BlockAddr,
}

/// The need that cleaning must meet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Expected {
    /// Blocks that the next use will place.
    pub takes: u64,
    /// Blocks that it will write to the device.
    pub writes: u64,
    /// Free sections that a user requires.
    pub asked: u32,
    /// Blocks in use, including reserved ones.
    pub valid: u64,
}

/// The state guarded by the segment mutex.
pub struct Segments {
    pub(crate) sb: Arc<SuperBlock>,
    pub(crate) dev: Arc<dyn BlockDevice>,
    /// Valid maps and free space.
    pub table: SegmentTable,
    /// The six logs.
    pub logs: [Log; 6],
    /// Summaries of closed segments that have not reached the device.
    pub summaries: PendingSummaries,
    /// Reserved segments, from the checkpoint.
    pub reserved_segs: u32,
    /// The log for blocks moved by age-based cleaning, if there is one.
    pub(crate) moved: Option<Log>,
    /// Preallocated blocks for growing files.
    windows: windows::Windows,
    /// The first segment of the section being cleaned: no log may thread into it.
    victim: Option<SegNo>,
    /// Chooses victims, and segments for threaded logging.
    pub(crate) chooser: Chooser,
    /// The candidates for the chooser.
    candidates: Candidates,
    /// True if blocks only go to the ends of logs in free sections.
    pub(crate) only_appends: bool,
    /// True if logs fill holes even if there are many fresh segments (kernel `f2fs_need_SSR` in `GC_URGENT_HIGH`).
    pub(crate) threads_always: bool,
    pub(crate) pressure: Arc<Pressure>,
    /// Counts of blocks placed by the logs.
    pub(crate) tally: Tally,
    /// The segments as they would be if nobody had cleaned.
    shadow: shadow::Shadowing,
    /// Sections that were kept back when a log last looked for a segment, with what was dirty then.
    kept_in_use: u64,
    /// True if the last node of the warm node log has no next block, because the log found no next segment.
    /// Roll-forward stops at that node: until the next checkpoint, it finds no node written later.
    pub(crate) chain_ends: bool,
    /// The first broken invariant found in the segments.
    pub(crate) violated: Option<Violation>,
}

impl Segments {
    /// The segments of a volume that is being mounted.
    pub(crate) fn new(
        dev: Arc<dyn BlockDevice>,
        sb: Arc<SuperBlock>,
        table: SegmentTable,
        logs: [Log; 6],
        reserved_segs: u32,
        pressure: Arc<Pressure>,
        chooser: Chooser,
    ) -> Segments {
        Segments {
            candidates: Candidates::new(sb.main_segs, sb.segs_per_sec),
            sb,
            dev,
            table,
            logs,
            summaries: PendingSummaries::default(),
            reserved_segs,
            moved: None,
            windows: windows::Windows::default(),
            victim: None,
            chooser,
            only_appends: false,
            threads_always: false,
            pressure,
            tally: Tally::default(),
            shadow: shadow::Shadowing::default(),
            kept_in_use: 0,
            chain_ends: false,
            violated: None,
        }
    }

    /// True if the log of moved blocks put the block into a hole of a used segment.
    pub(crate) fn is_threaded(&self, addr: BlockAddr) -> bool {
        let seg = self.sb.locate(addr).map(|p| p.0);
        self.moved.as_ref().is_some_and(|l| l.threaded && Some(l.seg) == seg)
    }

    /// Sections reserved for cleaning.
    pub fn reserved_sections(&self) -> u32 {
        self.reserved_segs.div_ceil(self.sb.segs_per_sec)
    }

    fn blocks_per_section(&self) -> u64 {
        u64::from(self.sb.segs_per_sec) * 512
    }

    /// Kernel `f2fs_need_SSR`: too few sections are free to continue with fresh ones, or cleaning is at its highest
    /// urgency.
    pub fn need_threading(&self) -> bool {
        !self.only_appends && self.lacks_fresh()
    }

    /// True if fresh segments must be left to writes that cannot use holes.
    pub(crate) fn lacks_fresh(&self) -> bool {
        self.threads_always || u64::from(self.table.free_sections()) <= self.kept_back()
    }

    /// If at most this many sections are free, logs fill holes.
    fn kept_back(&self) -> u64 {
        let per = self.blocks_per_section();
        let nodes = Pressure::sections(&self.pressure.nodes, per);
        let dents = Pressure::sections(&self.pressure.dents, per);
        let reserved = u64::from(self.reserved_sections());
        // The kernel's min_ssr_sections adds the reserve again (segment.c).
        nodes + 2 * dents + 2 * reserved
    }

    /// Sections to gain before one of them spares the logs a hole: logs fill holes until more are free than are kept
    /// back while the volume is in use.
    pub(crate) fn sections_without_use(&self) -> u64 {
        if self.only_appends {
            return 0;
        }
        self.kept_back().max(self.kept_in_use).saturating_sub(self.free_soon().into())
    }

    /// Missing free sections to write `blocks` blocks to fresh segments: two more than they fill, because a log does
    /// not start at their first block, and their nodes are written too.
    pub(crate) fn short_of_fresh(&self, blocks: u64) -> u64 {
        let need = self.kept_back() + blocks.div_ceil(self.blocks_per_section()) + 2;
        need.saturating_sub(u64::from(self.table.free_sections()))
    }

    /// Free sections needed for dirty blocks in memory plus the reserve (kernel `has_not_enough_free_secs`). File
    /// contents count too, because a checkpoint here writes them.
    pub fn sections_needed(&self) -> u32 {
        let per = self.blocks_per_section();
        let need = Pressure::sections(&self.pressure.nodes, per)
            + 2 * Pressure::sections(&self.pressure.dents, per)
            + Pressure::sections(&self.pressure.data, per)
            + u64::from(self.reserved_sections());
        need.min(u32::MAX.into()) as u32
    }

    /// Free sections needed for dirty directories and nodes.
    fn needed_without_files(&self) -> u64 {
        let per = self.blocks_per_section();
        Pressure::sections(&self.pressure.nodes, per) + 2 * Pressure::sections(&self.pressure.dents, per)
    }

    /// True if a checkpoint must write directories before file contents, because directories and nodes may need all
    /// free sections.
    pub(crate) fn are_files_last(&self) -> bool {
        let files = Pressure::sections(&self.pressure.data, self.blocks_per_section());
        u64::from(self.table.free_sections()) <= self.needed_without_files() + files
    }

    /// True if a checkpoint must leave file contents to the next one: nodes and directories need the last free
    /// sections, and this checkpoint will free others.
    pub(crate) fn must_files_wait(&self) -> bool {
        let free = u64::from(self.table.free_sections());
        free > 0 && free <= self.needed_without_files() && self.table.prefree_segments() > 0
    }

    /// True if there are free sections for `blocks` blocks in addition to [`Self::sections_needed`].
    pub fn has_sections_for(&self, blocks: u64) -> bool {
        let more = blocks.div_ceil(self.blocks_per_section());
        u64::from(self.table.free_sections()) > u64::from(self.sections_needed()) + more
    }

    /// Allocates the next block of `log` for `owner`; if `old` is a real address, the block there becomes invalid.
    /// `age` is the write time of the block's contents, in seconds of mounted time. On failure, no block became valid
    /// or invalid.
    pub fn allocate(&mut self, log: LogType, owner: Summary, old: BlockAddr, age: u64) -> Result<Placed> {
        let placed = self.append(log, owner, old, age, Tally::place)?;
        self.follow_place(log, (old, placed.addr), age);
        Ok(placed)
    }

    /// The same for a block that cleaning moves from `from`.
    pub fn relocate(&mut self, log: LogType, owner: Summary, from: BlockAddr, age: u64) -> Result<Placed> {
        let placed = self.append(log, owner, from, age, Tally::place_cleaned)?;
        self.follow_relocate(from, placed.addr);
        Ok(placed)
    }

    /// Starts a new request of blocks for users.
    pub(crate) fn begin_request(&mut self) {
        self.tally.begin_request();
        self.follow_request();
    }

    fn append(
        &mut self,
        log: LogType,
        owner: Summary,
        old: BlockAddr,
        age: u64,
        count: impl FnOnce(&mut Tally, LogType, BlockAddr, bool),
    ) -> Result<Placed> {
        if old.is_real() {
            // On a damaged volume it may be invalid; check before any change.
            self.check_there(old)?;
        }
        if self.is_spent(log) {
            self.roll(log)?;
        }
        let l = &self.logs[log.index()];
        let (seg, off) = (l.seg, l.next);
        self.begin_zone(seg, off)?;
        let l = &mut self.logs[log.index()];
        l.record(owner);
        self.check_free(seg, off)?;
        self.table.set_valid(seg, off, log, age)?;
        let addr = self.sb.seg_start(seg).plus(off.into());
        count(&mut self.tally, log, addr, self.logs[log.index()].threaded);
        if old.is_real() {
            let (seg, off) = self.place(old)?;
            self.table.clear_valid(seg, off, Some(age))?;
        }
        self.advance(log);
        if self.logs[log.index()].is_full() {
            // This block has its place, whether or not the log finds a next one: on a full device, or if a summary
            // cannot be read, the log stays full, and the next allocation tries again before it changes anything. Only
            // the last node of a node log is affected: see `chain_ends`.
            if let Err(e) = self.roll(log) {
                ::log::debug!("{log:?} stays full: {e}");
            }
        }
        let l = &self.logs[log.index()];
        self.chain_ends |= log == LogType::WarmNode && l.is_full();
        let next = if l.is_full() { BlockAddr::NULL } else { self.sb.seg_start(l.seg).plus(l.next.into()) };
        Ok(Placed { addr, next })
    }

    /// Refuses to allocate a block that the last checkpoint or a later fsync may need.
    fn check_free(&mut self, seg: SegNo, off: u16) -> Result<()> {
        if !self.table.is_held(seg, off) || self.table.is_valid(seg, off) {
            // The table itself refuses a valid block.
            return Ok(());
        }
        let violation = Violation::Held { seg, off };
        self.violated.get_or_insert_with(|| violation.clone());
        Err(violation.into())
    }

    /// Marks a block of the main area as no longer valid.
    pub fn invalidate(&mut self, addr: BlockAddr, age: u64) -> Result<()> {
        let (seg, off) = self.place(addr)?;
        self.table.clear_valid(seg, off, Some(age))?;
        self.follow_invalidate(addr, Some(age));
        Ok(())
    }

    /// Frees allocated places that nothing points at.
    pub(crate) fn give_back(&mut self, places: &[BlockAddr]) -> Result<()> {
        for addr in places {
            let (seg, off) = self.place(*addr)?;
            self.table.clear_valid(seg, off, None)?;
            self.follow_invalidate(*addr, None);
        }
        Ok(())
    }

    /// Marks a block valid at the address where roll-forward found it.
    pub fn adopt(&mut self, addr: BlockAddr, log: LogType, owner: Summary, age: u64) -> Result<()> {
        let (seg, off) = self.place(addr)?;
        self.table.adopt(seg, off, log, age)?;
        if let Some(l) = self.logs.iter_mut().chain(&mut self.moved).find(|l| l.seg == seg) {
            format::summary::put(&mut l.summary, off.into(), owner);
            return Ok(());
        }
        let block = self.summaries.edit(&*self.dev, &self.sb, seg)?;
        format::summary::put(block, off.into(), owner);
        let kind = if log.is_node() { format::summary::SummaryKind::Node } else { format::summary::SummaryKind::Data };
        format::summary::set_kind(block, kind);
        Ok(())
    }

    /// Holds an invalid block: nothing overwrites it before the next checkpoint.
    pub fn hold(&mut self, addr: BlockAddr) -> Result<()> {
        let (seg, off) = self.place(addr)?;
        if !self.table.is_valid(seg, off) {
            self.table.hold(seg, off);
        }
        Ok(())
    }

    /// If held blocks are ahead of a log in its segment, makes the log fill the holes between them, or leave the
    /// section if it may not fill holes.
    pub fn avoid_held(&mut self, log: LogType) -> Result<()> {
        let l = &self.logs[log.index()];
        let (seg, next) = (l.seg, l.next);
        if (next..512).all(|off| self.table.next_hole(seg, off) == off) {
            return Ok(());
        }
        if self.only_appends {
            return self.leave_section(log);
        }
        let l = &mut self.logs[log.index()];
        l.threaded = true;
        l.next = self.table.next_hole(seg, next);
        if l.is_full() { self.roll(log) } else { Ok(()) }
    }

    /// The owner of a block, from its segment's summary.
    pub fn owner(&self, addr: BlockAddr) -> Result<Summary> {
        let (seg, off) = self.place(addr)?;
        Ok(match self.logs.iter().chain(&self.moved).find(|l| l.seg == seg) {
            Some(l) => format::summary::get(&l.summary, off.into()),
            None => {
                let block = self.summaries.load(&*self.dev, &self.sb, seg)?;
                format::summary::get(&block, off.into())
            }
        })
    }

    /// Keeps logs out of a section while it is cleaned; `None` ends that.
    pub(crate) fn set_victim(&mut self, victim: Option<SegNo>) {
        for first in [self.victim, victim].into_iter().flatten() {
            let section = self.sb.section_of(first);
            self.table.section(section).for_each(|s| self.table.touch(s));
        }
        self.victim = victim;
        self.candidates.victim = victim.map(|v| self.sb.section_of(v));
    }

    /// The section to clean next, and where its data goes; `None` if none is worth cleaning. `now` is in seconds of
    /// mounted time.
    pub(crate) fn choose_victim(&mut self, hurry: Hurry, now: u64, next: Expected) -> Option<(Candidate, Destination)> {
        let outlook = Outlook {
            free: self.free_soon(),
            kept_back: self.kept_back().min(u32::MAX.into()) as u32,
            asked: next.asked,
            takes: next.takes,
            writes: next.writes,
            cuts: self.tally.cuts(),
            moved_cuts: self.tally.moved_cuts(),
            holes: self.blocks_in_holes(next.valid),
            only_appends: self.only_appends,
        };
        let passed = self.candidates.passed(&self.table);
        let view = self.candidates.to_clean(&mut self.table);
        let victim = self.chooser.victim(view, Moment { hurry, now, passed: &passed, outlook })?;
        Some((victim, self.chooser.destination(&victim, &outlook)))
    }

    /// Free blocks in sections that hold valid ones, if `valid` blocks are in use. Blocks waiting in memory have no
    /// place yet but will need one.
    fn blocks_in_holes(&self, valid: u64) -> u64 {
        let used = self.sb.sections().saturating_sub(self.free_soon());
        (u64::from(used) * self.blocks_per_section()).saturating_sub(valid)
    }

    /// Sections that are free now or after the next checkpoint.
    pub(crate) fn free_soon(&self) -> u32 {
        self.table.free_sections() + self.table.prefree_segments() / self.sb.segs_per_sec
    }

    /// Excludes a section permanently.
    pub(crate) fn give_up(&mut self, section: SecNo) {
        self.candidates.give_up(section);
    }
    /// Excludes a section with only pinned blocks left, until one of those blocks is gone.
    pub(crate) fn leave_pinned(&mut self, section: SecNo) {
        self.candidates.leave_pinned(&self.table, section);
    }

    /// Segment and offset of a main-area block.
    pub fn place(&self, addr: BlockAddr) -> Result<(SegNo, u16)> {
        self.sb.locate(addr).ok_or_else(|| Error::corrupt(format_args!("block {addr} is outside the main area")))
    }

    /// Refuses to free a block that is not valid: the volume is damaged.
    pub fn check_there(&self, addr: BlockAddr) -> Result<()> {
        let (seg, off) = self.place(addr)?;
        self.table.check_valid(seg, off)
    }

    /// True if `addr` is valid in the segment table.
    pub fn is_valid(&self, addr: BlockAddr) -> bool {
        self.sb.locate(addr).is_some_and(|(seg, off)| self.table.is_valid(seg, off))
    }
}

#[cfg(test)]
mod tests {
    use crate::MountOptions;
    use crate::error::Error;
    use crate::rig::*;

    #[test]
    fn a_block_that_is_not_valid_where_its_owner_has_it_costs_no_other_block() {
        let (_, vol) = mounted(64, MountOptions { inline: false, ..MountOptions::default() });
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(20));
        vol.cleaning.checkpoint(crate::pack::Reason::Running).unwrap();
        let inode = vol.names.outer(f).unwrap();
        let addr = vol.nodes.addr_of(&inode.node, 7).unwrap();
        // As on a volume with a damaged segment table.
        vol.logs.seg.lock().invalidate(addr, 0).unwrap();
        let counts = || {
            let seg = vol.logs.seg.lock();
            (seg.table.sums().total(), seg.logs.each_ref().map(|log| (log.seg, log.next)))
        };
        let before = counts();
        write(&vol, f, 7 * 4096, &blocks(1));
        let held = vol.ctx.cp.read();
        let mut content = inode.content.write();
        let why = crate::segment::temperature::Writeback::Background;
        let out = vol.files.write_back(&held, &inode, &mut content, why);
        assert!(matches!(out, Err(Error::Fs(vfs::Error::Corrupt(_)))), "{out:?}");
        assert_eq!(counts(), before);
        assert_eq!(vol.nodes.addr_of(&inode.node, 7).unwrap(), addr);
        drop((held, content));
    }
}
