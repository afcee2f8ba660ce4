//! Restoring a volume or one file to an earlier state. (Scherl 2004, section 7.5.)
//!
//! Undo writes the old inodes, with their old blocks, to the end of the log as one transaction, which can be undone
//! itself. The volume must not be in use meanwhile.

use std::collections::BTreeMap;

use scherlfs_format::history::Change;
use scherlfs_format::{Addr, Ino, ROOT};
use vfs::{Error, FileKind, Result};

use crate::cause::Cause;
use crate::inode::Inode;
use crate::known_names::spots;
use crate::load;
use crate::space::Blocks;
use crate::volume::{SPARE, State, Volume};

/// Description of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: u64,
    /// When it was written: seconds since 1970.
    pub secs: i64,
    /// Inodes created, changed or removed, with the path if known.
    pub changes: Vec<(What, Option<Vec<u8>>, u32)>,
}

/// Kind of change to an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Created.
    Made,
    /// Written again: contents or attributes.
    Changed,
    /// Removed.
    Removed,
}

impl What {
    /// Text for people.
    pub fn text(self) -> &'static str {
        match self {
            What::Made => "made",
            What::Changed => "changed",
            What::Removed => "removed",
        }
    }
}

fn what(change: &Change) -> What {
    match (change.was, change.is) {
        (None, _) => What::Made,
        (_, Some(_)) => What::Changed,
        (_, None) => What::Removed,
    }
}

impl State {
    /// Writes waiting changes and drops caches that could contradict the restored state.
    fn still(&mut self) -> Result<()> {
        self.writable()?;
        self.commit()?;
        self.end_series()?;
        if self.inodes.values().any(|i| i.waits.is_some()) || !self.orphans.is_empty() {
            return Err(Error::Busy("deleted files are still open"));
        }
        self.inodes.clear();
        self.dir_blocks = 0;
        Ok(())
    }

    fn then(&self, ino: Ino, at: Addr) -> Result<Inode> {
        load::inode_at(&*self.dev, ino, at, Cause::Inode)
    }

    /// Restores inodes to old versions (`None`: not existing), as waiting changes.
    fn restore(&mut self, wanted: BTreeMap<Ino, Option<Inode>>) -> Result<()> {
        let mut new = Blocks::default();
        let mut need = 8;
        for inode in wanted.values().flatten() {
            need += 2 + inode.extents.cost_of_all(0);
            for run in inode.extents.runs() {
                if !new.add_run(run) {
                    return Err(Error::corrupt(format_args!("block {} was two files' then", run.start)));
                }
            }
        }
        let promised = |i: &Inode| i.extents.reserved();
        let more: u64 = wanted.values().flatten().map(promised).sum();
        if self.unclaimed() < need + more + SPARE {
            return Err(Error::NoSpace);
        }
        for (ino, then) in wanted {
            let dev = self.dev.clone();
            let place = self.imap.get(&*dev, ino)?;
            let now = match place.addr {
                Some(at) => Some(self.then(ino, at)?),
                None => None,
            };
            if let Some(now) = &now {
                self.promised = self.promised.saturating_sub(promised(now));
                let mut gone = Blocks::default();
                now.extents.runs().for_each(|run| _ = gone.add_run(run));
                for run in new.iter() {
                    for (start, blocks) in gone.within(run.start.0, run.end().0).collect::<Vec<_>>() {
                        gone.take(start, blocks);
                    }
                }
                gone.iter().try_for_each(|run| self.die(run))?;
            }
            match (then, now) {
                (Some(then), now) => {
                    self.promised += promised(&then);
                    if now.is_none() {
                        self.imap.bring_back(ino);
                    }
                    let generation = if now.is_none() { place.generation.into() } else { then.a.generation };
                    // The restored version replaces the current one.
                    let (addr, lists) =
                        now.map_or((None, Vec::new()), |now| (now.addr, crate::inode::lists(&now).collect()));
                    let a = scherlfs_format::inode::Attributes { generation, ..then.a };
                    let mut inode = Inode { addr, indexes: Vec::new(), a, ..then };
                    // Its old continuations may have been reused.
                    inode.extents.anew(lists);
                    self.keep(&mut inode);
                    self.inodes.insert(ino, Box::new(inode));
                }
                (None, Some(now)) => {
                    let own: Vec<_> = crate::inode::own_blocks(&now).collect();
                    own.into_iter().try_for_each(|run| self.die(run))?;
                    self.imap.used = self.imap.used.saturating_sub(1);
                    self.gone.push(ino);
                }
                (None, None) => {}
            }
        }
        self.history.give_back(&new);
        Ok(())
    }

