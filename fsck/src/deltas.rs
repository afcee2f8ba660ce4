//! Are a file's deltas valid, and does each turn its base into the page that was written?
//!
//! Deltas lie in the inode's zone and in delta nodes, which the root in the inode lists. Superseded deltas, for
//! whose block a node of a higher age has an entry, are not checked.
//!
//! Left out: the position of a zone whose mark in the inode is wrong (`zone`).

use format::delta;
use format::inode::{Division, RawInode};
use format::node;
use format::node::delta::{FIRST_OFFSET, ROOT_CAPACITY, number};
use format::node::kept::{self, KEPT};
use format::{Block, BlockAddr, FormatError, Ino, Nid};

use super::FsckError;
use super::bases::{Bases, current_entries, may_have_nodes};
use super::inode::FileState;
use super::report::{FindingKind as K, NodeFault, Referrer};
use super::walk::Walk;

impl Walk<'_, '_> {
    /// Claims an inode's delta nodes and returns the valid ones.
    pub(super) fn delta_nodes(&mut self, raw: &RawInode, f: &mut FileState) -> Result<Vec<Box<Block>>, FsckError> {
        let mut nodes = Vec::new();
        let Some(root) = delta::root(raw, self.img.sb.features).filter(|_| may_have_nodes(raw)) else {
            return Ok(nodes);
        };
        let Some(block) = self.delta_node(f, root, 0)? else { return Ok(nodes) };
        for (number, nid) in node::delta::other_nodes(&block) {
            nodes.extend(self.delta_node(f, nid, number)?);
        }
        nodes.insert(0, block);
        Ok(nodes)
    }

    fn delta_node(&mut self, f: &mut FileState, nid: Nid, number: usize) -> Result<Option<Box<Block>>, FsckError> {
        let from = Referrer::Delta { ino: f.ino, number };
        if let Some(offset) = self.other_place(nid, f.ino)? {
            self.unusable(nid, from, NodeFault::NoDeltaNode { offset });
            return Ok(None);
        }
        let Some(block) = self.claim_node(nid, f.ino, from, false)? else { return Ok(None) };
        f.blocks += 1;
        let (stored, is) = (node::footer(&block).offset, FIRST_OFFSET + number as u32);
        if stored != is {
            self.report.add(K::NodeOffsetWrong { ino: f.ino, nid, stored, is });
        }
        if let Err(error) = node::delta::verify(self.img.seed, &block) {
            self.report.add(K::DeltaNodeBad { ino: f.ino, nid, error });
            return Ok(None);
        }
        if number == 0 && node::delta::used(&block) > ROOT_CAPACITY {
            let (field, value) = ("bytes of entries", node::delta::used(&block) as u64);
            let must = "what leaves room for the list of the others";
            let error = FormatError::Field { structure: "root of delta nodes", field, value, must };
            self.report.add(K::DeltaNodeBad { ino: f.ino, nid, error });
        }
        Ok(Some(block))
    }

    /// The footer offset of a node of the inode that is not a delta node and has no valid delta-node checksum
    /// either.
    fn other_place(&self, nid: Nid, ino: Ino) -> Result<Option<u32>, FsckError> {
        let addr = self.img.nat(nid)?.addr;
        if self.img.sb.locate(addr).is_none() {
            return Ok(None);
        }
        let block = self.img.block(addr)?;
        let at = node::footer(&block);
        let other = (at.nid, at.ino) == (nid, ino)
            && number(at.offset).is_none()
            && node::delta::verify(self.img.seed, &block).is_err();
        Ok(other.then_some(at.offset))
    }

    /// Applies every current delta to its base.
    pub(super) fn deltas(
        &mut self,
        raw: &RawInode,
        division: Division,
        f: &FileState,
        nodes: &[Box<Block>],
    ) -> Result<(), FsckError> {
        let (ino, img) = (f.ino, self.img);
        let mut bases = Bases::new(img, raw, division, f.shape);
        for e in delta::entries(raw, division) {
            let addr = raw.addr(division, e.slot);
            // An address outside is a separate finding.
            if img.sb.locate(addr).is_some() && !bases.fits(addr, e.slot, (e.codec, e.payload, e.check)) {
                self.report.add(K::DeltaWrong { ino, block: e.slot });
            }
        }
        let current = current_entries(nodes);
        let find = |id: u32| current.get(&KEPT.checked_add(id)?).map(|e| (e.codec, e.payload.to_vec()));
        // Kept pages are not contents of the file, and may be left over after their base pages are gone. But one
        // that can be decoded must match its check.
        for (&block, e) in current.range(KEPT..) {
            let page = kept::page(&find, block - KEPT);
            if page.is_some_and(|page| !bases.is_right(block, &page, e.check)) {
                self.report.add(K::DeltaWrong { ino, block });
            }
        }
        for (&block, e) in current.range(..KEPT) {
            if delta::find(raw, division, block).is_some() {
                self.report.add(K::DeltaTwice { ino, block });
                continue;
            }
            let Some(addr) = bases.address(block.into())? else { continue };
            if !e.codec.has_base() {
                if addr == BlockAddr::NULL {
                    self.report.add(K::DeltaWithoutBase { ino, block });
                } else if !bases.is_made(&find, block, e) {
                    self.report.add(K::DeltaWrong { ino, block });
                }
            } else if !addr.is_real() {
                self.report.add(K::DeltaWithoutBase { ino, block });
            } else if img.sb.locate(addr).is_some() && !bases.fits(addr, block, (e.codec, e.payload, e.check)) {
                self.report.add(K::DeltaWrong { ino, block });
            }
        }
        Ok(())
    }
}
