//! Which block holds the newest version of each node?
//!
//! A log keeps old versions of a node until their segment is reused, so most nodes are found several times. The
//! checkpoint version in the footer orders them. Versions of one checkpoint are in log order: upwards within a
//! segment, and from each segment to the one that its nodes record as the next. If neither decides, the change time
//! of the inode does, and the choice is recorded as ambiguous.
//!
//! If no newer version was lost, the newest version found is the one in the NAT: such a block is never overwritten
//! before a newer version replaces it. Old versions of freed node numbers are found as well; [`crate::tree`]
//! distinguishes them from nodes in use.
//!
//! Contents may look like nodes. A segment holds either nodes or data. So nodes are *believed* if one node of their
//! segment records its own address ([`Sign::located`]), or if the segment begins with a node without a next block.
//! Any other node is used only if its number has no believed version, and only until a file is found to own its
//! block as contents ([`Index::forget_claimed`]).

use format::inode::{self, RawInode};
use format::node;
use format::superblock::Features;
use format::{BLOCK, BLOCKS_PER_SEG, Block, BlockAddr, Ino, Nid};
use rustc_hash::FxHashMap;

use crate::bitmap::Bitmap;
use crate::place::Place;
use crate::sign::Sign;
use crate::window::Window;
use crate::{Progress, RescueError};

/// The newest version of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its address.
    pub addr: BlockAddr,
    /// Its inode.
    pub ino: Ino,
    /// Its position in the file.
    pub offset: u32,
    /// The checkpoint version under which it was written.
    pub version: u32,
    /// Number of versions found, this one included.
    pub found: u16,
    /// True if it was found in a segment of nodes.
    pub believed: bool,
    /// True if another version may be newer.
    pub ambiguous: bool,
}

/// All nodes found.
pub struct Index {
    nodes: FxHashMap<u32, Version>,
    /// Versions of one node in several segments under one checkpoint.
    rivals: FxHashMap<u32, Vec<BlockAddr>>,
    /// The segment in which a log continued, by previous segment and checkpoint version.
    jumps: FxHashMap<(u32, u32), u32>,
    /// Blocks that are certainly nodes.
    pub certain: Bitmap,
    /// Inodes with a wrong checksum, and the newest version recorded in such a block.
    damaged: FxHashMap<u32, u32>,
    /// The same for unreadable delta nodes.
    damaged_deltas: FxHashMap<u32, u32>,
    /// True if a node references a block behind the end of the image.
    pub cut_short: bool,
    seg_phase: u32,
}

/// Most rivals remembered; further ones are ambiguous.
const MOST_RIVALS: usize = 1 << 20;
/// Most segments through which a log is followed.
const MOST_JUMPS: usize = 1 << 16;

impl Index {
    /// Reads the whole image once.
    pub fn build(
        window: &Window<'_>,
        place: &Place,
        most_nodes: usize,
        progress: &mut Progress<'_>,
    ) -> Result<Self, RescueError> {
        let seg_phase = place.superblock.as_ref().map_or(0, |sb| sb.main.0 % BLOCKS_PER_SEG);
        let mut out = Index {
            nodes: FxHashMap::default(),
            rivals: FxHashMap::default(),
            jumps: FxHashMap::default(),
            certain: Bitmap::new(window.blocks()),
            damaged: FxHashMap::default(),
            damaged_deltas: FxHashMap::default(),
            cut_short: false,
            seg_phase,
        };
        let mut buf = vec![0; BLOCKS_PER_SEG as usize * BLOCK];
        let total = window.blocks();
        let mut at = 0;
        while at < total {
            let into = (window.first + at as i64 - i64::from(seg_phase)).rem_euclid(i64::from(BLOCKS_PER_SEG)) as u64;
            let n = (u64::from(BLOCKS_PER_SEG) - into).min(total - at) as usize;
            let bytes = &mut buf[..n * BLOCK];
            window.read_run(at, bytes)?;
            out.segment(window, place, at, bytes.as_chunks::<BLOCK>().0);
            if out.nodes.len() > most_nodes {
                return Err(RescueError::TooManyNodes { most: most_nodes });
            }
            progress.step(n as u64)?;
            at += n as u64;
        }
        out.order_rivals(window)?;
        Ok(out)
    }

    fn segment(&mut self, window: &Window<'_>, place: &Place, at: u64, blocks: &[Block]) {
        let nodes: Vec<(u64, BlockAddr, Sign, &Block)> = blocks
            .iter()
            .zip(at..)
            .filter_map(|(block, index)| Some((index, window.addr(index)?, Sign::read(block)?, block)))
            .collect();
        let located = nodes.iter().any(|(_, addr, sign, _)| sign.located(*addr));
        let unlinked = nodes.first().is_some_and(|(index, _, sign, _)| *index == at && sign.next == BlockAddr::NULL);
        let believed = located || unlinked;
        for (index, addr, sign, block) in nodes {
            if sign.located(addr) {
                self.certain.set(index);
            }
            if believed && sign.next.is_real() {
                self.cut_short |= window.index(sign.next).is_none() && sign.located(addr);
                if self.segment_of(sign.next) != self.segment_of(addr) && self.jumps.len() < MOST_RIVALS {
                    self.jumps.insert((self.segment_of(addr), sign.version), self.segment_of(sign.next));
                }
            }
            if sign.is_inode() && !has_valid_checksum(place, block) {
                // Contents that look like an inode do not have a checksum of this volume.
                if believed && self.damaged.len() < MOST_RIVALS {
                    let version = self.damaged.entry(sign.nid.0).or_default();
                    *version = sign.version.max(*version);
                }
                continue;
            }
            if node::delta::number(sign.offset).is_some() && !is_delta_node(place, block) {
                if believed && self.damaged_deltas.len() < MOST_RIVALS {
                    let version = self.damaged_deltas.entry(sign.nid.0).or_default();
                    *version = sign.version.max(*version);
                }
                continue;
            }
            self.add(addr, sign, believed);
        }
    }

