//! Where is each node? The node address table (NAT) with its journal, its dirty entries and the pool of free node
//! numbers.
//!
//! One mutex guards it; a NAT block that is not cached is read under it. Memory: an LRU of fixed size keeps clean
//! blocks; dirty entries live until the next checkpoint. Left out on purpose: nat_bits (the first checkpoint drops
//! them, which Linux allows).

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{BlockDevice, Lba};
use format::nat::{self, NAT_ENTRIES, NatEntry};
use format::summary::{JOURNAL_BYTES, NAT_JOURNAL, encode_nat_journal};
use format::superblock::SuperBlock;
use format::{Block, BlockAddr, Ino, Nid, bits};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::cause::Cause;
use crate::error::{Error, Result};

/// Clean NAT blocks kept: 8 MiB, entries of 930,000 nodes.
const CACHED_BLOCKS: usize = 2048;
/// Dirty entries kept before a checkpoint is due: about 4 MiB.
const MOST_DIRTY: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Dirty {
    entry: NatEntry,
    /// Part of a checkpoint, at whatever address.
    checkpointed: bool,
    /// Its inode block was written by an fsync since the checkpoint.
    fsynced: bool,
}

struct State {
    bitmap: Vec<u8>,
    dirty: FxHashMap<Nid, Dirty>,
    journal: FxHashMap<Nid, NatEntry>,
    blocks: LruCache<u32, Box<Block>, FxBuildHasher>,
    free: VecDeque<Nid>,
    /// Next NAT block to search for free numbers, and how many have been searched.
    scan: u32,
    scanned: u32,
    /// Numbers freed since the last checkpoint: usable after the next one.
    freed: Vec<Nid>,
}

/// The node address table.
pub struct Nat {
    dev: Arc<dyn BlockDevice>,
    sb: Arc<SuperBlock>,
    state: Mutex<State>,
    /// [`Self::wants_checkpoint`] as of the last change.
    wants_checkpoint: AtomicBool,
}

/// An inode's history since the last checkpoint, as fsync needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinceCheckpoint {
    /// True if the last checkpoint knows this node.
    pub checkpointed: bool,
    /// True if an fsync has written it since.
    pub fsynced: bool,
}

impl Nat {
    /// The table as a checkpoint with this bitmap and journal describes it.
    pub fn new(
        dev: Arc<dyn BlockDevice>,
        sb: Arc<SuperBlock>,
        bitmap: Vec<u8>,
        journal: Vec<(Nid, NatEntry)>,
        next_free: u32,
    ) -> Self {
        let blocks = sb.nat_blocks();
        let cap = NonZeroUsize::new(CACHED_BLOCKS).unwrap_or(NonZeroUsize::MIN);
        let state = State {
            bitmap,
            dirty: FxHashMap::default(),
            journal: journal.into_iter().collect(),
            blocks: LruCache::with_hasher(cap, FxBuildHasher),
            free: VecDeque::new(),
            scan: (next_free / NAT_ENTRIES) % blocks.max(1),
            scanned: 0,
            freed: Vec::new(),
        };
        Nat { dev, sb, state: Mutex::new(state), wants_checkpoint: AtomicBool::new(false) }
    }

    fn check(&self, nid: Nid) -> Result<()> {
        if nid.0 == 0 || nid.0 >= self.sb.max_nid() {
            let max = self.sb.max_nid();
            return Err(Error::corrupt(format_args!("node number {nid} is outside 1..{max}")));
        }
        Ok(())
    }