    /// Undoes the last transactions; returns the number of changed inodes.
    fn go_back(&mut self, count: usize) -> Result<usize> {
        self.still()?;
        // Transactions that only moved blocks do not count as a step, but are undone on the way.
        let steps = self.history.all.iter().rev().enumerate().filter(|(_, p)| !p.moved).map(|(n, _)| n + 1);
        let Some(count) = steps.take(count).nth(count.saturating_sub(1)).filter(|_| count > 0) else {
            return Err(Error::Invalid("fewer transactions than that can be undone"));
        };
        let mut wanted: BTreeMap<Ino, Option<Addr>> = BTreeMap::new();
        for past in self.history.all.iter().rev().take(count) {
            for change in &past.changes {
                wanted.insert(change.ino, change.was);
            }
        }
        if wanted.len() >= crate::volume::INODES_MAX {
            return Err(Error::Invalid("too many files were changed for one transaction: undo fewer at a time"));
        }
        let mut inodes = BTreeMap::new();
        for (ino, at) in wanted {
            // An inode without a name was in use then, but is not now.
            let then = at.map(|at| self.then(ino, at)).transpose()?.filter(|inode| inode.a.nlink > 0);
            inodes.insert(ino, then);
        }
        let changed = inodes.len();
        self.restore(inodes)?;
        self.checkpoint(false)?;
        Ok(changed)
    }

    /// Restores the contents of a regular file before its last change.
    fn change_back(&mut self, ino: Ino) -> Result<()> {
        let now = self.inode(ino)?.clone();
        if !now.is_file() {
            return Err(Error::Invalid(
                "only the contents of regular files can be undone alone: undo on the whole \
                volume",
            ));
        }
        let earlier = self.history.all.iter().rev().flat_map(|p| &p.changes).filter(|c| c.ino == ino);
        let places: Vec<Addr> = earlier.filter_map(|c| c.was).collect();
        for at in places {
            let then = self.then(ino, at)?;
            if (then.a.size, &then.extents) != (now.a.size, &now.extents) {
                let mut a = then.a;
                (a.nlink, a.parent, a.generation) = (now.a.nlink, now.a.parent, now.a.generation);
                self.inodes.clear();
                self.restore(BTreeMap::from([(ino, Some(Inode { a, ..then }))]))?;
                return self.checkpoint(false);
            }
        }
        Err(Error::NotFound)
    }

    /// The last inode with name `name` in a directory, and its address.
    fn lost(&self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, Addr, FileKind)>> {
        let all: Vec<&Change> = self.history.all.iter().rev().flat_map(|p| p.changes.iter()).collect();
        for at in all.iter().filter(|c| c.ino == dir).filter_map(|c| c.was) {
            let then = self.then(dir, at)?;
            for index in 0..then.size_blocks() {
                let block = self.read_directory_once(&then, index)?;
                let Some((_, spot)) = spots(&block, index).find(|(n, _)| *n == name) else { continue };
                let gone = all.iter().find(|c| c.ino == spot.ino && c.is.is_none());
                return Ok(gone.and_then(|c| c.was).map(|at| (spot.ino, at, spot.kind)));
            }
        }
        Ok(None)
    }