    /// The segment of an address, relative to an arbitrary start.
    pub fn segment_of(&self, addr: BlockAddr) -> u32 {
        addr.0.wrapping_sub(self.seg_phase) / BLOCKS_PER_SEG
    }

    fn add(&mut self, addr: BlockAddr, sign: Sign, believed: bool) {
        let Sign { nid, ino, offset, version, .. } = sign;
        let new = Version { addr, ino, offset, version, found: 1, believed, ambiguous: false };
        let Some(old) = self.nodes.get(&nid.0).copied() else {
            self.nodes.insert(nid.0, new);
            return;
        };
        let found = old.found.saturating_add(1);
        let order = (old.believed, old.version).cmp(&(believed, version));
        let tie = order.is_eq() && self.segment_of(old.addr) != self.segment_of(addr);
        let mut ambiguous = old.ambiguous && order.is_ge();
        if order.is_lt() {
            self.rivals.remove(&nid.0);
        } else if tie {
            if self.rivals.len() < MOST_RIVALS {
                self.rivals.entry(nid.0).or_default().push(old.addr);
            } else {
                ambiguous = true;
            }
        }
        // Blocks come in address order: within a segment the new one is later.
        let kept = if order.is_gt() { old } else { new };
        self.nodes.insert(nid.0, Version { found, ambiguous, ..kept });
    }

    /// Orders versions of one checkpoint that lie in several segments.
    fn order_rivals(&mut self, window: &Window<'_>) -> Result<(), RescueError> {
        for (nid, others) in std::mem::take(&mut self.rivals) {
            let Some(mut best) = self.nodes.get(&nid).copied() else { continue };
            for other in others {
                if self.log_continues(other, best.addr, best.version) {
                    continue;
                }
                let (a, b) = (window.block(best.addr)?, window.block(other)?);
                let (Some(a), Some(b)) = (a, b) else { continue };
                let Some(sign) = Sign::read(&b) else { continue };
                let newer = self.log_continues(best.addr, other, best.version);
                if !newer {
                    if a[..format::node::FOOTER] == b[..format::node::FOOTER] {
                        continue;
                    }
                    best.ambiguous = true;
                }
                if newer || sign.is_inode() && changed(&b) > changed(&a) {
                    best = Version { addr: other, ino: sign.ino, offset: sign.offset, ..best };
                }
            }
            self.nodes.insert(nid, best);
        }
        self.jumps = FxHashMap::default();
        Ok(())
    }

    /// True if the log continued from one block's segment in the other's under one checkpoint.
    fn log_continues(&self, from: BlockAddr, to: BlockAddr, version: u32) -> bool {
        let (mut at, to) = (self.segment_of(from), self.segment_of(to));
        for _ in 0..MOST_JUMPS {
            match self.jumps.get(&(at, version)) {
                Some(next) if *next == to => return true,
                Some(next) if *next != at => at = *next,
                _ => return false,
            }
        }
        false
    }

    /// The newest version of a node.
    pub fn get(&self, nid: Nid) -> Option<Version> {
        self.nodes.get(&nid.0).copied()
    }

    /// The newest version of a node at this position of this file.
    pub fn node_of(&self, nid: Nid, ino: Ino, offset: u32) -> Option<Version> {
        self.get(nid).filter(|v| v.ino == ino && v.offset == offset)
    }

    /// Number of inodes with a version that has a wrong checksum.
    pub fn damaged(&self) -> u64 {
        self.damaged.len() as u64
    }

    /// True if a damaged version of an inode is as new as `version` or newer.
    pub fn is_outdated(&self, ino: Ino, version: u32) -> bool {
        self.damaged.get(&ino.0).is_some_and(|damaged| *damaged >= version)
    }

    /// True if a damaged version of a delta node is as new as `version` or newer.
    pub fn is_outdated_delta_node(&self, nid: Nid, version: u32) -> bool {
        self.damaged_deltas.get(&nid.0).is_some_and(|damaged| *damaged >= version)
    }

    /// The newest version of an inode.
    pub fn inode(&self, ino: Ino) -> Option<Version> {
        self.node_of(ino.nid(), ino, 0)
    }

    /// All inodes, in order of their numbers.
    pub fn inodes(&self) -> Vec<Ino> {
        let mut out: Vec<Ino> = self.nodes.iter().filter(|(n, v)| **n == v.ino.0).map(|(n, _)| Ino(*n)).collect();
        out.sort_unstable();
        out
    }

    /// Removes nodes whose block belongs to a file's contents.
    pub fn forget_claimed(&mut self, window: &Window<'_>, claimed: &Bitmap) {
        self.nodes.retain(|_, v| v.believed || !window.index(v.addr).is_some_and(|at| claimed.get(at)));
    }
}

/// True if an inode's checksum is valid or absent.
fn has_valid_checksum(place: &Place, block: &Block) -> bool {
    place.seed.is_none_or(|seed| inode::verify_checksum(place.features, seed, block).is_ok())
        && RawInode::of(block).divide(place.features.difference(Features::DELTA)).is_ok()
}

/// True for a delta node with a valid checksum. Without a known seed there are no deltas.
fn is_delta_node(place: &Place, block: &Block) -> bool {
    place.seed.is_some_and(|seed| node::delta::verify(seed, block).is_ok())
}

fn changed(block: &Block) -> (u64, u32) {
    let raw = RawInode::of(block);
    (raw.i_ctime.get(), raw.i_ctime_nsec.get())
}
