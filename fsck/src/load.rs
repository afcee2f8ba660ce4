//! The tables of a checkpoint.
//!
//! They are read straight from the device, and are not assumed to agree. A table is read on demand: an [`Image`]
//! needs memory only for the SIT of used segments and for bounded caches.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use device::BlockDevice;
use format::checkpoint::{Checkpoint, CpFlags};
use format::nat::{self, NAT_ENTRIES, NatEntry};
use format::sit::{self, LogType, SIT_ENTRIES};
use format::summary::{self, Summary};
use format::superblock::SuperBlock;
use format::{BLOCKS_PER_SEG, Block, BlockAddr, Ino, Nid, SegNo, bits};
use rustc_hash::FxHashMap;

use super::FsckError;
use super::begin::{LogSummaries, log_summaries, read_block, superblock};
use super::packs::{checkpoint, pack_start};
use super::report::{FindingKind as K, Pack, Report};

/// Table blocks in a cache (32 MiB) before it is cleared.
const CACHE: usize = 8192;

/// For one comparison of whole blocks: most table blocks are empty, and checking them bytewise would take a third
/// of a check.
static ZEROES: Block = [0; format::BLOCK];

/// A SIT entry as stored, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Type number as stored, 0..64.
    pub kind: u16,
    /// Count as stored.
    pub valid: u16,
    /// Bits as stored.
    pub map: [u8; sit::MAP_BYTES],
    /// Age as stored.
    pub mtime: u64,
}

impl Segment {
    const EMPTY: Self = Segment { kind: 0, valid: 0, map: [0; sit::MAP_BYTES], mtime: 0 };

    fn from_raw(raw: &sit::RawSitEntry) -> Self {
        let v = raw.vblocks.get();
        Segment { kind: v >> 10, valid: v & 0x3FF, map: raw.valid_map, mtime: raw.mtime.get() }
    }
}

type Cache = RefCell<FxHashMap<u32, Rc<Block>>>;

/// An image with its superblock and checkpoint, and access to its tables.
pub struct Image<'d> {
    /// The device.
    pub dev: &'d dyn BlockDevice,
    /// The superblock in use.
    pub sb: SuperBlock,
    /// The checkpoint pack in use.
    pub pack: Pack,
    /// Its checkpoint.
    pub cp: Checkpoint,
    /// Summaries of the logs.
    pub logs: LogSummaries,
    /// The checkpoint's NAT journal.
    pub nat_journal: BTreeMap<Nid, NatEntry>,
    /// SIT entries that are not all zero, journal applied.
    pub sit: BTreeMap<SegNo, Segment>,
    /// Seed of inode checksums.
    pub seed: u32,
    nat_cache: Cache,
    ssa_cache: Cache,
}

impl<'d> Image<'d> {
    /// Reads the minimum to begin with. `None` if there is no usable checkpoint (which the report states).
    pub fn load(dev: &'d dyn BlockDevice, report: &mut Report) -> Result<Option<Self>, FsckError> {
        Self::load_by(dev, false, report)
    }

    /// Loads the older of the two checkpoints if `older` is set.
    pub fn load_by(dev: &'d dyn BlockDevice, older: bool, report: &mut Report) -> Result<Option<Self>, FsckError> {
        let sb = superblock(dev, report)?;
        let end = u64::from(sb.main.0) + u64::from(sb.main_segs) * u64::from(BLOCKS_PER_SEG);
        if end > dev.blocks() {
            return Ok(None);
        }
        let Some((pack, cp)) = checkpoint(dev, &sb, older, report)? else { return Ok(None) };
        let logs = log_summaries(dev, pack_start(&sb, pack), &cp, report)?;
        let mut image = Image {
            dev,
            pack,
            logs,
            nat_journal: BTreeMap::new(),
            sit: BTreeMap::new(),
            seed: format::inode::checksum_seed(&sb.uuid),
            nat_cache: Cache::default(),
            ssa_cache: Cache::default(),
            sb,
            cp,
        };
        image.load_nat_journal(report)?;
        image.load_sit(report)?;
        Ok(Some(image))
    }

    fn load_nat_journal(&mut self, report: &mut Report) -> Result<(), FsckError> {
        match summary::nat_journal(&self.logs.nat_journal) {
            Ok(entries) => {
                for (nid, e) in entries {
                    if nid.0 == 0 || nid.0 >= self.sb.max_nid() {
                        report.add(K::NatJournalNid { nid });
                    } else {
                        self.nat_journal.insert(nid, e);
                        let (n, i) = nat::position(nid);
                        let below = nat::get(&*self.nat_block(n)?, i);
                        if below.ino.0 == 0 && below.addr != BlockAddr::NULL {
                            report.add(K::NatShadowed { nid });
                        }
                    }
                }
            }
            Err(error) => report.add(K::NatJournalBad { error }),
        }
        Ok(())
    }

    fn load_sit(&mut self, report: &mut Report) -> Result<(), FsckError> {
        for n in 0..self.sb.main_segs.div_ceil(SIT_ENTRIES) {
            let second = bits::msb_test(&self.cp.sit_bitmap, n as usize);
            let block = read_block(self.dev, self.sb.sit_block(n, second))?;
            if *block == ZEROES {
                continue;
            }
            for i in 0..SIT_ENTRIES.min(self.sb.main_segs - n * SIT_ENTRIES) {
                let e = Segment::from_raw(&sit::get(&block, i as usize));
                if e != Segment::EMPTY {
                    self.sit.insert(SegNo(n * SIT_ENTRIES + i), e);
                }
            }
        }
        match summary::sit_journal(&self.logs.sit_journal) {
            Ok(entries) => {
                for (segment, raw) in entries {
                    if segment.0 >= self.sb.main_segs {
                        report.add(K::SitJournalSegment { segment });
                    } else if let Some(below) = self.sit.insert(segment, Segment::from_raw(&raw))
                        && u32::from(below.valid) != bits::count(&below.map)
                    {
                        // Linux checks it before it reads the journal.
                        report.add(K::SitShadowed { segment });
                    }
                }
            }
            Err(error) => report.add(K::SitJournalBad { error }),
        }
        Ok(())
    }

