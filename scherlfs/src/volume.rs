//! A mounted volume: its state, its room, and what every operation does first and last.
//!
//! All that changes is behind one lock. Whoever looks holds it shared, whoever changes something holds it exclusively. An
//! operation first makes sure that there is room for all it may write ([`State::admit`]), then changes inodes in memory,
//! and says of each that it waits ([`State::keep`]). What waits is written as one transaction ([`crate::commit`]), so that
//! after a power cut the volume is as it was after some operation, and none before the last one that was made durable is
//! missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use device::{BlockDevice, Clock, HostRoom};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use scherlfs_format::inode::Time;
use scherlfs_format::superblock::{Placement, Superblock};
use scherlfs_format::{BLOCK, Epoch, IFILE, Ino, Run, Seq, lists};
use vfs::{Commit, Error, Power, Result};

use crate::archive::wakes::{Why, because};
use crate::archive::{Archive, Beside};
use crate::cause::Cause;
use crate::clean::care::Care;
use crate::clean::strategy::Clean;
use crate::extents::Freed;
use crate::gone::{Gone, Hooks};
use crate::history::History;
use crate::imap::InodeMap;
use crate::inode::Inode;
use crate::marks::Marks;
use crate::pace::{Background, Pace};
use crate::path::{self, Path};
use crate::reorganise::chains::Accesses;
use crate::series::Series;
use crate::space::Blocks;

/// When what was written reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// With every call, as in Scherl 2004. Nothing waits in memory.
    Call,
    /// When somebody asks for it, when enough waits, and some seconds after it was written.
    #[default]
    Fsync,
    /// When enough waits, or the disk is awake anyway. Who asks for it finds it durable on the stage, on another disk.
    Burst,
}

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Change nothing.
    pub read_only: bool,
    /// When writes reach the disk.
    pub sync: Sync,
    /// Blocks that may wait in memory.
    pub dirty: u64,
    /// Directory blocks kept in memory. 0: each look into a directory reads it.
    pub dir_cache: usize,
    /// Blocks of the inode map kept in memory.
    pub ifile_cache: usize,
    /// Inodes kept in memory beside those in use.
    pub inode_cache: usize,
    /// What waits is written after so long.
    pub writeback: Duration,
    /// When changes become durable though nobody asks; without, when `writeback` or something else makes it so.
    pub commit: Option<Commit>,
    /// A checkpoint is due after so many blocks of log. It is looked at when what waits passes `dirty`, when somebody asks for what
    /// was written to be durable, and with [`Sync::Call`] after each call.
    pub checkpoint_blocks: u64,
    /// A checkpoint is due so long after the last one, if something was logged; never, unless said.
    pub checkpoint_every: Option<Duration>,
    /// How room is made.
    pub clean: Clean,
    /// Where the power comes from.
    pub power: Power,
    /// Blocks that are kept so that transactions can be undone; `None`: as the volume has it, 0: none.
    pub undo: Option<u64>,
    /// Where the writer puts inodes; `None`: as the volume has it.
    pub placement: Option<Placement>,
    /// What stands beside the volume on other disks.
    pub beside: Beside,
    /// Room on the host that holds the image, if the image can grow.
    pub host_room: Option<Arc<HostRoom>>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            sync: Sync::Fsync,
            dirty: 8192,
            dir_cache: 4096,
            ifile_cache: 4096,
            inode_cache: 16384,
            writeback: Duration::from_secs(5),
            commit: None,
            checkpoint_blocks: 16384,
            checkpoint_every: None,
            clean: Clean::ByPower,
            power: Power::Battery,
            undo: None,
            placement: None,
            beside: Beside::default(),
            host_room: None,
        }
    }
}

/// Room that only operations that give room back may use.
pub(crate) const SPARE: u64 = 24;
/// Inodes of a transaction at most: each is a piece, and pieces are numbered by 16 bits.
pub(crate) const INODES_MAX: usize = 32_000;

impl MountOptions {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            dirty: self.dirty,
            writeback: self.writeback,
            commit: self.commit,
            checkpoint_blocks: self.checkpoint_blocks,
            checkpoint_every: self.checkpoint_every,
        }
    }
}

