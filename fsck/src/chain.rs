//! What did `fsync` write after the checkpoint?
//!
//! Nodes written since then follow each other from the next free block of the warm node log. For each inode,
//! roll-forward replays those up to the last one with an fsync mark; later ones belong to no completed `fsync`. It
//! skips an inode that is not in the checkpoint if none of its nodes has the dentry mark: the file was deleted, and
//! an fsync of its directory cleared the mark. An invalid node ends the chain: it is torn, and no `fsync` that
//! wrote later nodes had returned.

use format::checkpoint::CpFlags;
use format::delta;
use format::inode::{self, Inline, RawInode};
use format::node::{self, Footer, NodeKind};
use format::sit::LogType;
use format::superblock::Features;
use format::{Block, BlockAddr, Ino, Nid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::FsckError;
use super::kind::kind_of;
use super::load::Image;
use super::report::{FindingKind as K, Name, Report, Synced};
use super::sets::BlockSet;

/// Longest path in bytes, as in Linux.
const LONGEST: usize = 4096;
/// Inodes whose name and parent are cached.
const REMEMBERED: usize = 1 << 16;

/// The nodes written after the checkpoint.
#[derive(Default)]
pub struct Chain {
    /// Fsynced files, in the order of their first promise.
    pub synced: Vec<Synced>,
    /// Node blocks outside any completed `fsync`.
    pub unsynced: u64,
}

/// The fsynced nodes of one inode.
#[derive(Default)]
struct Promised {
    /// Position of the last node with an fsync mark.
    last: usize,
    /// True if one of the nodes has the dentry mark.
    named: bool,
    nodes: u64,
    /// The newest version of each node.
    newest: FxHashMap<Nid, BlockAddr>,
}

impl Chain {
    /// Reads the chain. A checkpoint of an unmount may have a chain too: Linux writes no checkpoint at mount, so
    /// files fsynced before the first checkpoint of that mount follow the last one of the mount before.
    pub fn read(img: &Image<'_>) -> Result<Self, FsckError> {
        let links = links(img)?;
        let mut order = Vec::new();
        let mut promised: FxHashMap<Ino, Promised> = FxHashMap::default();
        for (i, (_, f)) in links.iter().enumerate().filter(|(_, (_, f))| f.fsync) {
            let known = promised.entry(f.ino).or_insert_with(|| {
                order.push(f.ino);
                Promised::default()
            });
            known.last = i;
            known.named |= f.dentry;
        }
        for (ino, p) in &mut promised {
            p.named |= img.nat(ino.nid())?.addr != BlockAddr::NULL;
        }
        promised.retain(|_, p| p.named);
        let mut unsynced = 0;
        for (i, (addr, f)) in links.into_iter().enumerate() {
            match promised.get_mut(&f.ino).filter(|p| i <= p.last) {
                Some(p) => {
                    p.nodes += 1;
                    p.newest.insert(f.nid, addr);
                }
                None => unsynced += 1,
            }
        }
        let mut synced = Vec::new();
        let mut paths = Paths { img, known: FxHashMap::default() };
        for (n, ino) in order.into_iter().enumerate() {
            let Some(p) = promised.get(&ino) else { continue };
            // No report lists more.
            let listed = n < Report::MOST;
            let path = if listed { paths.path_of(ino, p.newest.get(&ino.nid()).copied())? } else { None };
            synced.push(Synced { ino, path, nodes: p.nodes, blocks: new_blocks(img, p)? });
        }
        Ok(Chain { synced, unsynced })
    }

    /// Number of node blocks that roll-forward replays.
    pub fn nodes(&self) -> u64 {
        self.synced.iter().map(|s| s.nodes).sum()
    }

    /// Adds the contents of the chain to the report.
    pub fn report(&self, report: &mut Report) {
        if !self.synced.is_empty() {
            report.add(K::NeedsRecovery { nodes: self.nodes() });
        }
        for synced in &self.synced {
            report.add(K::Synced(synced.clone()));
        }
        if self.unsynced > 0 {
            report.add(K::UnsyncedNodes { nodes: self.unsynced });
        }
    }
}

fn links(img: &Image<'_>) -> Result<Vec<(BlockAddr, Footer)>, FsckError> {
    let mut out = Vec::new();
    let with_crc = img.cp.flags.contains(CpFlags::CRC_RECOVERY);
    let want = img.cp.version | if with_crc { u64::from(img.cp.crc) << 32 } else { 0 };
    let low_only = img.cp.flags.contains(CpFlags::NOCRC_RECOVERY);
    let head = img.cp.logs[LogType::WarmNode.index()];
    let mut at = img.sb.seg_start(head.seg).plus(u32::from(head.next));
    let mut seen = BlockSet::default();
    while let Some((seg, off)) = img.sb.locate(at) {
        if seen.add(seg, off) {
            break;
        }
        let block = img.block(at)?;
        let f = node::footer(&block);
        let same = if low_only { f.cp_ver as u32 == want as u32 } else { f.cp_ver == want };
        // A node in both tables belongs to the checkpoint: the log's position is invalid.
        if !same || img.marked(at) && img.nat(f.nid)?.addr == at {
            break;
        }
        if !makes_sense(img, &block, &f) {
            break;
        }
        out.push((at, f));
        at = f.next;
    }
    Ok(out)
}

/// True if roll-forward accepts a node of the chain as complete.
fn makes_sense(img: &Image<'_>, block: &Block, f: &Footer) -> bool {
    let features = img.sb.features;
    let lawful = |n: u32| (1..img.sb.max_nid()).contains(&n);
    let is_inode = f.nid == f.ino.nid();
    let place = match node::kind_of(f.offset) {
        NodeKind::Inode => {
            let raw = RawInode::of(block);
            // On volumes with checksums every inode has room for one.
            let bare = features.contains(Features::INODE_CHECKSUM) && !raw.inline().contains(Inline::EXTRA_ATTR);
            is_inode
                && !bare
                && is_whole(img, block, f)
                && delta::verify(raw, features).is_ok()
                && kind_of(raw.i_mode.get()).is_some()
        }
        NodeKind::Nothing => false,
        NodeKind::Delta => {
            !is_inode && features.contains(Features::DELTA) && node::delta::verify(img.seed, block).is_ok()
        }
        _ => !is_inode,
    };
    let inside = |a: BlockAddr| !a.is_real() || img.sb.locate(a).is_some();
    lawful(f.nid.0) && lawful(f.ino.0) && place && addresses(img, block).all(inside)
}

/// True if an inode's checksum is right, as stored or with the marks that were later cleared in place.
fn is_whole(img: &Image<'_>, block: &Block, f: &Footer) -> bool {
    let right = |b: &Block| inode::verify_checksum(img.sb.features, img.seed, b).is_ok();
    right(block) || {
        let mut marked = Box::new(*block);
        node::set_footer(&mut marked, &Footer { fsync: true, dentry: true, ..*f });
        !f.fsync && !f.dentry && right(&marked)
    }
}

/// Number of blocks in the newest versions of an inode's nodes that are free in the checkpoint.
fn new_blocks(img: &Image<'_>, promised: &Promised) -> Result<u64, FsckError> {
    let mut new = 0;
    for addr in promised.newest.values() {
        let block = img.block(*addr)?;
        let addresses = addresses(img, &block);
        new += addresses.filter(|a| img.sb.locate(*a).is_some() && !img.marked(*a)).count() as u64;
    }
    Ok(new)
}

/// The addresses of contents in a node.
fn addresses<'b>(img: &Image<'_>, block: &'b Block) -> Box<dyn Iterator<Item = BlockAddr> + 'b> {
    let f = node::footer(block);
    if f.nid == f.ino.nid() {
        let raw = RawInode::of(block);
        return match raw.divide(img.sb.features) {
            Ok(division) if !raw.inline().intersects(Inline::DATA | Inline::DENTRY) => {
                Box::new((0..division.direct_slots()).map(move |i| raw.addr(division, i)))
            }
            _ => Box::new(std::iter::empty()),
        };
    }
    match node::kind_of(f.offset) {
        NodeKind::Direct { .. } => {
            Box::new((0..node::ADDRS_PER_BLOCK).map(move |i| BlockAddr(node::word(block, i as usize))))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// The parent and the name recorded in an inode; `None` if it is not an inode with a name.
type Recorded = Option<(Ino, Vec<u8>)>;

/// Builds paths from the names and parents recorded in inodes.
struct Paths<'i, 'd> {
    img: &'i Image<'d>,
    /// Records from inodes of the checkpoint: many files lie below few directories.
    known: FxHashMap<Ino, Recorded>,
}

impl Paths<'_, '_> {
    /// The path of an inode; `newest` is the address of its newest version if that is not in the checkpoint.
    fn path_of(&mut self, ino: Ino, newest: Option<BlockAddr>) -> Result<Option<Name>, FsckError> {
        let mut parts = Vec::new();
        let (mut at, mut length, mut seen) = (ino, 0, FxHashSet::default());
        let mut next = match newest {
            Some(addr) => self.read(ino, addr)?,
            None => self.recorded(ino)?,
        };
        while at != self.img.sb.root {
            let Some((parent, name)) = next else { return Ok(None) };
            length += 1 + name.len();
            if length > LONGEST || !seen.insert(at) {
                return Ok(None);
            }
            parts.push(name);
            at = parent;
            next = if at == self.img.sb.root { None } else { self.recorded(at)? };
        }
        let path = parts.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
        Ok(Some(Name(path)))
    }

    fn recorded(&mut self, ino: Ino) -> Result<Recorded, FsckError> {
        if let Some(known) = self.known.get(&ino) {
            return Ok(known.clone());
        }
        let read = self.read(ino, self.img.nat(ino.nid())?.addr)?;
        if self.known.len() < REMEMBERED {
            self.known.insert(ino, read.clone());
        }
        Ok(read)
    }

    fn read(&self, ino: Ino, addr: BlockAddr) -> Result<Recorded, FsckError> {
        if self.img.sb.locate(addr).is_none() {
            return Ok(None);
        }
        let block = self.img.block(addr)?;
        let raw = RawInode::of(&block);
        let named = node::footer(&block).nid == ino.nid() && !raw.name().is_empty();
        Ok(named.then(|| (Ino(raw.i_pino.get()), raw.name().to_vec())))
    }
}
