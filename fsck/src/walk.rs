//! What is reachable from the root, the quota files and the orphan list?
//!
//! Every reached node and block is claimed; a second claim is a finding. The walk does not recurse with the depth
//! of the tree: directories wait in a list.

use std::collections::BTreeMap;

use format::inode::RawInode;
use format::node;
use format::summary::Summary;
use format::{Block, BlockAddr, Ino, Nid, SegNo};

use super::kind::{DIR, kind_of};
use super::load::Image;
use super::report::{Class, Counts, FindingKind as K, NodeFault, Referrer, Report, Slot};
use super::sets::{BlockSet, NumberSet};
use super::{FsckError, Options};

/// Results of the walk.
#[derive(Default)]
pub struct Walked {
    /// Reached blocks.
    pub reached: BlockSet,
    /// Reached nodes.
    pub nids: NumberSet,
    /// Contents of segments.
    pub classes: BTreeMap<SegNo, Class>,
    /// Counts.
    pub counts: Counts,
    /// Reached inodes.
    pub inodes: NumberSet,
    /// Reached directories.
    pub dirs: NumberSet,
    /// Summaries of the reached blocks in the segments of the logs.
    pub log_entries: [BTreeMap<u16, Summary>; 6],
}

/// Links of an inode that is not a directory.
struct Links {
    stored: u32,
    seen: u32,
}

/// A directory that waits to be read.
struct Waiting {
    ino: Ino,
    parent: Option<Ino>,
}

/// State of the walk.
pub struct Walk<'i, 'd> {
    pub(super) img: &'i Image<'d>,
    pub(super) report: &'i mut Report,
    options: &'i Options<'i>,
    pub(super) seen: Walked,
    links: BTreeMap<Ino, Links>,
    waiting: Vec<Waiting>,
}

/// Walks the whole volume.
pub fn walk(img: &Image<'_>, report: &mut Report, options: &Options<'_>) -> Result<Walked, FsckError> {
    let mut w = Walk { img, report, options, seen: Walked::default(), links: BTreeMap::new(), waiting: Vec::new() };
    let root = img.sb.root;
    if w.visit_inode(root, Referrer::Root, Some(root), Some(DIR))?.is_some_and(|kind| kind != DIR) {
        w.report.add(K::NodeUnusable { nid: root.nid(), from: Referrer::Root, fault: NodeFault::NotADirectory });
    }
    w.drain()?;
    for (k, ino) in img.sb.quota_inos.into_iter().enumerate() {
        if ino.0 != 0 {
            w.visit_inode(ino, Referrer::Quota(k), None, None)?;
        }
    }
    let orphans = img.orphans(w.report)?;
    for ino in orphans {
        if w.seen.inodes.has(ino.0) {
            w.report.add(K::OrphanHasName { ino });
        } else if w.visit_inode(ino, Referrer::Orphan, None, None)?.is_some() {
            w.seen.counts.orphans += 1;
        }
    }
    w.drain()?;
    for (ino, l) in std::mem::take(&mut w.links) {
        if l.stored != l.seen {
            w.report.add(K::LinksWrong { ino, stored: l.stored, counted: l.seen });
        }
    }
    (options.progress)(w.seen.counts.blocks, w.seen.counts.blocks);
    Ok(w.seen)
}

impl Walk<'_, '_> {
    fn drain(&mut self) -> Result<(), FsckError> {
        while let Some(Waiting { ino, parent }) = self.waiting.pop() {
            let addr = self.img.nat(ino.nid())?.addr;
            let block = self.img.block(addr)?;
            self.inode(ino, &block, parent)?;
        }
        Ok(())
    }

    /// Follows a reference to an inode and returns its dentry type number, or `None` if it cannot be used. A file
    /// is checked immediately, a directory waits. `by_name` is the type according to its name.
    pub(super) fn visit_inode(
        &mut self,
        ino: Ino,
        from: Referrer,
        parent: Option<Ino>,
        by_name: Option<u8>,
    ) -> Result<Option<u8>, FsckError> {
        if self.seen.inodes.has(ino.0) {
            if self.seen.dirs.has(ino.0) {
                match from {
                    Referrer::Dentry { place, name } => {
                        self.report.add(K::DirectoryTwice { place, name, ino });
                    }
                    from => self.unusable(ino.nid(), from, NodeFault::Twice),
                }
                return Ok(None);
            }
            if !matches!(from, Referrer::Dentry { .. }) {
                self.unusable(ino.nid(), from, NodeFault::Twice);
                return Ok(None);
            }
            // A file with one link is not stored; only now does it turn out to have two names.
            self.links.entry(ino).or_insert(Links { stored: 1, seen: 1 }).seen += 1;
            let block = self.img.block(self.img.nat(ino.nid())?.addr)?;
            return Ok(kind_of(RawInode::of(&block).i_mode.get()));
        }
        let orphan = matches!(from, Referrer::Orphan);
        let named = matches!(from, Referrer::Dentry { .. });
        let Some(mut block) = self.claim_node(ino.nid(), ino, from, true)? else { return Ok(None) };
        self.seen.inodes.add(ino.0);
        if let Some(is) = super::signs::mode(self.img, ino, &block, by_name)? {
            let raw = RawInode::of_mut(&mut block);
            self.report.add(K::ModeWrong { ino, stored: raw.i_mode.get(), is });
            raw.i_mode = is.into();
        }
        let raw = RawInode::of(&block);
        let links = raw.i_links.get();
        let Some(kind) = kind_of(raw.i_mode.get()) else { return Ok(None) };
        if orphan && links != 0 {
            self.report.add(K::OrphanHasLinks { ino, links });
        }
        if kind == DIR {
            self.seen.counts.dirs += 1;
            self.seen.dirs.add(ino.0);
            self.waiting.push(Waiting { ino, parent });
        } else {
            self.seen.counts.files += 1;
            if links != 1 && named {
                self.links.insert(ino, Links { stored: links, seen: 1 });
            }
            self.inode(ino, &block, parent)?;
        }
        Ok(Some(kind))
    }

