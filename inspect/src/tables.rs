//! Which blocks are in use, and where is each node, according to SIT and NAT?
//!
//! A table takes memory only where it has entries: 80 bytes per segment of a used SIT block, 4 per node of a used NAT
//! block. Entries are taken as they are; invalid ones are counted.

use device::{BlockDevice, Lba};
use format::checkpoint::Checkpoint;
use format::nat::{self, NAT_ENTRIES};
use format::sit::{self, LogType, MAP_BYTES, RawSitEntry, SIT_ENTRIES, SitEntry};
use format::superblock::SuperBlock;
use format::{BLOCK, BLOCKS_PER_SEG, Block, BlockAddr, Nid, SegNo, bits, summary};
use rustc_hash::FxHashMap;

use crate::begin::{Pack, TAG};
use crate::finding::{Finding, Findings};
use crate::{InspectError, Progress};

/// Table blocks per read.
const AT_ONCE: u32 = 256;

/// The SIT entry of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// One bit per block, most significant first; set: in use.
    pub map: [u8; MAP_BYTES],
    /// The log it belongs to; `None` if the entry's type is invalid.
    pub log: Option<LogType>,
    /// Blocks in use, by the map.
    pub valid: u16,
    /// Last write, in seconds of mounted time.
    pub mtime: u64,
}

impl Segment {
    /// A segment without a SIT entry.
    pub const EMPTY: Segment = Segment { map: [0; MAP_BYTES], log: Some(LogType::HotData), valid: 0, mtime: 0 };

    fn from_raw(raw: &RawSitEntry) -> Self {
        Segment {
            map: raw.valid_map,
            log: LogType::from_number((raw.vblocks.get() >> 10) as u8),
            valid: bits::count(&raw.valid_map) as u16,
            mtime: raw.mtime.get(),
        }
    }
    /// Marks a block as in use.
    pub fn set(&mut self, offset: u16) {
        if usize::from(offset) < BLOCKS_PER_SEG as usize && !self.has(offset) {
            bits::msb_put(&mut self.map, usize::from(offset), true);
            self.valid += 1;
        }
    }
    /// True if the block is in use.
    pub fn has(&self, offset: u16) -> bool {
        bits::msb_test(&self.map, usize::from(offset))
    }
}

/// The segment information table.
pub struct Sit {
    blocks: Vec<Option<Box<[Segment; SIT_ENTRIES as usize]>>>,
    segments: u32,
    /// Blocks of the last segment.
    tail: u16,
}

