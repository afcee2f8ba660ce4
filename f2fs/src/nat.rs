//! Where is each node? This is the node address table (NAT) with its journal, its dirty entries and the pool of free
//! node numbers.
//!
//! One lock guards it, shared by lookups. No thread holds it during device I/O, so a lookup waits neither for a
//! checkpoint nor for the NAT block of another node. Memory: a cache of fixed size keeps clean blocks; dirty entries
//! live until the next checkpoint. Left out on purpose: nat_bits (the first checkpoint drops them, which Linux allows).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{BlockDevice, Lba};
use format::nat::{self, NAT_ENTRIES, NatEntry};
use format::summary::{JOURNAL_BYTES, NAT_JOURNAL, encode_nat_journal};
use format::superblock::SuperBlock;
use format::{Block, BlockAddr, Ino, Nid, bits};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::replacement::Cache;

/// Clean NAT blocks in the cache: 8 MiB, entries of 930,000 nodes.
const CACHED_BLOCKS: usize = 2048;
/// Dirty entries kept before a checkpoint is due: about 4 MiB.
const MOST_DIRTY: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Dirty {
    entry: NatEntry,
    /// Part of a checkpoint, at any address.
    checkpointed: bool,
    /// Its inode block was written by an fsync since the checkpoint.
    fsynced: bool,
}

struct State {
    /// Which copy of each block is newer.
    bitmap: Vec<u8>,
    /// The bitmap of the last durable checkpoint. Its copies stay untouched until the next one is durable, even after
    /// failed attempts.
    durable: Vec<u8>,
    dirty: FxHashMap<Nid, Dirty>,
    journal: FxHashMap<Nid, NatEntry>,
    blocks: Cache<u32, Box<Block>>,
    /// Number of block writes and commits; shows that a block changed during a read.
    flushes: u64,
    free: VecDeque<Nid>,
    /// Next NAT block to search for free numbers, and the number of searched blocks.
    scan: u32,
    scanned: u32,
    /// Numbers freed since the last checkpoint: usable after the next one.
    freed: Vec<Nid>,
}

/// A block that is not in the cache.
struct Missing(u32);

/// Entries of one block.
type Group = BTreeMap<Nid, NatEntry>;

impl State {
    fn entry(&self, nid: Nid) -> std::result::Result<NatEntry, Missing> {
        let (n, i) = nat::position(nid);
        self.newer(nid).or_else(|| self.blocks.get(&n).map(|b| nat::get(b, i))).ok_or(Missing(n))
    }

    /// The same without an effect on the cache.
    fn peek(&self, nid: Nid) -> Option<NatEntry> {
        let (n, i) = nat::position(nid);
        self.newer(nid).or_else(|| self.blocks.peek(&n).map(|b| nat::get(b, i)))
    }

    /// An entry newer than the one in its block.
    fn newer(&self, nid: Nid) -> Option<NatEntry> {
        self.dirty.get(&nid).map(|d| d.entry).or_else(|| self.journal.get(&nid).copied())
    }

    fn keep(&mut self, n: u32, block: Box<Block>) {
        self.blocks.insert(n, block);
        drop(self.blocks.make_room(|_| false));
    }

    /// The initial journal, and the entries that must go to the journal or to blocks.
    fn to_flush(&self) -> (FxHashMap<Nid, NatEntry>, BTreeMap<u32, Group>) {
        let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
        let mut journal = self.journal.clone();
        if journal.len() + self.dirty.len() > NAT_JOURNAL {
            for (nid, e) in journal.drain() {
                groups.entry(nat::position(nid).0).or_default().insert(nid, e);
            }
        }
        for (nid, d) in &self.dirty {
            if d.entry.addr != BlockAddr::NEW {
                groups.entry(nat::position(*nid).0).or_default().insert(*nid, d.entry);
            }
        }
        (journal, groups)
    }
}

/// The node address table.
pub struct Nat {
    dev: Arc<dyn BlockDevice>,
    sb: Arc<SuperBlock>,
    state: RwLock<State>,
    /// [`Self::wants_checkpoint`] as of the last change.
    wants_checkpoint: AtomicBool,
}

