//! What does an inode hold according to its contents, independent of its flags?
//!
//! `i_inline` decides how the rest of an inode is read. With one wrong bit in it, a file's contents are read as
//! addresses, or its addresses as contents. The bytes themselves reveal which they are.

use format::inode::{Advise, Inline, InodeFlags, RawInode};
use format::node::{self, ADDRS_PER_BLOCK};
use format::superblock::Features;
use format::{Block, BlockAddr, Ino, dentry, xattr};

use super::FsckError;
use super::bases::without_deltas;
use super::hashes::Hashing;
use super::kind::{DIR, kind_of, mode_of};
use super::load::Image;
use super::report::Mark;

/// `i_inline` derived from the rest of the inode; as stored if there is no evidence against it.
pub fn inline(img: &Image<'_>, ino: Ino, block: &Block) -> Result<Inline, FsckError> {
    let raw = RawInode::of(block);
    let features = img.sb.features;
    let kind = kind_of(raw.i_mode.get());
    let mut is = raw.inline();
    if features.contains(Features::EXTRA_ATTR) && !is.contains(Inline::EXTRA_ATTR) {
        // On such a volume every inode has them.
        is |= Inline::EXTRA_ATTR;
    }
    if !is.contains(Inline::XATTR) && has_inline_xattrs(features, &with(block, is | Inline::XATTR)) {
        is |= Inline::XATTR;
    }
    let contents = match kind {
        Some(DIR) => Inline::DENTRY,
        Some(1 | 7) => Inline::DATA,
        _ => return Ok(is),
    };
    if is.intersects(Inline::DATA | Inline::DENTRY) {
        if has_blocks(img, ino, &with(block, is))? {
            is -= Inline::DATA | Inline::DATA_EXIST | Inline::DENTRY;
        }
    } else if holds(img, ino, &with(block, is | contents)) {
        is |= contents;
    }
    Ok(is)
}

/// The right mode of an inode, if its contents fit the type in the directory entry and not the type in `i_mode`.
pub fn mode(img: &Image<'_>, ino: Ino, block: &Block, by_name: Option<u8>) -> Result<Option<u16>, FsckError> {
    let raw = RawInode::of(block);
    let mode = raw.i_mode.get();
    let (Some(kind), Some(by_name @ 1..=7)) = (kind_of(mode), by_name) else { return Ok(None) };
    let other = match (kind, by_name) {
        _ if kind == by_name => false,
        // Files of these types have no contents.
        (3..=6, 1 | 7) => raw.i_size.get() > 0,
        (DIR, _) => begins_otherwise(img, ino, block)?,
        _ => false,
    };
    Ok(other.then(|| mode & 0o7777 | mode_of(by_name)))
}

/// Marks that are invalid for this kind of inode or the features of the volume.
pub fn misplaced_marks(raw: &RawInode, features: Features) -> impl Iterator<Item = Mark> {
    let dir = kind_of(raw.i_mode.get()) == Some(DIR);
    let casefold = raw.flags().contains(InodeFlags::CASEFOLD) && !(dir && features.contains(Features::CASEFOLD));
    let encrypted =
        raw.advise().intersects(Advise::ENCRYPT | Advise::ENC_NAME) && !features.contains(Features::ENCRYPT);
    let verity = raw.advise().contains(Advise::VERITY) && !features.contains(Features::VERITY);
    let compressed = raw.flags().contains(InodeFlags::COMPRESS) && !features.contains(Features::COMPRESSION);
    [(compressed, Mark::Compressed), (casefold, Mark::Casefold), (encrypted, Mark::Encrypted), (verity, Mark::Verity)]
        .into_iter()
        .filter_map(|(wrong, what)| wrong.then_some(what))
}

/// True if the first entry is a `.` that leads to this inode.
pub fn begins_as_directory(layout: &dentry::Layout, area: &[u8], ino: Ino) -> bool {
    dentry::at(layout, area, 0).is_some_and(|d| d.name == b"." && d.ino == ino.0)
}

/// True if an inode has a first block or inline contents that do not begin like a directory's.
fn begins_otherwise(img: &Image<'_>, ino: Ino, block: &Block) -> Result<bool, FsckError> {
    let raw = RawInode::of(block);
    let Ok(division) = raw.divide(without_deltas(img.sb.features)) else { return Ok(false) };
    let own = |layout: &dentry::Layout, area: &[u8]| begins_as_directory(layout, area, ino);
    if raw.inline().intersects(Inline::DATA | Inline::DENTRY) {
        let area = &block[division.inline_area()];
        return Ok(!own(&dentry::Layout::inline(area.len()), area));
    }
    let first = raw.addr(division, 0);
    Ok(img.marked(first) && !own(&dentry::Layout::BLOCK, &img.block(first)?[..]))
}