/// A mounted ScherlFS volume.
pub struct Volume {
    pub(crate) dev: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: MountOptions,
    pub(crate) state: RwLock<State>,
    /// References by inode: lookups and opens.
    pub(crate) references: Mutex<FxHashMap<Ino, u64>>,
    pub(crate) hooks: Hooks,
    /// What `dev` is, if something stands beside the volume.
    pub(crate) archive: Option<Arc<Archive>>,
}

/// Why nothing can be changed.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub why: String,
    /// True if nothing may be written any more.
    pub for_good: bool,
}

/// Everything that changes.
pub(crate) struct State {
    pub dev: Arc<dyn BlockDevice>,
    /// What `dev` is, if something stands beside the volume.
    pub archive: Option<Arc<Archive>>,
    /// As it was written last.
    pub sb: Superblock,
    pub imap: InodeMap,
    /// The inodes of the hidden files, as they were written last.
    pub free_list: Inode,
    pub orphan_list: Inode,
    pub inodes: FxHashMap<Ino, Box<Inode>>,
    /// Inodes that wait, in the order in which they began to.
    pub waiting: BTreeMap<u64, Ino>,
    pub waits: u64,
    /// Since when the first of them waits.
    pub since: Option<Duration>,
    /// Inodes that are gone, which is not written yet.
    pub gone: Vec<Ino>,
    /// Inodes without a name that somebody uses.
    pub orphans: BTreeSet<Ino>,
    pub free: Blocks,
    /// Blocks that the next checkpoint frees.
    pub dead: Marks,
    pub path: Path,
    /// Where the writer puts inodes.
    pub placement: Placement,
    /// The last transaction, if it can be taken up again.
    pub series: Option<Series>,
    /// Who follows the log would not come to all of what was written: only a checkpoint makes it durable.
    pub torn: bool,
    pub care: Care,
    pub history: History,
    /// The list of the history, as it was written last.
    pub history_list: Inode,
    pub pace: Pace,
    pub accesses: Mutex<Accesses>,
    pub background: Background,
    /// When callers changed something last, and when a checkpoint by time was written last.
    pub changed: Duration,
    pub checkpointed: Duration,
    /// Blocks that files were promised.
    pub promised: u64,
    /// Blocks that writing what waits takes, at most.
    pub need: u64,
    pub seq: Seq,
    /// How often the next transaction failed to be written.
    pub attempt: u8,
    pub epoch: Epoch,
    /// The superblock on disk has this mount's epoch.
    pub begun: bool,
    /// Blocks of log since the checkpoint.
    pub logged: u64,
    /// Directory blocks in memory that do not wait.
    pub dir_blocks: usize,
    pub dir_cache: usize,
    /// Bytes that callers wrote into files since the mount.
    pub user_bytes: u64,
    pub gone_names: Gone,
    /// Room for a request's bytes; empty but while one is given to the device.
    pub request: Mutex<Vec<u8>>,
    /// Why nothing can be changed any more.
    pub broken: Option<Broken>,
    /// A superblock that may not have been written whole, or may: what it refers to is about to be written over.
    pub torn_superblock: bool,
    /// The oldest change that was written and may not be durable.
    pub unflushed: Option<Duration>,
    /// When `commit=` last made changes durable.
    pub committed: Duration,
    pub ended: bool,
    /// Room on the host, and its last shortage at whose beginning everything was made durable.
    pub host_room: Option<Arc<HostRoom>>,
    pub relieved: u64,
}

impl State {
    /// Gives an inode to `work`, read from the disk if need be. Meanwhile it is not among the inodes in memory, so that
    /// nothing can be written: room is made sure of before.
    pub fn with<T>(&mut self, ino: Ino, work: impl FnOnce(&mut State, &mut Inode) -> Result<T>) -> Result<T> {
        let mut inode = match self.inodes.remove(&ino) {
            Some(inode) => inode,
            None => Box::new(self.load(ino)?),
        };
        let out = work(self, &mut inode);
        if ino != IFILE {
            self.inodes.insert(ino, inode);
        }
        out
    }

    /// An inode in memory, read from the disk if need be.
    pub fn inode(&mut self, ino: Ino) -> Result<&mut Inode> {
        if !self.inodes.contains_key(&ino) {
            let inode = self.load(ino)?;
            self.inodes.insert(ino, Box::new(inode));
        }
        self.inodes.get_mut(&ino).map(|b| &mut **b).ok_or(Error::NotFound)
    }

