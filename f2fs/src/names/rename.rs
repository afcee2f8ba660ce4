//! How are names renamed?

use std::borrow::Cow;
use std::sync::Arc;

use format::Ino;
use format::inode::Advise;
use parking_lot::RwLockWriteGuard;
use rustc_hash::FxHashSet;
use vfs::{Caller, DeviceNumber, FileKind, NewNode, RenameFlags};

use super::check_name;
use super::create::Wish;
use crate::context::Begin;
use crate::dir::Names;
use crate::dir::spot::{Found, Spot};
use crate::error::{Error, Result};
use crate::fields::{Touch, put_advise, touch};
use crate::inode::{Content, Inode};
use crate::pack::PackState;

/// The contents of one or two directories, locked.
struct Locked<'d> {
    first: RwLockWriteGuard<'d, Content>,
    second: Option<RwLockWriteGuard<'d, Content>>,
    swapped: bool,
}

impl<'d> Locked<'d> {
    /// `swapped`: lock `to` first.
    fn new(from: &'d Inode, to: &'d Inode, swapped: bool) -> Self {
        if from.ino == to.ino {
            return Locked { first: from.content.write(), second: None, swapped: false };
        }
        let (a, b) = if swapped { (to, from) } else { (from, to) };
        Locked { first: a.content.write(), second: Some(b.content.write()), swapped }
    }
    fn from(&mut self) -> &mut Content {
        match &mut self.second {
            Some(s) if self.swapped => s,
            _ => &mut self.first,
        }
    }
    fn to(&mut self) -> &mut Content {
        match &mut self.second {
            Some(s) if !self.swapped => s,
            _ => &mut self.first,
        }
    }
}

/// The `..` of a directory, locked with its contents.
struct Up<'i> {
    content: RwLockWriteGuard<'i, Content>,
    spot: Spot,
}

/// A directory and its ancestors, or why they cannot be found.
type Above = std::result::Result<Vec<Ino>, vfs::Error>;

/// True if the place with these ancestors is `dir` itself or below it.
fn is_inside(above: &Above, dir: Ino) -> Result<bool> {
    Ok(above.as_ref().map_err(Clone::clone)?.contains(&dir))
}

/// True if directory `a` is locked before `b`. A thread that removes a directory locks parent before child, so the
/// upper one comes first; unrelated ones are ordered by number.
fn goes_first(a: (Ino, &Above), b: (Ino, &Above)) -> bool {
    // Without known parents, directories count as unrelated.
    let inside = |above: &Above, dir: Ino| is_inside(above, dir).unwrap_or(false);
    a.0 != b.0 && (inside(b.1, a.0) || (!inside(a.1, b.0) && a.0 < b.0))
}

