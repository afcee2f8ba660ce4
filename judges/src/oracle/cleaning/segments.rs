//! Reads the segment table from only the blocks that contain it.
//!
//! A [`Window`] names those blocks of a volume: both checkpoint packs and both copies of the SIT. A guest prints them,
//! and the host extracts the newest state.

use format::checkpoint::{self, Checkpoint, CpFlags};
use format::sit::{self, SIT_ENTRIES, SitEntry};
use format::summary;
use format::superblock::SuperBlock;
use format::{BLOCK, Block, BlockAddr, bits};

use crate::oracle::victims::{LogState, Segment, State};

/// Blocks of a pack that are read; one without orphans takes under 20.
const PACK: u32 = 64;

/// Ranges of the blocks with the segment table of a volume.
#[derive(Debug, Clone)]
pub struct Window {
    sb: SuperBlock,
    sit_blocks: u32,
}

impl Window {
    /// The window of the volume with this superblock.
    pub fn of(sb: &SuperBlock) -> Self {
        Window { sit_blocks: sb.main_segs.div_ceil(SIT_ENTRIES), sb: sb.clone() }
    }

    /// First block and number of blocks of each range, in print order.
    pub fn ranges(&self) -> [(u32, u32); 4] {
        let copy = |second| self.sb.sit_block(0, second).0;
        [
            (self.sb.cp.0, PACK),
            (self.sb.cp.plus(512).0, PACK),
            (copy(false), self.sit_blocks),
            (copy(true), self.sit_blocks),
        ]
    }

    /// Number of blocks in all ranges.
    pub fn blocks(&self) -> u32 {
        self.ranges().iter().map(|(_, n)| n).sum()
    }

    /// The state in these blocks, which are those of [`ranges`](Self::ranges).
    ///
    /// # Errors
    /// Why the state cannot be read, in words.
    pub fn read(&self, bytes: &[u8]) -> Result<(Checkpoint, State), String> {
        let blocks: &[Block] = bytes.as_chunks::<BLOCK>().0;
        if blocks.len() != self.blocks() as usize {
            return Err(format!("{} blocks instead of {}", blocks.len(), self.blocks()));
        }
        let (packs, sits) = blocks.split_at(2 * PACK as usize);
        let (first, second) = packs.split_at(PACK as usize);
        let (cp, pack) = match (self.pack(first), self.pack(second)) {
            (Ok(a), Ok(b)) if b.0.version > a.0.version => b,
            (Ok(a), _) => a,
            (Err(_), Ok(b)) => b,
            (Err(a), Err(b)) => return Err(format!("no checkpoint: {a}; {b}")),
        };
        let mut segments = vec![Segment::UNUSED; self.sb.main_segs as usize];
        let mut put = |n: u32, raw: &sit::RawSitEntry| -> Result<(), String> {
            let SitEntry { log, valid, map, mtime } = SitEntry::check(raw).map_err(|e| format!("segment {n}: {e}"))?;
            let segment = segments.get_mut(n as usize).ok_or_else(|| format!("segment {n} is outside the volume"))?;
            *segment = Segment { log, valid, mtime, map };
            Ok(())
        };
        for n in 0..self.sit_blocks {
            let copy = bits::msb_test(&cp.sit_bitmap, n as usize);
            let block = &sits[(n + u32::from(copy) * self.sit_blocks) as usize];
            for i in 0..SIT_ENTRIES.min(self.sb.main_segs - n * SIT_ENTRIES) {
                put(n * SIT_ENTRIES + i, &sit::get(block, i as usize))?;
            }
        }
        for (segment, raw) in summary::sit_journal(journal(&cp, pack)?).map_err(|e| e.to_string())? {
            put(segment.0, &raw)?;
        }
        let logs = cp.logs.map(|log| LogState { segment: log.seg.0, next: log.next, threaded: log.threaded });
        let state = State {
            uptime: 0,
            elapsed: cp.elapsed,
            valid_blocks: cp.valid_blocks,
            logs,
            atgc_log: None,
            pinned_log: None,
            marked: Vec::new(),
            segments,
        };
        Ok((cp, state))
    }

    fn pack<'b>(&self, blocks: &'b [Block]) -> Result<(Checkpoint, &'b [Block]), String> {
        let n = checkpoint::pack_blocks(&blocks[0]).map_err(|e| e.to_string())? as usize;
        let pack = blocks.get(..n).ok_or_else(|| format!("a pack of {n} blocks"))?;
        let tail = checkpoint::version(&pack[n - 1]).map_err(|e| e.to_string())?;
        let cp = Checkpoint::check(&self.sb, pack.as_flattened()).map_err(|e| e.to_string())?;
        if tail != cp.version {
            return Err(format!("head has version {}, tail {tail}", cp.version));
        }
        Ok((cp, pack))
    }
}

/// The SIT entries in the journal of the cold data log's summary.
fn journal<'p>(cp: &Checkpoint, pack: &'p [Block]) -> Result<&'p [u8], String> {
    let short = || String::from("a pack too short for its summaries");
    let nodes = if cp.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT) { 3 } else { 0 };
    let end = (pack.len() - 1).checked_sub(nodes).ok_or_else(short)?;
    if cp.flags.contains(CpFlags::COMPACT_SUM) {
        let blocks = pack.get(cp.start_sum as usize..end).ok_or_else(short)?;
        return summary::compact_journals(blocks).map(|(_, sit)| sit).ok_or_else(short);
    }
    pack.get(end.wrapping_sub(1)).map(summary::journal).ok_or_else(short)
}

/// The superblock from the image's first copy, or the second.
pub fn superblock(read: impl Fn(BlockAddr) -> std::io::Result<Block>) -> Result<SuperBlock, String> {
    let at = |n| read(BlockAddr(n)).map_err(|e| e.to_string());
    SuperBlock::check(&at(0)?).or_else(|_| SuperBlock::check(&at(1)?).map_err(|e| e.to_string()))
}
