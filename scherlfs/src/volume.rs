//! A mounted volume: its state, its room, and the common begin and end of all operations.
//!
//! All changing state is behind one lock: shared for readers, exclusive for changes. An operation first reserves
//! room for all it may write ([`State::admit`]), then changes inodes in memory, and marks each as waiting
//! ([`State::keep`]). Waiting inodes are written as one transaction ([`crate::commit`]), so that after a power cut
//! the volume is in the state after some operation, and no operation before the last durable one is missing.

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

/// When writes reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// With every call, as in Scherl 2004. No changes wait in memory.
    Call,
    /// On request, when enough blocks wait, and some seconds after a write.
    #[default]
    Fsync,
    /// When enough blocks wait, or when the disk is awake anyway. An fsync is durable on the stage, on another
    /// disk.
    Burst,
}

/// Mount options.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Mount read-only.
    pub read_only: bool,
    /// When writes reach the disk.
    pub sync: Sync,
    /// Most blocks that may wait in memory.
    pub dirty: u64,
    /// Directory blocks cached in memory. 0: each lookup reads the directory.
    pub dir_cache: usize,
    /// Blocks of the inode map kept in memory.
    pub ifile_cache: usize,
    /// Inodes cached in addition to those in use.
    pub inode_cache: usize,
    /// Longest time that changes wait.
    pub writeback: Duration,
    /// When changes become durable without a sync. `None`: by `writeback` or other causes only.
    pub commit: Option<Commit>,
    /// Log blocks after which a checkpoint is due. This is checked when more than `dirty` blocks wait, at a sync or
    /// fsync, and with [`Sync::Call`] after each call.
    pub checkpoint_blocks: u64,
    /// Time after the last checkpoint at which one is due, if anything was logged; `None`: never.
    pub checkpoint_every: Option<Duration>,
    /// Cleaning strategy.
    pub clean: Clean,
    /// Power source.
    pub power: Power,
    /// Blocks kept for undo; `None`: as the volume has it, 0: none.
    pub undo: Option<u64>,
    /// Placement of inodes; `None`: as the volume has it.
    pub placement: Option<Placement>,
    /// Accompanying devices.
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

/// Room that only operations that free room may use.
pub(crate) const SPARE: u64 = 24;
/// Most inodes in a transaction: each is a piece, and pieces are numbered by 16 bits.
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
    /// The same as `dev` if there are accompanying devices.
    pub(crate) archive: Option<Arc<Archive>>,
}

/// Why the volume rejects changes.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub why: String,
    /// True if writes are permanently disabled.
    pub for_good: bool,
}

/// All changing state.
pub(crate) struct State {
    pub dev: Arc<dyn BlockDevice>,
    /// The same as `dev` if there are accompanying devices.
    pub archive: Option<Arc<Archive>>,
    /// As last written.
    pub sb: Superblock,
    pub imap: InodeMap,
    /// The last written inodes of the hidden files.
    pub free_list: Inode,
    pub orphan_list: Inode,
    pub inodes: FxHashMap<Ino, Box<Inode>>,
    /// Waiting inodes, in the order in which they began to wait.
    pub waiting: BTreeMap<u64, Ino>,
    pub waits: u64,
    /// When the first of them began to wait.
    pub since: Option<Duration>,
    /// Deleted inodes whose deletion is not written.
    pub gone: Vec<Ino>,
    /// Inodes in use without a name.
    pub orphans: BTreeSet<Ino>,
    pub free: Blocks,
    /// Blocks that the next checkpoint frees.
    pub dead: Marks,
    pub path: Path,
    /// Placement of inodes.
    pub placement: Placement,
    /// The last transaction, if it can be continued.
    pub series: Option<Series>,
    /// True if a reader of the log could not reach all written data: only a checkpoint makes it durable.
    pub torn: bool,
    pub care: Care,
    pub history: History,
    /// The last written list of the history.
    pub history_list: Inode,
    pub pace: Pace,
    pub accesses: Mutex<Accesses>,
    pub background: Background,
    /// When callers last changed something, and when the last timed checkpoint was written.
    pub changed: Duration,
    pub checkpointed: Duration,
    /// Number of reserved blocks of files.
    pub promised: u64,
    /// Most blocks for writing all waiting changes.
    pub need: u64,
    pub seq: Seq,
    /// Number of failed attempts for the next transaction.
    pub attempt: u8,
    pub epoch: Epoch,
    /// True if the superblock on disk has this mount's epoch.
    pub begun: bool,
    /// Log blocks since the checkpoint.
    pub logged: u64,
    /// Directory blocks in memory that do not wait.
    pub dir_blocks: usize,
    pub dir_cache: usize,
    /// Bytes that callers wrote into files since the mount.
    pub user_bytes: u64,
    pub gone_names: Gone,
    /// Buffer for a request; nonempty only during the request.
    pub request: Mutex<Vec<u8>>,
    /// Why changes are rejected.
    pub broken: Option<Broken>,
    /// True if a superblock may or may not be completely written: the blocks that it refers to will be overwritten.
    pub torn_superblock: bool,
    /// When the oldest written change that may not be durable was made.
    pub unflushed: Option<Duration>,
    /// When `commit=` last made changes durable.
    pub committed: Duration,
    pub ended: bool,
    /// Room on the host, and the last shortage for which everything was made durable.
    pub host_room: Option<Arc<HostRoom>>,
    pub relieved: u64,
}

