//! The addresses, contents, attributes and target of one file.
//!
//! A node below the inode is used only if its footer has this place of this file.

use std::rc::Rc;

use format::compress::Method;
use format::delta;
use format::inode::{Advise, Division, Inline, RawInode, extra_end};
use format::node::{self, NIDS_PER_BLOCK, NodeKind, Shape, XATTR_NODE_OFFSET};
use format::superblock::Features;
use format::xattr::{self, NODE_BYTES, index};
use format::{BLOCK, Block, BlockAddr, Ino, Nid, acl};

use crate::RescueError;
use crate::deltas::{self, Deltas};
use crate::index::Version;
use crate::sources::{Part, Sources};

/// An address slot of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The node that holds it.
    pub nid: Nid,
    /// Slot in that node.
    pub slot: u32,
    /// Block of the file.
    pub index: u64,
    /// The stored address.
    pub addr: BlockAddr,
}

/// Location of a block's address.
enum Place {
    /// In a slot of a node.
    Slot(BlockAddr),
    /// No node for any block before `until`. With `hole` none was ever created; otherwise it was not found.
    Absent { hole: bool, until: u64 },
}

/// One file, its inode in memory.
pub struct RescuedFile<'r> {
    from: Sources<'r>,
    /// Inode number.
    pub ino: Ino,
    /// Version of its inode.
    pub version: Version,
    /// True if missing data reads as holes and zeroes.
    pub lenient: bool,
    block: Box<Block>,
    division: Division,
    shape: Shape,
    /// The nodes read last, by depth below the inode.
    last: [Option<(Nid, Option<Box<Block>>)>; 3],
    /// The cluster decompressed last.
    cluster: Option<(u64, Vec<u8>)>,
    /// Set when the first block is read.
    deltas: Option<Rc<Deltas>>,
}

impl<'r> RescuedFile<'r> {
    /// Opens the newest version of an inode; `None` if no readable one exists.
    pub fn open(from: Sources<'r>, ino: Ino) -> Result<Option<Self>, RescueError> {
        let Some(mut version) = from.index.inode(ino) else { return Ok(None) };
        let Some(mut block) = from.window.block(version.addr)? else { return Ok(None) };
        let raw = RawInode::of(&block);
        let plain = from.place.features.difference(Features::DELTA);
        let with_zone =
            raw.divide(from.place.features).ok().filter(|_| delta::verify(raw, from.place.features).is_ok());
        let (Some(division), Ok(shape)) = (with_zone.or_else(|| raw.divide(plain).ok()), raw.shape(plain)) else {
            return Ok(None);
        };
        let (stamp, ambiguous) = deltas::stamped(from, raw, version)?;
        version.ambiguous |= ambiguous;
        if let Some(stamp) = stamp {
            let raw = RawInode::of_mut(&mut block);
            raw.i_size = stamp.size.into();
            (raw.i_mtime, raw.i_mtime_nsec) = (stamp.mtime.0.into(), stamp.mtime.1.into());
            (raw.i_ctime, raw.i_ctime_nsec) = (stamp.ctime.0.into(), stamp.ctime.1.into());
        }
        Ok(Some(RescuedFile {
            from,
            ino,
            version,
            lenient: false,
            block,
            division,
            shape,
            last: [const { None }; 3],
            cluster: None,
            deltas: None,
        }))
    }

    /// The inode.
    pub fn raw(&self) -> &RawInode {
        RawInode::of(&self.block)
    }

    /// The kind of file, as a dentry type number.
    pub fn kind(&self) -> u8 {
        crate::sign::kind_of_mode(self.raw().i_mode.get()).unwrap_or(0)
    }

    /// Contents inside the inode, of a file or of a directory.
    pub fn inline(&self) -> Option<&[u8]> {
        let inline = self.raw().inline();
        let within = match self.kind() {
            2 => inline.contains(Inline::DENTRY),
            1 | 7 => inline.contains(Inline::DATA),
            _ => false,
        };
        within.then(|| &self.block[self.division.inline_area()])
    }

    /// True if it has blocks or could have some.
    fn has_blocks(&self) -> bool {
        matches!(self.kind(), 1 | 2 | 7) && self.inline().is_none()
    }

