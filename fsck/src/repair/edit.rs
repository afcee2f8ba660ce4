//! In-memory changes to a volume before they are written.
//!
//! An [`Editor`] holds changed nodes, directory blocks, NAT entries and summaries on top of an unchanged image.
//! Writing overwrites nothing in place: changed blocks get new addresses.

use std::collections::{BTreeMap, BTreeSet};

use format::checkpoint::LogHead;
use format::inode::{Division, Inline, InodeFlags, RawInode};
use format::nat::NatEntry;
use format::node::NodeKind;
use format::summary::Summary;
use format::{BLOCK, Block, BlockAddr, Ino, Nid, SegNo, dentry, node};

use crate::FsckError;
use crate::kind::{DIR, kind_of};
use crate::load::Image;
use crate::report::{Area, Slot};
use crate::walk::Walked;

/// Changes to one state of a volume.
pub struct Editor<'i, 'd> {
    pub img: &'i Image<'d>,
    pub walked: &'i Walked,
    /// Changed nodes.
    pub nodes: BTreeMap<Nid, Box<Block>>,
    /// Changed NAT entries.
    pub nat: BTreeMap<Nid, NatEntry>,
    /// Changed or new directory blocks.
    pub data: BTreeMap<(Ino, u64), Box<Block>>,
    /// Blocks of dropped nodes, to be freed.
    pub dropped: Vec<BlockAddr>,
    /// Slots that get a copy of a block that belongs to another slot.
    pub copies: Vec<(Slot, BlockAddr)>,
    /// The new orphan list.
    pub orphans: Vec<Ino>,
    /// Summary entries to set in segments without a log.
    pub summaries: BTreeMap<SegNo, BTreeMap<u16, Summary>>,
    /// Segments whose summary footer must be set.
    pub footers: BTreeSet<SegNo>,
    /// Directories whose recorded parent differs from the directory with their entry; the value is the latter.
    pub parents: BTreeMap<Ino, Ino>,
    /// Logs that must leave their segment.
    pub leave: [bool; 6],
    /// Quota inodes in the superblock.
    pub quota_inos: [Ino; 3],
    /// Keep marked but unreached blocks marked: a later round may claim them.
    pub keep_marked: bool,
    /// Keep the marks that make the next mount check the volume: more repairs follow.
    pub keep_error_marks: bool,
}

impl<'i, 'd> Editor<'i, 'd> {
    /// An editor without changes.
    pub fn new(img: &'i Image<'d>, walked: &'i Walked, orphans: Vec<Ino>) -> Self {
        Editor {
            img,
            walked,
            nodes: BTreeMap::new(),
            nat: BTreeMap::new(),
            data: BTreeMap::new(),
            dropped: Vec::new(),
            copies: Vec::new(),
            orphans,
            summaries: BTreeMap::new(),
            footers: BTreeSet::new(),
            parents: BTreeMap::new(),
            leave: img.cp.logs.map(|head| head == LogHead::NOWHERE),
            quota_inos: img.sb.quota_inos,
            keep_marked: true,
            keep_error_marks: true,
        }
    }