    /// Says that an inode was changed: it waits to be written.
    pub fn keep(&mut self, inode: &mut Inode) {
        if inode.waits.is_none() {
            self.waits += 1;
            inode.waits = Some(self.waits);
            self.waiting.insert(self.waits, inode.ino);
        }
        let cost = inode.cost_now();
        self.need = self.need + cost - inode.cost;
        inode.cost = cost;
    }

    /// Nothing of an inode waits any more.
    pub fn drop_wait(&mut self, inode: &mut Inode) {
        if let Some(order) = inode.waits.take() {
            self.waiting.remove(&order);
        }
        self.need -= inode.cost;
        inode.cost = 0;
    }

    /// Blocks of an inode are not its own any more.
    pub fn free_blocks(&mut self, freed: Freed) -> Result<()> {
        self.promised = self.promised.saturating_sub(freed.reserved);
        freed.runs.iter().try_for_each(|run| self.die(*run))
    }

    /// Blocks that the last checkpoint or something behind it may still name, and whoever goes back.
    pub fn die(&mut self, run: Run) -> Result<()> {
        self.die_for_good(run)?;
        self.history.replaced(run);
        Ok(())
    }

    /// Blocks that the last checkpoint or something behind it may still name, but nobody who goes back.
    pub fn die_for_good(&mut self, run: Run) -> Result<()> {
        let taken = self.free.contains(run.start) || self.history.kept.contains(run.start);
        let twice = taken || !self.dead.add_run(run);
        if twice {
            let what = format!("blocks from {} on belong to two files, or to nobody and to one", run.start);
            self.fail_for_good(what.clone());
            return Err(Error::Corrupt(what));
        }
        Ok(())
    }

    /// Blocks that a checkpoint writes, at most.
    pub(crate) fn checkpoint_need(&self) -> u64 {
        let map = (self.imap.inode.size_blocks() + 1).min(self.imap.dirty() + self.waiting.len() as u64 + 2);
        let runs = self.free.runs() + self.dead.runs() + 2 * self.need as usize + 64;
        let list = lists::free_bytes(runs).div_ceil(BLOCK) as u64;
        let orphans = (self.orphans.len() as u64 + 2) * 4 / BLOCK as u64 + 1;
        let conts = self.imap.inode.extents.cost_of_all(map) + 1;
        let history = self.history.list_blocks(self.waiting.len() as u64, self.need);
        let history = history + history / 100;
        map + conts + list + list / 100 + orphans + history + 8
    }

    /// Blocks that nobody has a claim on.
    pub fn unclaimed(&self) -> u64 {
        let gone = (self.gone.len() as u64).div_ceil(1000);
        let claimed = self.promised + self.need + gone + self.checkpoint_need();
        let claimed = claimed + path::overhead(claimed, self.free.runs());
        self.free.count().saturating_sub(claimed)
    }

    /// When changes are to be made durable though nobody asks; `None`: nothing waits for it.
    pub fn commit_at(&self) -> Option<Duration> {
        let commit = self.pace.commit?;
        let first = [self.since, self.unflushed].into_iter().flatten().min()?;
        Some(commit.due(first, self.changed, self.committed, self.care.power))
    }

    /// Makes sure that so many blocks can be written beside all that waits. What only gives room back may use the last.
    pub fn admit(&mut self, blocks: u64, gives_back: bool) -> Result<()> {
        self.writable()?;
        self.admit_on_host(blocks, gives_back)?;
        self.admit_in_log(blocks, gives_back)
    }

    /// The same without the host's room.
    pub fn admit_in_log(&mut self, blocks: u64, gives_back: bool) -> Result<()> {
        let spare = if gives_back { 0 } else { SPARE };
        if self.gone.len() > 500 || self.waiting.len() >= INODES_MAX {
            self.commit()?;
        }
        if self.unclaimed() >= blocks + spare {
            return Ok(());
        }
        // Twice: what the first checkpoint frees may be kept for those who go back.
        for _ in 0..2 {
            self.forget_for(blocks + spare + 1)?;
            // What waits may replace as many blocks as it takes, and those are free with the checkpoint too.
            if self.unclaimed() + self.dead.count() + self.need < blocks + spare {
                break;
            }
            self.checkpoint(false)?;
            if self.unclaimed() >= blocks + spare {
                return Ok(());
            }
        }
        Err(Error::NoSpace)
    }

