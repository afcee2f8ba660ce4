//! How is a dirty node written to its log?
//!
//! The warm node log is a chain that roll-forward follows: each node's footer has the address of the log's next free
//! block. So nodes must reach the device in the order of their allocation. A writer holds `node_io` from allocation to
//! the device write, and a flush after that makes the whole chain durable.

use std::sync::Arc;

use device::Lba;
use format::inode::{self, RawInode};
use format::nat::NatEntry;
use format::node::{self, NodeKind};
use format::sit::LogType;
use format::summary::Summary;
use format::{BlockAddr, Ino, Nid};

use super::cache::Node;
use crate::cause::Cause;
use crate::error::Result;
use crate::node::Nodes;
use crate::pack::PackState;

/// Bytes gathered for one request: 1 MiB.
const BATCH: usize = 1 << 20;

/// The marks in written nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// None: they do not make roll-forward replay the file.
    Plain,
    /// The fsync mark: roll-forward replays the file, and restores the inode's name if `dentry`.
    Fsync {
        /// The name must be restored too.
        dentry: bool,
    },
}

/// Blocks for consecutive addresses, gathered for one request.
struct Run {
    start: BlockAddr,
    bytes: Vec<u8>,
    /// The inode of each block.
    owners: Vec<u64>,
}

impl Run {
    fn new() -> Self {
        Run { start: BlockAddr::NULL, bytes: Vec::new(), owners: Vec::new() }
    }
}

/// The log a node belongs to (kernel `__get_segment_type_6`).
pub fn log_of(bytes: &format::Block) -> LogType {
    let f = node::footer(bytes);
    match node::kind_of(f.offset) {
        NodeKind::Indirect | NodeKind::DoubleIndirect => LogType::ColdNode,
        _ if f.cold => LogType::WarmNode,
        _ => LogType::HotNode,
    }
}

impl Nodes {
    /// Writes the dirty ones of `nodes`, or all of them with a mark for fsync. `_held` proves that no checkpoint begins
    /// meanwhile. Marked nodes that roll-forward would not find are not written: the error is NoSpace, and a checkpoint
    /// makes space for them.
    pub(crate) fn write_nodes(&self, _held: &PackState, nodes: &[Arc<Node>], mark: Mark, cause: Cause) -> Result<()> {
        let _order = self.node_io.lock();
        let mut runs: [Run; 3] = std::array::from_fn(|_| Run::new());
        let out = self.place_nodes(nodes, mark, cause, &mut runs);
        // Nodes that got an address are written even if the log had no space for the rest, or a read failed.
        let wrote = runs.iter_mut().try_for_each(|run| self.write_run(run, cause));
        if !self.ctx.health.is_sound() {
            self.keep_unwritten(nodes);
        }
        if wrote.is_ok() && mark == (Mark::Fsync { dentry: true }) {
            self.promises.names.lock().landed();
        }
        out.and(wrote)
    }

    /// Handles `nodes` that may not have reached the device: the next checkpoint writes all of them to new places.
    fn keep_unwritten(&self, nodes: &[Arc<Node>]) {
        for node in nodes {
            let _bytes = node.write();
            // A node freed meanwhile stays freed.
            if self.cache.get(node.nid).is_some_and(|known| Arc::ptr_eq(&known, node)) {
                self.cache.mark_dirty(node);
            }
        }
    }

    fn place_nodes(&self, nodes: &[Arc<Node>], mark: Mark, cause: Cause, runs: &mut [Run; 3]) -> Result<()> {
        let cp_ver = self.ctx.cp_ver();
        let age = self.ctx.mounted_seconds();
        self.logs.seg.lock().begin_request();
        // The buffer of a written run is reused for the next.
        let mut spare = None;
        for node in nodes {
            let mut bytes = node.write();
            if !node.is_dirty() && mark == Mark::Plain {
                continue;
            }
            let is_inode = node.nid == node.ino.nid();
            let named = is_inode && mark == Mark::Fsync { dentry: true };
            // Check again: another thread may have moved the inode since, and its bytes have the new name.
            if named && !self.promises.may_put_name(&bytes) {
                return Err(crate::error::Error::no_space());
            }
            let log = log_of(&bytes);
            let old = self.nat.get(node.nid)?;
            let owner = Summary { nid: node.nid, version: 0, slot: 0 };
            let placed = {
                let mut seg = self.logs.seg.lock();
                // Checked under `node_io`, so that no other writer ends the chain before this node is in it.
                if mark != Mark::Plain && seg.chain_ends {
                    return Err(crate::error::Error::no_space());
                }
                match node.is_only_moved() {
                    true => seg.relocate(log, owner, old.addr, age)?,
                    false => seg.allocate(log, owner, old.addr, age)?,
                }
            };
            let mut f = node::footer(&bytes);
            f.fsync = mark != Mark::Plain;
            f.dentry = named;
            f.cp_ver = cp_ver;
            f.next = placed.next;
            node::set_footer(&mut bytes, &f);
            if is_inode {
                inode::seal(self.ctx.sealing(), self.ctx.checksum_seed, &mut bytes);
            } else if node::kind_of(f.offset) == NodeKind::Delta {
                node::delta::seal(self.ctx.checksum_seed, &mut bytes);
            }
            // On failure, the block is in the chain, but the NAT does not point to it.
            self.nat
                .moved(node.nid, placed.addr, is_inode && f.fsync)
                .inspect_err(|e| self.ctx.health.fail_for_good(e))?;
            if named {
                self.promises.name_is_put(&bytes, placed.addr);
            }
            let run = &mut runs[log.index() - 3];
            let next = run.start.plus((run.bytes.len() / 4096) as u32);
            let mut full = None;
            if run.bytes.len() >= BATCH || (!run.bytes.is_empty() && next != placed.addr) {
                full = Some(std::mem::replace(run, spare.take().unwrap_or_else(Run::new)));
            }
            if run.bytes.is_empty() {
                run.start = placed.addr;
            }
            run.bytes.extend_from_slice(&bytes[..]);
            run.owners.push(node.ino.0.into());
            // Before the node is marked clean: a thread that finds the inode clean must also find this.
            match mark {
                Mark::Plain => self.promises.stray(node.ino),
                Mark::Fsync { .. } => self.promises.vouch_for(node.ino),
            }
            match mark {
                Mark::Fsync { .. } if is_inode => self.promises.inode_synced(node.ino, &bytes),
                Mark::Plain if is_inode => self.promises.inode_strayed(node.ino),
                _ => {}
            }
            self.cache.mark_clean(node);
            // Readers of this node need not wait while the other nodes are written.
            drop(bytes);
            if let Some(mut full) = full {
                self.write_run(&mut full, cause)?;
                spare = Some(full);
            }
        }
        Ok(())
    }

