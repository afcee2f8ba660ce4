//! Is one directory valid: slots, hashes, buckets, `.` and `..`, links?

use format::Ino;
use format::bits;
use format::dentry::{self, Layout};
use format::inode::{Advise, Inline, RawInode};
use format::superblock::Features;
use rustc_hash::FxHashSet;

use super::FsckError;
use super::hashes::Hashing;
use super::kind::DIR;
use super::report::{Area, DentryPlace, DotFault, FindingKind as K, Name, Referrer};
use super::walk::Walk;

/// Totals collected while reading a directory's areas.
pub struct DirState {
    parent: Option<Ino>,
    dir_level: u8,
    /// Bit `l` is set while every name fits level `l`.
    levels: u64,
    misplaced: bool,
    hashing: Hashing,
    /// True if names may contain any bytes.
    encrypted: bool,
    /// True if lookup supplies missing `.` and `..`.
    dots_implied: bool,
    dots: [u32; 2],
    subdirs: u32,
    depth: u32,
    names: FxHashSet<Box<[u8]>>,
}

/// Directories with more names are not searched for duplicates, to bound memory.
const MOST_NAMES: usize = 1 << 20;

const DOTS: [&str; 2] = [".", ".."];

impl DirState {
    /// `parent` is `None` for an orphan.
    pub fn new(raw: &RawInode, features: Features, parent: Option<Ino>) -> Self {
        let encrypted = features.contains(Features::ENCRYPT) && raw.advise().contains(Advise::ENCRYPT);
        DirState {
            parent,
            dir_level: raw.i_dir_level,
            levels: !0,
            misplaced: false,
            hashing: Hashing::for_dir(raw, features),
            encrypted,
            dots_implied: raw.inline().contains(Inline::DOTS),
            dots: [0; 2],
            subdirs: 0,
            depth: 0,
            names: FxHashSet::default(),
        }
    }
}

/// The hash level of a directory block.
pub fn level_of(block: u64, dir_level: u8) -> u32 {
    let mut end = 0u64;
    for level in 0..dentry::MAX_DEPTH {
        let blocks = dentry::buckets(level, dir_level) * dentry::bucket_blocks(level);
        end = end.saturating_add(blocks);
        if block < end {
            return level;
        }
    }
    dentry::MAX_DEPTH
}

impl Walk<'_, '_> {
    /// Reads one area of a directory and follows its names.
    pub(super) fn dentries(
        &mut self,
        dir: Ino,
        area: Area,
        bytes: &[u8],
        state: &mut DirState,
    ) -> Result<(), FsckError> {
        let layout = match area {
            Area::Inline => Layout::inline(bytes.len()),
            Area::Block(_) => Layout::BLOCK,
        };
        let mut slot = 0;
        let mut used = false;
        while slot < layout.slots {
            let place = DentryPlace { dir, area, slot };
            if !bits::lsb_test(bytes, slot) {
                slot += 1;
                continue;
            }
            let lawful = |d: &dentry::Dentry<'_>| state.encrypted || !d.name.iter().any(|b| matches!(b, 0 | b'/'));
            let Some(d) = dentry::at(&layout, bytes, slot).filter(lawful) else {
                self.report.add(K::DentryBad { place });
                slot += 1;
                continue;
            };
            used = true;
            let slots = dentry::slots_for(d.name.len());
            let name = || Name(d.name.to_vec());
            if (slot..slot + slots).any(|s| !bits::lsb_test(bytes, s)) {
                self.report.add(K::DentrySlots { place, name: name() });
            }
            slot += slots;
            let dot = DOTS.iter().position(|n| n.as_bytes() == d.name);
            if let Some(computed) = state.hashing.hash(d.name).filter(|computed| *computed != d.hash) {
                self.report.add(K::DentryHash { place, name: name(), stored: d.hash, computed });
            }
            let ino = Ino(d.ino);
            if let Some(k) = dot {
                if d.kind != DIR {
                    self.report.add(K::DentryType { place, name: name(), ino, stored: d.kind, is: DIR });
                }
                self.dot(dir, k, ino, state);
                continue;
            }
            if let Area::Block(block) = area {
                let stands = |dir_level: u8| {
                    let level = level_of(block, dir_level).min(dentry::MAX_DEPTH - 1);
                    dentry::bucket(level, dir_level, d.hash).contains(&block)
                };
                (0..dentry::MAX_DEPTH as u8)
                    .filter(|l| state.levels >> l & 1 == 1 && !stands(*l))
                    .collect::<Vec<_>>()
                    .iter()
                    .for_each(|l| state.levels &= !(1 << l));
                if !stands(state.dir_level) {
                    state.misplaced = true;
                    self.report.add(K::DentryBucket { place, name: name() });
                }
            }
            if state.names.len() < MOST_NAMES && !state.names.insert(d.name.into()) {
                self.report.add(K::DentryRepeated { place, name: name() });
                continue;
            }
            let from = Referrer::Dentry { place, name: name() };
            if let Some(kind) = self.visit_inode(ino, from, Some(dir), Some(d.kind))? {
                state.subdirs += u32::from(kind == DIR);
                if kind != d.kind {
                    self.report.add(K::DentryType { place, name: name(), ino, stored: d.kind, is: kind });
                }
            }
        }
        if used && let Area::Block(block) = area {
            state.depth = state.depth.max(level_of(block, state.dir_level) + 1);
        }
        Ok(())
    }

    fn dot(&mut self, dir: Ino, k: usize, ino: Ino, state: &mut DirState) {
        let which = DOTS[k];
        state.dots[k] += 1;
        if state.dots[k] == 2 {
            self.report.add(K::Dots { dir, which, fault: DotFault::Repeated });
        }
        let must = if k == 0 { Some(dir) } else { state.parent };
        if must.is_some_and(|m| m != ino) {
            self.report.add(K::Dots { dir, which, fault: DotFault::LeadsTo(ino) });
        }
    }

    /// Checks the totals of a directory after all its areas were read.
    pub(super) fn dir_sums(&mut self, ino: Ino, raw: &RawInode, state: DirState) {
        for (which, count) in DOTS.into_iter().zip(state.dots) {
            if count == 0 && !state.dots_implied {
                self.report.add(K::Dots { dir: ino, which, fault: DotFault::Missing });
            }
        }
        if state.hashing == Hashing::Keyed && !state.names.is_empty() {
            self.report.add(K::HashesUnchecked { dir: ino });
        }
        let is = state.levels.trailing_zeros() as u8;
        if state.misplaced && u32::from(is) < dentry::MAX_DEPTH {
            self.report.add(K::DirLevelWrong { ino, stored: state.dir_level, is });
        }
        // An orphan directory has lost its links.
        let counted = state.subdirs.saturating_add(2);
        let stored = raw.i_links.get();
        if stored != counted && state.parent.is_some() {
            self.report.add(K::LinksWrong { ino, stored, counted });
        }
        let depth = raw.i_current_depth.get();
        if depth < state.depth || depth > dentry::MAX_DEPTH {
            self.report.add(K::DirDepthWrong { ino, stored: depth, needs: state.depth });
        }
    }
}
