//! Reads inodes from the disk.

use device::{Lba, Tag};
use scherlfs_format::chain::{self, Header, Kind};
use scherlfs_format::extent::Extent;
use scherlfs_format::inode as raw;
use scherlfs_format::{Addr, BLOCK, Block, FREE_LIST, HISTORY, IFILE, Ino, ORPHANS, Run};
use vfs::{Error, FileKind, Result};

use crate::cause::Cause;
use crate::extents::Extents;
use crate::inode::{Inode, owner};
use crate::volume::State;
use device::BlockDevice;

/// Tag of a read.
fn tag(cause: Cause, ino: Ino) -> Tag {
    Tag { cause: cause as u8, owner: owner(ino) }
}

/// Reads a block.
pub(crate) fn block(dev: &dyn BlockDevice, at: Addr, cause: Cause, ino: Ino) -> Result<Box<Block>> {
    let mut block = Box::new([0; BLOCK]);
    let tag = tag(cause, ino);
    dev.read(Lba(at.0), &mut block[..], tag).map_err(Error::device)?;
    Ok(block)
}

/// Reads runs of blocks, one request per run, and calls `each` in order.
fn each_block(
    dev: &dyn BlockDevice,
    runs: &[Run],
    ino: Ino,
    mut each: impl FnMut(Addr, &Block) -> Result<()>,
) -> Result<()> {
    for run in runs {
        let mut bytes = vec![0; run.blocks as usize * BLOCK];
        let tag = tag(Cause::Inode, ino);
        dev.read(Lba(run.start.0), &mut bytes, tag).map_err(Error::device)?;
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        for (at, block) in run.addrs().zip(blocks) {
            each(at, block)?;
        }
    }
    Ok(())
}

/// Reads the block at `at` as inode `ino`.
pub(crate) fn inode_at(dev: &dyn BlockDevice, ino: Ino, at: Addr, cause: Cause) -> Result<Inode> {
    let wrong = |at: Addr, e: &dyn std::fmt::Display| Error::corrupt(format_args!("inode {ino}, block {at}: {e}"));
    if at.0 >= dev.blocks() {
        return Err(wrong(at, &"it is outside of the volume"));
    }
    let block = block(dev, at, cause, ino)?;
    let found = raw::Inode::read(&block).map_err(|e| wrong(at, &e))?;
    if found.header.ino != ino {
        return Err(wrong(at, &format_args!("inode {} stands there", found.header.ino)));
    }
    let inside = |runs: &[Run]| runs.iter().all(|r| r.end().0 <= dev.blocks());
    let with_it = |h: &Header, n: usize, of: usize| {
        let own = (h.ino, h.seq, h.epoch) == (ino, found.header.seq, found.header.epoch);
        own && usize::from(h.piece) == n && usize::from(h.pieces) == of
    };
    let part = |at, block: &Block, kind, n: usize, of: usize| -> Result<()> {
        let header = Header::expect(block, kind).map_err(|e| wrong(at, &e))?;
        if with_it(&header, n, of) {
            Ok(())
        } else {
            Err(wrong(at, &format_args!("it is not part {n} of {of} of this inode")))
        }
    };
    let mut runs = found.runs.clone();
    if !inside(&runs) {
        return Err(wrong(at, &"its extents' blocks are outside of the volume"));
    }
    let indexes = raw::indexes(found.continuations);
    let mut index = Vec::new();
    if indexes > 0 {
        let (mut n, mut all) = (0, Vec::new());
        each_block(dev, &runs, ino, |at, block| {
            part(at, block, Kind::Index, n, indexes)?;
            n += 1;
            all.extend(chain::read_runs(block, Kind::Index).map_err(|e| wrong(at, &e))?);
            Ok(())
        })?;
        if !inside(&all) || all.iter().map(|r| u64::from(r.blocks)).sum::<u64>() != found.continuations as u64 {
            return Err(wrong(at, &"its index names other blocks than it has"));
        }
        index = runs.iter().flat_map(|run| run.addrs()).collect();
        runs = all;
    }
    let mut rest = Vec::with_capacity(found.continuations);
    let mut first: u64 = found.extents.iter().map(|e| e.blocks()).sum();
    each_block(dev, &runs, ino, |at, block| {
        let header = Header::expect(block, Kind::Continuation).map_err(|e| wrong(at, &e))?;
        let more = chain::read_continuation(block).map_err(|e| wrong(at, &e))?;
        // A continuation written by an earlier version of the inode records its first file block.
        let (then, now) = (header.epoch.count, found.header.epoch.count);
        let earlier = then < now || header.seq < found.header.seq;
        let stays = header.ino == ino && earlier && more.first == first as u32;
        let n = rest.len();
        if !stays && !with_it(&header, n, found.continuations) {
            let of = found.continuations;
            return Err(wrong(at, &format_args!("it is not part {n} of {of} of this inode")));
        }
        first = more.extents.iter().map(|e| e.blocks()).fold(first, u64::saturating_add);
        rest.push((at, more.extents));
        Ok(())
    })?;
    let all = || found.extents.iter().chain(rest.iter().flat_map(|(_, list)| list));
    if all().count() != found.extents_in_all as usize {
        return Err(wrong(at, &format_args!("it has {} extents, not {}", all().count(), found.extents_in_all)));
    }
    let outside =
        all().find(|e| matches!(e, Extent::Stored { start, blocks } if start.0 + u64::from(*blocks) > dev.blocks()));
    if let Some(extent) = outside {
        return Err(wrong(at, &format_args!("{extent:?} is outside of the volume")));
    }
    let kind = FileKind::from_mode(found.attributes.mode);
    if kind.is_none() {
        return Err(wrong(at, &format_args!("its mode is {:#o}", found.attributes.mode)));
    }
    let extents = Extents::read_leaves(&found.extents, &rest).map_err(Error::corrupt)?;
    let inode = Inode {
        ino,
        a: found.attributes,
        xattrs: found.xattrs.into_iter().collect(),
        extents,
        addr: Some(at),
        indexes: index,
        ..Inode::default()
    };
    if inode.is_dir() && (!inode.a.size.is_multiple_of(BLOCK as u64) || inode.extents.blocks() != inode.size_blocks()) {
        return Err(wrong(at, &"a directory's blocks are not those of its size"));
    }
    Ok(inode)
}

