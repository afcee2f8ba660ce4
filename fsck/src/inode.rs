//! Is one inode valid: its fields, its block map, its inline contents, its totals?

use format::inode::{self, Advise, Division, Inline, RawInode};
use format::node::{self, NIDS_PER_BLOCK, Shape, XATTR_NODE_OFFSET};
use format::superblock::Features;
use format::{Block, BlockAddr, FormatError, Ino, Nid};

use super::FsckError;
use super::bases::without_deltas;
use super::dir::DirState;
use super::kind::{DIR, kind_of};
use super::report::{Area, FindingKind as K, Referrer, Slot};
use super::walk::Walk;

/// Words of inline attributes that Linux accepts: room for their header, and room left for the smallest inline
/// directory.
const INLINE_XATTR_WORDS: std::ops::RangeInclusive<u32> = 6..=903;

/// Totals collected while walking a file's map.
pub struct FileState {
    pub(super) ino: Ino,
    /// Blocks as `i_blocks` counts them.
    pub(super) blocks: u64,
    /// Highest file block with an address, plus one.
    end: u64,
    extent: Extent,
    pub(super) shape: Shape,
    cluster: Option<Cluster>,
    pub(super) dir: Option<DirState>,
}

struct Extent {
    from: u32,
    addr: BlockAddr,
    len: u32,
    matched: u32,
}

struct Cluster {
    size: u64,
    released: bool,
    /// First file block of the last compressed cluster.
    at: Option<u64>,
    /// Blocks that compression saves, as `i_compr_blocks` counts them.
    saved: u64,
}

impl Walk<'_, '_> {
    /// Checks a claimed inode and everything below it.
    pub(super) fn inode(&mut self, ino: Ino, block: &Block, parent: Option<Ino>) -> Result<(), FsckError> {
        let features = self.img.sb.features;
        let raw = RawInode::of(block);
        let mode = raw.i_mode.get();
        let kind = kind_of(mode).unwrap_or(0);
        let inline = raw.inline();
        if let Err(FormatError::Checksum { stored, computed, .. }) =
            inode::verify_checksum(features, self.img.seed, block)
        {
            self.report.add(K::InodeChecksum { ino, stored, computed });
        }
        let is = super::signs::inline(self.img, ino, block)?;
        let mut right = *block;
        if is != inline {
            self.report.add(K::InlineWrong { ino, stored: inline.bits(), is: is.bits() });
            RawInode::of_mut(&mut right).i_inline = is.bits();
        }
        let (block, inline) = (&right, is);
        let raw = RawInode::of(block);
        for what in super::signs::misplaced_marks(raw, features) {
            self.report.add(K::MarkMisplaced { ino, what });
        }
        let len = raw.i_namelen.get();
        if len as usize > inode::NAME_LEN {
            self.report.add(K::NameLenBad { ino, len });
        }
        let footer = node::footer(block);
        if footer.offset != 0 {
            self.report.add(K::NodeOffsetWrong { ino, nid: ino.nid(), stored: footer.offset, is: 0 });
        }
        let misplaced = [
            (Inline::EXTRA_ATTR, "attributes (extra)", !features.contains(Features::EXTRA_ATTR)),
            (Inline::DENTRY, "directory", kind != DIR),
            (Inline::DATA, "data", kind != 1 && kind != 7),
        ];
        for (bit, what, wrong) in misplaced {
            if wrong && inline.contains(bit) {
                self.report.add(K::InlineMisplaced { ino, what, mode });
            }
        }
        // It may be valid without its zone.
        let division = match raw.divide(without_deltas(features)) {
            Ok(without) => raw.divide(features).unwrap_or(without),
            Err(error) => {
                self.report.add(K::InodeBad { ino, error });
                return Ok(());
            }
        };
        let zone = super::zone::verify(self.img, block);
        if let Err(error) = &zone {
            self.report.add(K::ZoneBad { ino, error: error.clone() });
        }
        let flexible = features.contains(Features::FLEXIBLE_INLINE_XATTR);
        if flexible && inline.contains(Inline::XATTR) && !INLINE_XATTR_WORDS.contains(&division.xattr) {
            self.report.add(K::InlineXattrSize { ino, words: division.xattr });
        }
        let lost = raw.advise().contains(Advise::LOST_PINO);
        if let Some(parent) = parent
            && raw.i_pino.get() != parent.0
            && ino != self.img.sb.root
            && (kind == DIR || raw.i_links.get() == 1 && !lost)
        {
            let stored = Ino(raw.i_pino.get());
            // Only roll-forward uses a file's parent; a directory's parent must match `..`.
            self.report.add(if kind == DIR {
                K::DirParentWrong { ino, stored, parent }
            } else {
                K::ParentWrong { ino, stored, parent }
            });
        }
        let released = inline.contains(Inline::COMPRESS_RELEASED);
        let shape = match raw.shape(without_deltas(features)) {
            Ok(shape) => shape,
            Err(error) => {
                self.report.add(K::InodeBad { ino, error });
                return Ok(());
            }
        };
        let cluster = raw.log_cluster(features).ok().flatten();
        let cluster = cluster.map(|log| Cluster { size: 1 << log, released, at: None, saved: 0 });
        let [from, addr, len] = raw.i_ext.map(|w| w.get());
        let mut f = FileState {
            ino,
            blocks: 1,
            end: 0,
            extent: Extent { from, addr: BlockAddr(addr), len, matched: 0 },
            shape,
            cluster,
            dir: (kind == DIR).then(|| DirState::new(raw, features, parent)),
        };
        self.xattrs(raw, block, division, &mut f)?;
        let delta_nodes = self.delta_nodes(raw, &mut f)?;
        if inline.intersects(Inline::DATA | Inline::DENTRY) {
            self.inline_contents(raw, block, division, &mut f)?;
        } else if matches!(kind, 1 | DIR | 7) {
            self.map(raw, division, &mut f)?;
        }
        if zone.is_ok() {
            self.deltas(raw, division, &f, &delta_nodes)?;
        }
        if kind == 7 && !raw.advise().contains(Advise::ENCRYPT) {
            self.target(ino, block, division)?;
        }
        self.sums(raw, f)
    }