    fn block<'s>(&self, s: &'s mut State, n: u32) -> Result<&'s Block> {
        if !s.blocks.contains(&n) {
            let mut b = Box::new([0; 4096]);
            let at = self.sb.nat_block(n, bits::msb_test(&s.bitmap, n as usize));
            self.dev.read(Lba(at.0.into()), &mut *b, Cause::Nat.tag())?;
            s.blocks.put(n, b);
        }
        // OK to unwrap: put above if it was missing.
        Ok(s.blocks.get(&n).unwrap())
    }

    fn lookup(&self, s: &mut State, nid: Nid) -> Result<NatEntry> {
        if let Some(d) = s.dirty.get(&nid) {
            return Ok(d.entry);
        }
        if let Some(e) = s.journal.get(&nid) {
            return Ok(*e);
        }
        let (n, i) = nat::position(nid);
        Ok(nat::get(self.block(s, n)?, i))
    }

    /// The entry of a node. For a free number the entry's address is NULL.
    pub fn get(&self, nid: Nid) -> Result<NatEntry> {
        self.check(nid)?;
        self.lookup(&mut self.state.lock(), nid)
    }

    /// A number nothing uses, reserved for `owner` (`None`: it is an inode's own) until
    /// [`Self::release`] or [`Self::moved`].
    pub fn reserve(&self, owner: Option<Ino>) -> Result<Nid> {
        let mut s = self.state.lock();
        let out = self.take_free(&mut s, owner);
        self.note_want(&s);
        out
    }

    fn take_free(&self, s: &mut State, owner: Option<Ino>) -> Result<Nid> {
        loop {
            if let Some(nid) = s.free.pop_front() {
                let old = self.lookup(s, nid)?;
                let ino = owner.unwrap_or(nid.as_ino());
                let entry = NatEntry { version: old.version, ino, addr: BlockAddr::NEW };
                s.dirty.insert(nid, Dirty { entry, checkpointed: false, fsynced: false });
                return Ok(nid);
            }
            if s.scanned >= self.sb.nat_blocks() {
                return Err(Error::no_space());
            }
            self.scan(s)?;
        }
    }

    /// Looks for free numbers in the next NAT block.
    fn scan(&self, s: &mut State) -> Result<()> {
        let n = s.scan;
        s.scan = (n + 1) % self.sb.nat_blocks();
        s.scanned += 1;
        let block = *self.block(s, n)?;
        let max = self.sb.max_nid();
        for i in 0..NAT_ENTRIES {
            let nid = Nid(n * NAT_ENTRIES + i);
            let on_disk = nat::get(&block, i as usize).addr;
            if nid.0 <= 3 || nid.0 >= max || s.dirty.contains_key(&nid) {
                continue; // a dirty free number comes back at the checkpoint
            }
            let addr = s.journal.get(&nid).map_or(on_disk, |e| e.addr);
            if addr == BlockAddr::NULL {
                s.free.push_back(nid);
            }
        }
        Ok(())
    }

    /// True if a checkpoint should come before further changes: either every free number was freed since the last one,
    /// and becomes usable by a checkpoint, or too many entries wait in memory.
    pub fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint.load(Ordering::Relaxed)
    }

    /// Wants one until the next change.
    #[cfg(test)]
    pub(crate) fn want_checkpoint(&self) {
        self.wants_checkpoint.store(true, Ordering::Relaxed);
    }

    /// Updates `wants_checkpoint`; call it after every change of what that depends on.
    fn note_want(&self, s: &State) {
        let exhausted = s.free.is_empty() && s.scanned >= self.sb.nat_blocks() && !s.freed.is_empty();
        self.wants_checkpoint.store(exhausted || s.dirty.len() > MOST_DIRTY, Ordering::Relaxed);
    }

    /// Takes a given number for recovery; its version stays.
    pub fn claim(&self, nid: Nid, owner: Ino) -> Result<()> {
        self.check(nid)?;
        let mut s = self.state.lock();
        let old = self.lookup(&mut s, nid)?;
        // It is no longer free, whether a search had found it or it was freed since the checkpoint.
        if old.addr == BlockAddr::NULL {
            match s.dirty.contains_key(&nid) {
                true => s.freed.retain(|n| *n != nid),
                false => s.free.retain(|n| *n != nid),
            }
        }
        let entry = NatEntry { version: old.version, ino: owner, addr: BlockAddr::NEW };
        s.dirty.insert(nid, Dirty { entry, checkpointed: false, fsynced: false });
        self.note_want(&s);
        Ok(())
    }

    /// Records that a node was written to `addr`. `fsync`: as an inode, by its own fsync.
    pub fn moved(&self, nid: Nid, addr: BlockAddr, fsync: bool) -> Result<()> {
        let mut s = self.state.lock();
        let s = &mut *s;
        if let Some(d) = s.dirty.get_mut(&nid) {
            d.entry.addr = addr;
            d.fsynced |= fsync;
            return Ok(());
        }
        let mut entry = self.lookup(s, nid)?;
        entry.addr = addr;
        s.dirty.insert(nid, Dirty { entry, checkpointed: true, fsynced: fsync });
        self.note_want(s);
        Ok(())
    }

    /// Frees a node's number from the next checkpoint on, and raises its version.
    pub fn release(&self, nid: Nid) -> Result<()> {
        self.check(nid)?;
        let mut s = self.state.lock();
        let e = self.lookup(&mut s, nid)?;
        let entry = NatEntry { version: e.version.wrapping_add(1), ino: e.ino, addr: BlockAddr::NULL };
        s.dirty.insert(nid, Dirty { entry, checkpointed: false, fsynced: false });
        s.freed.push(nid);
        self.note_want(&s);
        Ok(())
    }

    /// The history of a node since the last checkpoint.
    pub fn since_checkpoint(&self, nid: Nid) -> SinceCheckpoint {
        match self.state.lock().dirty.get(&nid) {
            Some(d) => SinceCheckpoint { checkpointed: d.checkpointed, fsynced: d.fsynced },
            None => SinceCheckpoint { checkpointed: true, fsynced: false },
        }
    }

    /// Where the next search for free numbers should begin.
    pub fn next_free_hint(&self) -> u32 {
        let s = self.state.lock();
        s.free.front().map_or(s.scan * NAT_ENTRIES, |n| n.0).clamp(4, self.sb.max_nid() - 1)
    }

    /// Writes every dirty entry: as many as fit to the journal, the rest to the other copy of their block. Returns the
    /// journal and the bitmap for the checkpoint. The caller keeps all other threads out; if this fails, the volume
    /// must not write another checkpoint.
    pub fn flush(&self) -> Result<([u8; JOURNAL_BYTES], Vec<u8>)> {
        let mut guard = self.state.lock();
        let s = &mut *guard;
        let mut groups: BTreeMap<u32, BTreeMap<Nid, NatEntry>> = BTreeMap::new();
        let all_fit = s.journal.len() + s.dirty.len() <= NAT_JOURNAL;
        if !all_fit {
            for (nid, e) in s.journal.drain() {
                groups.entry(nat::position(nid).0).or_default().insert(nid, e);
            }
        }
        for (nid, d) in &s.dirty {
            if d.entry.addr != BlockAddr::NEW {
                groups.entry(nat::position(*nid).0).or_default().insert(*nid, d.entry);
            }
        }
        let mut by_size: Vec<(u32, BTreeMap<Nid, NatEntry>)> = groups.into_iter().collect();
        by_size.sort_by_key(|(n, g)| (g.len(), *n));
        let mut to_blocks = Vec::new();
        for (n, group) in by_size {
            let extra = group.keys().filter(|nid| !s.journal.contains_key(nid)).count();
            if s.journal.len() + extra <= NAT_JOURNAL {
                s.journal.extend(group);
            } else {
                to_blocks.push((n, group));
            }
        }
        to_blocks.sort_by_key(|(n, _)| *n);
        for (n, group) in to_blocks {
            let mut b = Box::new(*self.block(s, n)?);
            for (nid, e) in group {
                nat::put(&mut b, nat::position(nid).1, e);
            }
            let second = !bits::msb_test(&s.bitmap, n as usize);
            let at = self.sb.nat_block(n, second);
            self.dev.write(Lba(at.0.into()), &*b, Cause::Nat.tag())?;
            bits::msb_put(&mut s.bitmap, n as usize, second);
            s.blocks.put(n, b);
        }
        s.dirty.retain(|_, d| d.entry.addr == BlockAddr::NEW);
        let freed = std::mem::take(&mut s.freed);
        s.free.extend(freed);
        self.note_want(s);
        let mut journal: Vec<(Nid, NatEntry)> = s.journal.iter().map(|(n, e)| (*n, *e)).collect();
        journal.sort_by_key(|(n, _)| *n);
        Ok((encode_nat_journal(&journal), s.bitmap.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::mounted;

    #[test]
    fn a_number_that_recovery_claims_and_that_is_released_is_used_again_only_after_a_checkpoint() {
        let (_dev, vol) = mounted(64, crate::MountOptions::default());
        let nat = &vol.nat;
        // Finds free numbers, the next one among them.
        let first = nat.reserve(None).unwrap();
        let claimed = Nid(first.0 + 1);
        nat.claim(claimed, claimed.as_ino()).unwrap();
        nat.release(claimed).unwrap();
        let until: Vec<Nid> = (0..600).map(|_| nat.reserve(None).unwrap()).collect();
        assert!(!until.contains(&claimed));
        nat.claim(claimed, claimed.as_ino()).unwrap();
        nat.release(claimed).unwrap();
        until.iter().for_each(|&n| nat.release(n).unwrap());
        nat.flush().unwrap();
        let mut after: Vec<Nid> = (0..2000).map(|_| nat.reserve(None).unwrap()).collect();
        assert!(after.contains(&claimed));
        after.sort_unstable();
        assert!(after.is_sorted_by(|a, b| a < b), "a number is given away once");
    }
}