/// An inode's history since the last checkpoint, as fsync needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinceCheckpoint {
    /// True if the last checkpoint contains this node.
    pub checkpointed: bool,
    /// True if an fsync has written it since.
    pub fsynced: bool,
}

impl Nat {
    /// The table described by a checkpoint's bitmap and journal.
    pub fn new(
        dev: Arc<dyn BlockDevice>,
        sb: Arc<SuperBlock>,
        bitmap: Vec<u8>,
        journal: Vec<(Nid, NatEntry)>,
        next_free: u32,
    ) -> Self {
        let blocks = sb.nat_blocks();
        let state = State {
            durable: bitmap.clone(),
            bitmap,
            dirty: FxHashMap::default(),
            journal: journal.into_iter().collect(),
            blocks: Cache::new(CACHED_BLOCKS, CACHED_BLOCKS / 8),
            flushes: 0,
            free: VecDeque::new(),
            scan: (next_free / NAT_ENTRIES) % blocks.max(1),
            scanned: 0,
            freed: Vec::new(),
        };
        Nat { dev, sb, state: RwLock::new(state), wants_checkpoint: AtomicBool::new(false) }
    }

    fn check(&self, nid: Nid) -> Result<()> {
        if nid.0 == 0 || nid.0 >= self.sb.max_nid() {
            let max = self.sb.max_nid();
            return Err(Error::corrupt(format_args!("node number {nid} is outside 1..{max}")));
        }
        Ok(())
    }

    /// Loads a block into the cache, unless it changes meanwhile; the caller looks again.
    fn load(&self, n: u32) -> Result<()> {
        let (second, before) = {
            let s = self.state.read();
            (bits::msb_test(&s.bitmap, n as usize), s.flushes)
        };
        let mut b = Box::new([0; 4096]);
        let read = self.dev.read(Lba(self.sb.nat_block(n, second).0.into()), &mut *b, Cause::Nat.tag());
        let mut s = self.state.write();
        // If a flush wrote the block meanwhile, the bytes may be old or new.
        if (bits::msb_test(&s.bitmap, n as usize), s.flushes) == (second, before) {
            read?;
            s.keep(n, b);
        }
        Ok(())
    }

    /// The result of `look` with the lock shared, after missing blocks were loaded.
    fn look<T>(&self, look: impl Fn(&State) -> std::result::Result<T, Missing>) -> Result<T> {
        loop {
            let found = look(&self.state.read());
            match found {
                Ok(found) => return Ok(found),
                Err(Missing(n)) => self.load(n)?,
            }
        }
    }

    /// The entry of a node. A free number has the address NULL.
    pub fn get(&self, nid: Nid) -> Result<NatEntry> {
        self.check(nid)?;
        loop {
            let Missing(n) = match self.state.read().entry(nid) {
                Ok(entry) => return Ok(entry),
                Err(missing) => missing,
            };
            self.load(n)?;
            // The lookup that caused a load counts as one access.
            if let Some(entry) = self.state.read().peek(nid) {
                return Ok(entry);
            }
        }
    }

    /// True if memory shows that a node is at an address; does not read the device.
    pub fn is_at(&self, nid: Nid, addr: BlockAddr) -> bool {
        self.state.read().peek(nid).is_some_and(|e| e.addr == addr)
    }

    /// Reserves a free number for `owner` (`None`: the number of an inode) until [`Self::release`] or [`Self::moved`].
    pub fn reserve(&self, owner: Option<Ino>) -> Result<Nid> {
        loop {
            let taken = {
                let mut s = self.state.write();
                let taken = self.take_free(&mut s, owner);
                self.note_want(&s);
                taken
            };
            match taken {
                Ok(nid) => return nid.ok_or_else(Error::no_space),
                Err(Missing(n)) => self.load(n).inspect_err(|_| self.pass_by(n))?,
            }
        }
    }

    /// Continues the search for free numbers after a block that cannot be read: such a block fails one operation, not
    /// all later ones.
    fn pass_by(&self, n: u32) {
        let mut s = self.state.write();
        if s.free.front().is_some_and(|nid| nat::position(*nid).0 == n) {
            s.free.pop_front();
        } else if s.free.is_empty() && s.scan == n && s.scanned < self.sb.nat_blocks() {
            s.scan = (n + 1) % self.sb.nat_blocks();
            s.scanned += 1;
        }
        self.note_want(&s);
    }

