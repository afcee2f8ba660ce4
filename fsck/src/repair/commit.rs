//! How do changes become the state of the volume atomically?
//!
//! Changed blocks go to free segments, tables to their other copies. All of it is flushed before the other
//! checkpoint pack is written, whose last block makes the new state valid. Summary blocks of the SSA have only one
//! copy: there only wrong entries change.

use std::collections::BTreeMap;

use device::Lba;
use format::checkpoint::{Checkpoint, CpFlags, LogHead};
use format::nat::{self, NatEntry};
use format::node::{self, Footer};
use format::sit::{self, LogType, RawSitEntry, SIT_ENTRIES};
use format::summary::{self, Summary, SummaryKind};
use format::superblock::RawSuperBlock;
use format::{BLOCKS_PER_SEG, Block, BlockAddr, Nid, SegNo, bits, inode, orphan};

use super::RepairError;
use super::edit::Editor;
use crate::begin::read_block;
use crate::load::{Image, log_type};
use crate::packs::{pack_start, user_blocks};
use crate::report::{Class, Slot};
use crate::tables::class;
use crate::{FsckError, TAG};

/// Allocates blocks from free segments.
struct Room {
    free: std::vec::IntoIter<SegNo>,
    /// The segments being filled with data and with nodes.
    open: [Option<(SegNo, u16)>; 2],
    /// Summaries of all allocated blocks.
    taken: BTreeMap<SegNo, (Class, Box<Block>)>,
}

impl Room {
    fn new(e: &Editor<'_, '_>) -> Self {
        let empty = |s: &SegNo| {
            e.img.log_of(*s).is_none()
                && e.img.segment(*s).map.iter().all(|&b| b == 0)
                && e.walked.reached.segment(*s).iter().all(|&b| b == 0)
        };
        // Highest first, since Linux allocates segments from below.
        let free: Vec<SegNo> = (0..e.img.sb.main_segs).rev().map(SegNo).filter(empty).collect();
        Room { free: free.into_iter(), open: [None; 2], taken: BTreeMap::new() }
    }

    fn segment(&mut self) -> Result<SegNo, RepairError> {
        self.free.next().ok_or(RepairError::NoSpace)
    }

    fn take(&mut self, img: &Image<'_>, class: Class, owner: Summary) -> Result<BlockAddr, RepairError> {
        let k = usize::from(class == Class::Node);
        let (seg, off) = match self.open[k] {
            Some((seg, next)) if u32::from(next) < BLOCKS_PER_SEG => (seg, next),
            _ => {
                let seg = self.segment()?;
                let mut block = Box::new([0; format::BLOCK]);
                let kind = if class == Class::Node { SummaryKind::Node } else { SummaryKind::Data };
                summary::set_kind(&mut block, kind);
                self.taken.insert(seg, (class, block));
                (seg, 0)
            }
        };
        self.open[k] = Some((seg, off + 1));
        if let Some((_, block)) = self.taken.get_mut(&seg) {
            summary::put(block, usize::from(off), owner);
        }
        Ok(img.sb.seg_start(seg).plus(u32::from(off)))
    }
}

/// The new SIT.
struct Marks<'e, 'i, 'd> {
    e: &'e Editor<'i, 'd>,
    changed: BTreeMap<SegNo, sit::RawSitEntry>,
}

impl Marks<'_, '_, '_> {
    fn entry(&mut self, seg: SegNo) -> &mut sit::RawSitEntry {
        let e = self.e;
        self.changed.entry(seg).or_insert_with(|| raw_entry(e, seg))
    }
    fn set(&mut self, addr: BlockAddr, on: bool) {
        if let Some((seg, off)) = self.e.img.sb.locate(addr) {
            bits::msb_put(&mut self.entry(seg).valid_map, usize::from(off), on);
        }
    }
}

/// A SIT entry computed from the reached blocks, without the changes of this round.
fn raw_entry(e: &Editor<'_, '_>, seg: SegNo) -> RawSitEntry {
    let stored = e.img.segment(seg);
    let mut map = e.walked.reached.segment(seg);
    if e.keep_marked {
        map.iter_mut().zip(stored.map).for_each(|(a, b)| *a |= b);
    }
    let by_class = match e.walked.classes.get(&seg) {
        Some(Class::Node) => LogType::WarmNode,
        _ => LogType::WarmData,
    };
    let fits = |l: &LogType| e.walked.classes.get(&seg).is_none_or(|c| *c == class(*l));
    let kind = e.img.log_of(seg).or(log_type(stored.kind).filter(fits)).unwrap_or(by_class);
    RawSitEntry {
        // The count is set when the entry is final.
        vblocks: ((kind as u16) << 10).into(),
        valid_map: map,
        mtime: stored.mtime.into(),
    }
}

