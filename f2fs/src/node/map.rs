//! How is the address of a file block found, and how are nodes created and freed?
//!
//! The caller holds the inode's lock (shared for lookups, exclusive for changes) and, for changes, `cp` shared.
//! Addresses are in the bytes of nodes, each under its node's own lock, because cleaning changes them without the
//! inode's lock.

use std::ops::Range;
use std::sync::Arc;

use format::inode::{Division, RawInode};
use format::node::{self, ADDRS_PER_BLOCK, Footer, Shape};
use format::{BlockAddr, Ino, Nid};

use super::cache::Node;
use crate::context::Context;
use crate::error::{At, Error, Result};
use crate::node::Nodes;

/// The node with the address of a file block, and the slot.
#[derive(Clone)]
pub struct Place {
    /// The inode itself or a direct node.
    pub node: Arc<Node>,
    /// Slot in it (in an inode: past the extra attributes).
    pub slot: u32,
    /// Number of slots in the node, in a compressed file only those of whole clusters: the addresses of `slots - slot`
    /// blocks from this one on are here.
    pub slots: u32,
}

/// The place of a file block's address, or the extent of a hole.
pub enum Lookup {
    /// The address is here.
    At(Place),
    /// These blocks have no node for their addresses and are holes. They include the requested block.
    Hole(Range<u64>),
}

impl Place {
    /// The address in slot `slot`.
    pub fn addr(&self, ctx: &Context, slot: u32) -> BlockAddr {
        let bytes = self.node.read();
        addr_in(ctx, &self.node, &bytes, slot)
    }
    /// Number of blocks whose addresses are here, from `slot` on.
    pub fn run(&self) -> u64 {
        u64::from(self.slots - self.slot)
    }
}

pub(crate) fn addr_in(ctx: &Context, node: &Node, bytes: &format::Block, slot: u32) -> BlockAddr {
    if node.nid == node.ino.nid() {
        let raw = RawInode::of(bytes);
        raw.divide(ctx.sb.features).map_or(BlockAddr::NULL, |d| raw.addr(d, slot))
    } else {
        BlockAddr(node::word(bytes, slot as usize))
    }
}

/// Changes an address slot in a node's bytes, for new contents, and the count of reserved slots without a block
/// (including a compressed cluster's mark; the caller corrects the count for a released one). A delta of the slot is
/// dropped. If the node is not the inode itself and a block moves, the caller must then call [`Nodes::forget_extent`].
pub(crate) fn set_addr_in(nodes: &Nodes, node: &Node, bytes: &mut format::Block, slot: u32, to: BlockAddr) {
    let new = |addr| i64::from(addr == BlockAddr::NEW || addr == BlockAddr::COMPRESS);
    let more = new(to) - new(addr_in(&nodes.ctx, node, bytes, slot));
    if more != 0 {
        nodes.space.unwritten_by(more);
    }
    put_addr(&nodes.ctx, node, bytes, slot, to, RawInode::set_addr);
}

fn put_addr(
    ctx: &Context,
    node: &Node,
    bytes: &mut format::Block,
    slot: u32,
    to: BlockAddr,
    put: fn(&mut RawInode, Division, u32, BlockAddr),
) {
    if node.nid == node.ino.nid() {
        let raw = RawInode::of_mut(bytes);
        if let Ok(d) = raw.divide(ctx.sb.features) {
            debug_assert!(slot < d.addressed() || to == BlockAddr::NULL, "slot {slot} lies in the zone of deltas");
            put(raw, d, slot, to);
            raw.forget_extent();
        }
    } else {
        node::set_word(bytes, slot as usize, to.0);
    }
}

/// [`set_addr_in`] for the same contents at another place: a delta of the slot stays.
pub(crate) fn move_addr_in(ctx: &Context, node: &Node, bytes: &mut format::Block, slot: u32, to: BlockAddr) {
    put_addr(ctx, node, bytes, slot, to, RawInode::move_addr);
}

/// Number of blocks under one child of a node `level` above the direct nodes: a direct node's child is a block.
pub(crate) fn span(shape: Shape, level: u32) -> u64 {
    level.checked_sub(1).map_or(1, |level| shape.span(level))
}

/// How many slots of an indirect node are empty directly before and after an empty one.
fn empty_around(bytes: &format::Block, slot: u32) -> (u64, u64) {
    let empty = |s: &u32| node::word(bytes, *s as usize) == 0;
    let before = (0..slot).rev().take_while(empty).count();
    let after = (slot + 1..ADDRS_PER_BLOCK).take_while(empty).count();
    (before as u64, after as u64)
}