    /// Makes sure that an inode can be changed.
    pub fn admit_inode(&mut self, ino: Ino, blocks: u64, gives_back: bool) -> Result<()> {
        let own = self.inode(ino)?.extents.cost_of_all(0);
        self.admit(blocks + 4 + own, gives_back)
    }

    /// As many of these blocks of a file as there is room for: its inode and its continuations are beside them. The first
    /// `promised` of them have their room.
    pub fn admit_blocks(&mut self, ino: Ino, blocks: u64, promised: u64) -> Result<u64> {
        let extents = &self.inode(ino)?.extents;
        let own = extents.cost_of_all(0);
        let beside = |blocks: u64| 5 + own + blocks / 80;
        self.writable()?;
        // A host without room gives no part of it either.
        self.admit_on_host(blocks + beside(blocks), false)?;
        match self.admit_in_log(blocks - promised + beside(blocks), promised == blocks) {
            Ok(()) => return Ok(blocks),
            Err(Error::NoSpace) if promised > 0 && promised < blocks => {
                self.admit_in_log(beside(promised), true)?;
                return Ok(promised);
            }
            Err(Error::NoSpace) => {}
            Err(e) => return Err(e),
        }
        let some = self.unclaimed().saturating_sub(SPARE);
        match (some / 2).checked_sub(beside(some)) {
            None | Some(0) => Err(Error::NoSpace),
            Some(n) => Ok(n.min(blocks)),
        }
    }

    /// Refuses changes that cannot be kept.
    pub fn writable(&self) -> Result<()> {
        match &self.broken {
            _ if self.ended => Err(Error::Device("the volume is unmounted".into())),
            Some(Broken { why, for_good: true }) => {
                Err(Error::Device(format!("no changes until the volume is mounted again: {why}")))
            }
            Some(Broken { why, .. }) => Err(Error::Device(format!("the volume takes no changes: {why}"))),
            None => Ok(()),
        }
    }

    /// What was accepted could not be made durable. All of it is in memory, and [`Volume::retry`] may write it.
    pub fn fail(&mut self, why: String) {
        self.broken.get_or_insert(Broken { why, for_good: false });
    }

    /// Memory and disk may contradict each other: nothing more may be written.
    pub fn fail_for_good(&mut self, why: String) {
        if self.broken.as_ref().is_none_or(|b| !b.for_good) {
            self.broken = Some(Broken { why, for_good: true });
        }
    }

    /// Blocks that a user sees as free.
    pub fn free_for_users(&self) -> u64 {
        let pages = self.need;
        (self.free.count() + self.dead.count() + self.history.kept.count()).saturating_sub(
            self.promised + pages + self.checkpoint_need() + SPARE + path::overhead(64, self.free.runs()),
        )
    }

    /// Inodes that nobody uses leave memory where there are too many.
    pub fn trim(&mut self, limit: usize, in_use: impl Fn(Ino) -> bool) {
        if self.inodes.len() <= limit + limit / 8 {
            return;
        }
        let on = self.series.as_ref().map(|series| series.ino);
        let mut over = self.inodes.len() - limit;
        let mut blocks = 0;
        self.inodes.retain(|ino, inode| {
            let stays = over == 0 || inode.waits.is_some() || self.orphans.contains(ino) || in_use(*ino);
            // The end of a series asks it which of its places it has.
            let stays = stays || on == Some(*ino);
            if !stays {
                over -= 1;
                blocks += inode.names.as_ref().map_or(0, |n| n.blocks());
            }
            stays
        });
        self.dir_blocks = self.dir_blocks.saturating_sub(blocks);
    }
}

impl Volume {
    /// Now, as inodes keep it.
    pub(crate) fn now(&self) -> Time {
        crate::inode::time(self.clock.now())
    }

    /// The number of an inode that comes from outside.
    pub(crate) fn number(ino: vfs::Ino) -> Result<Ino> {
        u32::try_from(ino.0).ok().filter(|n| *n > 0).map(Ino).ok_or(Error::NotFound)
    }