fn finish(mut raw: RawSitEntry) -> RawSitEntry {
    let kind = raw.vblocks.get() & !0x3FF;
    raw.vblocks = (kind | bits::count(&raw.valid_map) as u16).into();
    raw
}

fn write(img: &Image<'_>, at: BlockAddr, bytes: &[u8]) -> Result<(), FsckError> {
    Ok(img.dev.write(Lba(u64::from(at.0)), bytes, TAG)?)
}

/// Commits the changes.
pub fn commit(mut e: Editor<'_, '_>) -> Result<(), RepairError> {
    let img = e.img;
    let usage = e.may_change_usage()?;
    if e.quota_inos != img.sb.quota_inos {
        name_quota_files(&e)?;
    }
    let mut room = Room::new(&e);
    let mut freed = std::mem::take(&mut e.dropped);
    let mut marked = Vec::new();

    // Data first, because its new addresses change nodes.
    for (slot, from) in std::mem::take(&mut e.copies) {
        let block = img.block(from)?;
        let addr = place_data(&mut e, &mut room, slot, &block)?;
        marked.push(addr);
    }
    for ((dir, index), block) in std::mem::take(&mut e.data) {
        let Some((slot, old)) = e.slot(dir, index)? else {
            return Err(RepairError::DirectoryTooDeep { dir });
        };
        marked.push(place_data(&mut e, &mut room, slot, &block)?);
        freed.push(old);
    }
    for (nid, mut block) in std::mem::take(&mut e.nodes) {
        let old = e.entry(nid)?;
        let addr = room.take(img, Class::Node, Summary { nid, version: 0, slot: 0 })?;
        let f = node::footer(&block);
        let footer = Footer { fsync: false, dentry: false, cp_ver: img.cp.version, next: addr.plus(1), ..f };
        node::set_footer(&mut block, &footer);
        if footer.nid == footer.ino.nid() {
            inode::seal(img.sb.features, img.seed, &mut block);
        }
        write(img, addr, &block[..])?;
        e.nat.insert(nid, NatEntry { addr, ino: footer.ino, ..old });
        freed.push(old.addr);
        marked.push(addr);
    }

    let mut cp = img.cp.clone();
    let mut marks = Marks { e: &e, changed: BTreeMap::new() };
    for addr in freed {
        marks.set(addr, false);
    }
    for addr in marked {
        marks.set(addr, true);
    }
    for (seg, (class, _)) in &room.taken {
        let log = if *class == Class::Node { LogType::WarmNode } else { LogType::WarmData };
        marks.entry(*seg).vblocks = ((log as u16) << 10).into();
    }
    let old_logs = logs_leave(&e, &mut room, &mut cp, &mut marks)?;
    let changed = marks.changed;
    write_nat(&e, &mut cp)?;
    let valid = write_sit(&e, &changed, &mut cp)?;
    write_ssa(&e, &room, &old_logs)?;
    write_pack(&e, cp, valid, usage, &old_logs)
}

/// Records the quota files in both superblocks. If the power fails before that, they are lost as before.
fn name_quota_files(e: &Editor<'_, '_>) -> Result<(), FsckError> {
    for copy in [1, 0].map(BlockAddr) {
        let mut block = read_block(e.img.dev, copy)?;
        let mut raw = RawSuperBlock::of(&block).clone();
        raw.qf_ino = e.quota_inos.map(|ino| ino.0.into());
        raw.store(&mut block);
        write(e.img, copy, &block[..])?;
        e.img.dev.flush(TAG)?;
    }
    Ok(())
}

fn place_data(e: &mut Editor<'_, '_>, room: &mut Room, slot: Slot, block: &Block) -> Result<BlockAddr, RepairError> {
    let version = e.entry(slot.nid)?.version;
    let owner = Summary { nid: slot.nid, version, slot: slot.index as u16 };
    let addr = room.take(e.img, Class::Data, owner)?;
    write(e.img, addr, block)?;
    e.set_slot(slot, addr)?;
    Ok(addr)
}