impl State {
    /// Calls `work` with an inode, read from the disk if necessary. Meanwhile it is not among the inodes in memory,
    /// so that no transaction can be written: reserve room first.
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

    /// An inode in memory, read from the disk if necessary.
    pub fn inode(&mut self, ino: Ino) -> Result<&mut Inode> {
        if !self.inodes.contains_key(&ino) {
            let inode = self.load(ino)?;
            self.inodes.insert(ino, Box::new(inode));
        }
        self.inodes.get_mut(&ino).map(|b| &mut **b).ok_or(Error::NotFound)
    }

    /// Marks an inode as changed and waiting.
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

    /// Marks an inode as no longer waiting.
    pub fn drop_wait(&mut self, inode: &mut Inode) {
        if let Some(order) = inode.waits.take() {
            self.waiting.remove(&order);
        }
        self.need -= inode.cost;
        inode.cost = 0;
    }

    /// Frees blocks removed from an inode.
    pub fn free_blocks(&mut self, freed: Freed) -> Result<()> {
        self.promised = self.promised.saturating_sub(freed.reserved);
        freed.runs.iter().try_for_each(|run| self.die(*run))
    }

    /// Frees blocks that the last checkpoint, the log behind it, or undo may still need.
    pub fn die(&mut self, run: Run) -> Result<()> {
        self.die_for_good(run)?;
        self.history.replaced(run);
        Ok(())
    }

    /// Frees blocks that the last checkpoint or the log behind it may still need, but not undo.
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

    /// Most blocks written by a checkpoint.
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

    /// Number of unclaimed blocks.
    pub fn unclaimed(&self) -> u64 {
        let gone = (self.gone.len() as u64).div_ceil(1000);
        let claimed = self.promised + self.need + gone + self.checkpoint_need();
        let claimed = claimed + path::overhead(claimed, self.free.runs());
        self.free.count().saturating_sub(claimed)
    }

    /// When changes must be made durable without a sync; `None` if none wait for it.
    pub fn commit_at(&self) -> Option<Duration> {
        let commit = self.pace.commit?;
        let first = [self.since, self.unflushed].into_iter().flatten().min()?;
        Some(commit.due(first, self.changed, self.committed, self.care.power))
    }