    pub(super) fn unusable(&mut self, nid: Nid, from: Referrer, fault: NodeFault) {
        self.report.add(K::NodeUnusable { nid, from, fault });
    }

    /// Claims a node of `ino`. `None`, with a finding, if the reference is invalid.
    pub(super) fn claim_node(
        &mut self,
        nid: Nid,
        ino: Ino,
        from: Referrer,
        is_inode: bool,
    ) -> Result<Option<Box<Block>>, FsckError> {
        let img = self.img;
        let fault = 'fault: {
            if nid.0 < 3 || nid.0 >= img.sb.max_nid() {
                break 'fault NodeFault::OutOfRange;
            }
            if self.seen.nids.has(nid.0) {
                break 'fault NodeFault::Twice;
            }
            let entry = img.nat(nid)?;
            let addr = entry.addr;
            if addr == BlockAddr::NULL {
                break 'fault NodeFault::Unmapped;
            }
            let Some((seg, off)) = img.sb.locate(addr) else {
                break 'fault NodeFault::Outside { addr };
            };
            let block = img.block(addr)?;
            let footer = node::footer(&block);
            if footer.nid != nid {
                break 'fault NodeFault::FooterNid { addr, stored: footer.nid };
            }
            if footer.ino != ino {
                break 'fault NodeFault::FooterIno { addr, stored: footer.ino };
            }
            if is_inode {
                let mode = RawInode::of(&block).i_mode.get();
                if kind_of(mode).is_none() {
                    break 'fault NodeFault::Mode { mode };
                }
            }
            if is_inode
                && let Referrer::Dentry { place, .. } = &from
                && let Some(dir) = super::signs::named_elsewhere(img, ino, &block, place.dir)?
            {
                break 'fault NodeFault::NamedElsewhere { dir };
            }
            if self.seen.reached.add(seg, off) {
                break 'fault NodeFault::BlockTaken { addr };
            }
            self.seen.nids.add(nid.0);
            if entry.ino != ino {
                self.report.add(K::NatInoWrong { nid, stored: entry.ino, is: ino });
            }
            self.note_class(seg, Class::Node);
            self.seen.counts.nodes += 1;
            self.count_written();
            let is = Summary { nid, version: 0, slot: 0 };
            self.note_entry(seg, off, is);
            // Only the number matters: the other fields of a node's summary are unused.
            if let Some(stored) = img.summary(seg, off)?
                && stored.nid != nid
            {
                self.report.add(K::SummaryWrong { addr, stored, is });
            }
            return Ok(Some(block));
        };
        self.unusable(nid, from, fault);
        Ok(None)
    }

    /// Claims a data block; false, with a finding, if the address is invalid.
    pub(super) fn claim_data(&mut self, at: Slot, addr: BlockAddr, version: u8) -> Result<bool, FsckError> {
        let img = self.img;
        let Some((seg, off)) = img.sb.locate(addr) else {
            self.report.add(K::AddrOutside { at, addr });
            return Ok(false);
        };
        if self.seen.reached.add(seg, off) {
            self.report.add(K::BlockTaken { at, addr });
            return Ok(false);
        }
        self.note_class(seg, Class::Data);
        self.count_written();
        let is = Summary { nid: at.nid, version, slot: at.index as u16 };
        self.note_entry(seg, off, is);
        if let Some(stored) = img.summary(seg, off)?
            && stored != is
        {
            self.report.add(K::SummaryWrong { addr, stored, is });
        }
        Ok(true)
    }

    fn note_entry(&mut self, seg: SegNo, off: u16, is: Summary) {
        if let Some(log) = self.img.log_of(seg) {
            self.seen.log_entries[log.index()].insert(off, is);
        }
    }

    fn note_class(&mut self, seg: SegNo, class: Class) {
        let known = self.seen.classes.entry(seg).or_insert(class);
        if *known != class {
            *known = Class::Both;
        }
    }

    fn count_written(&mut self) {
        self.seen.counts.written_blocks += 1;
        self.count_block();
    }

    /// Counts a block, written or reserved.
    pub(super) fn count_block(&mut self) {
        self.seen.counts.blocks += 1;
        if self.seen.counts.blocks.is_multiple_of(1024) {
            (self.options.progress)(self.seen.counts.blocks, self.img.cp.valid_blocks);
        }
    }
}