impl Nodes {
    /// The layout of an inode's address words.
    pub(crate) fn division(&self, raw: &RawInode) -> Result<Division> {
        raw.divide(self.ctx.sb.features).at(|| format!("inode {}", raw.footer.ino.get()))
    }

    /// How many of a file's blocks are addressed by its inode and by its direct nodes.
    pub(crate) fn shape(&self, raw: &RawInode) -> Result<Shape> {
        raw.shape(self.ctx.sb.features).at(|| format!("inode {}", raw.footer.ino.get()))
    }

    /// The node of an inode, if this number belongs to an inode.
    pub(crate) fn inode_node(&self, nid: Nid) -> Result<Option<Arc<Node>>> {
        let entry = self.nat.get(nid)?;
        let there = entry.ino == nid.as_ino() && (entry.addr != BlockAddr::NULL || self.cache.get(nid).is_some());
        if there { self.node(nid).map(Some) } else { Ok(None) }
    }

    /// Finds the place of file block `index`.
    pub(crate) fn find(&self, inode: &Arc<Node>, index: u64) -> Result<Lookup> {
        let (path, mut nid, shape) = {
            let bytes = inode.read();
            let raw = RawInode::of(&bytes);
            let shape = self.shape(raw)?;
            let path = shape.path(index).ok_or(vfs::Error::TooBig)?;
            let nid = if path.depth == 0 { Nid(0) } else { raw.nid(path.slots[0] as usize) };
            (path, nid, shape)
        };
        if path.depth == 0 {
            let slot = path.slots[0];
            return Ok(Lookup::At(Place { node: inode.clone(), slot, slots: shape.direct_slots }));
        }
        // How many slots directly before and after the current one are also empty, in the node above.
        let mut around = (0, 0);
        for k in 1..=path.depth {
            let below = (path.depth - k) as u32; // levels of nodes below this one
            if nid == Nid(0) {
                // The range of this missing node ends at a multiple of its span.
                let mut inside = u64::from(path.slots[path.depth]);
                for (j, slot) in path.slots[k..path.depth].iter().enumerate() {
                    inside += u64::from(*slot) * span(shape, (path.depth - k - j) as u32);
                }
                let (first, width) = (index - inside, span(shape, below + 1));
                return Ok(Lookup::Hole(first - around.0 * width..first + (1 + around.1) * width));
            }
            let n = self.child(inode.ino, nid, path.offsets[k - 1])?;
            if below == 0 {
                let slot = path.slots[k];
                return Ok(Lookup::At(Place { node: n, slot, slots: shape.per_node }));
            }
            let bytes = n.read();
            nid = Nid(node::word(&bytes, path.slots[k] as usize));
            if nid == Nid(0) {
                around = empty_around(&bytes, path.slots[k]);
            }
        }
        unreachable!("the loop returns at depth >= 1")
    }

    /// The address of a file block.
    pub(crate) fn addr_of(&self, node: &Arc<Node>, index: u64) -> Result<BlockAddr> {
        match self.find(node, index)? {
            Lookup::At(p) => Ok(p.addr(&self.ctx, p.slot)),
            Lookup::Hole(_) => Ok(BlockAddr::NULL),
        }
    }

    /// A node of `ino`'s tree, checked to belong at this offset.
    pub(crate) fn child(&self, ino: Ino, nid: Nid, offset: u32) -> Result<Arc<Node>> {
        let n = self.node(nid).map_err(|e| match e {
            Error::Fs(vfs::Error::NotFound) => {
                Error::corrupt(format_args!("inode {ino}: its node {nid} has no address in the NAT"))
            }
            e => e,
        })?;
        let f = node::footer(&n.read());
        if f.ino != ino || f.offset != offset {
            return Err(Error::corrupt(format_args!(
                "node {nid}: belongs to inode {} at offset {}, not to inode {ino} at offset {offset}",
                f.ino, f.offset
            )));
        }
        Ok(n)
    }