    /// Calls `each` for the inode and every node below it that leads to blocks.
    pub fn parts(&self, each: &mut dyn FnMut(Part)) -> Result<(), RescueError> {
        each(Part::Node(self.version, self.ino.nid()));
        if self.raw().i_xattr_nid.get() != 0 {
            each(self.part(Nid(self.raw().i_xattr_nid.get()), XATTR_NODE_OFFSET));
        }
        deltas::parts(self.from, self.raw())?.into_iter().for_each(&mut *each);
        if !self.has_blocks() {
            return Ok(());
        }
        let second = 3 + NIDS_PER_BLOCK + 1;
        for (k, offset) in [1, 2, 3, second, 5 + 2 * NIDS_PER_BLOCK].into_iter().enumerate() {
            self.below(self.raw().nid(k), offset, each)?;
        }
        Ok(())
    }

    fn part(&self, nid: Nid, offset: u32) -> Part {
        self.from.index.node_of(nid, self.ino, offset).map_or(Part::Missing, |v| Part::Node(v, nid))
    }

    fn below(&self, nid: Nid, offset: u32, each: &mut dyn FnMut(Part)) -> Result<(), RescueError> {
        if nid == Nid(0) {
            return Ok(());
        }
        let part = self.part(nid, offset);
        each(part);
        let Part::Node(v, _) = part else { return Ok(()) };
        let apart = match self.shape.kind_of(offset) {
            NodeKind::Indirect => 1,
            NodeKind::DoubleIndirect => NIDS_PER_BLOCK + 1,
            _ => return Ok(()),
        };
        let Some(block) = self.from.window.block(v.addr)? else { return Ok(()) };
        for k in 0..NIDS_PER_BLOCK {
            self.below(Nid(node::word(&block, k as usize)), offset + 1 + k * apart, each)?;
        }
        Ok(())
    }

