//! Places of inodes, and inodes with all their blocks.

use std::collections::{BTreeMap, BTreeSet};

use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::extent::{Extent, HOLE_MAX};
use scherlfs_format::history::{self, Past};
use scherlfs_format::inode as raw;
use scherlfs_format::superblock::Superblock;
use scherlfs_format::{Addr, BLOCK, FREE_LIST, HISTORY, IFILE, Ino, ORPHANS, Run, ifile, lists};

use crate::finding::Finding;
use crate::{Disk, kind};

/// An inode with all its extents and own blocks.
pub(crate) struct Node {
    pub inode: raw::Inode,
    pub extents: Vec<Extent>,
    pub own: Vec<Addr>,
}

impl Node {
    /// The address of a block of its contents, if it is stored.
    pub fn place(&self, block: u64) -> Option<Addr> {
        let mut from = 0;
        for e in &self.extents {
            if block < from + e.blocks() {
                return match e {
                    Extent::Stored { start, .. } => Some(Addr(start.0 + block - from)),
                    _ => None,
                };
            }
            from += e.blocks();
        }
        None
    }
    /// Every stored block of its contents.
    pub fn stored(&self) -> impl Iterator<Item = Addr> + '_ {
        self.extents.iter().flat_map(|e| {
            let (start, blocks) = match *e {
                Extent::Stored { start, blocks } => (start.0, u64::from(blocks)),
                _ => (0, 0),
            };
            (start..start + blocks).map(Addr)
        })
    }
}

/// True if a continuation was written by an earlier version of its inode.
pub(crate) fn earlier(continuation: &Header, inode: &Header) -> bool {
    continuation.epoch.count < inode.epoch.count || continuation.seq < inode.seq
}

/// Reads an inode with its continuations.
pub(crate) fn node(disk: &Disk<'_>, ino: Ino, at: Addr) -> Result<Node, String> {
    let block = disk.read(at)?;
    let inode = raw::Inode::read(&block).map_err(|e| e.to_string())?;
    if inode.header.ino != ino {
        return Err(format!("inode {} stands there", inode.header.ino));
    }
    let (mut own, mut extents) = (vec![at], inode.extents.clone());
    let within = |runs: &[Run]| runs.iter().all(|r| r.end().0 <= disk.blocks);
    let mut runs = inode.runs.clone();
    let part = |at: Addr, kind, n: usize, of: usize| -> Result<Box<scherlfs_format::Block>, String> {
        let block = disk.read(at)?;
        let h = Header::expect(&block, kind).map_err(|e| format!("block {at}: {e}"))?;
        let mine = (h.ino, h.seq, h.epoch) == (ino, inode.header.seq, inode.header.epoch);
        // Written by an earlier version of the inode, whose numbering does not matter.
        if kind == Kind::Continuation && h.ino == ino && earlier(&h, &inode.header) {
            return Ok(block);
        }
        match mine && usize::from(h.piece) == n && usize::from(h.pieces) == of {
            true => Ok(block),
            false => Err(format!("block {at} is not part {n} of {of}")),
        }
    };
    let indexes = raw::indexes(inode.continuations);
    if !within(&runs) {
        return Err("its extents' blocks are outside of the volume".into());
    }
    if indexes > 0 {
        let mut all = Vec::new();
        for (n, at) in runs.iter().flat_map(|r| r.addrs()).enumerate() {
            all.extend(chain::read_runs(&*part(at, Kind::Index, n, indexes)?, Kind::Index).map_err(|e| e.to_string())?);
            own.push(at);
        }
        runs = all;
    }
    let named: u64 = runs.iter().map(|r| u64::from(r.blocks)).sum();
    if !within(&runs) || named != inode.continuations as u64 {
        return Err("its index names other blocks than it has".into());
    }
    let mut first: u64 = extents.iter().map(|e| e.blocks()).fold(0, u64::saturating_add);
    for (n, at) in runs.iter().flat_map(|r| r.addrs()).enumerate() {
        let block = part(at, Kind::Continuation, n, inode.continuations)?;
        let more = chain::read_continuation(&block).map_err(|e| e.to_string())?;
        let says = Header::read(&block).map_err(|e| e.to_string())?;
        if earlier(&says, &inode.header) && more.first != first as u32 {
            return Err(format!("block {at} begins with block {} of the file, not with {first}", more.first));
        }
        first = more.extents.iter().map(|e| e.blocks()).fold(first, u64::saturating_add);
        extents.extend(more.extents);
        own.push(at);
    }
    if extents.len() != inode.extents_in_all as usize {
        return Err(format!("it has {} extents, not {}", extents.len(), inode.extents_in_all));
    }
    let out = |e: &&Extent| matches!(e, Extent::Stored { start, blocks } if start.0 + u64::from(*blocks) > disk.blocks);
    if let Some(e) = extents.iter().find(out) {
        return Err(format!("{e:?} is outside of the volume"));
    }
    let blocks: u64 = extents.iter().filter(|e| !matches!(e, Extent::Hole { .. })).map(|e| e.blocks()).sum();
    if blocks != inode.attributes.blocks {
        return Err(format!("it says {} blocks, its extents have {blocks}", inode.attributes.blocks));
    }
    let node = Node { inode, extents, own };
    shape(&node)?;
    Ok(node)
}

