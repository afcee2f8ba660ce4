//! What does fsync write?
//!
//! For a regular file, fsync writes only contents and nodes if the file has one name, was not renamed since the last
//! checkpoint (or is newer than it), and is in a directory that this checkpoint contains: roll-forward replays the
//! nodes after a power cut. Such an fsync is called a *promise*. For a directory, fsync writes little or nothing if
//! roll-forward restores its names ([`directory`]). Every other fsync writes a checkpoint (kernel `need_do_checkpoint`,
//! fsync mode posix), also in two cases in which a replay would lose something: a file that lost nodes since the
//! checkpoint, and a new file whose name roll-forward would take from a directory or from a file that now has another
//! name ([`crate::promises::replayed`]).
//!
//! The order of writes makes a replay complete: data and the nodes below the inode, a flush, the inode with its fsync
//! mark, a flush (a mount can leave some out: [`FsyncMode`]). Without that mark, roll-forward ignores the file. If no block got a new address, because blocks were
//! overwritten in place or became deltas, the first flush is not needed. If all were overwritten in place, `fdatasync`
//! writes no inode. If they became deltas in delta nodes, the last of these nodes carries the mark, size and times, and
//! the inode is written only if more of it changed.

mod atomic;
mod directory;
mod place;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::inode::{Advise, InodeFlags, RawInode};
use format::node::{self, NodeKind};
use format::{Ino, Nid};
use vfs::FileKind;

use crate::cause::Cause;
use crate::context::{Begin, Change};
use crate::delta::Beside;
use crate::error::{Error, Result};
use crate::fields::{put_advise, stamp_of};
use crate::inode::balance::{Asked, Made};
use crate::inode::overwrite::overwrites;
use crate::inode::{Content, Inode};
use crate::node::cache::Node;
use crate::node::map::{Lookup, addr_in};
use crate::node::write::Mark;
use crate::options::FsyncMode;
use crate::pack::Reason;
use crate::promises::{Sighting, Since};
use crate::segment::temperature::Writeback;
use crate::volume::Volume;

/// What an fsync makes durable, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Contents and attributes.
    Everything,
    /// Contents, and attributes needed to read them (`fdatasync`).
    Contents,
    /// Everything, all of it or nothing.
    Atomic,
}