/// Moves each log that must leave its segment to a free one. Returns the segments that logs left.
fn logs_leave(
    e: &Editor<'_, '_>,
    room: &mut Room,
    cp: &mut Checkpoint,
    marks: &mut Marks<'_, '_, '_>,
) -> Result<[Option<SegNo>; 6], RepairError> {
    let mut left = [None; 6];
    for log in LogType::ALL {
        let k = log.index();
        let old = e.img.cp.logs[k];
        if !e.leave[k] {
            continue;
        }
        let seg = room.segment()?;
        marks.entry(seg).vblocks = ((log as u16) << 10).into();
        cp.logs[k] = LogHead { seg, next: 0, threaded: false };
        left[k] = Some(old.seg);
        let holds = e.walked.classes.get(&old.seg).copied().unwrap_or(class(log));
        if holds != class(log) {
            let kind = if holds == Class::Node { LogType::WarmNode } else { LogType::WarmData };
            marks.entry(old.seg).vblocks = ((kind as u16) << 10).into();
        }
    }
    Ok(left)
}

/// Writes changed NAT blocks, journal included, to their other copies.
fn write_nat(e: &Editor<'_, '_>, cp: &mut Checkpoint) -> Result<(), RepairError> {
    let img = e.img;
    let mut blocks: BTreeMap<u32, Vec<(usize, NatEntry)>> = BTreeMap::new();
    let all: BTreeMap<Nid, NatEntry> =
        img.nat_journal.iter().chain(&e.nat).map(|(nid, entry)| (*nid, *entry)).collect();
    for (nid, entry) in all {
        let (n, i) = nat::position(nid);
        blocks.entry(n).or_default().push((i, entry));
    }
    for (n, entries) in &blocks {
        let mut block = *img.nat_block(*n)?;
        for (i, entry) in entries {
            nat::put(&mut block, *i, *entry);
        }
        let second = !bits::msb_test(&img.cp.nat_bitmap, *n as usize);
        write(img, img.sb.nat_block(*n, second), &block)?;
        bits::msb_put(&mut cp.nat_bitmap, *n as usize, second);
    }
    Ok(())
}

/// Totals of the new SIT.
struct Valid {
    blocks: u64,
    free_segs: u32,
}

/// Writes changed SIT blocks, journal included, to their other copies.
fn write_sit(
    e: &Editor<'_, '_>,
    changed: &BTreeMap<SegNo, RawSitEntry>,
    cp: &mut Checkpoint,
) -> Result<Valid, RepairError> {
    let img = e.img;
    let mut valid = Valid { blocks: 0, free_segs: 0 };
    for n in 0..img.sb.main_segs.div_ceil(SIT_ENTRIES) {
        let second = bits::msb_test(&img.cp.sit_bitmap, n as usize);
        let old = read_block(img.dev, img.sb.sit_block(n, second))?;
        let mut block = old.clone();
        for i in 0..SIT_ENTRIES.min(img.sb.main_segs - n * SIT_ENTRIES) {
            let seg = SegNo(n * SIT_ENTRIES + i);
            let raw = finish(changed.get(&seg).copied().unwrap_or_else(|| raw_entry(e, seg)));
            let count = raw.vblocks.get() & 0x3FF;
            valid.blocks += u64::from(count);
            let log = cp.logs.iter().any(|l| l.seg == seg);
            valid.free_segs += u32::from(count == 0 && !log);
            sit::put(&mut block, i as usize, &raw);
        }
        if block != old {
            write(img, img.sb.sit_block(n, !second), &block[..])?;
            bits::msb_put(&mut cp.sit_bitmap, n as usize, !second);
        }
    }
    Ok(valid)
}

fn write_ssa(e: &Editor<'_, '_>, room: &Room, left: &[Option<SegNo>; 6]) -> Result<(), RepairError> {
    let img = e.img;
    for (seg, (_, block)) in &room.taken {
        write(img, img.sb.ssa_block(*seg), &block[..])?;
    }
    for (k, seg) in left.iter().enumerate() {
        // The position of a log with an invalid head is not known.
        if let Some(seg) = seg.as_ref().filter(|seg| **seg != LogHead::NOWHERE.seg) {
            let mut block = log_summary(e, k, true);
            if let Some(holds) = e.walked.classes.get(seg) {
                set_class(&mut block, *holds);
            }
            write(img, img.sb.ssa_block(*seg), &block[..])?;
        }
    }
    let none = BTreeMap::new();
    let segs = e.summaries.keys().chain(&e.footers).copied().collect::<std::collections::BTreeSet<_>>();
    for seg in segs.into_iter().filter(|s| img.log_of(*s).is_none()) {
        let at = img.sb.ssa_block(seg);
        let mut block = read_block(img.dev, at)?;
        for (off, s) in e.summaries.get(&seg).unwrap_or(&none) {
            summary::put(&mut block, usize::from(*off), *s);
        }
        if e.footers.contains(&seg)
            && let Some(holds) = e.walked.classes.get(&seg)
        {
            set_class(&mut block, *holds);
        }
        write(img, at, &block[..])?;
    }
    Ok(())
}

