//! Mounts a volume: the newest valid superblock, its checkpoint, and the log behind it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use device::{BlockDevice, Clock};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use scherlfs_format::superblock::{Placement, Superblock};
use scherlfs_format::{Addr, Epoch, FREE_LIST, HISTORY, IFILE, ORPHANS, Run, history, lists};
use vfs::{Error, Result};

use crate::archive::Archive;
use crate::archive::wakes::{Why, because};
use crate::cause::Cause;
use crate::clean::care::Care;
use crate::extents::Freed;
use crate::history::History;
use crate::imap::InodeMap;
use crate::inode::{Inode, time};
use crate::load;
use crate::marks::Marks;
use crate::path::Path;
use crate::space::Blocks;
use crate::superblock::superblock;
use crate::volume::{MountOptions, State, Sync, Volume};

impl State {
    /// The state of a superblock's checkpoint.
    pub(crate) fn of_checkpoint(dev: Arc<dyn BlockDevice>, sb: Superblock, options: &MountOptions) -> Result<State> {
        let map = load::inode_at(&*dev, IFILE, sb.ifile, Cause::InodeMap)?;
        let free_list = load::inode_at(&*dev, FREE_LIST, sb.free_list, Cause::InodeMap)?;
        let none = Inode { ino: ORPHANS, a: free_list.a, ..Inode::default() };
        let orphan_list = match sb.orphans {
            Some(at) => load::inode_at(&*dev, ORPHANS, at, Cause::InodeMap)?,
            None => none,
        };
        let orphans: BTreeSet<_> = match sb.orphans {
            Some(_) => lists::read_orphans(&load::contents(&*dev, &orphan_list)?).map_err(Error::corrupt)?,
            None => Vec::new(),
        }
        .into_iter()
        .collect();
        let history_list = match sb.history {
            Some(at) => load::inode_at(&*dev, HISTORY, at, Cause::InodeMap)?,
            None => Inode { ino: HISTORY, a: free_list.a, ..Inode::default() },
        };
        let past = match sb.history {
            Some(_) => history::read(&load::contents(&*dev, &history_list)?).map_err(Error::corrupt)?,
            None => Vec::new(),
        };
        let history = History::open(past, options.undo)?;
        let mut free = Blocks::default();
        for run in lists::read_free(&load::contents(&*dev, &free_list)?).map_err(Error::corrupt)? {
            if run.end().0 > sb.blocks || !free.add_run(run) {
                return Err(Error::corrupt(format_args!("free list: blocks from {} on", run.start)));
            }
        }
        let both =
            history.kept.iter().find(|r| r.end().0 > sb.blocks || free.within(r.start.0, r.end().0).next().is_some());
        if let Some(run) = both {
            return Err(Error::corrupt(format_args!("history: blocks from {} on are free, or nowhere", run.start)));
        }
        let planned = |run: &Run| free.contains(run.start) && free.contains(Addr(run.end().0 - 1));
        if let Some(run) = sb.path.iter().find(|r| !planned(r)) {
            return Err(Error::corrupt(format_args!("the log's path leads to block {}, which is not free", run.start)));
        }
        let (path, seq, used) = (Path::given(&sb.path), sb.seq, sb.inodes);
        Ok(State {
            dev,
            archive: None,
            imap: InodeMap::new(map, options.ifile_cache, used),
            free_list,
            orphan_list,
            inodes: FxHashMap::default(),
            waiting: Default::default(),
            waits: 0,
            since: None,
            gone: Vec::new(),
            orphans,
            free,
            dead: Marks::default(),
            placement: options.placement.unwrap_or(sb.placement),
            series: None,
            torn: false,
            path,
            history,
            history_list,
            care: Care::new(options.clean, options.power),
            pace: options.pace(),
            accesses: Default::default(),
            background: Default::default(),
            changed: Default::default(),
            checkpointed: Default::default(),
            promised: sb.promised,
            need: 0,
            seq,
            attempt: 0,
            epoch: Epoch::new(sb.epoch.count + 1, sb.secret),
            begun: false,
            logged: 0,
            dir_blocks: 0,
            dir_cache: options.dir_cache,
            user_bytes: 0,
            gone_names: Default::default(),
            request: parking_lot::Mutex::default(),
            broken: None,
            torn_superblock: false,
            unflushed: None,
            committed: Duration::ZERO,
            ended: false,
            host_room: options.host_room.clone(),
            relieved: 0,
            sb,
        })
    }