/// All bytes of a hidden file.
pub(crate) fn contents(dev: &dyn BlockDevice, inode: &Inode) -> Result<Vec<u8>> {
    if inode.extents.blocks() < inode.size_blocks() || inode.a.size > dev.blocks() * BLOCK as u64 {
        return Err(Error::corrupt(format_args!("hidden file {}: {} bytes", inode.ino, inode.a.size)));
    }
    let mut out = Vec::new();
    for (_, at, blocks) in inode.extents.stored(0) {
        let mut bytes = vec![0; blocks as usize * BLOCK];
        let tag = tag(Cause::InodeMap, inode.ino);
        dev.read(Lba(at.0), &mut bytes, tag).map_err(Error::device)?;
        out.extend_from_slice(&bytes);
    }
    out.truncate(inode.a.size as usize);
    Ok(out)
}

impl State {
    /// Loads an inode that is not in memory.
    pub fn load(&mut self, ino: Ino) -> Result<Inode> {
        let read = self.load_once(ino);
        self.doubting(read, |st| st.load_once(ino))
    }

    fn load_once(&mut self, ino: Ino) -> Result<Inode> {
        if ino == IFILE {
            // Waiting blocks of the map are read through the map, see `read_map`.
            return Ok(Inode { names: None, ..self.imap.inode.clone() });
        }
        if [FREE_LIST, ORPHANS, HISTORY].contains(&ino) {
            return Err(Error::NotFound);
        }
        let dev = self.dev.clone();
        let place = self.imap.get(&*dev, ino)?;
        let at = place.addr.ok_or(Error::NotFound)?;
        let inode = inode_at(&*dev, ino, at, Cause::Inode)?;
        if inode.a.generation as u16 != place.generation {
            return Err(Error::corrupt(format_args!("inode {ino}, block {at}: it is of another life of this number")));
        }
        Ok(inode)
    }
}
