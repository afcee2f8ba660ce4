//! How are files with compressed clusters read, and loaded to be changed?
//!
//! A compressed file's clusters never straddle nodes: of each node's address slots only a multiple of the cluster size
//! is used. A *packed* cluster begins with a mark in its first slot; the next slots are the blocks of its stream, and
//! the rest are reserved without a block. Every other cluster is *raw*: its slots are those of a plain file.
//!
//! A packed cluster is changed in memory as a whole: either all of its pages are in memory and dirty, or none. (Linux
//! does the same.) So writing it back reads nothing, and no page in memory depends on a stream on the device. Bytes
//! behind the end of the file become zeroes when the cluster is loaded.
//!
//! * [`writeback`]: clusters are packed and written. [`repack`]: at a user's request, existing clusters. [`room`]:
//!   saved blocks are released and reserved again.
//!
//! Left out: the stream format ([`format::compress`]) and the compressors ([`crate::compress`]).

pub(crate) mod repack;
pub(crate) mod room;
pub(crate) mod writeback;

use std::ops::Range;
use std::sync::Arc;

use device::Lba;
use format::BlockAddr;
use format::compress::Method;
use format::inode::{Advise, Inline, RawInode, extra_end};
use format::superblock::Features;
use vfs::FileKind;

use super::BLOCK;
use crate::cause::Cause;
use crate::context::Context;
use crate::error::{At, Error, Result};
use crate::file::Files;
use crate::inode::{Content, Inode};
use crate::node::map::{Lookup, Place, addr_in};

/// The first slot of the cluster that contains a slot. Clusters begin at the first slot of each node.
pub(crate) fn mark_slot(slot: u32, method: Method) -> u32 {
    slot & !(method.cluster_blocks() - 1)
}

/// The file blocks of the cluster that contains a block.
pub(crate) fn cluster_of(index: u64, method: Method) -> Range<u64> {
    let n = u64::from(method.cluster_blocks());
    let first = index / n * n;
    first..first + n
}

/// An inode's compression method; `None` if it is not a compressed file.
pub(crate) fn method_of(ctx: &Context, raw: &RawInode) -> Result<Option<Method>> {
    let place = || format!("inode {}", raw.footer.ino.get());
    if !ctx.has(Features::COMPRESSION) || raw.log_cluster(ctx.sb.features).at(place)?.is_none() {
        return Ok(None);
    }
    let extra = raw.extra().filter(|_| raw.extra_isize() >= extra_end::COMPRESS);
    let method = extra
        .map(|e| Method::of_inode(e.i_compress_algorithm, e.i_log_cluster_size, e.i_compress_flag.get()))
        .transpose();
    method.map_err(|e| Error::corrupt(format_args!("{}: {e}", place())))
}

impl Files {
    /// A file's compression method; `None` if it is not a compressed file.
    pub(crate) fn clusters(&self, inode: &Inode) -> Result<Option<Method>> {
        if inode.kind != FileKind::Regular || !self.ctx.has(Features::COMPRESSION) {
            return Ok(None);
        }
        inode.node.inode(|r| method_of(&self.ctx, r))
    }

    /// Refuses to change a file whose saved blocks were released: its clusters have no room.
    pub(crate) fn check_has_room(&self, inode: &Inode) -> Result<()> {
        match inode.node.inode(|r| r.inline().contains(Inline::COMPRESS_RELEASED)) {
            true => Err(vfs::Error::NotPermitted("the file's compressed blocks were released").into()),
            false => Ok(()),
        }
    }

    /// True if a cluster is packed on the volume; `index` is any of its blocks.
    pub(in crate::file) fn is_packed(&self, inode: &Inode, method: Method, index: u64) -> Result<bool> {
        Ok(match self.nodes.find(&inode.node, index)? {
            Lookup::At(p) => p.addr(&self.ctx, mark_slot(p.slot, method)) == BlockAddr::COMPRESS,
            Lookup::Hole(_) => false,
        })
    }