    fn take_free(&self, s: &mut State, owner: Option<Ino>) -> std::result::Result<Option<Nid>, Missing> {
        loop {
            if let Some(&nid) = s.free.front() {
                let old = s.entry(nid)?;
                s.free.pop_front();
                let ino = owner.unwrap_or(nid.as_ino());
                let entry = NatEntry { version: old.version, ino, addr: BlockAddr::NEW };
                s.dirty.insert(nid, Dirty { entry, checkpointed: false, fsynced: false });
                return Ok(Some(nid));
            }
            if s.scanned >= self.sb.nat_blocks() {
                return Ok(None);
            }
            self.scan(s)?;
        }
    }

    /// Searches the next NAT block for free numbers.
    fn scan(&self, s: &mut State) -> std::result::Result<(), Missing> {
        let n = s.scan;
        let block = s.blocks.get(&n).ok_or(Missing(n))?;
        let max = self.sb.max_nid();
        for i in 0..NAT_ENTRIES {
            let nid = Nid(n * NAT_ENTRIES + i);
            let on_disk = nat::get(block, i as usize).addr;
            if self.sb.is_named(nid) || nid.0 >= max || s.dirty.contains_key(&nid) {
                continue; // a dirty free number becomes available at the checkpoint
            }
            let addr = s.journal.get(&nid).map_or(on_disk, |e| e.addr);
            if addr == BlockAddr::NULL {
                s.free.push_back(nid);
            }
        }
        s.scan = (n + 1) % self.sb.nat_blocks();
        s.scanned += 1;
        Ok(())
    }