/// The recorded parent of a directory, if it differs from `from` and has an entry with the recorded name for this
/// directory: a directory has only one name. The entry is searched in its hash bucket, in blocks whose addresses
/// are in the parent's inode.
pub fn named_elsewhere(img: &Image<'_>, ino: Ino, block: &Block, from: Ino) -> Result<Option<Ino>, FsckError> {
    let raw = RawInode::of(block);
    let parent = Ino(raw.i_pino.get());
    let other_parent = kind_of(raw.i_mode.get()) == Some(DIR) && parent != from && parent != ino;
    if !other_parent || raw.advise().contains(Advise::LOST_PINO) {
        return Ok(None);
    }
    let addr = img.nat(parent.nid())?.addr;
    if !img.marked(addr) {
        return Ok(None);
    }
    let above = img.block(addr)?;
    let (dir, f) = (RawInode::of(&above), node::footer(&above));
    let Ok(division) = dir.divide(img.sb.features) else { return Ok(None) };
    if f.nid != parent.nid() || f.ino != parent || kind_of(dir.i_mode.get()) != Some(DIR) {
        return Ok(None);
    }
    let name = raw.name();
    let Some(hash) = Hashing::for_dir(dir, img.sb.features).hash(name) else { return Ok(None) };
    let has =
        |layout: &dentry::Layout, area: &[u8]| dentry::find(layout, area, name, hash).is_some_and(|d| d.ino == ino.0);
    if dir.inline().contains(Inline::DENTRY) {
        let area = &above[division.inline_area()];
        return Ok(has(&dentry::Layout::inline(area.len()), area).then_some(parent));
    }
    for level in 0..dir.i_current_depth.get().min(dentry::MAX_DEPTH) {
        for index in dentry::bucket(level, dir.i_dir_level, hash) {
            if index >= u64::from(division.direct_slots()) {
                return Ok(None);
            }
            let addr = dir.addr(division, index as u32);
            if img.marked(addr) && has(&dentry::Layout::BLOCK, &img.block(addr)?[..]) {
                return Ok(Some(parent));
            }
        }
    }
    Ok(None)
}

fn with(block: &Block, inline: Inline) -> Box<Block> {
    let mut block = Box::new(*block);
    RawInode::of_mut(&mut block).i_inline = inline.bits();
    block
}

/// True if the area for inline attributes begins like a list of them, and cannot be anything else.
fn has_inline_xattrs(features: Features, block: &Block) -> bool {
    let raw = RawInode::of(block);
    let flexible = features.contains(Features::FLEXIBLE_INLINE_XATTR) && raw.inline().contains(Inline::EXTRA_ATTR);
    let Ok(division) = raw.divide(without_deltas(features)) else { return false };
    let area = division.xattr_area();
    let ends = division.inline_area().len() as u64;
    let contents = raw.inline().contains(Inline::DATA) && raw.i_size.get() > ends;
    // With flexible sizes, inodes without attributes leave the area empty too.
    let only = flexible || !contents;
    only && area.len() > xattr::HEADER && block[area].starts_with(&xattr::MAGIC.to_le_bytes())
}

/// True if an inode marked as inline owns a node or a block according to its footer or summary.
pub fn has_blocks(img: &Image<'_>, ino: Ino, block: &Block) -> Result<bool, FsckError> {
    let raw = RawInode::of(block);
    let Ok(division) = raw.divide(without_deltas(img.sb.features)) else { return Ok(false) };
    for nid in (0..5).map(|k| raw.nid(k)).filter(|nid| nid.0 != 0) {
        let addr = img.nat(nid)?.addr;
        if img.marked(addr) {
            let f = node::footer(&*img.block(addr)?);
            if f.nid == nid && f.ino == ino {
                return Ok(true);
            }
        }
    }
    let first = raw.addr(division, 0);
    match img.sb.locate(first) {
        Some((seg, off)) if img.marked(first) => {
            Ok(img.summary(seg, off)?.is_some_and(|s| s.nid == ino.nid() && s.slot == 0))
        }
        _ => Ok(false),
    }
}

/// True if an inode not marked as inline holds inline contents.
fn holds(img: &Image<'_>, ino: Ino, block: &Block) -> bool {
    let raw = RawInode::of(block);
    let Ok(division) = raw.divide(img.sb.features) else { return false };
    let area = &block[division.inline_area()];
    if raw.addr(division, 0) != BlockAddr::NULL || (0..5).any(|k| raw.nid(k).0 != 0) {
        return false;
    }
    if raw.inline().contains(Inline::DENTRY) {
        let layout = dentry::Layout::inline(area.len());
        return begins_as_directory(&layout, area, ino);
    }
    let address = |word: BlockAddr| !word.is_real() || img.marked(word);
    let words = 1..division.direct_slots().min(ADDRS_PER_BLOCK);
    raw.inline().contains(Inline::DATA_EXIST)
        && (1..=area.len() as u64).contains(&raw.i_size.get())
        && words.into_iter().any(|slot| !address(raw.addr(division, slot)))
}