    /// The path in a superblock and in the log behind it is only its beginning: the order of all free blocks
    /// continues it. If no log follows the superblock, the path may begin anew.
    fn know_the_rest(&mut self, anew: bool) {
        let known = if anew { Vec::new() } else { self.path.runs() };
        let mut free = self.free.clone();
        known.iter().for_each(|run| _ = free.take(run.start.0, run.blocks.into()));
        self.path = self.path.go_on(known, self.order(&free, self.path.head()));
    }

    /// Frees an unused inode: its number, blocks and reservations.
    pub(crate) fn free_inode(&mut self, mut inode: Inode) -> Result<()> {
        self.end_series_of(inode.ino, inode.addr)?;
        self.drop_wait(&mut inode);
        self.dir_blocks = self.dir_blocks.saturating_sub(inode.names.as_ref().map_or(0, |n| n.blocks()));
        let freed = Freed { runs: inode.extents.runs().collect(), reserved: inode.extents.reserved() };
        self.free_blocks(freed)?;
        let own: Vec<Run> = crate::inode::own_blocks(&inode).collect();
        own.into_iter().try_for_each(|run| self.die(run))?;
        self.imap.used = self.imap.used.saturating_sub(1);
        self.gone.push(inode.ino);
        Ok(())
    }
}

impl Volume {
    /// Mounts a volume. Files fsynced since its last checkpoint are found in the log.
    pub fn mount(dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, options: MountOptions) -> Result<Volume> {
        let options = MountOptions { read_only: options.read_only || dev.read_only(), ..options };
        because(Why::Mount, || Self::mount_now(dev, clock, options))
    }

    fn mount_now(dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, options: MountOptions) -> Result<Volume> {
        if options.sync == Sync::Burst && options.beside.stage.is_none() {
            return Err(Error::Invalid("sync=burst needs a stage on another disk"));
        }
        let (dev, archive, sb) = match options.beside.is_empty() {
            true => (dev.clone(), None, superblock(&*dev)?),
            false => {
                let (archive, sb) = Archive::open(dev, clock.clone(), &options.beside, options.read_only)?;
                let archive = Arc::new(archive);
                (archive.clone() as Arc<dyn BlockDevice>, Some(archive), sb)
            }
        };
        let clean = sb.clean;
        let mut state =
            Archive::doubted(archive.as_deref(), || State::of_checkpoint(dev.clone(), sb.clone(), &options))?;
        state.archive = archive.clone();
        state.sb.begun = time(clock.now());
        let found = if clean { 0 } else { state.follow_log()? };
        if !options.read_only {
            // With a stage, writes are copied to their places later, in order, so other placements gain nothing.
            state.placement = if options.sync == Sync::Burst { Placement::Before } else { state.placement };
            state.sb.placement = options.placement.unwrap_or(state.sb.placement);
            // A superblock with this epoch and the old checkpoint would cut off the log that was followed. The
            // checkpoint below is the first with the new epoch; blocks written before it are not part of the old
            // log.
            state.begun = found > 0;
            while options.undo == Some(0) && !state.history.all.is_empty() {
                state.forget_oldest()?;
            }
            state.know_the_rest(found == 0);
            let orphans: Vec<_> = state.orphans.iter().copied().collect();
            for ino in orphans {
                let inode = state.load(ino)?;
                state.orphans.remove(&ino);
                state.free_inode(inode)?;
            }
            if found > 0 || !state.gone.is_empty() {
                // The superblock's path is used up to here: a new one continues behind it.
                state.checkpoint(false)?;
            }
            if options.sync == Sync::Burst {
                // The disk is awake; a superblock cannot be staged later.
                state.begin_epoch()?;
            }
        }
        Ok(Volume {
            dev,
            clock,
            options,
            state: RwLock::new(state),
            references: Mutex::default(),
            hooks: Default::default(),
            archive,
        })
    }
}