    /// The address slots in one of its nodes; none if the node holds no addresses.
    pub fn slots(&self, nid: Nid, block: &Block) -> Vec<Slot> {
        let offset = node::footer(block).offset;
        let slot = |slot: u32, first: u64, addr| Slot { nid, slot, index: first + u64::from(slot), addr };
        match self.shape.kind_of(offset) {
            _ if !self.has_blocks() => Vec::new(),
            NodeKind::Inode => {
                let raw = RawInode::of(block);
                (0..self.shape.direct_slots).map(|n| slot(n, 0, raw.addr(self.division, n))).collect()
            }
            NodeKind::Direct { first } => {
                let first = first + u64::from(self.shape.direct_slots);
                (0..self.shape.per_node).map(|n| slot(n, first, BlockAddr(node::word(block, n as usize)))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The address of a file block; `None` if the node that holds it was not found.
    pub fn address(&mut self, at: u64) -> Result<Option<BlockAddr>, RescueError> {
        Ok(match self.look_up(at)? {
            Place::Slot(addr) => Some(addr),
            Place::Absent { hole, .. } => hole.then_some(BlockAddr::NULL),
        })
    }

    fn look_up(&mut self, at: u64) -> Result<Place, RescueError> {
        let Some(path) = self.shape.path(at) else { return Ok(Place::Absent { hole: true, until: u64::MAX }) };
        if path.depth == 0 {
            return Ok(Place::Slot(self.raw().addr(self.division, path.slots[0])));
        }
        let mut nid = self.raw().nid(path.slots[0] as usize);
        for k in 1..=path.depth {
            let slot = path.slots[k] as usize;
            let word = match &self.last[k - 1] {
                _ if nid == Nid(0) => None,
                Some((last, block)) if *last == nid => block.as_ref().map(|b| node::word(b, slot)),
                _ => {
                    let version = self.from.index.node_of(nid, self.ino, path.offsets[k - 1]);
                    let block = version.map(|v| self.from.window.block(v.addr)).transpose()?.flatten();
                    let word = block.as_ref().map(|b| node::word(b, slot));
                    self.last[k - 1] = Some((nid, block));
                    word
                }
            };
            let Some(word) = word else {
                return Ok(Place::Absent {
                    hole: nid == Nid(0),
                    until: self.end_of(at, path.slots[0], path.depth - k),
                });
            };
            if k == path.depth {
                return Ok(Place::Slot(BlockAddr(word)));
            }
            nid = Nid(word);
        }
        Ok(Place::Slot(BlockAddr::NULL))
    }

    /// First block after the range covered by the node that maps block `at`. The node is `level` levels above the
    /// direct nodes, below `i_nid[top]`.
    fn end_of(&self, at: u64, top: u32, level: usize) -> u64 {
        const LEVELS: [u32; 5] = [0, 0, 1, 1, 2];
        let before: u64 = LEVELS.iter().take(top as usize).map(|level| self.shape.span(*level)).sum();
        let (start, span) = (u64::from(self.shape.direct_slots) + before, self.shape.span(level as u32));
        start + (at.saturating_sub(start) / span + 1) * span
    }

    /// The next block at or after `at` that is not a hole; `None` if there is none before `end`. Missing data is a
    /// hole if the file is [`lenient`](Self::lenient), and otherwise unreadable data.
    pub fn next_data(&mut self, at: u64, end: u64) -> Result<Option<u64>, RescueError> {
        if self.inline().is_some() {
            // Inline contents are shorter than a block.
            return Ok((at == 0 && end > 0).then_some(0));
        }
        let mut at = at;
        while at < end {
            at = match self.look_up(at)? {
                Place::Absent { hole: true, until } => until,
                Place::Absent { until, .. } if self.lenient => match self.deltas()?.next_whole(at..until.min(end)) {
                    Some(whole) => return Ok(Some(whole)),
                    None => until,
                },
                Place::Slot(BlockAddr::NEW) if self.deltas()?.is_whole(at) => return Ok(Some(at)),
                Place::Slot(BlockAddr::NULL | BlockAddr::NEW) => at + 1,
                Place::Slot(a) if self.lenient && a.is_real() && self.from.window.index(a).is_none() => at + 1,
                _ => return Ok(Some(at)),
            };
        }
        Ok(None)
    }

    fn missing(&self, at: u64, what: &str) -> RescueError {
        RescueError::Contents { ino: self.ino, block: at, what: what.to_owned() }
    }

    /// Reads one block of the file.
    pub fn read_block(&mut self, at: u64, out: &mut Block) -> Result<(), RescueError> {
        if let Some(area) = self.inline() {
            let from = area.get((at as usize).saturating_mul(BLOCK)..).unwrap_or(&[]);
            out.fill(0);
            out[..from.len()].copy_from_slice(from);
            return Ok(());
        }
        match self.raw().log_cluster(self.from.place.features).ok().flatten() {
            None => self.plain_block(at, out),
            Some(log) => self.compressed_block(at, log, out),
        }
    }

    fn plain_block(&mut self, at: u64, out: &mut Block) -> Result<(), RescueError> {
        match self.address(at)? {
            None if self.deltas()?.is_whole(at) => self.apply_delta(at, out),
            None => Err(self.missing(at, "the node that leads to it is missing")),
            Some(a) if a != BlockAddr::NULL && self.deltas()?.is_whole(at) => self.apply_delta(at, out),
            Some(a) if a.is_real() => {
                let block = self.from.window.block(a)?;
                *out = *block.ok_or_else(|| self.missing(at, "it lies after the end of the image"))?;
                self.apply_delta(at, out)
            }
            Some(BlockAddr::COMPRESS) => Err(self.missing(at, "it is compressed, but the file is not")),
            Some(_) if self.deltas()?.has(at) => Err(self.missing(at, "its delta has no block that it changes")),
            Some(_) => {
                out.fill(0);
                Ok(())
            }
        }
    }

    /// Applies the delta of a block, if there is one.
    fn apply_delta(&mut self, at: u64, block: &mut Block) -> Result<(), RescueError> {
        if self.deltas()?.apply(self.from, self.raw(), at, block) {
            return Ok(());
        }
        Err(self.missing(at, "its delta does not fit the block that it changes"))
    }

    fn deltas(&mut self) -> Result<Rc<Deltas>, RescueError> {
        if let Some(known) = &self.deltas {
            return Ok(known.clone());
        }
        let deltas = Rc::new(Deltas::of_inode(self.from, self.raw(), self.division)?);
        self.deltas = Some(deltas.clone());
        Ok(deltas)
    }

    fn compressed_block(&mut self, at: u64, log: u8, out: &mut Block) -> Result<(), RescueError> {
        let first = at >> log << log;
        if self.cluster.as_ref().is_none_or(|(known, _)| *known != first) {
            let plain = self.cluster_at(first, 1 << log)?;
            self.cluster = Some((first, plain));
        }
        if let Some((_, plain)) = &self.cluster
            && let Some(block) = plain.as_chunks::<BLOCK>().0.get((at - first) as usize)
        {
            *out = *block;
        }
        Ok(())
    }

    fn cluster_at(&mut self, first: u64, blocks: u64) -> Result<Vec<u8>, RescueError> {
        let mut block = [0; BLOCK];
        let mut out = Vec::new();
        if self.address(first)? != Some(BlockAddr::COMPRESS) {
            for at in first..first + blocks {
                self.plain_block(at, &mut block)?;
                out.extend_from_slice(&block);
            }
            return Ok(out);
        }
        let mut packed = Vec::new();
        for at in first + 1..first + blocks {
            if !self.address(at)?.is_none_or(BlockAddr::is_real) {
                break;
            }
            self.plain_block(at, &mut block)?;
            packed.extend_from_slice(&block);
        }
        let extra = self.raw().extra().filter(|_| self.raw().extra_isize() >= extra_end::COMPRESS);
        let Some(e) = extra else { return Err(self.missing(first, "the inode does not say how it is compressed")) };
        let method = Method::of_inode(e.i_compress_algorithm, e.i_log_cluster_size, e.i_compress_flag.get());
        let method = method.map_err(|e| self.missing(first, &e.to_string()))?;
        out.resize(method.cluster_bytes(), 0);
        method.decompress(&packed, &mut out).map_err(|e| self.missing(first, &e.to_string()))?;
        Ok(out)
    }

    /// Extended attributes by full name, access control lists in their user-space form.
    ///
    /// # Errors
    /// If the list is damaged or its node is missing.
    pub fn xattrs(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, RescueError> {
        let raw = self.raw();
        let mut area = match raw.inline().contains(Inline::XATTR) {
            true => self.block[self.division.xattr_area()].to_vec(),
            false => Vec::new(),
        };
        let nid = Nid(raw.i_xattr_nid.get());
        let damaged = |what: String| RescueError::Attributes { ino: self.ino, what };
        if nid != Nid(0) {
            let Part::Node(v, _) = self.part(nid, XATTR_NODE_OFFSET) else {
                return Err(damaged("their node is missing".into()));
            };
            let block = self.from.window.block(v.addr)?;
            area.extend_from_slice(&block.ok_or_else(|| damaged("their node is missing".into()))?[..NODE_BYTES]);
        }
        let mut out = Vec::new();
        for e in xattr::entries(&area).map_err(|e| damaged(e.to_string()))? {
            let Some(name) = xattr::full_name(e.index, e.name) else { continue };
            let value = match e.index {
                index::ACL_ACCESS | index::ACL_DEFAULT => {
                    acl::from_disk(e.value).map_err(|e| damaged(e.to_string()))?
                }
                _ => e.value.to_vec(),
            };
            out.push((name, value));
        }
        Ok(out)
    }

    /// The target of a symbolic link.
    pub fn target(&mut self) -> Result<Vec<u8>, RescueError> {
        let size = self.raw().i_size.get();
        if size == 0 || size > BLOCK as u64 {
            return Err(self.missing(0, "a symbolic link of invalid length"));
        }
        let mut block = [0; BLOCK];
        self.read_block(0, &mut block)?;
        Ok(block[..size as usize].to_vec())
    }

    /// Major and minor number of a device node.
    pub fn device_number(&self) -> (u32, u32) {
        let word = |n| self.raw().addr(self.division, n).0;
        match word(0) {
            0 => (word(1) >> 8 & 0xFFF, word(1) & 0xFF | word(1) >> 12 & 0xF_FF00),
            old => (old >> 8 & 0xFF, old & 0xFF),
        }
    }

    /// True if the contents, or a directory's names, are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.raw().advise().contains(Advise::ENCRYPT)
    }
}