    /// True if a checkpoint should come before further changes: either all free numbers were freed since the last one
    /// and need a checkpoint to become usable, or too many entries wait in memory.
    pub fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint.load(Ordering::Relaxed)
    }

    /// Requests a checkpoint until the next change.
    #[cfg(test)]
    pub(crate) fn want_checkpoint(&self) {
        self.wants_checkpoint.store(true, Ordering::Relaxed);
    }

    /// Updates `wants_checkpoint`; call it after every change that affects it.
    fn note_want(&self, s: &State) {
        let exhausted = s.free.is_empty() && s.scanned >= self.sb.nat_blocks() && !s.freed.is_empty();
        self.wants_checkpoint.store(exhausted || s.dirty.len() > MOST_DIRTY, Ordering::Relaxed);
    }

    /// Claims a given number for recovery; its version stays.
    pub fn claim(&self, nid: Nid, owner: Ino) -> Result<()> {
        if self.sb.is_named(nid) && nid != owner.nid() {
            return Err(Error::corrupt(format_args!(
                "node number {nid} is kept for an inode that the superblock names, and a node of inode {owner} claims it"
            )));
        }
        let old = self.get(nid)?;
        let mut s = self.state.write();
        // It is no longer free, whether found by a search or freed since the checkpoint.
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

    /// Records that a node was written to `addr`. `fsync`: an inode written by its own fsync.
    pub fn moved(&self, nid: Nid, addr: BlockAddr, fsync: bool) -> Result<()> {
        // Only the thread that writes, frees or creates a node changes its entry; a checkpoint changes none.
        let mut s = self.state.write();
        if let Some(d) = s.dirty.get_mut(&nid) {
            d.entry.addr = addr;
            d.fsynced |= fsync;
            return Ok(());
        }
        drop(s);
        let mut entry = self.get(nid)?;
        entry.addr = addr;
        let mut s = self.state.write();
        let d = s.dirty.entry(nid).or_insert(Dirty { entry, checkpointed: true, fsynced: false });
        d.entry.addr = addr;
        d.fsynced |= fsync;
        self.note_want(&s);
        Ok(())
    }

    /// Frees a node's number at the next checkpoint, and raises its version.
    pub fn release(&self, nid: Nid) -> Result<()> {
        let e = self.get(nid)?;
        let mut s = self.state.write();
        let entry = NatEntry { version: e.version.wrapping_add(1), ino: e.ino, addr: BlockAddr::NULL };
        s.dirty.insert(nid, Dirty { entry, checkpointed: false, fsynced: false });
        s.freed.push(nid);
        self.note_want(&s);
        Ok(())
    }

    /// The history of a node since the last checkpoint.
    pub fn since_checkpoint(&self, nid: Nid) -> SinceCheckpoint {
        match self.state.read().dirty.get(&nid) {
            Some(d) => SinceCheckpoint { checkpointed: d.checkpointed, fsynced: d.fsynced },
            None => SinceCheckpoint { checkpointed: true, fsynced: false },
        }
    }

    /// Number of entries that wait for a checkpoint.
    pub fn dirty_count(&self) -> u64 {
        self.state.read().dirty.len() as u64
    }

    /// Where the next search for free numbers should start after the checkpoint.
    fn next_free_hint(&self) -> u32 {
        let s = self.state.read();
        s.free.front().or(s.freed.first()).map_or(s.scan * NAT_ENTRIES, |n| n.0).clamp(4, self.sb.max_nid() - 1)
    }

    /// Writes every dirty entry: to the journal as far as they fit, the rest to the other copies of their blocks. The
    /// caller keeps all other threads out and calls [`Self::commit`] when the checkpoint is durable. Until then entries
    /// stay dirty, and another attempt writes them to the same copies again.
    pub fn flush(&self, cause: Cause) -> Result<Flushed> {
        let (mut journal, groups) = self.state.read().to_flush();
        let mut by_size: Vec<(u32, Group)> = groups.into_iter().collect();
        by_size.sort_by_key(|(n, g)| (g.len(), *n));
        let mut to_blocks = Vec::new();
        for (n, group) in by_size {
            let extra = group.keys().filter(|nid| !journal.contains_key(nid)).count();
            if journal.len() + extra <= NAT_JOURNAL {
                journal.extend(group);
            } else {
                to_blocks.push((n, group));
            }
        }
        to_blocks.sort_by_key(|(n, _)| *n);
        // Until the commit, readers find changed entries where they were: in the dirty entries or in the journal.
        for (n, group) in to_blocks {
            let (mut b, first) = self.look(|s| {
                let b = s.blocks.get(&n).ok_or(Missing(n))?;
                Ok((b.clone(), !bits::msb_test(&s.durable, n as usize)))
            })?;
            for (nid, e) in group {
                nat::put(&mut b, nat::position(nid).1, e);
            }
            let at = self.sb.nat_block(n, first);
            self.dev.write(Lba(at.0.into()), &*b, cause.tag())?;
            let mut s = self.state.write();
            s.flushes += 1;
            bits::msb_put(&mut s.bitmap, n as usize, first);
            s.keep(n, b);
        }
        let bitmap = self.state.read().bitmap.clone();
        Ok(Flushed { bitmap, journal, next_free: self.next_free_hint() })
    }

    /// The checkpoint with `flushed` is durable: its entries become clean, and freed numbers usable.
    pub fn commit(&self, flushed: Flushed) {
        let mut s = self.state.write();
        let s = &mut *s;
        s.flushes += 1;
        (s.durable, s.journal) = (flushed.bitmap, flushed.journal);
        s.dirty.retain(|_, d| d.entry.addr == BlockAddr::NEW);
        let freed = std::mem::take(&mut s.freed);
        s.free.extend(freed.into_iter().filter(|nid| !self.sb.is_named(*nid)));
        self.note_want(s);
    }

    /// Inodes with a node created, written or freed since the last checkpoint.
    pub fn changed_inodes(&self) -> Vec<Ino> {
        self.state.read().dirty.values().map(|d| d.entry.ino).collect()
    }
}

/// What a checkpoint records about the table after [`Nat::flush`] has written the table's blocks.
pub struct Flushed {
    /// Which copy of each block is valid.
    pub bitmap: Vec<u8>,
    journal: FxHashMap<Nid, NatEntry>,
    /// Where the next search for free numbers should start.
    pub next_free: u32,
}