impl Names {
    /// `renameat2`.
    pub(crate) fn rename_name(
        &self,
        volume: &dyn Begin,
        caller: Caller,
        from: (vfs::Ino, &[u8]),
        to: (vfs::Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        if exchange && flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT) {
            return Err(vfs::Error::Invalid("exchange goes with no other flag").into());
        }
        check_name(from.1)?;
        check_name(to.1)?;
        let change = volume.begin_modest()?;
        // Renames between directories run one at a time: the tree must not change while ancestors are checked. A rename
        // within one directory changes no parent.
        let _names = (from.0 != to.0).then(|| self.renames.lock());
        let (from_dir, to_dir) = (self.outer_dir(from.0)?, self.outer_dir(to.0)?);
        let (from_name, to_name) = (from.1, to.1);
        let across = from_dir.ino != to_dir.ino;
        let above = |dir| if across { self.ancestors(dir).map_err(vfs::Error::from) } else { Ok(Vec::new()) };
        let (above_from, above_to) = (above(&from_dir), above(&to_dir));

        // From here on the tree above both names does not change. Other names may still change until the directories
        // are locked; only a lookup under their locks is valid.
        let to_first = goes_first((to_dir.ino, &above_to), (from_dir.ino, &above_from));
        let mut locked = Locked::new(&from_dir, &to_dir, to_first);
        self.check_dir_changes(&from_dir, false)?;
        let source = self.find_entry(&from_dir, locked.from(), from_name)?.ok_or(vfs::Error::NotFound)?;
        let target = self.find_entry(&to_dir, locked.to(), to_name)?;
        self.check_dir_changes(&to_dir, target.is_none())?;
        let moving = self.named(source.ino, &from_dir, from_name)?;
        self.check_removable(&moving)?;
        if moving.ino == from_dir.ino {
            return Err(Error::corrupt(format_args!("directory {}: holds itself", moving.ino)));
        }
        let replaced = target.map(|t| self.named(t.ino, &to_dir, to_name)).transpose()?;
        if flags.contains(RenameFlags::NO_REPLACE) && replaced.is_some() {
            return Err(vfs::Error::Exists.into());
        }
        if exchange && replaced.is_none() {
            return Err(vfs::Error::NotFound.into());
        }
        if replaced.as_ref().is_some_and(|r| r.ino == moving.ino) {
            return Ok(()); // two names of one inode, or one name in two spellings
        }
        let is_dir = |i: &Inode| i.kind == FileKind::Directory;
        let into_itself = || Err(vfs::Error::Invalid("a directory cannot move into itself").into());
        if across && is_dir(&moving) && is_inside(&above_to, moving.ino)? {
            return into_itself();
        }
        if let Some(r) = &replaced {
            self.check_removable(r)?;
            if r.ino == to_dir.ino {
                return Err(Error::corrupt(format_args!("directory {}: holds itself", r.ino)));
            }
            // This also avoids taking a lock twice below: the source directory is already locked.
            let holds_source = across && is_dir(r) && is_inside(&above_from, r.ino)?;
            if exchange {
                if holds_source {
                    return into_itself();
                }
            } else {
                match (is_dir(&moving), is_dir(r)) {
                    _ if holds_source => return Err(vfs::Error::NotEmpty.into()),
                    (true, false) => return Err(vfs::Error::NotDirectory.into()),
                    (false, true) => return Err(vfs::Error::IsDirectory.into()),
                    _ => {}
                }
            }
        }
        self.check_has_key(&from_dir)?;
        self.check_has_key(&to_dir)?;
        self.check_project(&moving, &to_dir)?;
        let emptied = match &replaced {
            Some(r) if exchange => self.check_project(r, &from_dir).map(|()| None)?,
            Some(r) if is_dir(r) => Some(self.lock_empty_dir(r)?),
            _ => None,
        };

        // The replaced inode may become an orphan.
        let place = replaced.as_ref().filter(|_| !exchange).map(|_| self.inodes.orphans.place()).transpose()?;
        // Every block that will change is loaded first and stays in memory: a read error must not leave a name half
        // moved.
        let source = self.hold_entry(&from_dir, locked.from(), from_name)?.ok_or(vfs::Error::NotFound)?;
        let target = if replaced.is_some() { self.hold_entry(&to_dir, locked.to(), to_name)? } else { None };
        let from_name = &*self.spelled(&from_dir, locked.from(), source.spot, from_name)?;
        // An entry that points to another inode keeps its spelling.
        let to_name = &*match &target {
            Some(t) => self.spelled(&to_dir, locked.to(), t.spot, to_name)?,
            None => Cow::Borrowed(to_name),
        };
        let moving_up = self.hold_up(&moving, across)?;
        let replaced_up = match &replaced {
            Some(r) if exchange => self.hold_up(r, across)?,
            _ => None,
        };
        let white = if whiteout { Some(self.new_whiteout(&change, caller, &from_dir, from_name)?) } else { None };
        // The new name first: only adding it can run out of space.
        if let Some(r) = replaced.as_ref().filter(|_| exchange) {
            self.promises.names.lock().exchanged([moving.ino, r.ino]);
        }
        match target {
            Some(t) => self.redirect_entry(&to_dir, locked.to(), to_name, t, (moving.ino, moving.kind))?,
            None => {
                if let Err(e) = self.insert_entry(&to_dir, locked.to(), to_name, moving.ino, moving.kind, None) {
                    if let Some(w) = &white {
                        self.abandon(&change, w)?;
                    }
                    return Err(e);
                }
            }
        }
        // Adding the new name may have moved the entries of an inline directory to blocks.
        let old = match source.spot {
            Spot::Block { .. } => source,
            Spot::Inline { .. } => self.find_old(&from_dir, &mut locked, from_name, &moving)?,
        };
        match replaced.as_ref().filter(|_| exchange).or(white.as_ref()) {
            Some(i) => self.redirect_entry(&from_dir, locked.from(), from_name, old, (i.ino, i.kind))?,
            None => self.remove_entry(&from_dir, locked.from(), from_name, old)?,
        }

        let now = self.ctx.now();
        self.settle(&moving, moving_up, &to_dir, to_name, now)?;
        if let Some(r) = &replaced {
            if exchange {
                self.settle(r, replaced_up, &from_dir, from_name, now)?;
                let net = i32::from(is_dir(&moving)) - i32::from(is_dir(r));
                if across && net != 0 {
                    self.add_links(&to_dir, net);
                    self.add_links(&from_dir, -net);
                }
            } else if let Some(place) = place {
                if is_dir(r) {
                    self.add_links(&to_dir, -1);
                }
                self.unlinked(&change, r, place, emptied)?;
            }
        }
        if across && is_dir(&moving) && !exchange {
            self.add_links(&from_dir, -1);
            self.add_links(&to_dir, 1);
        }
        self.touch_dir(&from_dir);
        if across {
            self.touch_dir(&to_dir);
        }
        Ok(())
    }