fn set_class(block: &mut Block, class: Class) {
    let kind = if class == Class::Node { SummaryKind::Node } else { SummaryKind::Data };
    summary::set_kind(block, kind);
}

/// The summary of a log's segment: as stored, corrected by the reached blocks. It is empty for a log that moved to
/// a new segment.
fn log_summary(e: &Editor<'_, '_>, k: usize, of_old_segment: bool) -> Box<Block> {
    let mut block = Box::new([0; format::BLOCK]);
    if of_old_segment {
        if let Some(stored) = &e.img.logs.blocks[k] {
            block = stored.clone();
        }
        for (off, s) in &e.walked.log_entries[k] {
            summary::put(&mut block, usize::from(*off), *s);
        }
        // The journal of the hot node log also holds the kilobytes ever written.
        let kbytes = summary::kbytes_written(summary::journal(&block));
        summary::journal_mut(&mut block).fill(0);
        if k == LogType::HotNode.index() {
            summary::set_kbytes_written(summary::journal_mut(&mut block), kbytes);
        }
    }
    set_class(&mut block, if k < 3 { Class::Data } else { Class::Node });
    block
}

fn write_pack(
    e: &Editor<'_, '_>,
    mut cp: Checkpoint,
    valid: Valid,
    usage: bool,
    left: &[Option<SegNo>; 6],
) -> Result<(), RepairError> {
    let (img, counts) = (e.img, &e.walked.counts);
    let orphans = orphan::encode(&e.orphans);
    let mut keep = CpFlags::LARGE_NAT_BITMAP | CpFlags::QUOTA_NEED_FSCK;
    if e.keep_error_marks {
        keep |= CpFlags::FSCK | CpFlags::ERROR;
    }
    cp.flags = (cp.flags & keep) | CpFlags::UMOUNT | CpFlags::CRC_RECOVERY;
    if !orphans.is_empty() {
        cp.flags |= CpFlags::ORPHAN;
    }
    cp.version = cp.version.wrapping_add(1);
    cp.start_sum = 1 + img.sb.cp_payload + orphans.len() as u32;
    cp.pack_blocks = cp.start_sum + 7;
    if cp.pack_blocks > BLOCKS_PER_SEG {
        return Err(RepairError::NoSpace);
    }
    // Intermediate rounds may miscount; the last one is exact. Numbers out of range would make the pack unreadable
    // for the next round.
    let reserved = counts.blocks - counts.written_blocks;
    if counts.blocks > cp.user_blocks {
        cp.user_blocks = user_blocks(&img.sb, &cp);
    }
    cp.valid_blocks = (valid.blocks + reserved).min(cp.user_blocks);
    cp.free_segs = valid.free_segs;
    cp.valid_nodes = (counts.nodes.min(cp.valid_blocks) as u32).min(img.sb.max_nid() - 1);
    cp.valid_inodes = ((counts.dirs + counts.files) as u32).min(cp.valid_nodes);

    let totals = |cp: &Checkpoint| (cp.valid_blocks, cp.valid_nodes, cp.valid_inodes);
    if (usage || totals(&cp) != totals(&img.cp)) && img.sb.quota_inos.iter().any(|i| i.0 != 0) {
        // Usage in quota files may be wrong now.
        cp.flags |= CpFlags::QUOTA_NEED_FSCK;
    }

    let mut bytes = cp.encode(&img.sb);
    let head: Vec<u8> = bytes[..format::BLOCK].to_vec();
    for block in &orphans {
        bytes.extend_from_slice(block);
    }
    for (k, moved) in left.iter().enumerate() {
        bytes.extend_from_slice(&log_summary(e, k, moved.is_none())[..]);
    }
    img.dev.flush(TAG).map_err(FsckError::from)?;
    let start = pack_start(&img.sb, img.pack.other());
    write(img, start, &bytes)?;
    img.dev.flush(TAG).map_err(FsckError::from)?;
    write(img, start.plus(cp.pack_blocks - 1), &head)?;
    img.dev.flush(TAG).map_err(FsckError::from)?;
    Ok(())
}