impl Sit {
    /// An empty table for this number of segments.
    pub fn new(segments: u32) -> Self {
        let mut blocks = Vec::new();
        blocks.resize_with(segments.div_ceil(SIT_ENTRIES) as usize, || None);
        Sit { blocks, segments, tail: BLOCKS_PER_SEG as u16 }
    }
    /// An empty table for this number of blocks; the last segment may be shorter. `None` for more than 2^32 blocks.
    pub fn of_blocks(blocks: u64) -> Option<Self> {
        let per = u64::from(BLOCKS_PER_SEG);
        u32::try_from(blocks).ok()?;
        let mut out = Sit::new(blocks.div_ceil(per) as u32);
        out.tail = if blocks.is_multiple_of(per) { per as u16 } else { (blocks % per) as u16 };
        Some(out)
    }
    /// Blocks in a segment.
    pub fn blocks_of(&self, seg: SegNo) -> u16 {
        if seg.0 + 1 == self.segments { self.tail } else { BLOCKS_PER_SEG as u16 }
    }
    /// Blocks of all segments.
    pub fn blocks(&self) -> u64 {
        (u64::from(self.segments) * u64::from(BLOCKS_PER_SEG))
            .saturating_sub(u64::from(BLOCKS_PER_SEG) - u64::from(self.tail))
    }
    /// Marks a range of blocks as in use, numbered from the first block of the first segment; blocks past the end are
    /// ignored. The log of these segments becomes unknown.
    pub fn fill(&mut self, from: u64, to: u64) {
        let per = u64::from(BLOCKS_PER_SEG);
        let (mut at, to) = (from, to.min(self.blocks()));
        while at < to {
            let end = (at - at % per + per).min(to);
            // OK to cut: there are fewer than 2^32 segments.
            if let Some(segment) = self.segment_mut(SegNo((at / per) as u32)) {
                segment.log = None;
                if end - at == per {
                    (segment.map, segment.valid) = ([0xff; MAP_BYTES], per as u16);
                } else {
                    (at..end).for_each(|block| segment.set((block % per) as u16));
                }
            }
            at = end;
        }
    }
    /// Segments.
    pub fn segments(&self) -> u32 {
        self.segments
    }
    /// The mutable entry of a segment; `None` past the end.
    pub fn segment_mut(&mut self, seg: SegNo) -> Option<&mut Segment> {
        if seg.0 >= self.segments {
            return None;
        }
        let (n, i) = ((seg.0 / SIT_ENTRIES) as usize, (seg.0 % SIT_ENTRIES) as usize);
        let block = self.blocks.get_mut(n)?;
        Some(&mut block.get_or_insert_with(|| Box::new([Segment::EMPTY; SIT_ENTRIES as usize]))[i])
    }
    /// The entry of a segment.
    pub fn segment(&self, seg: SegNo) -> &Segment {
        let (n, i) = (seg.0 / SIT_ENTRIES, (seg.0 % SIT_ENTRIES) as usize);
        self.blocks.get(n as usize).and_then(Option::as_ref).map_or(&Segment::EMPTY, |b| &b[i])
    }
    /// All segments, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SegNo, &Segment)> {
        (0..self.segments).map(|s| (SegNo(s), self.segment(SegNo(s))))
    }
    fn set_entry(&mut self, seg: SegNo, raw: &RawSitEntry, found: &mut Findings) {
        if let Err(error) = SitEntry::check(raw) {
            found.add(Finding::Sit { count: 1, first: seg.0, error });
        }
        if let Some(segment) = self.segment_mut(seg) {
            *segment = Segment::from_raw(raw);
        }
    }
}

/// Where each node is.
#[derive(Default)]
pub struct Nat {
    blocks: FxHashMap<u32, Box<[u32; NAT_ENTRIES as usize]>>,
}

impl Nat {
    /// A node's address; null if it has none.
    pub fn address(&self, nid: Nid) -> BlockAddr {
        let (n, i) = nat::position(nid);
        self.blocks.get(&n).map_or(BlockAddr::NULL, |b| BlockAddr(b[i]))
    }
    fn insert(&mut self, nid: Nid, to: BlockAddr) {
        let (n, i) = nat::position(nid);
        if to != BlockAddr::NULL || self.blocks.contains_key(&n) {
            self.blocks.entry(n).or_insert_with(|| Box::new([0; NAT_ENTRIES as usize]))[i] = to.0;
        }
    }
    /// Every node with an address, in no order, without Linux's internal inodes 1 and 2.
    pub fn nodes(&self) -> impl Iterator<Item = (Nid, BlockAddr)> {
        self.blocks
            .iter()
            .flat_map(|(&n, b)| {
                let nid = move |i: usize| Nid(n * NAT_ENTRIES + i as u32);
                b.iter().enumerate().filter(|(_, a)| **a != 0).map(move |(i, a)| (nid(i), BlockAddr(*a)))
            })
            .filter(|(nid, _)| nid.0 > 2)
    }
}