    /// Finds an entry and keeps its block in memory.
    fn hold_entry(&self, dir: &Arc<Inode>, content: &mut Content, name: &[u8]) -> Result<Option<Found>> {
        let found = self.find_entry(dir, content, name)?;
        if let Some(Found { spot: Spot::Block { index, .. }, .. }) = found {
            self.dirty_dir_block(dir, content, index);
        }
        Ok(found)
    }

    /// The `..` of a directory that gets another parent, kept in memory; otherwise `None`.
    fn hold_up<'i>(&self, inode: &'i Arc<Inode>, across: bool) -> Result<Option<Up<'i>>> {
        if !across || inode.kind != FileKind::Directory {
            return Ok(None);
        }
        let mut content = inode.content.write();
        let up = self
            .find_entry(inode, &mut content, b"..")?
            .ok_or_else(|| Error::corrupt(format_args!("directory {}: has no ..", inode.ino)))?;
        Ok(Some(Up { content, spot: up.spot }))
    }

    fn find_old(&self, dir: &Arc<Inode>, locked: &mut Locked<'_>, name: &[u8], moving: &Inode) -> Result<Found> {
        self.find_entry(dir, locked.from(), name)?.filter(|f| f.ino == moving.ino).ok_or_else(|| {
            Error::corrupt(format_args!("directory {}: a name vanished while it was being moved", dir.ino))
        })
    }

    /// Records an inode's new name, sets its times, and changes a directory's `..` if the parent changed.
    fn settle(
        &self,
        inode: &Arc<Inode>,
        up: Option<Up<'_>>,
        new: &Inode,
        name: &[u8],
        now: device::clock::Time,
    ) -> Result<()> {
        self.set_place(inode, new, name);
        self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Changed, now));
        if inode.kind != FileKind::Directory {
            // Roll-forward cannot move a name of the checkpoint, so an fsync may have to write a checkpoint.
            self.nodes.edit_inode(&inode.node, |r| put_advise(r, Advise::LOST_PINO, true));
            self.promises.renamed.lock().insert(inode.ino);
            return Ok(());
        }
        self.promises.names.lock().altered(inode.ino);
        if let Some(mut up) = up {
            self.redirect_up(inode, &mut up.content, up.spot, new.ino)?;
        }
        Ok(())
    }

    /// A directory and its ancestors. The caller holds `names`, so no directory gets another parent, and no inode lock.
    fn ancestors(&self, dir: &Arc<Inode>) -> Result<Vec<Ino>> {
        let (mut above, mut seen) = (vec![dir.ino], FxHashSet::default());
        let mut at = dir.clone();
        while at.ino != self.ctx.sb.root {
            let up = self.parent(&at)?;
            if !seen.insert(up) {
                return Err(Error::corrupt(format_args!("directory {}: its parents form a loop", dir.ino)));
            }
            above.push(up);
            at = self.inodes.inode(up)?;
        }
        Ok(above)
    }

    /// The parent that a directory's `..` points to. The parent recorded in its inode may be outdated: a kernel may not
    /// have updated it when it moved the directory.
    fn parent(&self, dir: &Arc<Inode>) -> Result<Ino> {
        let known = self.find_in_memory(dir, &dir.content.read(), b"..")?;
        let found = match known {
            Some(found) => found,
            None => self.find_entry(dir, &mut dir.content.write(), b"..")?,
        };
        let up = found.ok_or_else(|| Error::corrupt(format_args!("directory {}: has no ..", dir.ino)))?;
        Ok(up.ino)
    }

    /// The whiteout a rename leaves behind.
    fn new_whiteout(&self, held: &PackState, caller: Caller, dir: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let new = NewNode { kind: FileKind::CharDevice, perm: 0, umask: 0, rdev: DeviceNumber::default() };
        let wish = Wish { caller, kind: new.kind, perm: new.perm, umask: new.umask, rdev: new.rdev, target: b"" };
        self.new_inode(held, dir, Some(name), &wish)
    }
}