    /// Finds the place of file block `index`, creating missing nodes.
    pub(crate) fn make(&self, inode: &Arc<Node>, index: u64) -> Result<Place> {
        let (path, shape) = {
            let bytes = inode.read();
            let shape = self.shape(RawInode::of(&bytes))?;
            (shape.path(index).ok_or(vfs::Error::TooBig)?, shape)
        };
        let mut at = inode.clone();
        for k in 0..path.depth {
            let slot = path.slots[k];
            let nid = match k {
                0 => at.inode(|r| r.nid(slot as usize)),
                _ => Nid(node::word(&at.read(), slot as usize)),
            };
            let next = if nid == Nid(0) {
                let n = self.new_node(inode, path.offsets[k])?;
                self.edit(&at, |b| match k {
                    0 => RawInode::of_mut(b).i_nid[slot as usize] = n.nid.0.into(),
                    _ => node::set_word(b, slot as usize, n.nid.0),
                });
                n
            } else {
                self.child(inode.ino, nid, path.offsets[k])?
            };
            at = next;
        }
        let slots = if path.depth == 0 { shape.direct_slots } else { shape.per_node };
        Ok(Place { node: at, slot: path.slots[path.depth], slots })
    }

    /// Creates a node for an existing inode.
    pub(crate) fn new_node(&self, inode: &Arc<Node>, offset: u32) -> Result<Arc<Node>> {
        self.space.take_node(false)?;
        let nid = self.nat.reserve(Some(inode.ino)).inspect_err(|_| self.space.give_node(false))?;
        let mut bytes = Box::new([0; 4096]);
        let cold = !inode.inode(crate::fields::is_dir);
        let f =
            Footer { nid, ino: inode.ino, cold, fsync: false, dentry: false, offset, cp_ver: 0, next: BlockAddr::NULL };
        node::set_footer(&mut bytes, &f);
        if node::delta::number(offset).is_some() {
            // Another thread may write the node as soon as it is visible. An invalid delta node would end the chain
            // there, and break the promises of files synced afterwards.
            node::delta::init(&mut bytes);
        }
        let n = self.cache.insert(nid, inode.ino, bytes);
        self.edit(&n, |_| ());
        self.edit_inode(inode, |r| r.i_blocks = (r.i_blocks.get() + 1).into());
        Ok(n)
    }

    /// Frees a node: its block, its number, its count.
    ///
    /// Its bytes stay locked throughout. So a writer of nodes either has stored the node's new address before the
    /// lookup here, or finds the node clean afterwards. The NAT entry is released before the node leaves memory: a
    /// reader that no longer finds it in memory finds no address either, and cannot load it again.
    pub(crate) fn free_node(&self, node: &Arc<Node>, is_inode: bool) -> Result<()> {
        let _bytes = node.write();
        let entry = self.nat.get(node.nid)?;
        if entry.addr.is_real() {
            self.logs.seg.lock().invalidate(entry.addr, self.ctx.mounted_seconds())?;
        }
        if !is_inode {
            self.promises.reshaped(node.ino);
        }
        self.nat.release(node.nid)?;
        self.cache.drop_node(node);
        self.space.give_node(is_inode);
        Ok(())
    }

    /// Removes the largest extent from a file's inode after a block has moved: Linux relies on the extent without
    /// reading the nodes.
    pub(crate) fn forget_extent(&self, inode: &Arc<Node>) {
        if inode.inode(RawInode::has_extent) {
            self.edit_inode(inode, RawInode::forget_extent);
        }
    }