    fn write_run(&self, run: &mut Run, cause: Cause) -> Result<()> {
        if !run.bytes.is_empty() {
            self.logs.place(run.start, (run.bytes.len() / 4096) as u32, cause as u8);
            // On failure, the NAT has addresses where nothing was written, and the chain has a gap.
            let written = self.ctx.dev.write_for(Lba(run.start.0.into()), &run.bytes, &run.owners, cause as u8);
            written.inspect_err(|e| self.ctx.health.fail(format_args!("nodes could not be written: {e}")))?;
            run.bytes.clear();
            run.owners.clear();
        }
        Ok(())
    }

    /// A node from memory or the device, checked to be the requested one.
    pub(crate) fn node(&self, nid: Nid) -> Result<Arc<Node>> {
        if let Some(n) = self.cache.get(nid) {
            return Ok(n);
        }
        loop {
            let NatEntry { addr, ino, .. } = self.nat.get(nid)?;
            let moved = || self.nat.get(nid).is_ok_and(|e| e.addr != addr);
            match self.load_node((nid, ino), addr, || self.nat.is_at(nid, addr)) {
                Ok(Some(n)) => return Ok(n),
                // Another thread wrote the node elsewhere before this read: the bytes are not the node. (Or its NAT
                // block just left memory, so this is unknown.)
                Ok(None) => {}
                Err(_) if moved() => {}
                Err(e) => return Err(e),
            }
            if let Some(n) = self.cache.get(nid) {
                return Ok(n);
            }
        }
    }

    fn load_node(
        &self,
        (nid, owner): (Nid, Ino),
        addr: BlockAddr,
        current: impl FnOnce() -> bool,
    ) -> Result<Option<Arc<Node>>> {
        let corrupt = |what: String| crate::error::Error::corrupt(what);
        if addr == BlockAddr::NULL {
            return Err(vfs::Error::NotFound.into());
        }
        if self.ctx.sb.locate(addr).is_none() {
            return Err(corrupt(format!("NAT entry of node {nid}: address {addr} is outside the main area")));
        }
        let mut bytes = self.cache.block(nid);
        self.ctx.dev.read(Lba(addr.0.into()), &mut *bytes, Cause::Node.of(owner))?;
        let f = node::footer(&bytes);
        if f.nid != nid {
            let found = f.nid;
            return Err(corrupt(format!("node {nid} at block {addr}: its footer says {found}")));
        }
        let ino = f.ino;
        if ino.nid() == nid {
            use crate::error::At;
            inode::verify_checksum(self.ctx.sb.features, self.ctx.checksum_seed, &bytes)
                .and_then(|()| {
                    let raw = RawInode::of(&bytes);
                    format::delta::verify(raw, self.ctx.sb.features)
                })
                .at(|| format!("inode {nid} at block {addr}"))?;
        } else if node::kind_of(f.offset) == NodeKind::Delta && self.ctx.may_hold_deltas() {
            use crate::error::At;
            node::delta::verify(self.ctx.checksum_seed, &bytes)
                .at(|| format!("delta node {nid} of inode {ino} at block {addr}"))?;
        }
        Ok(self.cache.insert_read(nid, ino, bytes, current))
    }

    /// Changes a node's bytes and marks it dirty.
    pub(crate) fn edit<T>(&self, node: &Arc<Node>, f: impl FnOnce(&mut format::Block) -> T) -> T {
        let mut bytes = node.write();
        let out = f(&mut bytes);
        self.cache.mark_dirty(node);
        out
    }

    /// Changes an inode's fields and marks it dirty.
    pub(crate) fn edit_inode<T>(&self, node: &Arc<Node>, f: impl FnOnce(&mut RawInode) -> T) -> T {
        self.edit(node, |b| f(RawInode::of_mut(b)))
    }
}
