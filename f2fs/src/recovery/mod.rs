//! How does a mount replay fsynced changes after a power cut (roll-forward)?
//!
//! 1. [`chain`]: find the nodes written since the checkpoint, up to the end of the chain in the warm node log.
//! 2. Before anything changes in memory, mark the blocks of the chain and the data they point at as *held*: nothing
//!    overwrites them before the checkpoint that ends recovery. So a power cut during recovery leaves the state that
//!    this mount found.
//! 3. Free the orphans, except those that cannot be freed.
//! 4. `replay` and `name`: restore inodes, contents and names in write order, each inode up to its last node with an
//!    fsync mark. No fsync promised later nodes.
//! 5. Write a checkpoint.
//!
//! A mount may discard the chain instead ([`RollForward::GiveUp`]): the final checkpoint has a version that the chain's
//! nodes do not have. Or it changes nothing and recovers nothing ([`RollForward::Leave`]).
//!
//! A cleanly unmounted volume without anything to replay is not written to.

mod chain;
mod name;
mod replay;

use std::sync::atomic::Ordering;

use device::Lba;
use format::checkpoint::CpFlags;
use format::sit::LogType;
use format::{Block, BlockAddr, Ino};
use rustc_hash::FxHashMap;

use crate::cause::Cause;
use crate::error::Result;
use crate::options::RollForward;
use crate::pack::{PackState, Reason};
use crate::volume::Volume;
use chain::Link;

/// The nodes of one inode in the chain, by their positions.
#[derive(Debug, Default, Clone, Copy)]
struct Promise {
    /// The last node with an fsync mark.
    last: Option<usize>,
    /// The last inode block with a name to restore.
    name: Option<usize>,
}

impl Volume {
    /// Brings a newly mounted volume to the state promised by fsync. No other thread uses it yet.
    pub(crate) fn recover(&self) -> Result<()> {
        let clean = self.ctx.cp.read().checkpoint.flags.contains(CpFlags::UMOUNT);
        let (chain, given_up) = match self.ctx.options.roll_forward {
            RollForward::Replay => (self.chain()?, false),
            // Linux writes no checkpoint when it mounts a clean volume: a chain may follow a clean checkpoint.
            RollForward::GiveUp => (Vec::new(), self.chain().map_or(true, |chain| !chain.is_empty())),
            RollForward::Leave => (Vec::new(), false),
        };
        let orphans = !self.inodes.orphans.is_empty();
        if clean && chain.is_empty() && !given_up && !orphans {
            return Ok(());
        }
        if !chain.is_empty() {
            self.protect(&chain)?;
        }
        self.logs.seg.lock().leave_unfit()?;
        let held = self.ctx.cp.read();
        self.names.free_orphans(&held);
        let replayed = self.replay(&held, &chain)?;
        drop(held);
        if replayed > 0 || orphans {
            log::info!("recovered {replayed} inodes from {} nodes written since the checkpoint", chain.len());
        }
        self.ctx.changed.store(true, Ordering::Release);
        self.cleaning.checkpoint(Reason::Running)
    }

    fn read_link(&self, addr: BlockAddr) -> Result<Box<Block>> {
        let mut b = Box::new([0; 4096]);
        self.ctx.dev.read(Lba(addr.0.into()), &mut *b, Cause::Recovery.tag())?;
        Ok(b)
    }

    /// Holds the chain's blocks and the data they point at. If such blocks are ahead of a log in its segment, the log
    /// fills the holes between them.
    fn protect(&self, chain: &[Link]) -> Result<()> {
        for link in chain {
            let block = self.read_link(link.addr)?;
            let mut seg = self.logs.seg.lock();
            seg.hold(link.addr)?;
            for (_, a) in chain::addresses(self.ctx.sb.features, &block) {
                if a.is_real() {
                    seg.hold(a)?;
                }
            }
        }
        let mut seg = self.logs.seg.lock();
        LogType::ALL.into_iter().try_for_each(|log| seg.avoid_held(log))
    }

    /// Replays the chain; returns how many inodes it restored.
    fn replay(&self, held: &PackState, chain: &[Link]) -> Result<usize> {
        let mut promises: FxHashMap<Ino, Promise> = FxHashMap::default();
        for (i, link) in chain.iter().enumerate().filter(|(_, l)| l.fsync) {
            let p = promises.entry(link.ino).or_default();
            p.last = Some(i);
            if link.is_inode && link.dentry {
                p.name = Some(i);
            }
        }
        // New inodes first, so that their numbers are not allocated to other nodes.
        for (i, link) in chain.iter().enumerate() {
            let promised = promises.get(&link.ino).copied().unwrap_or_default();
            if promised.name != Some(i) {
                continue;
            }
            if self.nodes.nat.get(link.nid)?.addr == BlockAddr::NULL {
                let block = self.read_link(link.addr)?;
                self.recover_new(link, &block)?;
            }
        }
        let (mut nameless, mut displaced) = (Vec::new(), Vec::new());
        let mut done = 0;
        for (i, link) in chain.iter().enumerate() {
            let Some(p) = promises.get(&link.ino).copied() else { continue };
            if p.last.is_none_or(|last| last < i) {
                continue;
            }
            let inode = match self.inodes.inode(link.ino) {
                // The node with its name is not in the chain: there is no name to restore.
                Err(crate::error::Error::Fs(vfs::Error::NotFound)) => {
                    promises.remove(&link.ino);
                    continue;
                }
                other => other?,
            };
            let block = self.read_link(link.addr)?;
            self.replay_link(&inode, link, &block)?;
            if p.name == Some(i) && !self.restore_name(held, &inode, &block, &mut displaced)? {
                nameless.push(inode.clone());
            }
            done += usize::from(p.last == Some(i));
        }
        for inode in nameless {
            log::warn!("inode {}: fsynced, but its directory is gone; dropped", inode.ino);
            self.names.abandon(held, &inode)?;
        }
        for dir in &displaced {
            self.settle_displaced(held, dir)?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::Memory;
    use vfs::FileSystem;

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    fn again(dev: &Arc<Memory>, vol: &Volume, roll_forward: RollForward) -> Arc<Volume> {
        let options = MountOptions { roll_forward, ..MountOptions::default() };
        Volume::mount(dev.clone(), vol.ctx.clock.clone(), options).unwrap()
    }

    #[test]
    fn a_chain_given_up_behind_a_clean_unmount_is_not_found_by_later_mounts() {
        let (dev, vol) = mounted(64, MountOptions::default());
        let f = file(&vol, "f");
        write(&vol, f, 0, &blocks(5));
        vol.unmount().unwrap();
        let vol = again(&dev, &vol, RollForward::Replay);
        // As in Linux: the first change after the mount causes no checkpoint.
        vol.ctx.untouched.store(false, Ordering::Release);
        write(&vol, f, 0, &blocks(90)[4096..]);
        vol.fsync(f, false).unwrap();
        assert!(vol.state().clean_unmount, "no checkpoint came between");
        let replayed = again(&Arc::new(dev.fork()), &vol, RollForward::Replay);
        assert!(read(&replayed, f) == blocks(90)[4096..], "there is a chain");
        let vol = again(&dev, &vol, RollForward::GiveUp);
        assert!(read(&vol, f) == blocks(5));
        // Power cut.
        let vol = again(&dev, &vol, RollForward::Replay);
        assert!(read(&vol, f) == blocks(5));
        judge(&dev, &vol);
    }
}
