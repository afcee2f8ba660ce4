//! Which file owns a block that more than one file names?
//!
//! Data blocks do not name their owner. If a file's newest node names a block, the block was the file's when that node
//! was written. It is another file's by now only if it was freed and reused since; then its new owner names it in a
//! newer node, or the block is a node itself. So blocks are given to nodes from the newest node to the oldest. A block
//! that a node names may have been overwritten if a newer node has taken it, or if it is certainly a node itself. If
//! both nodes were written under one checkpoint, the block may be either's.
//!
//! If a superblock tells where the segment summaries are, the summary of a contested block decides: it names node and
//! slot of the owner. A block that only one node names needs no summary, and no summary can refute it, since the
//! summaries of segments that were being filled are elsewhere.
//!
//! Left out: a block that only one node names and that is no node, but was overwritten by something that left no other
//! trace. No bytes of the main area show that.

use format::{Block, BlockAddr, Ino, Nid, summary};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::RescueError;
use crate::bitmap::Bitmap;
use crate::file::{RescuedFile, Slot};
use crate::sources::{Part, Sources};

/// Contested blocks that are remembered, to find the other claimant of the same age.
const MOST_CONTESTED: usize = 1 << 20;

/// What was given to whom.
pub struct Claims {
    taken: Bitmap,
    /// Those of them that are contents, or were named as such.
    contents: Bitmap,
    /// Of each file, how many of its blocks may be another's.
    contested: FxHashMap<u32, u64>,
}

struct Claimant {
    version: u32,
    nid: Nid,
    ino: Ino,
}

impl Claims {
    /// Nothing given out yet.
    pub fn new(blocks: u64) -> Self {
        Claims { taken: Bitmap::new(blocks), contents: Bitmap::new(blocks), contested: FxHashMap::default() }
    }

    /// Gives out the blocks that a group of files name. What earlier groups have stays theirs.
    pub fn give_out(
        &mut self,
        from: Sources<'_>,
        inos: &[Ino],
        step: &mut dyn FnMut() -> Result<(), RescueError>,
    ) -> Result<(), RescueError> {
        let mut claimants = Vec::new();
        for ino in inos {
            step()?;
            let Some(file) = RescuedFile::open(from, *ino)? else { continue };
            file.parts(&mut |part| {
                if let Part::Node(v, nid) = part {
                    from.window.index(v.addr).map(|at| self.taken.set(at));
                    claimants.push(Claimant { version: v.version, nid, ino: *ino });
                }
            })?;
        }
        claimants.sort_by_key(|c| (std::cmp::Reverse(c.version), c.nid));
        let mut contested: FxHashMap<u32, u32> = FxHashMap::default();
        for c in &claimants {
            self.claim(from, c, &mut contested)?;
        }
        if contested.is_empty() {
            return Ok(());
        }
        // Those who had a contested block first, of the same age as who came second.
        let versions: FxHashSet<u32> = contested.values().copied().collect();
        for c in claimants.iter().filter(|c| versions.contains(&c.version)) {
            let same = |s: &Slot| contested.get(&s.addr.0) == Some(&c.version) && !summary_confirms(from, s);
            let shared = slots(from, c)?.iter().filter(|s| same(s)).count() as u64;
            if shared > 0 {
                let known = self.contested.entry(c.ino.0).or_default();
                *known = (*known).max(shared);
            }
        }
        Ok(())
    }

    fn claim(
        &mut self,
        from: Sources<'_>,
        c: &Claimant,
        contested: &mut FxHashMap<u32, u32>,
    ) -> Result<(), RescueError> {
        for slot in slots(from, c)? {
            let Some(at) = from.window.index(slot.addr).filter(|_| slot.addr.is_real()) else { continue };
            let node = from.index.certain.get(at);
            self.contents.set(at);
            if (self.taken.set(at) || node) && !summary_confirms(from, &slot) {
                *self.contested.entry(c.ino.0).or_default() += 1;
                if !node && contested.len() < MOST_CONTESTED {
                    contested.insert(slot.addr.0, c.version);
                }
            }
        }
        Ok(())
    }

    /// Blocks of a file that may be another's by now.
    pub fn contested(&self, ino: Ino) -> u64 {
        self.contested.get(&ino.0).copied().unwrap_or(0)
    }

    /// Blocks that a file names as its contents.
    pub fn contents(&self) -> &Bitmap {
        &self.contents
    }
}

fn slots(from: Sources<'_>, c: &Claimant) -> Result<Vec<Slot>, RescueError> {
    let (Some(v), Some(file)) = (from.index.get(c.nid), RescuedFile::open(from, c.ino)?) else {
        return Ok(Vec::new());
    };
    let block: Option<Box<Block>> = from.window.block(v.addr)?;
    Ok(block.map_or_else(Vec::new, |block| file.slots(c.nid, &block)))
}

/// True if the segment's summary names this node and slot as the block's owner.
fn summary_confirms(from: Sources<'_>, slot: &Slot) -> bool {
    let Some(sb) = &from.place.superblock else { return false };
    let Some((seg, off)) = sb.locate(slot.addr) else { return false };
    let Ok(Some(block)) = from.window.block(sb.ssa.plus(seg.0)) else { return false };
    let named = summary::get(&block, usize::from(off));
    summary::kind(&block) == Some(summary::SummaryKind::Data)
        && named.nid == slot.nid
        && u32::from(named.slot) == slot.slot
}

/// True if an address is one a block can have in an image that was cut short.
pub fn is_past_end(from: Sources<'_>, addr: BlockAddr) -> bool {
    addr.is_real() && from.window.index(addr).is_none()
}