    /// Adjusts an inode's block count.
    pub(crate) fn add_blocks(&self, inode: &Arc<Node>, delta: i64) {
        if delta != 0 {
            self.edit_inode(inode, |r| {
                r.i_blocks = r.i_blocks.get().saturating_add_signed(delta).into();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::volume::Volume;
    use device::{Fault, Faulty, Gate, Memory, Op, Time, VirtualClock};
    use format::sit::LogType;
    use vfs::{Caller, DeviceNumber, FileKind, FileSystem, NewNode};

    use super::*;
    use crate::cause::Cause;
    use crate::node::write::Mark;

    fn file(vol: &Volume, name: &str) -> Arc<crate::inode::Inode> {
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let made = vol.mknod(Caller { uid: 0, gid: 0 }, vol.root(), name.as_bytes(), &new).unwrap();
        vol.names.outer(made.attr.ino).unwrap()
    }

    /// A volume whose next warm node makes its log fill holes of a used segment. The log then reads that segment's
    /// summary after the writer has checked whether the node is dirty and where it was.
    fn about_to_thread() -> (Arc<Gate<Faulty<Memory>>>, Arc<Volume>) {
        let inner = Memory::new(64 * 256);
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        crate::mkfs::format(&inner, &*clock, &crate::mkfs::Options::default()).unwrap();
        let dev = Arc::new(Gate::new(Faulty::new(inner)));
        let vol = Volume::mount(dev.clone(), clock, crate::MountOptions::default()).unwrap();
        // Collected, so that every file is created, not only the last.
        let made: Vec<_> = (0..520).map(|i| file(&vol, &format!("f{i}"))).collect();
        let last = made.last().unwrap().clone();
        drop(made);
        vol.sync().unwrap();
        (0..300).for_each(|i| vol.unlink(vol.root(), format!("f{i}").as_bytes()).unwrap());
        for i in 0..300 {
            vol.forget(vfs::Ino(u64::from(last.ino.0) - 519 + i), 1);
        }
        vol.sync().unwrap();
        while vol.logs.seg.lock().logs[LogType::WarmNode.index()].next < 511 {
            let held = vol.ctx.cp.read();
            vol.nodes.edit(&last.node, |_| ());
            vol.nodes.write_nodes(&held, std::slice::from_ref(&last.node), Mark::Plain, Cause::Node).unwrap();
        }
        vol.logs.seg.lock().threads_always = true;
        (dev, vol)
    }

    /// Makes all reads of segment summaries fail from now on.
    fn summaries_fail(dev: &Gate<Faulty<Memory>>, vol: &Volume) {
        dev.inner().add(Fault::Place { op: Op::Read, blocks: vol.ctx.sb.ssa.0.into()..vol.ctx.sb.main.0.into() });
    }

    #[test]
    fn a_node_that_is_freed_while_it_is_written_gives_up_the_block_it_is_given() {
        let (dev, vol) = about_to_thread();
        let doomed = file(&vol, "doomed");
        vol.unlink(vol.root(), b"doomed").unwrap();
        dev.stop(Op::Read, Some(Cause::Ssa.tag().cause));
        std::thread::scope(|s| {
            s.spawn(|| {
                let held = vol.ctx.cp.read();
                vol.nodes.write_nodes(&held, std::slice::from_ref(&doomed.node), Mark::Plain, Cause::Node).unwrap();
            });
            assert!(dev.await_one());
            // Drops the last reference; all earlier checks of the inode are done.
            let freer = s.spawn(|| {
                let _change = vol.ctx.cp.read();
                let place = vol.inodes.orphans.take(doomed.ino);
                vol.inodes.table.drop_inode(doomed.ino);
                vol.nodes.free_node(&doomed.node, true).unwrap();
                drop(place);
            });
            // Time enough for the freer to finish if it does not wait for the writer.
            (0..30).take_while(|_| !freer.is_finished()).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
            dev.go_on();
        });
        assert_eq!(vol.nodes.nat.get(doomed.node.nid).unwrap().addr, BlockAddr::NULL);
        vol.unmount().unwrap();
        let report = fsck::check(&*dev, &fsck::Options::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.errors().take(4).collect::<Vec<_>>());
        let dir = tempfile::tempdir().unwrap();
        dev.inner().inner().save(dir.path().join("image")).unwrap();
        judges::oracle::tools::assert_fsck_clean(&dir.path().join("image"));
    }

    #[test]
    fn a_node_that_gets_no_place_for_a_failed_read_stays_dirty_and_the_volume_goes_on() {
        let (dev, vol) = about_to_thread();
        let last = file(&vol, "last");
        summaries_fail(&dev, &vol);
        let write = || {
            let held = vol.ctx.cp.read();
            vol.nodes.edit(&last.node, |_| ());
            vol.nodes.write_nodes(&held, std::slice::from_ref(&last.node), Mark::Plain, Cause::Node)
        };
        // The segment's last block; then the log needs another segment.
        write().unwrap();
        assert!(matches!(write(), Err(Error::Device(_))));
        assert!(last.node.is_dirty());
        dev.inner().heal();
        write().unwrap();
        vol.unmount().unwrap();
        let report = fsck::check(&*dev, &fsck::Options::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.errors().take(4).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_synced_behind_the_end_of_the_chain_is_there_after_a_power_cut() {
        let (dev, vol) = about_to_thread();
        summaries_fail(&dev, &vol);
        let last = file(&vol, "last");
        vol.fsync(vfs::Ino(last.ino.0.into()), false).unwrap();
        assert!(vol.logs.seg.lock().chain_ends, "the log could not go on");
        dev.inner().heal();
        let behind = file(&vol, "behind");
        vol.fsync(vfs::Ino(behind.ino.0.into()), false).unwrap();
        // Power cut: this mount writes nothing more.
        let clock = vol.ctx.clock.clone();
        drop((last, behind, vol));
        let vol = Volume::mount(dev.clone(), clock, crate::MountOptions::default()).unwrap();
        for name in ["last", "behind"] {
            let found = vol.lookup(vol.root(), name.as_bytes());
            assert!(found.is_ok(), "{name}: {found:?}");
        }
    }
}