    /// True if the changes may alter what quotas count. A new parent or name of an inode does not.
    pub fn may_change_usage(&self) -> Result<bool, FsckError> {
        if !(self.dropped.is_empty() && self.copies.is_empty() && self.data.is_empty() && self.nat.is_empty()) {
            return Ok(true);
        }
        for (nid, new) in &self.nodes {
            let addr = self.img.nat(*nid)?.addr;
            if self.img.sb.locate(addr).is_none() {
                return Ok(true);
            }
            let mut old = self.img.block(addr)?;
            if node::footer(&old).nid == node::footer(&old).ino.nid() {
                let (old, new) = (RawInode::of_mut(&mut old), RawInode::of(new));
                (old.i_pino, old.i_namelen, old.i_name) = (new.i_pino, new.i_namelen, new.i_name);
            }
            if old != *new {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The NAT entry with changes.
    pub fn entry(&self, nid: Nid) -> Result<NatEntry, FsckError> {
        match self.nat.get(&nid) {
            Some(e) => Ok(*e),
            None => self.img.nat(nid),
        }
    }

    /// Reads a node with changes. `None` if the NAT leads to no such node.
    pub fn peek(&self, nid: Nid) -> Result<Option<Box<Block>>, FsckError> {
        if let Some(b) = self.nodes.get(&nid) {
            return Ok(Some(b.clone()));
        }
        let addr = self.entry(nid)?.addr;
        if self.img.sb.locate(addr).is_none() {
            return Ok(None);
        }
        let block = self.img.block(addr)?;
        Ok((node::footer(&block).nid == nid).then_some(block))
    }

    /// A node for changing.
    pub fn node(&mut self, nid: Nid) -> Result<Option<&mut Block>, FsckError> {
        if !self.nodes.contains_key(&nid) {
            let Some(block) = self.peek(nid)? else { return Ok(None) };
            self.nodes.insert(nid, block);
        }
        Ok(self.nodes.get_mut(&nid).map(|b| &mut **b))
    }

    /// Changes an inode; false if it does not exist.
    pub fn inode(&mut self, ino: Ino, change: impl FnOnce(&mut RawInode)) -> Result<bool, FsckError> {
        Ok(match self.node(ino.nid())? {
            Some(block) => {
                change(RawInode::of_mut(block));
                true
            }
            None => false,
        })
    }

    /// The division of an inode's words; `None` if the inode does not exist or is invalid.
    pub fn division(&self, ino: Ino) -> Result<Option<Division>, FsckError> {
        let features = self.img.sb.features;
        Ok(self.peek(ino.nid())?.and_then(|b| RawInode::of(&b).divide(features).ok()))
    }

    /// The slot of a file block's address, and the address; `None` if a node on the path is missing.
    pub fn slot(&self, ino: Ino, index: u64) -> Result<Option<(Slot, BlockAddr)>, FsckError> {
        let Some(block) = self.peek(ino.nid())? else { return Ok(None) };
        let raw = RawInode::of(&block);
        let Ok(division) = raw.divide(self.img.sb.features) else { return Ok(None) };
        let Some(path) = node::path(index, division.direct_slots()) else { return Ok(None) };
        if path.depth == 0 {
            let slot = Slot { ino, nid: ino.nid(), index: path.slots[0] };
            return Ok(Some((slot, raw.addr(division, path.slots[0]))));
        }
        let mut nid = raw.nid(path.slots[0] as usize);
        for k in 1..=path.depth {
            if nid.0 == 0 {
                return Ok(None);
            }
            let Some(block) = self.peek(nid)? else { return Ok(None) };
            let word = node::word(&block, path.slots[k] as usize);
            if k == path.depth {
                return Ok(Some((Slot { ino, nid, index: path.slots[k] }, BlockAddr(word))));
            }
            nid = Nid(word);
        }
        Ok(None)
    }

    /// True if an address slot inside a file's size is empty although this kind of file could have a block there.
    /// In a directory every slot is inside: its size follows from its blocks.
    pub fn is_hole(&self, at: Slot) -> Result<bool, FsckError> {
        let Some(inode) = self.peek(at.ino.nid())? else { return Ok(false) };
        let raw = RawInode::of(&inode);
        let Ok(shape) = raw.shape(self.img.sb.features) else { return Ok(false) };
        // In a compressed file unused slots of a cluster are holes too.
        let odd = Inline::DATA | Inline::DENTRY;
        if raw.inline().intersects(odd) || raw.flags().contains(InodeFlags::COMPRESS) {
            return Ok(false);
        }
        let (first, slots, addr) = if at.nid == at.ino.nid() {
            let division = self.division(at.ino)?;
            (0, shape.direct_slots, division.map_or(BlockAddr::NULL, |d| raw.addr(d, at.index)))
        } else {
            let Some(block) = self.peek(at.nid)? else { return Ok(false) };
            let NodeKind::Direct { first } = shape.kind_of(node::footer(&block).offset) else { return Ok(false) };
            let first = u64::from(shape.direct_slots) + first;
            (first, shape.per_node, BlockAddr(node::word(&block, at.index as usize)))
        };
        let inside = (first + u64::from(at.index)).saturating_mul(BLOCK as u64) < raw.i_size.get();
        let inside = inside || kind_of(raw.i_mode.get()) == Some(DIR);
        Ok(inside && at.index < slots && matches!(addr, BlockAddr::NULL | BlockAddr::NEW))
    }

    /// Writes an address slot.
    pub fn set_slot(&mut self, at: Slot, addr: BlockAddr) -> Result<(), FsckError> {
        if at.nid == at.ino.nid() {
            if let Some(division) = self.division(at.ino)? {
                self.inode(at.ino, |raw| match addr.is_real() {
                    // The next round checks whether a delta of the slot fits the block.
                    true => raw.move_addr(division, at.index, addr),
                    false => raw.set_addr(division, at.index, addr),
                })?;
            }
        } else if let Some(block) = self.node(at.nid)? {
            node::set_word(block, at.index as usize, addr.0);
        }
        Ok(())
    }

    /// Writes a node number to `i_nid` of an inode or a slot of an indirect node.
    pub fn set_index(&mut self, at: Slot, nid: Nid) -> Result<(), FsckError> {
        if at.nid == at.ino.nid() {
            self.inode(at.ino, |raw| {
                if let Some(n) = raw.i_nid.get_mut(at.index as usize) {
                    *n = nid.0.into();
                }
            })?;
        } else if let Some(block) = self.node(at.nid)? {
            node::set_word(block, at.index as usize, nid.0);
        }
        Ok(())
    }

    /// The bytes of a dentry area with changes; `None` if it does not exist.
    pub fn area(&self, dir: Ino, area: Area) -> Result<Option<(dentry::Layout, Vec<u8>)>, FsckError> {
        Ok(match area {
            Area::Inline => match (self.peek(dir.nid())?, self.division(dir)?) {
                (Some(block), Some(division)) => {
                    let bytes = block[division.inline_area()].to_vec();
                    Some((dentry::Layout::inline(bytes.len()), bytes))
                }
                _ => None,
            },
            Area::Block(index) => self.dir_block(dir, index)?.map(|b| (dentry::Layout::BLOCK, b.to_vec())),
        })
    }

    fn dir_block(&self, dir: Ino, index: u64) -> Result<Option<Box<Block>>, FsckError> {
        if let Some(b) = self.data.get(&(dir, index)) {
            return Ok(Some(b.clone()));
        }
        match self.slot(dir, index)? {
            Some((_, addr)) if self.img.sb.locate(addr).is_some() => self.img.block(addr).map(Some),
            _ => Ok(None),
        }
    }

    /// Changes a dentry area; false if it does not exist.
    pub fn change_area(
        &mut self,
        dir: Ino,
        area: Area,
        change: impl FnOnce(&dentry::Layout, &mut [u8]),
    ) -> Result<bool, FsckError> {
        match area {
            Area::Inline => {
                let Some(division) = self.division(dir)? else { return Ok(false) };
                let Some(block) = self.node(dir.nid())? else { return Ok(false) };
                let bytes = &mut block[division.inline_area()];
                change(&dentry::Layout::inline(bytes.len()), bytes);
            }
            Area::Block(index) => {
                let Some(mut block) = self.dir_block(dir, index)? else { return Ok(false) };
                change(&dentry::Layout::BLOCK, &mut block[..]);
                self.data.insert((dir, index), block);
            }
        }
        Ok(true)
    }

    /// Drops a node: its number becomes free under a new version.
    pub fn drop_node(&mut self, nid: Nid) -> Result<(), FsckError> {
        let old = self.entry(nid)?;
        let version = old.version.wrapping_add(1);
        if let Some((seg, off)) = self.img.sb.locate(old.addr)
            && !self.walked.reached.has(seg, off)
            && node::footer(&*self.img.block(old.addr)?).nid == nid
        {
            self.dropped.push(old.addr);
        }
        self.nodes.remove(&nid);
        self.nat.insert(nid, NatEntry { version, ino: Ino(0), addr: BlockAddr::NULL });
        Ok(())
    }

    /// A free node number.
    pub fn free_nid(&self) -> Result<Option<Nid>, FsckError> {
        for n in 0..self.img.sb.nat_blocks() {
            let live: BTreeSet<Nid> = self.img.nat_live(n)?.into_iter().map(|(nid, _)| nid).collect();
            if live.len() >= format::nat::NAT_ENTRIES as usize {
                continue;
            }
            let first = n * format::nat::NAT_ENTRIES;
            let free = |nid: &Nid| {
                !self.img.sb.is_named(*nid)
                    && !live.contains(nid)
                    && !self.nat.contains_key(nid)
                    && !self.walked.nids.has(nid.0)
            };
            if let Some(nid) = (first..first + format::nat::NAT_ENTRIES).map(Nid).find(free) {
                return Ok(Some(nid));
            }
        }
        Ok(None)
    }
}