impl Flushed {
    /// The journal in the format of a pack.
    pub fn journal(&self) -> [u8; JOURNAL_BYTES] {
        let mut journal: Vec<(Nid, NatEntry)> = self.journal.iter().map(|(nid, e)| (*nid, *e)).collect();
        journal.sort_by_key(|(nid, _)| *nid);
        encode_nat_journal(&journal)
    }
}

#[cfg(test)]
mod tests {
    use device::{Gate, Memory, Op, Time, VirtualClock};

    use super::*;
    use crate::rig::mounted;
    use crate::volume::Volume;

    /// Entries of the second and the third block, in each case too many for the journal.
    const MANY: [std::ops::Range<u32>; 2] = [500..600, 1000..1100];

    /// A volume with an empty NAT cache that can block one read and one write of NAT blocks.
    fn gated() -> (Arc<Gate<Gate<Memory>>>, Arc<Volume>) {
        let inner = Memory::new(64 * 256);
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        crate::mkfs::format(&inner, &*clock, &crate::mkfs::Options::default()).unwrap();
        let dev = Arc::new(Gate::new(Gate::new(inner)));
        let vol = Volume::mount(dev.clone(), clock, crate::MountOptions::default()).unwrap();
        move_all(&vol.nodes.nat, 1);
        flush(&vol.nodes.nat).unwrap();
        vol.nodes.nat.state.write().blocks = Cache::new(CACHED_BLOCKS, CACHED_BLOCKS / 8);
        (dev, vol)
    }

    fn flush(nat: &Nat) -> Result<()> {
        nat.flush(Cause::Nat).map(|flushed| nat.commit(flushed))
    }

    fn move_all(nat: &Nat, to: u32) {
        MANY.into_iter().flatten().for_each(|n| nat.moved(Nid(n), BlockAddr(to), false).unwrap());
    }

    fn first(nat: &Nat) -> BlockAddr {
        nat.get(Nid(MANY[0].start)).unwrap().addr
    }

    #[test]
    fn a_nat_block_read_before_a_checkpoint_wrote_its_other_copy_is_not_kept() {
        let (dev, vol) = gated();
        let (nat, writes) = (&vol.nodes.nat, dev.inner());
        let cause = Some(Cause::Nat.tag().cause);
        dev.stop_done(Op::Read, cause);
        std::thread::scope(|s| {
            let reader = s.spawn(|| first(nat));
            assert!(dev.await_one());
            move_all(nat, 2);
            writes.stop(Op::Write, cause);
            let flusher = s.spawn(|| flush(nat));
            assert!(writes.await_one());
            // The checkpoint has switched to the new copy of the second block, but not yet to that of the third.
            writes.stop(Op::Write, cause);
            writes.go_on();
            assert!(writes.await_one());
            dev.go_on();
            let read = reader.join();
            writes.go_on();
            flusher.join().unwrap().unwrap();
            assert_eq!(read.unwrap(), BlockAddr(2));
        });
        assert_eq!(first(nat), BlockAddr(2));
    }

    #[test]
    fn a_nat_block_read_before_two_checkpoints_is_not_kept() {
        let (dev, vol) = gated();
        let nat = &vol.nodes.nat;
        dev.stop_done(Op::Read, Some(Cause::Nat.tag().cause));
        std::thread::scope(|s| {
            let reader = s.spawn(|| first(nat));
            assert!(dev.await_one());
            for to in [2, 3] {
                move_all(nat, to);
                flush(nat).unwrap();
            }
            dev.go_on();
            assert_eq!(reader.join().unwrap(), BlockAddr(3));
        });
        assert_eq!(first(nat), BlockAddr(3));
    }

    #[test]
    fn a_number_that_recovery_claims_and_that_is_released_is_used_again_only_after_a_checkpoint() {
        let (_dev, vol) = mounted(64, crate::MountOptions::default());
        let nat = &vol.nodes.nat;
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
        flush(nat).unwrap();
        let mut after: Vec<Nid> = (0..2000).map(|_| nat.reserve(None).unwrap()).collect();
        assert!(after.contains(&claimed));
        after.sort_unstable();
        assert!(after.is_sorted_by(|a, b| a < b), "a number is given away once");
    }
}