impl Volume {
    /// Makes a file or directory durable. The caller holds no lock.
    pub(crate) fn fsync_inode(&self, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
        if self.ctx.is_read_only() {
            return Ok(());
        }
        self.ctx.check_writable()?;
        if inode.kind == FileKind::Regular {
            if self.is_settled(inode) {
                return self.flush_last(inode.ino);
            }
            let change = self.begin_modest()?;
            self.clear_the_way(&change, inode)?;
            self.confirm_place(&change, inode);
            let content = inode.content.write();
            if self.nodes_suffice(inode)? {
                let how = if data_only { How::Contents } else { How::Everything };
                match self.promise(&change, inode, content, how) {
                    // Other writers used the space after `begin` had checked it: a checkpoint frees some.
                    Err(Error::Fs(vfs::Error::NoSpace)) => {}
                    out => return out,
                }
            }
        }
        if inode.kind == FileKind::Directory && self.sync_names(inode)? {
            self.counters.fast_dir_fsyncs.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.counters.slow_fsyncs.fetch_add(1, Ordering::Relaxed);
        self.cleaning.checkpoint(Reason::Running)
    }

    /// If roll-forward would take a new file's name from another file that was renamed since, writes that file's
    /// present name to the chain first.
    fn clear_the_way(&self, change: &Change<'_>, inode: &Inode) -> Result<()> {
        let ino = inode.ino;
        if !self.is_new(ino) {
            return Ok(());
        }
        let blocker = inode.node.inode(|r| {
            let (dir, names) = (Ino(r.i_pino.get()), self.promises.names.lock());
            if names.is_at(ino, dir, r.name()) { None } else { names.blocker(ino, dir, r.name()) }
        });
        blocker.map_or(Ok(()), |other| self.put_name(change, other).map(drop))
    }

    /// True if the inode is clean since its last fsync or checkpoint and all of it has reached the device, flushed or
    /// not. The caller holds no lock.
    fn is_settled(&self, inode: &Inode) -> bool {
        // A writer of contents and an fsync hold this lock until the device has everything. Other writers of nodes,
        // including a checkpoint, enter the inode in `strays` before they mark its nodes clean.
        let _content = inode.content.read();
        let since = self.nodes.nat.since_checkpoint(inode.ino.nid());
        (since.checkpointed || since.fsynced)
            && inode.dirty.load(Ordering::Acquire) == 0
            && self.nodes.cache.dirty_of(inode.ino).is_empty()
            && !self.promises.strays.lock().contains(&inode.ino)
    }

    /// True if roll-forward can restore the inode from its nodes. Clears the inode's mark of an unknown parent
    /// (`LOST_PINO`) if a checkpoint has its parent and name, or the chain will have them.
    fn nodes_suffice(&self, inode: &Arc<Inode>) -> Result<bool> {
        let ino = inode.ino;
        let (new, moved) = (self.is_new(ino), self.promises.renamed.lock().contains(&ino));
        let (links, flags, pino, sealed, unsure) = inode.node.inode(|r| {
            let sealed = r.advise().contains(Advise::VERITY);
            let unsure = r.advise().contains(Advise::LOST_PINO).then(|| Sighting::recorded(r));
            (r.i_links.get(), r.flags(), Nid(r.i_pino.get()), sealed, unsure)
        });
        // Linux's roll-forward would take the hashes behind a sealed file's end for a longer file.
        if links != 1
            || sealed
            || flags.contains(InodeFlags::COMPRESS)
            || self.promises.reshaped.lock().contains(&ino)
            || (moved && !new)
            || !self.nodes.space.fits_roll_forward()
        {
            return Ok(false);
        }
        let known_parent = pino.0 >= self.ctx.sb.root.0 && pino.0 < self.ctx.sb.max_nid();
        if !known_parent || !self.nodes.nat.since_checkpoint(pino).checkpointed {
            return Ok(false);
        }
        if new {
            let may = inode.node.inode(|r| {
                let names = self.promises.names.lock();
                names.is_at(ino, pino.as_ino(), r.name()) || names.allows(ino, pino.as_ino(), r.name())
            });
            if !may {
                return Ok(false);
            }
        }
        if let Some(place) = unsure {
            if !(moved && new || self.promises.vouched.lock().remove(&ino)) {
                return Ok(false);
            }
            // A rename after the first check has set the mark for another place.
            return Ok(self.nodes.edit_inode(&inode.node, |r| {
                let stays = Sighting::recorded(r) == place;
                if stays {
                    put_advise(r, Advise::LOST_PINO, false);
                }
                stays
            }));
        }
        Ok(true)
    }

    /// True if neither the checkpoint nor the chain has the inode under its name (kernel `need_dentry_mark`; the kernel
    /// does not get here for a file that moved).
    fn needs_name(&self, inode: &Inode) -> bool {
        let is_at = |r: &RawInode| self.promises.names.lock().is_at(inode.ino, Ino(r.i_pino.get()), r.name());
        self.is_new(inode.ino) && !inode.node.inode(is_at)
    }

    /// Writes contents and nodes for roll-forward, then flushes.
    fn promise(
        &self,
        change: &Change<'_>,
        inode: &Arc<Inode>,
        mut content: parking_lot::RwLockWriteGuard<'_, Content>,
        how: How,
    ) -> Result<()> {
        self.write_promise(change, inode, &mut content, how).inspect_err(|_| self.promises.stray(inode.ino))?;
        drop(content);
        self.flush_last(inode.ino)?;
        self.counters.fast_fsyncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// [`Self::promise`] without the final flush.
    fn write_promise(&self, change: &Change<'_>, inode: &Arc<Inode>, content: &mut Content, how: How) -> Result<()> {
        let had_contents = inode.dirty.load(Ordering::Acquire) > 0;
        let asked = self.asked(inode, content, how);
        let out = self.write_in_order(change, inode, content, how);
        if had_contents || !matches!(out, Ok(false)) {
            // Only now that the device has everything: a flush that began earlier does not cover it.
            self.promises.wrote(inode.ino);
        }
        if let (Some(asked), Ok(_)) = (asked, &out) {
            content.made.flushes += 1;
            content.made.before += u64::from(inode.node.take_applied()) * self.ctx.options.delta_costs.decode_pj;
            let made = content.made;
            if content.balance.enter(&self.ctx.options.prices, &asked, &made) {
                self.ctx.counters.delta_barred.fetch_add(1, Ordering::Relaxed);
            }
        }
        out.map(drop)
    }

    /// What F2FS without deltas would have to write for an fsync of a file that may have deltas.
    fn asked(&self, inode: &Arc<Inode>, content: &Content, how: How) -> Option<Asked> {
        let options = &self.ctx.options;
        let may = options.delta && options.prices_deltas() && self.ctx.may_hold_deltas();
        if !may || how == How::Atomic || content.pages.is_empty() {
            return None;
        }
        let node = &inode.node;
        let pages: Vec<u64> = content.pages.keys().copied().collect();
        let known = self.deltas.deltas(node).ok()?;
        let has_place = |index: &u64| {
            let Ok(Lookup::At(place)) = self.nodes.find(node, *index) else { return false };
            let bytes = place.node.read();
            known.has(*index) || addr_in(&self.ctx, &place.node, &bytes, place.slot).is_real()
        };
        let is_same = how == How::Contents && self.promises.since(inode.ino, &node.read(), true) == Since::Same;
        let why = if is_same { Writeback::FsyncContents } else { Writeback::Fsync };
        Some(Asked {
            pages: pages.len() as u64,
            runs: pages.chunk_by(|a, b| a + 1 == *b).count() as u64,
            stays: pages.iter().all(has_place)
                && overwrites((&self.ctx, &self.nodes), node, pages.iter().copied(), why),
            inode: !is_same,
            in_order: options.fsync_mode == FsyncMode::Strict,
        })
    }

    /// Writes contents, then nodes with the mark; false if no node had to be written.
    fn write_in_order(&self, change: &Change<'_>, inode: &Arc<Inode>, content: &mut Content, how: How) -> Result<bool> {
        let ino = inode.ino;
        content.made = Made::default();
        let data_only = how == How::Contents;
        let at_risk = self.ctx.may_hold_deltas() && self.promises.overwritten.lock().contains_key(&ino);
        let only_contents = || {
            data_only && self.ctx.may_hold_deltas() && self.promises.since(ino, &inode.node.read(), true) == Since::Same
        };
        let why = match how {
            How::Atomic => Writeback::Atomic,
            _ if only_contents() => Writeback::FsyncContents,
            _ => Writeback::Fsync,
        };
        let mut in_order = !self.files.write_back(change, inode, content, why)?;
        content.made.moved = !in_order;
        // Another fsync has overwritten a block in place and not flushed it yet. The block may now be a base.
        let base_at_risk = at_risk && self.deltas.holds_deltas(&inode.node);
        if base_at_risk {
            in_order = false;
        }
        let dirty = self.nodes.cache.dirty_of(ino);
        let of_kind = |wanted: fn(NodeKind) -> bool| -> Vec<Arc<Node>> {
            let is_wanted = |n: &&Arc<Node>| wanted(node::kind_of(node::footer(&n.read()).offset));
            dirty.iter().filter(|n| n.nid != ino.nid()).filter(is_wanted).cloned().collect()
        };
        // Roll-forward does not replay indirect nodes; it recreates them.
        let below = of_kind(|kind| matches!(kind, NodeKind::Direct { .. } | NodeKind::Xattr));
        if !below.is_empty() {
            self.nodes.write_nodes(change, &below, Mark::Plain, Cause::FsyncNode)?;
            in_order = false;
        }
        // Checked after the dirty nodes: another writer enters the inode in `strays` before it marks a node clean.
        if self.promises.strays.lock().contains(&ino) {
            in_order = false;
            // That writer holds `node_io` until the device has the node: the flush must not run earlier.
            drop(self.nodes.node_io.lock());
        }
        let mut deltas = of_kind(|kind| kind == NodeKind::Delta);
        let dentry = self.needs_name(inode);
        let since = if dentry { Since::More } else { self.promises.since(ino, &inode.node.read(), data_only) };
        if in_order && deltas.is_empty() && since == Since::Same {
            // Apart from blocks written in place, nothing changed that this fsync must make durable.
            return Ok(false);
        }
        // A delta node carries the mark if it can record all changes of the inode.
        let beside = self.ctx.options.delta_study.beside;
        let carrier = if since == Since::More || beside != Beside::Nothing { None } else { deltas.pop() };
        if beside == Beside::MetaAndInode {
            let is_root = |n: &Node| node::footer(&n.read()).offset == node::delta::FIRST_OFFSET;
            let (roots, others) = deltas.into_iter().partition::<Vec<_>, _>(|n| is_root(n));
            deltas = others;
            self.nodes.write_nodes(change, &roots, Mark::Plain, Cause::DeltaMeta)?;
        }
        content.made.nodes = deltas.len() as u64 + 1;
        content.made.node_requests = 1 + u64::from(!deltas.is_empty());
        content.made.below = below.len() as u64;
        // If one of these nodes is torn, the chain ends before the mark: no flush is needed between them.
        self.nodes.write_nodes(change, &deltas, Mark::Plain, Cause::DeltaNode)?;
        let in_every_order = match self.ctx.options.fsync_mode {
            FsyncMode::Strict => false,
            // A delta of another base than its own would be lost, even if it is durable.
            FsyncMode::Posix => !base_at_risk,
            FsyncMode::NoBarrier => true,
        };
        if !in_order && (how == How::Atomic || !in_every_order) {
            self.flush_for(ino)?;
            // Other reasons for this flush are not the fault of deltas.
            content.made.flushes += u64::from(content.made.moved || at_risk);
        }
        let Some(carrier) = carrier else {
            let mark = Mark::Fsync { dentry };
            self.nodes.write_nodes(change, std::slice::from_ref(&inode.node), mark, Cause::FsyncNode)?;
            return Ok(true);
        };
        let stamp = inode.node.inode(stamp_of);
        self.nodes.edit(&carrier, |b| node::delta::set_stamp(b, &stamp));
        self.nodes.write_nodes(change, &[carrier], Mark::Fsync { dentry: false }, Cause::DeltaNode)?;
        self.promises.stamped(ino, &stamp);
        Ok(true)
    }

    /// The last flush of an fsync, if the mount has one.
    fn flush_last(&self, ino: Ino) -> Result<()> {
        match self.ctx.options.fsync_mode {
            FsyncMode::NoBarrier => self.ctx.check_writable(),
            FsyncMode::Strict | FsyncMode::Posix => self.flush_written(ino),
        }
    }

    /// [`Self::flush_for`], unless a flush has followed everything that fsyncs of the inode wrote. (Writers without a
    /// mark enter it in `strays`; the fsync then writes it again.)
    fn flush_written(&self, ino: Ino) -> Result<()> {
        if self.promises.is_flushed(ino) { self.ctx.check_writable() } else { self.flush_for(ino) }
    }

    fn flush_for(&self, ino: Ino) -> Result<()> {
        let last = self.promises.last_write(ino);
        let written = self.promises.names.lock().written();
        let overwritten =
            self.ctx.may_hold_deltas().then(|| self.promises.overwritten.lock().get(&ino).copied()).flatten();
        self.flushes.pass(|| {
            // A flush may have failed while this fsync waited for it.
            self.ctx.check_writable()?;
            self.ctx.dev.flush(Cause::FsyncNode.of(ino)).map_err(|e| {
                // It is unknown which writes are lost: no fsync may succeed before a checkpoint has.
                self.ctx.health.fail(format_args!("an fsync could not flush the device: {e}"));
                e.into()
            })
        })?;
        self.promises.names.lock().flushed(written);
        self.promises.flushed(ino, last);
        if overwritten.is_some() {
            let mut all = self.promises.overwritten.lock();
            if all.get(&ino).copied() == overwritten {
                all.remove(&ino);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use device::{Faulty, Gate, Memory, Op, Time, VirtualClock};
    use vfs::FileSystem;

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    #[test]
    fn an_fsync_flushes_after_the_nodes_that_another_thread_writes() {
        let inner = Memory::new(64 * 256);
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        crate::mkfs::format(&inner, &*clock, &crate::mkfs::Options::default()).unwrap();
        let dev = Arc::new(Gate::new(Faulty::new(inner)));
        let flushes = || dev.inner().requests(Op::Flush);
        let vol = Volume::mount(dev.clone(), clock, MountOptions::default()).unwrap();
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(1000));
        vol.sync().unwrap();
        // The address of the block is in a direct node.
        write(&vol, f, 950 * 4096, &blocks(40));
        vol.files.flush_all_contents(&mut vol.ctx.cp.write()).unwrap();
        dev.stop(Op::Write, Some(Cause::Node.tag().cause));
        std::thread::scope(|s| {
            s.spawn(|| {
                let held = vol.ctx.cp.read();
                vol.nodes.write_nodes(&held, &vol.nodes.cache.dirty(), Mark::Plain, Cause::Node).unwrap();
            });
            assert!(dev.await_one());
            let before = flushes();
            let syncer = s.spawn(|| vol.fsync(f, false));
            std::thread::sleep(A_WHILE);
            let during = flushes();
            dev.go_on();
            syncer.join().unwrap().unwrap();
            assert_eq!(during, before, "a flush before the node was written");
            assert_eq!(flushes(), before + 2, "one before the inode, one behind it");
        });
        judge(dev.inner().inner(), &vol);
    }

    #[test]
    fn an_inode_written_without_a_mark_is_not_replayed_over_what_a_delta_node_marks() {
        use format::superblock::Features;
        let inner = Memory::new(64 * 256);
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        let features = crate::mkfs::Options::modern().features | Features::DELTA;
        let made = crate::mkfs::Options { features, ..crate::mkfs::Options::default() };
        crate::mkfs::format(&inner, &*clock, &made).unwrap();
        let dev = Arc::new(inner);
        let vol = Volume::mount(dev.clone(), clock.clone(), MountOptions::default()).unwrap();
        let f = file(&vol, "f");
        write(&vol, f, 0, &vec![5; 2000 * 4096]);
        vol.fsync(f, false).unwrap();
        let node = vol.names.outer(f).unwrap().node.clone();
        let chmod = |perm| vol.setattr(f, &vfs::SetAttr { perm: Some(perm), ..vfs::SetAttr::default() }).unwrap();
        let change = |at: u64| [100, 1500].map(|page| write(&vol, f, page * 4096 + at, b"changed"));
        change(0);
        vol.fsync(f, false).unwrap();
        assert_eq!(vol.counters.deltas.load(Ordering::Relaxed), 2);
        for round in 1..4 {
            chmod(0o600);
            let held = vol.ctx.cp.read();
            vol.nodes.write_nodes(&held, std::slice::from_ref(&node), Mark::Plain, Cause::Node).unwrap();
            drop(held);
            chmod(0o644);
            change(round * 10);
            vol.fsync(f, false).unwrap();
            let again = Volume::mount(Arc::new(dev.fork()), clock.clone(), MountOptions::default()).unwrap();
            assert_eq!(again.getattr(f).unwrap().perm, 0o644, "round {round}");
            assert!(read(&again, f) == read(&vol, f));
        }
    }
}