#[cfg(test)]
mod tests {
    use vfs::FileSystem;

    use super::*;
    use crate::MountOptions;
    use crate::rig::*;

    #[test]
    fn a_directory_found_empty_takes_no_name_before_another_replaces_it() {
        for across in [false, true] {
            let (dev, vol) = mounted(64, MountOptions::default());
            let from = if across { dir(&vol, vol.root(), "from") } else { vol.root() };
            dir(&vol, from, "a");
            let d = dir(&vol, vol.root(), "d");
            let (renamed, made) = std::thread::scope(|s| {
                let hold = vol.inodes.orphans.hold();
                let renamer = s.spawn(|| vol.rename(ROOT, (from, b"a"), (vol.root(), b"d"), RenameFlags::empty()));
                std::thread::sleep(A_WHILE);
                let maker = s.spawn(|| try_file(&vol, d, "inside"));
                std::thread::sleep(A_WHILE);
                drop(hold);
                (renamer.join().unwrap(), maker.join().unwrap())
            });
            assert_ne!(renamed.is_ok(), made.is_ok(), "{renamed:?}, {made:?}");
            vol.forget(d, 1);
            judge(&dev, &vol);
        }
    }

    #[test]
    fn a_directory_is_where_its_dots_say_whatever_parent_its_inode_records() {
        for inline in [true, false] {
            let (dev, vol) = mounted(64, MountOptions { inline, ..MountOptions::default() });
            let a = dir(&vol, vol.root(), "a");
            let b = dir(&vol, a, "b");
            let c = dir(&vol, b, "c");
            let record = |ino, parent: vfs::Ino| {
                let inode = vol.names.outer(ino).unwrap();
                vol.nodes.edit_inode(&inode.node, |r| r.i_pino = (parent.0 as u32).into());
            };
            // A directory as kernels before 4.20 left it after a move.
            record(c, vol.root());
            let into_itself = vol.rename(ROOT, (vol.root(), b"a"), (c, b"a"), RenameFlags::empty());
            assert!(matches!(into_itself, Err(vfs::Error::Invalid(_))), "{into_itself:?}");
            // A directory that records a parent it never had moves like any other.
            record(b, c);
            let other = dir(&vol, vol.root(), "other");
            vol.rename(ROOT, (b, b"c"), (other, b"c"), RenameFlags::empty()).unwrap();
            record(b, a);
            judge(&dev, &vol);
        }
    }
}
