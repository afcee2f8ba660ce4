//! Which nodes are alive, and what does each of them record?
//!
//! Segments of nodes are read in address order. A node is alive if the NAT maps its number to this address. Its footer
//! names its file and its position in the file, so no directory and no indirect node is followed. Nodes that the NAT
//! maps to other segments are read one by one afterwards, so a wrong SIT hides no file.
//!
//! Nodes written after the checkpoint, which roll-forward would replay, do not count as alive.

use device::{BlockDevice, Lba};
use format::node::{self, ADDRS_PER_BLOCK, NodeKind};
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, BLOCKS_PER_SEG, Block, BlockAddr, Ino, Nid, SegNo};
use rustc_hash::FxHashSet;

use crate::begin::TAG;
use crate::finding::{Finding, Findings};
use crate::inode::{Draft, draft};
use crate::piece::{self, Piece};
use crate::tables::{Nat, Sit};
use crate::{InspectError, Progress};

/// Read valid blocks in one request if at most `GAP` other blocks lie between them.
const GAP: u16 = 16;

/// What the nodes record.
#[derive(Default)]
pub struct Scanned {
    /// Inodes, in scan order.
    pub inodes: Vec<Draft>,
    /// Block runs in direct nodes, and in inodes of files that have direct nodes.
    pub pieces: Vec<Piece>,
    /// File blocks with an entry in a delta node, by file.
    pub deltas: Vec<(Ino, u32)>,
    /// Nodes that are alive.
    pub nodes: u64,
}

struct Scan<'s> {
    dev: &'s dyn BlockDevice,
    sb: &'s SuperBlock,
    nat: &'s Nat,
    seed: u32,
    out: Scanned,
    met: FxHashSet<u32>,
}

/// Scans a volume.
///
/// # Errors
/// If the caller stops it.
pub fn scan(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    (sit, nat): (&Sit, &Nat),
    found: &mut Findings,
    progress: &mut Progress<'_>,
) -> Result<Scanned, InspectError> {
    let seed = format::inode::checksum_seed(&sb.uuid);
    let mut s = Scan { dev, sb, nat, seed, out: Scanned::default(), met: FxHashSet::default() };
    let mut buf = vec![0; BLOCKS_PER_SEG as usize * BLOCK];
    for (seg, entry) in sit.iter() {
        progress.step(u64::from(BLOCKS_PER_SEG))?;
        if entry.valid == 0 || entry.log.is_some_and(|log| !log.is_node()) {
            continue;
        }
        let valid: Vec<u16> = (0..BLOCKS_PER_SEG as u16).filter(|o| entry.has(*o)).collect();
        for run in valid.chunk_by(|a, b| b - a <= GAP) {
            s.run(seg, run, &mut buf, found);
        }
    }
    s.elsewhere(found, progress)?;
    Ok(s.out)
}

impl Scan<'_> {
    /// Reads valid blocks of a segment that lie near each other.
    fn run(&mut self, seg: SegNo, run: &[u16], buf: &mut [u8], found: &mut Findings) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let start = self.sb.seg_start(seg).plus(u32::from(*first));
        let bytes = &mut buf[..usize::from(last - first + 1) * BLOCK];
        let whole = self.dev.read(Lba(u64::from(start.0)), bytes, TAG).is_ok();
        for offset in run.iter().map(|o| o - first) {
            let addr = start.plus(u32::from(offset));
            let one = &mut bytes[usize::from(offset) * BLOCK..][..BLOCK];
            if !whole && self.dev.read(Lba(u64::from(addr.0)), one, TAG).is_err() {
                found.add(Finding::NodeUnreadable { count: 1, first: addr });
                continue;
            }
            let Some(block) = one.first_chunk::<BLOCK>() else { continue };
            let nid = node::footer(block).nid;
            if self.nat.address(nid) == addr && nid.0 > 2 {
                self.take(nid, addr, block, found);
            } else {
                found.add(Finding::Loose { count: 1, first: addr });
            }
        }
    }

    /// Nodes that the NAT maps to addresses where the SIT has no nodes.
    fn elsewhere(&mut self, found: &mut Findings, progress: &mut Progress<'_>) -> Result<(), InspectError> {
        let mut missed: Vec<(BlockAddr, Nid)> = Vec::new();
        if (self.met.len() as u64) < self.nat.nodes().count() as u64 {
            missed.extend(self.nat.nodes().filter(|(nid, _)| !self.met.contains(&nid.0)).map(|(nid, a)| (a, nid)));
        }
        missed.sort_unstable();
        for (addr, nid) in missed {
            progress.step(0)?;
            let block = self.sb.locate(addr).and_then(|_| crate::begin::block(self.dev, addr).ok());
            match block.filter(|b| node::footer(b).nid == nid) {
                Some(block) => {
                    found.add(Finding::Unmarked { count: 1, nid, addr });
                    self.take(nid, addr, &block, found);
                }
                None => found.add(Finding::NoNode { count: 1, nid, addr }),
            }
        }
        Ok(())
    }

    fn take(&mut self, nid: Nid, addr: BlockAddr, block: &Block, found: &mut Findings) {
        self.met.insert(nid.0);
        self.out.nodes += 1;
        let footer = node::footer(block);
        let (ino, offset) = (footer.ino, footer.offset);
        if nid == ino.nid() {
            let (draft, own) = draft(self.sb.features, self.seed, ino, addr, block, found);
            // A file without further nodes is complete.
            let alone = draft.alone;
            self.out.inodes.push(draft);
            if alone && let Some(draft) = self.out.inodes.last_mut() {
                draft.own = own;
            } else {
                self.out.pieces.extend(own);
            }
            return;
        }
        let misplaced = Finding::Misplaced { count: 1, ino, offset };
        let delta = self.sb.features.contains(Features::DELTA);
        match node::kind_of(offset) {
            NodeKind::Direct { first } => {
                let number = (first / u64::from(ADDRS_PER_BLOCK)) as u32 + 1;
                self.out.pieces.push(Piece::node(ino, addr));
                let words = (0..ADDRS_PER_BLOCK as usize).map(|i| BlockAddr(node::word(block, i)));
                piece::runs(ino, number, words, &mut self.out.pieces);
            }
            NodeKind::Delta if delta => {
                self.out.pieces.push(Piece::node(ino, addr));
                match node::delta::verify(self.seed, block) {
                    Ok(()) => {
                        let blocks = node::delta::entries(block).map(|e| e.block);
                        // Kept pages are not part of the file's contents.
                        let contents = blocks.filter(|b| *b < node::kept::KEPT);
                        self.out.deltas.extend(contents.map(|b| (ino, b)));
                    }
                    Err(error) => found.add(Finding::DeltaNode { count: 1, ino, error }),
                }
            }
            NodeKind::Indirect | NodeKind::DoubleIndirect | NodeKind::Xattr => {
                self.out.pieces.push(Piece::node(ino, addr));
            }
            NodeKind::Inode | NodeKind::Delta | NodeKind::Nothing => {
                self.out.pieces.push(Piece::node(ino, addr));
                found.add(misplaced);
            }
        }
    }
}