    /// A symbolic link's target is a path.
    fn target(&mut self, ino: Ino, block: &Block, division: Division) -> Result<(), FsckError> {
        let raw = RawInode::of(block);
        let size = raw.i_size.get();
        let nul = |bytes: &[u8]| bytes.iter().take(usize::try_from(size).unwrap_or(usize::MAX)).position(|&b| b == 0);
        let at = if raw.inline().contains(Inline::DATA) {
            nul(&block[division.inline_area()])
        } else {
            match raw.addr(division, 0) {
                // Longer ones are another finding.
                _ if size == 0 || size > format::BLOCK as u64 => None,
                addr if self.img.sb.locate(addr).is_some() => nul(&self.img.block(addr)?[..]),
                // A hole reads as zeroes.
                _ => Some(0),
            }
        };
        if let Some(at) = at {
            self.report.add(K::SymlinkNul { ino, at });
        }
        Ok(())
    }

    fn xattrs(
        &mut self,
        raw: &RawInode,
        block: &Block,
        division: Division,
        f: &mut FileState,
    ) -> Result<(), FsckError> {
        let nid = Nid(raw.i_xattr_nid.get());
        let mut list = Vec::new();
        if raw.inline().contains(Inline::XATTR) {
            list.extend_from_slice(&block[division.xattr_area()]);
        }
        if nid.0 != 0 {
            let Some(node) = self.claim_node(nid, f.ino, Referrer::Xattr(f.ino), false)? else {
                return Ok(());
            };
            f.blocks += 1;
            let stored = node::footer(&node).offset;
            if stored != XATTR_NODE_OFFSET {
                self.report.add(K::NodeOffsetWrong { ino: f.ino, nid, stored, is: XATTR_NODE_OFFSET });
            }
            list.extend_from_slice(&node[..node::FOOTER]);
        }
        if let Err(fault) = super::xattr::check(&list) {
            self.report.add(K::XattrBad { ino: f.ino, fault });
        }
        Ok(())
    }

    fn inline_contents(
        &mut self,
        raw: &RawInode,
        block: &Block,
        division: Division,
        f: &mut FileState,
    ) -> Result<(), FsckError> {
        let (ino, inline) = (f.ino, raw.inline());
        let area = &block[division.inline_area()];
        let value = raw.addr(division, 0).0;
        if value != 0 {
            self.report.add(K::InlineReserved { ino, value });
        }
        if let Some(nid) = (0..5).map(|k| raw.nid(k)).find(|nid| nid.0 != 0) {
            self.report.add(K::InlineNids { ino, nid });
        }
        if inline.contains(Inline::DENTRY) {
            if let Some(mut dir) = f.dir.take() {
                self.dentries(ino, Area::Inline, area, &mut dir)?;
                f.dir = Some(dir);
            }
            return Ok(());
        }
        let size = raw.i_size.get();
        if size > area.len() as u64 {
            self.report.add(K::InlineTooLong { ino, size, room: area.len() });
        }
        if !inline.contains(Inline::DATA_EXIST) && area.iter().any(|&b| b != 0) {
            self.report.add(K::InlineUnmarked { ino });
        }
        Ok(())
    }

    fn map(&mut self, raw: &RawInode, division: Division, f: &mut FileState) -> Result<(), FsckError> {
        let ino = f.ino;
        let direct = f.shape.direct_slots;
        let version = self.img.nat(ino.nid())?.version;
        for i in 0..direct {
            let at = Slot { ino, nid: ino.nid(), index: i };
            self.address(f, at, version, u64::from(i), raw.addr(division, i))?;
        }
        let per = NIDS_PER_BLOCK + 1;
        let trees = [(0, 1), (0, 2), (1, 3), (1, 3 + per), (2, 3 + 2 * per)];
        let mut next = u64::from(direct);
        for (k, (level, offset)) in trees.into_iter().enumerate() {
            let nid = raw.nid(k);
            let first = next;
            next += f.shape.span(level);
            if nid.0 != 0 {
                let from = Slot { ino, nid: ino.nid(), index: k as u32 };
                self.tree(f, nid, from, level, offset, first)?;
            }
        }
        Ok(())
    }