/// Checks that an inode's mode, size and extents are consistent.
fn shape(node: &Node) -> Result<(), String> {
    let a = &node.inode.attributes;
    let all = node.extents.iter().try_fold(0, |sum, e| Some(sum + e.blocks()).filter(|s| *s <= HOLE_MAX));
    let size_blocks = a.size / BLOCK as u64;
    let whole = a.size.is_multiple_of(BLOCK as u64) && a.blocks == size_blocks;
    match kind::of_mode(a.mode) {
        _ if all.is_none() => Err("its extents are longer than a file can be".into()),
        _ if !kind::lawful(a.mode) => Err(format!("its mode is {:#o}", a.mode)),
        _ if a.size > i64::MAX as u64 => Err(format!("it has {} bytes", a.size)),
        kind::DIRECTORY if !whole => Err(format!("{} bytes of a directory are not its {} blocks", a.size, a.blocks)),
        kind::SYMLINK if !(1..BLOCK as u64).contains(&a.size) || node.place(0).is_none() => {
            Err("the target of the symbolic link is not stored".into())
        }
        _ => Ok(()),
    }
}

/// Whether the target of a symbolic link is a path.
pub(crate) fn target(disk: &Disk<'_>, node: &Node) -> Result<(), String> {
    let a = &node.inode.attributes;
    let Some(at) = node.place(0).filter(|_| kind::of_mode(a.mode) == kind::SYMLINK) else { return Ok(()) };
    let block = disk.read(at)?;
    match block[..(a.size as usize).min(BLOCK)].contains(&0) {
        true => Err("the target of the symbolic link holds a NUL byte".into()),
        false => Ok(()),
    }
}

/// The place of every inode in one state.
pub(crate) struct Map {
    pub places: BTreeMap<Ino, (Addr, u16)>,
    pub orphans: BTreeSet<Ino>,
    /// Blocks of the hidden files, claimed before all others.
    pub hidden: Vec<(Ino, Addr)>,
    pub free: Vec<Run>,
    /// Undoable transactions: the blocks kept for them are neither free nor in a file.
    pub past: Vec<Past>,
}

fn bytes(disk: &Disk<'_>, node: &Node) -> Result<Vec<u8>, String> {
    let size = node.inode.attributes.size;
    if size > disk.blocks * BLOCK as u64 {
        return Err(format!("it has {size} bytes"));
    }
    let mut out = Vec::new();
    for n in 0..size.div_ceil(BLOCK as u64) {
        match node.place(n) {
            Some(at) => out.extend_from_slice(&disk.read(at)?[..]),
            None => out.extend_from_slice(&[0; BLOCK]),
        }
    }
    out.truncate(size as usize);
    Ok(out)
}

impl Map {
    /// The map of the checkpoint; `None` if it is unreadable.
    pub fn of_checkpoint(disk: &Disk<'_>, sb: &Superblock, findings: &mut Vec<Finding>) -> Option<Map> {
        let mut map = Map {
            places: BTreeMap::new(),
            orphans: BTreeSet::new(),
            hidden: Vec::new(),
            free: Vec::new(),
            past: Vec::new(),
        };
        let mut file = |ino, at| -> Option<Vec<u8>> {
            let read = node(disk, ino, at).and_then(|node| {
                if node.inode.header.seq != sb.seq {
                    return Err(format!("it is of transaction {}, not {}", node.inode.header.seq.0, sb.seq.0));
                }
                let stored = || node.extents.iter().all(|e| matches!(e, Extent::Stored { .. }));
                if ino != IFILE
                    && !(stored() && node.inode.attributes.size <= node.inode.attributes.blocks * BLOCK as u64)
                {
                    return Err("not all of it is stored".into());
                }
                map.hidden.extend(node.own.iter().copied().chain(node.stored()).map(|at| (ino, at)));
                bytes(disk, &node)
            });
            read.map_err(|why| findings.push(Finding::Hidden { ino, why })).ok()
        };
        let places = file(IFILE, sb.ifile)?;
        let free = file(FREE_LIST, sb.free_list)?;
        let orphans = match sb.orphans {
            Some(at) => Some(file(ORPHANS, at)?),
            None => None,
        };
        let past = match sb.history {
            Some(at) => Some(file(HISTORY, at)?),
            None => None,
        };
        let (blocks, rest) = places.as_chunks::<BLOCK>();
        if !rest.is_empty() {
            findings.push(Finding::Hidden { ino: IFILE, why: "it is not whole blocks".into() });
        }
        for (n, block) in blocks.iter().enumerate() {
            for at in 0..ifile::ENTRIES {
                let place = ifile::get(block, at);
                if let (Some(addr), Ok(ino)) = (place.addr, u32::try_from(n * ifile::ENTRIES + at)) {
                    map.places.insert(Ino(ino), (addr, place.generation));
                }
            }
        }
        match lists::read_free(&free) {
            Ok(runs) => map.free = runs,
            Err(e) => findings.push(Finding::Hidden { ino: FREE_LIST, why: e.to_string() }),
        }
        match orphans.map(|o| lists::read_orphans(&o)).transpose() {
            Ok(list) => map.orphans = list.unwrap_or_default().into_iter().collect(),
            Err(e) => findings.push(Finding::Hidden { ino: ORPHANS, why: e.to_string() }),
        }
        match past.map(|p| history::read(&p)).transpose() {
            Ok(past) => map.past = past.unwrap_or_default(),
            Err(e) => findings.push(Finding::Hidden { ino: HISTORY, why: e.to_string() }),
        }
        Some(map)
    }
}