    /// The SIT entry of a segment.
    pub fn segment(&self, seg: SegNo) -> Segment {
        self.sit.get(&seg).copied().unwrap_or(Segment::EMPTY)
    }

    /// True if a block is valid in the SIT.
    pub fn marked(&self, addr: BlockAddr) -> bool {
        self.sb.locate(addr).is_some_and(|(seg, off)| bits::msb_test(&self.segment(seg).map, usize::from(off)))
    }

    fn cached(&self, cache: &Cache, at: BlockAddr) -> Result<Rc<Block>, FsckError> {
        if let Some(b) = cache.borrow().get(&at.0) {
            return Ok(b.clone());
        }
        let b: Rc<Block> = Rc::from(read_block(self.dev, at)?);
        let mut cache = cache.borrow_mut();
        if cache.len() >= CACHE {
            cache.clear();
        }
        cache.insert(at.0, b.clone());
        Ok(b)
    }

    /// The current copy of NAT block `n`, without the journal.
    pub fn nat_block(&self, n: u32) -> Result<Rc<Block>, FsckError> {
        let second = bits::msb_test(&self.cp.nat_bitmap, n as usize);
        self.cached(&self.nat_cache, self.sb.nat_block(n, second))
    }

    /// The NAT entry of a node number, journal applied; an empty one outside the NAT.
    pub fn nat(&self, nid: Nid) -> Result<NatEntry, FsckError> {
        if let Some(e) = self.nat_journal.get(&nid) {
            return Ok(*e);
        }
        if nid.0 >= self.sb.max_nid() {
            return Ok(NatEntry::default());
        }
        let (n, i) = nat::position(nid);
        Ok(nat::get(&*self.nat_block(n)?, i))
    }

    /// Entries of NAT block `n` with an address, journal applied, except 1 and 2.
    pub fn nat_live(&self, n: u32) -> Result<Vec<(Nid, NatEntry)>, FsckError> {
        let block = self.nat_block(n)?;
        let first = n * NAT_ENTRIES;
        let empty = *block == ZEROES;
        let mut journal = self.nat_journal.range(Nid(first)..Nid(first + NAT_ENTRIES)).peekable();
        if empty && journal.peek().is_none() {
            return Ok(Vec::new());
        }
        let entry = |i: u32| {
            let nid = Nid(first + i);
            let e = self.nat_journal.get(&nid).copied();
            (nid, e.unwrap_or_else(|| nat::get(&block, i as usize)))
        };
        let live = |(nid, e): &(Nid, NatEntry)| !(1..=2).contains(&nid.0) && e.addr != BlockAddr::NULL;
        Ok((0..NAT_ENTRIES).map(entry).filter(live).collect())
    }

    /// The log that writes to this segment.
    pub fn log_of(&self, seg: SegNo) -> Option<LogType> {
        LogType::ALL.into_iter().find(|l| self.cp.logs[l.index()].seg == seg)
    }

    /// The summary block of a segment, from its log if it has one; `None` if the pack keeps none.
    pub fn summary_block(&self, seg: SegNo) -> Result<Option<Rc<Block>>, FsckError> {
        match self.log_of(seg) {
            Some(log) => Ok(self.logs.blocks[log.index()].as_deref().map(|b| Rc::new(*b))),
            None => self.cached(&self.ssa_cache, self.sb.ssa_block(seg)).map(Some),
        }
    }

    /// The summary of a block; `None` if the volume has none.
    pub fn summary(&self, seg: SegNo, off: u16) -> Result<Option<Summary>, FsckError> {
        Ok(match self.log_of(seg) {
            Some(log) => self.logs.blocks[log.index()]
                .as_deref()
                .filter(|_| off < self.logs.known[log.index()])
                .map(|b| summary::get(b, usize::from(off))),
            None => {
                let block = self.cached(&self.ssa_cache, self.sb.ssa_block(seg))?;
                Some(summary::get(&block, usize::from(off)))
            }
        })
    }

    /// The checkpoint's orphan inodes in all readable blocks.
    pub fn orphans(&self, report: &mut Report) -> Result<Vec<Ino>, FsckError> {
        let mut out = Vec::new();
        if !self.cp.flags.contains(CpFlags::ORPHAN) {
            return Ok(out);
        }
        for index in 1 + self.sb.cp_payload..self.cp.start_sum {
            let block = read_block(self.dev, pack_start(&self.sb, self.pack).plus(index))?;
            match format::orphan::parse(&block) {
                Ok(inos) => out.extend(inos),
                Err(error) => report.add(K::OrphanBlockBad { index, error }),
            }
        }
        Ok(out)
    }

    /// Reads a main block.
    pub fn block(&self, at: BlockAddr) -> Result<Box<Block>, FsckError> {
        read_block(self.dev, at)
    }
}

/// The log type of a stored type number, if valid.
pub fn log_type(kind: u16) -> Option<LogType> {
    u8::try_from(kind).ok().and_then(LogType::from_number)
}