    /// Ensures that `blocks` blocks can be written in addition to all waiting ones. Only operations that free room
    /// may use the last ones.
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
        // Twice, since blocks freed by the first checkpoint may be kept for undo.
        for _ in 0..2 {
            self.forget_for(blocks + spare + 1)?;
            // Waiting changes may replace as many blocks as they take, which become free with the checkpoint too.
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

    /// Ensures that an inode can be changed.
    pub fn admit_inode(&mut self, ino: Ino, blocks: u64, gives_back: bool) -> Result<()> {
        let own = self.inode(ino)?.extents.cost_of_all(0);
        self.admit(blocks + 4 + own, gives_back)
    }

    /// Number of these file blocks for which there is room, in addition to the inode and its continuations. The first
    /// `promised` of them have their room.
    pub fn admit_blocks(&mut self, ino: Ino, blocks: u64, promised: u64) -> Result<u64> {
        let extents = &self.inode(ino)?.extents;
        let own = extents.cost_of_all(0);
        let beside = |blocks: u64| 5 + own + blocks / 80;
        self.writable()?;
        // A host without room has none for a part either.
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

    /// Rejects changes that could not be made durable.
    pub fn writable(&self) -> Result<()> {
        match &self.broken {
            _ if self.ended => Err(Error::Device("the volume is unmounted".into())),
            Some(Broken { why, for_good: true }) => {
                Err(Error::Device(format!("the volume accepts no changes until it is mounted again: {why}")))
            }
            Some(Broken { why, .. }) => Err(Error::Device(format!("the volume accepts no changes: {why}"))),
            None => Ok(()),
        }
    }

    /// Records that accepted changes could not be made durable. They are all in memory, and [`Volume::retry`] may
    /// write them.
    pub fn fail(&mut self, why: String) {
        self.broken.get_or_insert(Broken { why, for_good: false });
    }

    /// Records that memory and disk may contradict each other: writes are disabled permanently.
    pub fn fail_for_good(&mut self, why: String) {
        if self.broken.as_ref().is_none_or(|b| !b.for_good) {
            self.broken = Some(Broken { why, for_good: true });
        }
    }

    /// Free blocks as shown to users.
    pub fn free_for_users(&self) -> u64 {
        let pages = self.need;
        (self.free.count() + self.dead.count() + self.history.kept.count()).saturating_sub(
            self.promised + pages + self.checkpoint_need() + SPARE + path::overhead(64, self.free.runs()),
        )
    }

    /// Drops unused inodes from memory if there are too many.
    pub fn trim(&mut self, limit: usize, in_use: impl Fn(Ino) -> bool) {
        if self.inodes.len() <= limit + limit / 8 {
            return;
        }
        let on = self.series.as_ref().map(|series| series.ino);
        let mut over = self.inodes.len() - limit;
        let mut blocks = 0;
        self.inodes.retain(|ino, inode| {
            let stays = over == 0 || inode.waits.is_some() || self.orphans.contains(ino) || in_use(*ino);
            // The end of a series needs the inode for its places.
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
    /// The current time in an inode's format.
    pub(crate) fn now(&self) -> Time {
        crate::inode::time(self.clock.now())
    }

    /// Checks an inode number from a caller.
    pub(crate) fn number(ino: vfs::Ino) -> Result<Ino> {
        u32::try_from(ino.0).ok().filter(|n| *n > 0).map(Ino).ok_or(Error::NotFound)
    }

    /// Performs an operation that changes something, and the work that follows every such operation.
    pub(crate) fn change<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let mut state = self.state.write();
        state.writable()?;
        if state.room_is_short() && !state.host_is_short() {
            // Without cleaning the log goes through holes, as on battery.
            let want = 8 * state.segment();
            if let Err(e) = state.make_room(want) {
                log::warn!("cleaning failed: {e}");
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
            // The call succeeded; the next fsync reports the failed write, as with a page cache.
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

    /// Makes all writes durable, if `is_right` confirms the object of the request.
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

    /// After a failure allows another attempt, which writes all waiting changes again.
    pub(crate) fn retry(&self) -> Result<()> {
        let mut state = self.state.write();
        if state.broken.as_ref().is_none_or(|b| b.for_good) {
            return Ok(());
        }
        state.broken = None;
        state.forget_torn_superblock()
    }

    /// Writes waiting and staged blocks to the disk while it is awake.
    fn burst(&self) -> Result<()> {
        {
            let mut state = self.state.write();
            state.writable()?;
            state.commit()?;
        }
        self.flush(Cause::Log)
    }

    /// Writes waiting changes if they are due; returns true if it did.
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
            // An unflushed burst is not durable, and the next fsync would have to wake the disk.
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
