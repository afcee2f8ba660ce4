//! Can Linux use a quota file: its header, its tree of identities, its entries?
//!
//! The format is the same for all file systems in Linux, "vfsv1": blocks of 1 KiB. The first is a header, the
//! second is the root of a tree of four levels with 256 references per block, one level for each byte of an
//! identity. Below it are blocks of entries, each with its identity.
//!
//! Left out: limits, and whether the usage in the entries matches the volume.

use format::inode::{Division, Inline, RawInode};
use format::{BLOCK, Block, BlockAddr, Ino, Nid, node};

use super::FsckError;
use super::load::Image;
use super::report::{FindingKind as K, QuotaFault as F, Referrer, Report};
use super::sets::NumberSet;
use super::walk::Walked;

/// Magic numbers of the files of users, groups and projects.
const MAGIC: [u32; 3] = [0xD9C0_1F11, 0xD9C0_1927, 0xD9C0_3F14];
const VERSION: u32 = 1;
const PIECE: usize = 1024;
const ROOT: u32 = 1;
const LEVELS: u32 = 4;
/// Bytes before the entries of a block.
const HEADER: usize = 16;
const ENTRY: usize = 72;

/// A file's bytes in pieces of 1 KiB.
struct File<'i, 'd> {
    img: &'i Image<'d>,
    inode: Box<Block>,
    division: Division,
    last: Option<(u64, Box<Block>)>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

impl File<'_, '_> {
    fn address(&self, index: u64) -> Result<BlockAddr, FsckError> {
        let raw = RawInode::of(&self.inode);
        let Some(path) = node::path(index, self.division.direct_slots()) else { return Ok(BlockAddr::NULL) };
        if path.depth == 0 {
            return Ok(raw.addr(self.division, path.slots[0]));
        }
        let mut nid = raw.nid(path.slots[0] as usize);
        for k in 1..path.depth {
            nid = Nid(self.word_of(nid, path.slots[k])?);
        }
        Ok(BlockAddr(self.word_of(nid, path.slots[path.depth])?))
    }

    fn word_of(&self, nid: Nid, slot: u32) -> Result<u32, FsckError> {
        let addr = self.img.nat(nid)?.addr;
        let there = nid.0 != 0 && self.img.sb.locate(addr).is_some();
        Ok(if there { node::word(&*self.img.block(addr)?, slot as usize) } else { 0 })
    }

    fn piece(&mut self, number: u32) -> Result<[u8; PIECE], FsckError> {
        let mut out = [0; PIECE];
        let (index, within) = (u64::from(number) * PIECE as u64 / BLOCK as u64, number as usize * PIECE % BLOCK);
        if RawInode::of(&self.inode).inline().contains(Inline::DATA) {
            let area = &self.inode[self.division.inline_area()];
            let from = area.get(number as usize * PIECE..).unwrap_or_default();
            let n = from.len().min(PIECE);
            out[..n].copy_from_slice(&from[..n]);
            return Ok(out);
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != index) {
            let addr = self.address(index)?;
            let block = match self.img.sb.locate(addr) {
                Some(_) => self.img.block(addr)?,
                None => Box::new([0; BLOCK]),
            };
            self.last = Some((index, block));
        }
        if let Some((_, block)) = &self.last {
            out.copy_from_slice(&block[within..within + PIECE]);
        }
        Ok(out)
    }
}

/// Checks the quota files that the walk reached.
pub fn check(img: &Image<'_>, walked: &Walked, report: &mut Report) -> Result<(), FsckError> {
    for (k, ino) in img.sb.quota_inos.into_iter().enumerate() {
        if !walked.inodes.has(ino.0) {
            continue;
        }
        if let Some(fault) = fault(img, k, ino)? {
            report.add(K::QuotaFileBad { file: Referrer::Quota(k), ino, fault });
        }
    }
    Ok(())
}

/// The first fault in a quota file.
fn fault(img: &Image<'_>, k: usize, ino: Ino) -> Result<Option<F>, FsckError> {
    let inode = img.block(img.nat(ino.nid())?.addr)?;
    let Ok(division) = RawInode::of(&inode).divide(img.sb.features) else { return Ok(None) };
    let room = RawInode::of(&inode).i_size.get() / PIECE as u64;
    let mut file = File { img, inode, division, last: None };
    let head = file.piece(0)?;
    let [magic, version, blocks] = [0, 4, 20].map(|at| word(&head, at));
    if Some(&magic) != MAGIC.get(k) || version != VERSION {
        return Ok(Some(F::Header { magic, version }));
    }
    if u64::from(blocks) > room {
        return Ok(Some(F::Blocks { blocks, room }));
    }
    for block in [24, 28].map(|at| word(&head, at)) {
        if block >= blocks.max(1) {
            return Ok(Some(F::FreeBlock { block, blocks }));
        }
    }
    // Pending tree blocks: number, level, and the known prefix of the identity.
    let mut waiting = vec![(ROOT, 0, 0u32)];
    let mut seen = NumberSet::default();
    while let Some((number, level, above)) = waiting.pop() {
        if number == 0 || number >= blocks.max(ROOT + 1) {
            return Ok(Some(F::Reference { to: number, blocks }));
        }
        if seen.add(number) {
            return Ok(Some(F::Twice { block: number }));
        }
        let piece = file.piece(number)?;
        for (i, to) in (0..PIECE / 4).map(|i| (i as u32, word(&piece, i * 4))).filter(|(_, to)| *to != 0) {
            let id = above << 8 | i;
            if level + 1 < LEVELS {
                waiting.push((to, level + 1, id));
            } else if to >= blocks {
                return Ok(Some(F::Reference { to, blocks }));
            } else if !entries(&file.piece(to)?).any(|entry| word(entry, 0) == id) {
                return Ok(Some(F::Entry { id, block: to }));
            }
        }
    }
    Ok(None)
}

/// The used entries of a block.
fn entries(piece: &[u8; PIECE]) -> impl Iterator<Item = &[u8]> {
    piece[HEADER..].chunks_exact(ENTRY).filter(|entry| entry.iter().any(|&b| b != 0))
}
