//! Which file owns a block that several files reference?
//!
//! Data blocks do not record their owner. If a file's newest node references a block, the block belonged to the
//! file when that node was written. It can belong to another file now only if it was freed and reused since; then
//! its new owner references it in a newer node, or the block is itself a node. So blocks are assigned to nodes from
//! the newest node to the oldest. A block may have been overwritten if a newer node has taken it, or if it is
//! certainly a node itself. If both nodes were written under one checkpoint, either may own the block.
//!
//! If a superblock tells where the segment summaries are, the summary of a contested block decides: it records node
//! and slot of the owner. A block with only one referencing node needs no summary, and no summary can refute it,
//! since summaries of open segments are stored elsewhere.
//!
//! Left out: a block that only one node references and that is not a node, but was overwritten by other data
//! without further trace. No bytes of the main area reveal that.

use format::{Block, BlockAddr, Ino, Nid, summary};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::RescueError;
use crate::bitmap::Bitmap;
use crate::file::{RescuedFile, Slot};
use crate::sources::{Part, Sources};

/// Most contested blocks remembered, to find the other claimant of the same age.
const MOST_CONTESTED: usize = 1 << 20;

/// Ownership of blocks.
pub struct Claims {
    taken: Bitmap,
    /// Blocks that are contents, or are referenced as such.
    contents: Bitmap,
    /// For each file, the number of its blocks that may belong to another.
    contested: FxHashMap<u32, u64>,
}

struct Claimant {
    version: u32,
    nid: Nid,
    ino: Ino,
}

impl Claims {
    /// Claims with no block assigned.
    pub fn new(blocks: u64) -> Self {
        Claims { taken: Bitmap::new(blocks), contents: Bitmap::new(blocks), contested: FxHashMap::default() }
    }

    /// Assigns the blocks that a group of files reference. Blocks of earlier groups keep their owner.
    pub fn assign(
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
        // Claimants that got a contested block first, at the same checkpoint as the second claimant.
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

    /// Number of blocks of a file that may belong to another file now.
    pub fn contested(&self, ino: Ino) -> u64 {
        self.contested.get(&ino.0).copied().unwrap_or(0)
    }

    /// Blocks that files reference as contents.
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

/// True if the segment's summary records this node and slot as the block's owner.
fn summary_confirms(from: Sources<'_>, slot: &Slot) -> bool {
    let Some(sb) = &from.place.superblock else { return false };
    let Some((seg, off)) = sb.locate(slot.addr) else { return false };
    let Ok(Some(block)) = from.window.block(sb.ssa.plus(seg.0)) else { return false };
    let named = summary::get(&block, usize::from(off));
    summary::kind(&block) == Some(summary::SummaryKind::Data)
        && named.nid == slot.nid
        && u32::from(named.slot) == slot.slot
}

/// True if an address is valid for a block behind the end of a truncated image.
pub fn is_past_end(from: Sources<'_>, addr: BlockAddr) -> bool {
    addr.is_real() && from.window.index(addr).is_none()
}