    /// Does an operation that changes something, and what follows every one of them.
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let mut state = self.state.write();
        state.writable()?;
        if state.room_is_short() && !state.host_is_short() {
            // Without it the log goes through holes, as it does on a battery.
            let want = 8 * state.segment();
            if let Err(e) = state.make_room(want) {
                log::warn!("no room was made: {e}");
            }
            state.writable()?;
        }
        let out = work(&mut state);
        state.changed = self.clock.monotonic();
        state.background.changes += 1;
        let waits = !state.waiting.is_empty() || !state.gone.is_empty();
        if waits && state.since.is_none() {
            state.since = Some(self.clock.monotonic());
            if state.pace.commit.is_some()
                && state.unflushed.is_none()
                && let Some(wake) = self.hooks.wake.get()
            {
                wake();
            }
        }
        let due = match self.options.sync {
            Sync::Call => waits,
            Sync::Fsync | Sync::Burst => state.need > state.pace.dirty,
        };
        if due {
            // The call was done; that it could not be written is told by the next fsync, as with a page cache.
            let why = if self.options.sync == Sync::Call { Why::Written } else { Why::Full };
            because(why, || {
                if self.options.sync == Sync::Call {
                    state.write_call()?;
                } else {
                    _ = state.commit();
                }
                if state.logged > state.pace.checkpoint_blocks { state.checkpoint(false) } else { Ok(()) }
            })?;
        }
        let references = self.references.lock();
        state.trim(self.options.inode_cache, |ino| references.contains_key(&ino));
        out
    }

    /// Makes all that was written durable, if `is_right` says that there is what somebody asked it of.
    pub(crate) fn settle(&self, cause: Cause, is_right: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let attempt = {
            let mut state = self.state.write();
            is_right(&mut state)?;
            if self.options.read_only {
                return Ok(());
            }
            state.writable()?;
            match &self.archive {
                Some(archive) if self.options.sync == Sync::Burst => {
                    let sb = state.sb.clone();
                    if archive.staged(&sb, || state.commit())? {
                        return Ok(());
                    }
                }
                _ => {
                    state.commit()?;
                    if state.torn || state.logged > state.pace.checkpoint_blocks {
                        return state.checkpoint(false);
                    }
                }
            }
            (state.seq, state.series_flushes()?)
        };
        let (seq, attempt) = attempt;
        self.flush(cause)?;
        let mut state = self.state.write();
        if let Some(attempt) = attempt {
            state.series_flushed(attempt);
        }
        if state.seq == seq {
            state.unflushed = None;
        }
        Ok(())
    }

    /// If something could not be made durable, allows another attempt: the next one writes all that waits once more.
    pub(crate) fn retry(&self) -> Result<()> {
        let mut state = self.state.write();
        if state.broken.as_ref().is_none_or(|b| b.for_good) {
            return Ok(());
        }
        state.broken = None;
        state.forget_torn_superblock()
    }

    /// Writes what waits to the disk, and what is staged, for the disk is awake.
    fn burst(&self) -> Result<()> {
        {
            let mut state = self.state.write();
            state.writable()?;
            state.commit()?;
        }
        self.flush(Cause::Log)
    }

    /// Writes what waits when it is time; says whether it did.
    pub(crate) fn write_when_due(&self) -> Result<()> {
        let now = self.clock.monotonic();
        let (since, writeback, commit) = {
            let state = self.state.read();
            (state.since, state.pace.writeback, state.commit_at())
        };
        let old = since.is_some_and(|since| now.saturating_sub(since) >= writeback);
        if !old && commit.is_some_and(|at| now >= at) {
            let done = because(Why::Waiting, || {
                self.settle(Cause::Commit, |state| {
                    state.committed = now;
                    Ok(())
                })
            });
            return done.inspect_err(|e| self.state.write().fail(format!("a commit failed: {e}")));
        }
        match self.archive.as_ref().and_then(|a| Some((a, a.wakes.as_ref()?))) {
            None if old => self.settle(Cause::Log, |_| Ok(())),
            Some((archive, wakes)) if (old || archive.has_staged()) && wakes.is_awake_for_readers() => {
                because(Why::Waiting, || self.burst())
            }
            // A burst that was not flushed is not durable, and the next fsync would have to wake the disk for it.
            Some((archive, _)) => archive.flush_while_awake(),
            None => Ok(()),
        }
    }

    fn flush(&self, cause: Cause) -> Result<()> {
        let tag = device::Tag { cause: cause as u8, owner: 0 };
        self.dev.flush(tag).map_err(|e| {
            let why = format!("a flush failed: {e}");
            self.state.write().fail(why.clone());
            Error::Device(why)
        })
    }
}