    /// [`Self::read_locked`] for a compressed file.
    pub(in crate::file) fn read_clusters(
        &self,
        inode: &Inode,
        content: &Content,
        method: Method,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut plain = Vec::new();
        let mut done = 0;
        let last = (offset + buf.len() as u64).div_ceil(BLOCK);
        while done < buf.len() {
            let at = offset + done as u64;
            let (index, inside) = (at / BLOCK, (at % BLOCK) as usize);
            if let Some(page) = content.pages.get(&index) {
                let n = (4096 - inside).min(buf.len() - done);
                buf[done..done + n].copy_from_slice(&page[inside..inside + n]);
                done += n;
                continue;
            }
            let next = content.pages.range(index..last).next().map_or(last, |(i, _)| *i);
            let cluster = cluster_of(index, method);
            if !self.is_packed(inode, method, index)? {
                let end = next.min(cluster.end);
                done += self.read_mapped(inode, index, end, inside, &mut buf[done..])?;
                continue;
            }
            self.unpack(inode, method, index, &mut plain)?;
            let from = (at - cluster.start * BLOCK) as usize;
            let n = (plain.len() - from).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&plain[from..from + n]);
            done += n;
        }
        Ok(())
    }

    /// Reads a packed cluster from the device; `index` is any of its blocks.
    pub(crate) fn unpack(&self, inode: &Inode, method: Method, index: u64, plain: &mut Vec<u8>) -> Result<()> {
        if inode.node.inode(|r| r.advise().contains(Advise::ENCRYPT)) {
            // Its stream was encrypted after it was packed.
            return Err(vfs::Error::NoKey.into());
        }
        let first = cluster_of(index, method).start;
        let Lookup::At(place) = self.nodes.find(&inode.node, first)? else {
            return Err(Error::corrupt(format_args!("inode {}: no node for file block {first}", inode.ino)));
        };
        plain.resize(method.cluster_bytes(), 0);
        place.node.steady(|| self.read_stream(inode, method, first, &place, plain))
    }

    fn read_stream(&self, inode: &Inode, method: Method, first: u64, place: &Place, plain: &mut [u8]) -> Result<()> {
        let addrs: Vec<BlockAddr> = {
            let bytes = place.node.read();
            let slots = place.slot + 1..place.slot + method.cluster_blocks();
            slots.map(|slot| addr_in(&self.ctx, &place.node, &bytes, slot)).take_while(|a| a.is_real()).collect()
        };
        for addr in &addrs {
            self.ctx.check_data_addr(*addr, inode.ino, first)?;
        }
        let mut packed = vec![[0; 4096]; addrs.len()];
        let mut done = 0;
        for run in addrs.chunk_by(|a, b| a.plus(1) == *b) {
            let tag = Cause::Compressed.of(inode.ino);
            self.ctx.dev.read(Lba(run[0].0.into()), packed[done..done + run.len()].as_flattened_mut(), tag)?;
            done += run.len();
        }
        let (work, busy) = self.ctx.options.compress_costs.unpack(method);
        self.ctx.compute(work, busy, Cause::Decompress.of(inode.ino));
        method
            .decompress(packed.as_flattened(), plain)
            .map_err(|e| Error::corrupt(format_args!("inode {}, cluster at file block {first}: {e}", inode.ino)))
    }

    /// Loads the cluster of a block that is about to change, if it is packed and not in memory. The caller holds the
    /// inode's lock exclusively.
    pub(in crate::file) fn open_cluster(&self, inode: &Arc<Inode>, content: &mut Content, index: u64) -> Result<()> {
        let Some(method) = self.clusters(inode)? else { return Ok(()) };
        if content.pages.contains_key(&index) || !self.is_packed(inode, method, index)? {
            return Ok(());
        }
        let mut plain = Vec::new();
        self.unpack(inode, method, index, &mut plain)?;
        let first = cluster_of(index, method).start;
        let whole = inode.size().saturating_sub(first * BLOCK).min(plain.len() as u64) as usize;
        plain[whole..].fill(0);
        self.keep_cluster(inode, content, first, &plain);
        Ok(())
    }

    fn keep_cluster(&self, inode: &Arc<Inode>, content: &mut Content, first: u64, plain: &[u8]) {
        let pages = plain.as_chunks::<4096>().0;
        let fresh = (first..).zip(pages).filter(|(i, page)| content.pages.insert(*i, Box::new(**page)).is_none());
        inode.gained_dirty(&self.inodes, fresh.count());
    }

    /// First step of a write at `offset`: if the cluster there is packed, loads it. If `data` replaces all of it, it
    /// becomes `data`; returns how many bytes were used.
    pub(in crate::file) fn enter_cluster(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        method: Method,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let bytes = method.cluster_bytes();
        let index = offset / BLOCK;
        if !offset.is_multiple_of(bytes as u64) || data.len() < bytes {
            return self.open_cluster(inode, content, index).map(|()| 0);
        }
        if !self.is_packed(inode, method, index)? {
            return Ok(0);
        }
        self.keep_cluster(inode, content, index, &data[..bytes]);
        Ok(bytes)
    }

    /// Zeroes a packed cluster behind byte `from`, the old or new end of the file. True if it is packed: then its slots
    /// must stay. A cluster that already has only zeroes there stays packed: a file whose room was released cannot
    /// write its clusters again, but may still grow by whole clusters.
    pub(in crate::file) fn clear_packed_tail(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        from: u64,
    ) -> Result<bool> {
        let Some(method) = self.clusters(inode)? else { return Ok(false) };
        let cluster = cluster_of(from / BLOCK, method);
        if from == cluster.start * BLOCK || !self.is_packed(inode, method, from / BLOCK)? {
            return Ok(false);
        }
        if !content.pages.contains_key(&cluster.start) {
            let mut plain = Vec::new();
            self.unpack(inode, method, cluster.start, &mut plain)?;
            let behind = plain.get_mut((from - cluster.start * BLOCK) as usize..).unwrap_or_default();
            if behind.iter().any(|byte| *byte != 0) {
                self.check_has_room(inode)?;
                behind.fill(0);
                self.keep_cluster(inode, content, cluster.start, &plain);
            }
            return Ok(true);
        }
        for (index, page) in content.pages.range_mut(from / BLOCK..cluster.end) {
            page[from.saturating_sub(index * BLOCK).min(BLOCK) as usize..].fill(0);
        }
        Ok(true)
    }

    /// How many blocks, from the start of a range that will become a hole, can be treated alike; true if these blocks
    /// became zeroes in memory, because they are part of a packed cluster, whose slots stay.
    pub(in crate::file) fn zero_packed(
        &self,
        inode: &Arc<Inode>,
        content: &mut Content,
        range: Range<u64>,
    ) -> Result<(u64, bool)> {
        let Some(method) = self.clusters(inode)? else { return Ok((range.end, false)) };
        let cluster = cluster_of(range.start, method);
        if cluster.start == range.start && cluster.end <= range.end {
            return Ok((cluster_of(range.end, method).start, false));
        }
        let end = range.end.min(cluster.end);
        if !self.is_packed(inode, method, range.start)? {
            return Ok((end, false));
        }
        self.open_cluster(inode, content, range.start)?;
        content.pages.range_mut(range.start..end).for_each(|(_, page)| page.fill(0));
        Ok((end, true))
    }

    /// The first block that a file of `size` bytes does not need: the rest of its last packed cluster is needed.
    pub(in crate::file) fn needed_blocks(&self, inode: &Inode, size: u64) -> Result<u64> {
        let plain = size.div_ceil(BLOCK);
        let Some(method) = self.clusters(inode)? else { return Ok(plain) };
        let cluster = cluster_of(size / BLOCK, method);
        let cuts = size > cluster.start * BLOCK && self.is_packed(inode, method, size / BLOCK)?;
        Ok(if cuts { cluster.end } else { plain })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::volume::Volume;
    use device::{Memory, Time, VirtualClock};
    use vfs::{FileSystem, SetAttr};

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    /// A checkpoint without waiting contents, a power cut, and other implementations can leave such a packed cluster.
    #[test]
    fn what_a_packed_cluster_has_behind_the_end_is_never_seen() {
        for grow in [
            |vol: &Volume, f| vol.setattr(f, &SetAttr { size: Some(60_000), ..SetAttr::default() }).map(drop).unwrap(),
            |vol: &Volume, f| write(vol, f, 59_999, &[0]),
            |vol: &Volume, f| write(vol, f, 8192, &[0; 51_808]),
            |vol: &Volume, f| write(vol, f, 5000, &[0; 55_000]),
        ] {
            let dev = Arc::new(Memory::new(64 * 256));
            let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
            let modern = crate::mkfs::Options::modern();
            let options = crate::mkfs::Options { features: modern.features | Features::COMPRESSION, ..modern };
            crate::mkfs::format(&*dev, &*clock, &options).unwrap();
            let mut options = MountOptions::default();
            options.compress.extensions.push("*".into());
            let vol = Volume::mount(dev.clone(), clock, options).unwrap();
            let f = file(&vol, "f");
            write(&vol, f, 0, &[7; 16_384]);
            vol.sync().unwrap();
            let inode = vol.names.outer(f).unwrap();
            assert!(vol.files.is_packed(&inode, vol.files.clusters(&inode).unwrap().unwrap(), 0).unwrap());
            vol.nodes.edit_inode(&inode.node, |r| r.i_size = 5000.into());
            assert_eq!(read(&vol, f), [7; 5000]);
            grow(&vol, f);
            let have = read(&vol, f);
            assert_eq!(have.len(), 60_000);
            let seen = have.iter().rposition(|b| *b != 0);
            assert_eq!(seen, Some(4999));
            drop(inode);
            judge(&dev, &vol);
        }
    }
}