/// Reads those of `count` table blocks that have an address in `at`, neighbours together. Unreadable blocks are
/// skipped, with a finding.
fn each(
    dev: &dyn BlockDevice,
    table: &'static str,
    count: u32,
    at: impl Fn(u32) -> BlockAddr,
    found: &mut Findings,
    progress: &mut Progress<'_>,
    mut take: impl FnMut(u32, &Block, &mut Findings),
) -> Result<(), InspectError> {
    let mut buf = vec![0; AT_ONCE as usize * BLOCK];
    let mut unreadable: Option<(u64, BlockAddr)> = None;
    let mut n = 0;
    while n < count {
        let first = at(n);
        let neighbours = (1..AT_ONCE).take_while(|i| n + i < count && at(n + i) == first.plus(*i)).count() as u32 + 1;
        let bytes = &mut buf[..neighbours as usize * BLOCK];
        let whole = dev.read(Lba(u64::from(first.0)), bytes, TAG).is_ok();
        for i in 0..neighbours {
            let one = &mut bytes[i as usize * BLOCK..(i as usize + 1) * BLOCK];
            if !whole && dev.read(Lba(u64::from(first.plus(i).0)), one, TAG).is_err() {
                unreadable.get_or_insert((0, first.plus(i))).0 += 1;
                continue;
            }
            if let Some(block) = one.first_chunk::<BLOCK>().filter(|b| b.iter().any(|&byte| byte != 0)) {
                take(n + i, block, found);
            }
        }
        n += neighbours;
        progress.step(u64::from(neighbours))?;
    }
    if let Some((count, first)) = unreadable {
        found.add(Finding::TableUnreadable { table, count, first });
    }
    Ok(())
}

/// Reads both tables as of the checkpoint, with journals applied.
///
/// # Errors
/// If the caller stops it.
pub fn read(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    pack: &Pack,
    found: &mut Findings,
    progress: &mut Progress<'_>,
) -> Result<(Sit, Nat), InspectError> {
    let cp: &Checkpoint = &pack.checkpoint;
    let blocks = sb.main_segs.div_ceil(SIT_ENTRIES);
    let mut sit = Sit::new(sb.main_segs);
    let at = |n: u32| sb.sit_block(n, bits::msb_test(&cp.sit_bitmap, n as usize));
    let journal = summary::sit_journal(&pack.sit_journal);
    let in_journal: Vec<u32> = journal.iter().flatten().map(|(seg, _)| seg.0).collect();
    each(dev, "SIT", blocks, at, found, progress, |n, block, found| {
        for i in 0..SIT_ENTRIES.min(sb.main_segs - n * SIT_ENTRIES) {
            let (seg, raw) = (n * SIT_ENTRIES + i, sit::get(block, i as usize));
            let empty = raw.vblocks.get() == 0 && raw.mtime.get() == 0 && raw.valid_map == [0; MAP_BYTES];
            if !empty && !in_journal.contains(&seg) {
                sit.set_entry(SegNo(seg), &raw, found);
            }
        }
    })?;
    let mut nat = Nat::default();
    let at = |n: u32| sb.nat_block(n, bits::msb_test(&cp.nat_bitmap, n as usize));
    each(dev, "NAT", sb.nat_blocks(), at, found, progress, |n, block, _| {
        for i in 0..NAT_ENTRIES {
            let addr = nat::get(block, i as usize).addr;
            let nid = n.checked_mul(NAT_ENTRIES).and_then(|first| first.checked_add(i));
            if let Some(nid) = nid.filter(|_| addr != BlockAddr::NULL) {
                nat.insert(Nid(nid), addr);
            }
        }
    })?;
    if !pack.sit_journal.is_empty() {
        match journal {
            Ok(entries) => {
                let inside = entries.iter().filter(|(seg, _)| seg.0 < sb.main_segs);
                inside.for_each(|(seg, raw)| sit.set_entry(*seg, raw, found));
            }
            Err(error) => found.add(Finding::Journal { journal: "SIT", error }),
        }
        match summary::nat_journal(&pack.nat_journal) {
            Ok(entries) => {
                let inside = entries.iter().filter(|(nid, _)| nid.0 < sb.max_nid());
                inside.for_each(|(nid, e)| nat.insert(*nid, e.addr));
            }
            Err(error) => found.add(Finding::Journal { journal: "NAT", error }),
        }
    }
    Ok((sit, nat))
}