    /// Checks a node below the inode and its subtree; `level` is 0 for direct nodes.
    fn tree(
        &mut self,
        f: &mut FileState,
        nid: Nid,
        from: Slot,
        level: u32,
        offset: u32,
        first: u64,
    ) -> Result<(), FsckError> {
        let ino = f.ino;
        let Some(block) = self.claim_node(nid, ino, Referrer::Index(from), false)? else {
            return Ok(());
        };
        f.blocks += 1;
        let stored = node::footer(&block).offset;
        if stored != offset {
            self.report.add(K::NodeOffsetWrong { ino, nid, stored, is: offset });
        }
        if level == 0 {
            let version = self.img.nat(nid)?.version;
            for i in 0..f.shape.per_node {
                let addr = BlockAddr(node::word(&block, i as usize));
                self.address(f, Slot { ino, nid, index: i }, version, first + u64::from(i), addr)?;
            }
            return Ok(());
        }
        let offsets = if level == 1 { 1 } else { NIDS_PER_BLOCK + 1 };
        for i in 0..NIDS_PER_BLOCK {
            let child = Nid(node::word(&block, i as usize));
            if child.0 != 0 {
                let from = Slot { ino, nid, index: i };
                let first = first + u64::from(i) * f.shape.span(level - 1);
                self.tree(f, child, from, level - 1, offset + 1 + i * offsets, first)?;
            }
        }
        Ok(())
    }

    fn address(
        &mut self,
        f: &mut FileState,
        at: Slot,
        version: u8,
        index: u64,
        addr: BlockAddr,
    ) -> Result<(), FsckError> {
        if addr == BlockAddr::NULL {
            return Ok(());
        }
        let cluster_at = f.cluster.as_ref().map(|c| index - index % c.size);
        match addr {
            BlockAddr::COMPRESS => {
                let Some(c) = f.cluster.as_mut().filter(|_| cluster_at == Some(index)) else {
                    self.report.add(K::ClusterMark { at });
                    return Ok(());
                };
                c.at = Some(index);
                // Released blocks of a file are not counted, and neither are their marks.
                if c.released {
                    return Ok(());
                }
                c.saved += 1;
                self.count_block();
            }
            BlockAddr::NEW => {
                if let Some(c) = f.cluster.as_mut()
                    && c.at.is_some()
                    && c.at == cluster_at
                    && !c.released
                {
                    c.saved += 1;
                }
                self.count_block();
            }
            _ => {
                if !self.claim_data(at, addr, version)? {
                    return Ok(());
                }
                f.extent.meet(index, addr);
                if let Some(mut dir) = f.dir.take() {
                    let block = self.img.block(addr)?;
                    self.dentries(f.ino, Area::Block(index), &block[..], &mut dir)?;
                    f.dir = Some(dir);
                }
            }
        }
        f.blocks += 1;
        f.end = index + 1;
        Ok(())
    }

    fn sums(&mut self, raw: &RawInode, f: FileState) -> Result<(), FsckError> {
        let ino = f.ino;
        let stored = raw.i_blocks.get();
        if stored != f.blocks {
            self.report.add(K::BlocksWrong { ino, stored, counted: f.blocks });
        }
        if let Some(c) = &f.cluster {
            let stored = raw.extra().map_or(0, |e| e.i_compr_blocks.get());
            if stored != c.saved {
                self.report.add(K::ComprBlocksWrong { ino, stored, counted: c.saved });
            }
        }
        let e = &f.extent;
        if e.len != e.matched {
            self.report.add(K::ExtentWrong { ino, from: e.from, addr: e.addr, len: e.len });
        }
        let size = raw.i_size.get();
        let symlink = kind_of(raw.i_mode.get()) == Some(7);
        if symlink && size == 0 && f.end > 0 {
            self.report.add(K::SymlinkEmpty { ino });
        }
        let block = format::BLOCK as u64;
        // The target of a symbolic link fits in one block.
        let most = if symlink { block } else { f.shape.max_blocks().saturating_mul(block) };
        if size > most && !raw.inline().contains(Inline::DATA) {
            self.report.add(K::SizeTooLarge { ino, size, most, is: f.end.saturating_mul(block) });
        }
        if let Some(dir) = f.dir {
            let needs = f.end.saturating_mul(format::BLOCK as u64);
            if size < needs {
                self.report.add(K::DirSizeWrong { ino, size, needs });
            }
            self.dir_sums(ino, raw, dir);
        }
        Ok(())
    }
}

impl Extent {
    fn meet(&mut self, index: u64, addr: BlockAddr) {
        if let Some(off) = index.checked_sub(u64::from(self.from))
            && off < u64::from(self.len)
            && u64::from(self.addr.0) + off == u64::from(addr.0)
        {
            self.matched = self.matched.saturating_add(1);
        }
    }
}