    /// Restores a deleted file.
    fn bring_back(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        let (ino, at, kind) = self.lost(dir, name)?.ok_or(Error::NotFound)?;
        if kind == FileKind::Directory {
            return Err(Error::Invalid("a deleted directory cannot be restored alone: undo on the whole volume"));
        }
        let dev = self.dev.clone();
        if self.imap.get(&*dev, ino)?.addr.is_some() {
            return Err(Error::Busy("its inode now belongs to another file: undo on the whole volume"));
        }
        let then = self.then(ino, at)?;
        let mut a = then.a;
        (a.nlink, a.parent) = (1, dir);
        self.admit_inode(dir, State::ADDING, false)?;
        self.restore(BTreeMap::from([(ino, Some(Inode { a, ..then }))]))?;
        self.with(dir, |st, inode| {
            st.add_name(inode, name, ino, kind)?;
            st.keep(inode);
            Ok(())
        })?;
        self.checkpoint(false)
    }

    /// Walks a path from the root; `None` if the last component does not exist.
    fn walk(&mut self, path: &[&[u8]]) -> Result<(Ino, Option<Ino>)> {
        let (mut dir, mut found) = (ROOT, Some(ROOT));
        for (n, name) in path.iter().enumerate() {
            dir = found.ok_or(Error::NotFound)?;
            found = self.with(dir, |st, inode| Ok(st.find(inode, name)?.map(|s| s.ino)))?;
            if found.is_none() && n + 1 < path.len() {
                return Err(Error::NotFound);
            }
        }
        Ok((dir, found))
    }
}

impl Volume {
    /// Undoable transactions, the latest first.
    ///
    /// # Errors
    /// Those of the device, and a damaged volume.
    pub fn history(&self) -> Result<Vec<Event>> {
        let pasts: Vec<_> = self.state.read().history.all.iter().rev().filter(|p| !p.moved).cloned().collect();
        let mut events = Vec::with_capacity(pasts.len());
        for past in pasts {
            let mut changes = Vec::new();
            for change in past.changes.iter().filter(|c| c.ino != ROOT || past.changes.len() == 1) {
                let path = match vfs::Volume::owner_of(self, change.ino.0.into(), vfs::Look::Everywhere) {
                    vfs::Owner::Path(path) if change.is.is_some() => Some(path),
                    _ => self.name_then(&past.changes, change.ino)?,
                };
                changes.push((what(change), path, change.ino.0));
            }
            events.push(Event { seq: past.seq.0, secs: past.secs, changes });
        }
        Ok(events)
    }

    /// The name of an inode in one of the directories that a transaction changed, before or after it.
    fn name_then(&self, changes: &[Change], ino: Ino) -> Result<Option<Vec<u8>>> {
        for change in changes {
            for at in change.was.into_iter().chain(change.is) {
                let state = self.state.read();
                let then = state.then(change.ino, at)?;
                if !then.is_dir() {
                    break;
                }
                for index in 0..then.size_blocks() {
                    let block = state.read_directory_once(&then, index)?;
                    let Some(name) = spots(&block, index).find(|(_, s)| s.ino == ino).map(|(n, _)| n.to_vec()) else {
                        continue;
                    };
                    drop(state);
                    let dir = vfs::Volume::owner_of(self, change.ino.0.into(), vfs::Look::Everywhere);
                    let mut path = match dir {
                        vfs::Owner::Path(path) if path != b"/" => path,
                        _ => Vec::new(),
                    };
                    path.push(b'/');
                    path.extend(name);
                    return Ok(Some(path));
                }
            }
        }
        Ok(None)
    }

    /// Undoes the last transactions of the whole volume; returns the number of changed inodes.
    ///
    /// # Errors
    /// There are fewer transactions, or no room to write; those of the device.
    pub fn undo_last(&self, count: usize) -> Result<usize> {
        self.state.write().go_back(count)
    }

    /// Undoes the last change of a file's contents, or its removal. `path` is its path from the root.
    ///
    /// # Errors
    /// [`Error::NotFound`]: nothing of it can be undone.
    pub fn undo_file(&self, path: &[&[u8]]) -> Result<()> {
        let mut state = self.state.write();
        state.still()?;
        match state.walk(path)? {
            (_, Some(ino)) => state.change_back(ino),
            (dir, None) => state.bring_back(dir, path.last().ok_or(Error::NotFound)?),
        }
    }
}
