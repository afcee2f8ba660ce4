//! Creating, linking, removing and renaming. Every operation first checks, then reserves room, and only then
//! changes anything, so that a failed one leaves no trace.

use format::acl::{self, Acl};
use scherlfs_format::inode::{Attributes, Time};
use scherlfs_format::{FIRST_INO, Ino, ROOT};
use vfs::{Caller, DeviceNumber, Entry, Error, FileKind, RenameFlags, Result};

use crate::attributes::{ACCESS, DEFAULT};
use crate::inode::{APPEND_ONLY, Inode, SEALED};
use crate::known_names::Spot;
use crate::volume::State;

/// Parameters of a new inode.
pub(crate) struct Wish<'a> {
    pub caller: Caller,
    pub kind: FileKind,
    pub perm: u16,
    pub umask: u16,
    pub rdev: DeviceNumber,
    /// Target of a symlink.
    pub target: &'a [u8],
}

/// Flags inherited from the directory: sync, nodump, noatime, projinherit.
const INHERITED: u32 = 0x08 | 0x40 | 0x80 | PROJINHERIT;
const PROJINHERIT: u32 = 0x2000_0000;
/// Most blocks for changing a directory's inode and one name in it, in addition to waiting ones.
const DIR: u64 = State::ADDING + 2;

/// Rejects invalid names of new files.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::Invalid("not a valid name"));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name cannot contain a slash or NUL"));
    }
    if name.len() > scherlfs_format::NAME_MAX {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

/// Rejects changes to a protected directory.
fn check_dir(dir: &Inode, adding: bool) -> Result<()> {
    if !dir.is_dir() {
        return Err(Error::NotDirectory);
    }
    if dir.a.nlink == 0 {
        return Err(Error::NotFound);
    }
    let sealed = dir.a.flags & SEALED;
    if sealed != 0 && !(adding && sealed == APPEND_ONLY) {
        return Err(Error::NotPermitted("the directory is immutable or append-only"));
    }
    Ok(())
}

fn check_removable(inode: &Inode) -> Result<()> {
    if inode.ino < FIRST_INO && inode.ino != ROOT {
        return Err(Error::NotPermitted("the inode map is the file system's own"));
    }
    if inode.a.flags & SEALED != 0 {
        return Err(Error::NotPermitted("the file is immutable or append-only"));
    }
    Ok(())
}

fn check_project(inode: &Inode, dir: &Inode) -> Result<()> {
    let takes_own = dir.a.flags & PROJINHERIT != 0;
    if takes_own && dir.a.project != inode.a.project { Err(Error::OtherProject) } else { Ok(()) }
}

impl State {
    /// Loads an inode from a directory entry; if it is missing, the volume is damaged.
    fn named<T>(&mut self, ino: Ino, work: impl FnOnce(&mut State, &mut Inode) -> Result<T>) -> Result<T> {
        match self.inode(ino) {
            Err(Error::NotFound) => {
                Err(Error::corrupt(format_args!("a name leads to inode {ino}, which does not exist")))
            }
            Err(e) => Err(e),
            Ok(_) => self.with(ino, work),
        }
    }

    /// Creates an inode without a name, with one link (a directory with two).
    fn new_inode(&mut self, dir: &Inode, wish: &Wish<'_>, now: Time) -> Result<Inode> {
        let stored = dir.xattrs.get(DEFAULT).filter(|_| wish.kind != FileKind::Symlink);
        let default = stored.map(|v| Acl::from_wire(v)).transpose();
        let default = default.map_err(|e| Error::corrupt(format_args!("inode {}: {e}", dir.ino)))?;
        let got = acl::inherit(default.as_ref(), wish.kind.mode_bits() | wish.perm & 0o7777, wish.umask);
        let dev = self.dev.clone();
        let (ino, generation) = self.imap.take(&*dev)?;
        self.gone_names.forget(ino);
        let is_dir = wish.kind == FileKind::Directory;
        let sgid = dir.a.mode & 0o2000 != 0;
        let mut flags = dir.a.flags & INHERITED;
        if !is_dir {
            flags &= !PROJINHERIT;
        }
        let mut inode = Inode {
            ino,
            a: Attributes {
                generation,
                mode: got.mode | if sgid && is_dir { 0o2000 } else { 0 },
                nlink: if is_dir { 2 } else { 1 },
                uid: wish.caller.uid,
                gid: if sgid { dir.a.gid } else { wish.caller.gid },
                parent: dir.ino,
                times: [now; 4],
                rdev: u64::from(wish.rdev.major) << 32 | u64::from(wish.rdev.minor),
                flags,
                project: if dir.a.flags & PROJINHERIT != 0 { dir.a.project } else { 0 },
                ..Attributes::default()
            },
            ..Inode::default()
        };
        for (name, list) in [(DEFAULT, got.default), (ACCESS, got.access)] {
            if let Some(list) = list {
                inode.xattrs.insert(name.to_vec(), list.to_wire());
            }
        }
        if wish.kind == FileKind::Symlink {
            let mut page = [0; scherlfs_format::BLOCK];
            page[..wish.target.len()].copy_from_slice(wish.target);
            inode.pages.insert(0, page.into());
            inode.a.size = wish.target.len() as u64;
        }
        Ok(inode)
    }

    /// Creates an inode under a new name.
    pub fn create(&mut self, parent: Ino, name: &[u8], wish: &Wish<'_>, now: Time) -> Result<Entry> {
        check_name(name)?;
        if wish.target.len() >= scherlfs_format::BLOCK {
            return Err(Error::NameTooLong);
        }
        self.with(parent, |st, dir| {
            check_dir(dir, true)?;
            if st.find(dir, name)?.is_some() { Err(Error::Exists) } else { Ok(()) }
        })?;
        self.admit(DIR + 4, false)?;
        self.with(parent, |st, dir| {
            let mut inode = st.new_inode(dir, wish, now)?;
            st.add_name(dir, name, inode.ino, wish.kind).inspect_err(|_| st.imap.abandon(inode.ino))?;
            if wish.kind == FileKind::Directory {
                dir.a.nlink += 1;
                inode.names = Some(Box::default());
            }
            dir.modified(now);
            st.keep(&mut inode);
            st.keep(dir);
            let attr = inode.attr();
            st.inodes.insert(inode.ino, Box::new(inode));
            Ok(Entry { attr })
        })
    }

    /// Creates a regular file without a name.
    pub fn create_nameless(&mut self, parent: Ino, wish: &Wish<'_>, now: Time) -> Result<Entry> {
        self.with(parent, |_, dir| check_dir(dir, true))?;
        self.admit(4, false)?;
        self.with(parent, |st, dir| {
            let mut inode = st.new_inode(dir, wish, now)?;
            inode.a.nlink = 0;
            st.keep(&mut inode);
            st.orphans.insert(inode.ino);
            let attr = inode.attr();
            st.inodes.insert(inode.ino, Box::new(inode));
            Ok(Entry { attr })
        })
    }

    /// Adds another name to an inode.
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now: Time) -> Result<Entry> {
        check_name(name)?;
        if self.inode(ino)?.is_dir() {
            return Err(Error::NotPermitted("directories have one name"));
        }
        if ino == parent {
            return Err(Error::NotDirectory);
        }
        self.with(parent, |st, dir| {
            check_dir(dir, true)?;
            st.with(ino, |st, inode| {
                check_removable(inode)?;
                if st.find(dir, name)?.is_some() {
                    return Err(Error::Exists);
                }
                if inode.a.nlink == u32::MAX {
                    return Err(Error::TooManyLinks);
                }
                check_project(inode, dir)
            })
        })?;
        self.admit(DIR + 2, false)?;
        self.with(parent, |st, dir| {
            st.with(ino, |st, inode| {
                let kind = inode.kind().ok_or(Error::NotFound)?;
                st.add_name(dir, name, ino, kind)?;
                inode.a.nlink += 1;
                if st.orphans.remove(&ino) {
                    inode.a.parent = dir.ino;
                }
                inode.changed(now);
                dir.modified(now);
                st.keep(inode);
                st.keep(dir);
                Ok(Entry { attr: inode.attr() })
            })
        })
    }

    /// Updates an inode that lost a name, or a directory that lost all.
    fn unlinked(&mut self, inode: &mut Inode, now: Time) {
        inode.a.nlink = if inode.is_dir() { 0 } else { inode.a.nlink.saturating_sub(1) };
        inode.changed(now);
        if inode.a.nlink == 0 {
            self.orphans.insert(inode.ino);
        }
        self.keep(inode);
    }

    /// Removes a name; returns its inode.
    pub fn remove(&mut self, parent: Ino, name: &[u8], directory: bool, now: Time) -> Result<Ino> {
        if name == b"." {
            return Err(Error::Invalid("cannot remove ."));
        }
        if name == b".." {
            return Err(Error::NotEmpty);
        }
        let spot = self.with(parent, |st, dir| {
            check_dir(dir, false)?;
            let spot = st.find(dir, name)?.ok_or(Error::NotFound)?;
            if spot.ino == dir.ino {
                return Err(Error::corrupt(format_args!("directory {}: holds itself", dir.ino)));
            }
            Ok(spot)
        })?;
        let extents = self.named(spot.ino, |st, victim| {
            match (directory, victim.is_dir()) {
                (false, true) => return Err(Error::IsDirectory),
                (true, false) => return Err(Error::NotDirectory),
                _ => {}
            }
            check_removable(victim)?;
            if directory && !st.names(victim)?.is_empty() {
                return Err(Error::NotEmpty);
            }
            Ok(victim.extents.cost_of_all(0))
        })?;
        self.admit(DIR + 2 + extents, true)?;
        self.with(parent, |st, dir| {
            st.with(spot.ino, |st, victim| {
                st.remove_name(dir, name, spot)?;
                if directory {
                    dir.a.nlink = dir.a.nlink.saturating_sub(1);
                }
                dir.modified(now);
                st.keep(dir);
                st.unlinked(victim, now);
                if victim.a.nlink == 0 {
                    st.gone_names.note(victim.ino, parent, name);
                }
                Ok(spot.ino)
            })
        })
    }

    /// Frees an unused orphan.
    pub fn reap(&mut self, ino: Ino) -> Result<()> {
        if !self.orphans.contains(&ino) {
            return Ok(());
        }
        let inode = match self.inodes.remove(&ino) {
            Some(inode) => *inode,
            None => self.load(ino)?,
        };
        if inode.a.nlink > 0 {
            self.inodes.insert(ino, Box::new(inode));
            return Ok(());
        }
        self.orphans.remove(&ino);
        if inode.addr.is_none() {
            // It was never written, so the log need not record its deletion.
            let mut inode = inode;
            self.drop_wait(&mut inode);
            self.promised = self.promised.saturating_sub(inode.extents.reserved());
            self.imap.abandon(ino);
            return Ok(());
        }
        self.free_inode(inode)
    }

    /// True if directory `ino` is `dir` or below it.
    fn is_inside(&mut self, mut ino: Ino, dir: Ino) -> Result<bool> {
        for _ in 0..1 << 20 {
            if ino == dir {
                return Ok(true);
            }
            if ino == ROOT {
                return Ok(false);
            }
            ino = self.inode(ino)?.a.parent;
        }
        Err(Error::corrupt(format_args!("directory {dir}: those above it form a loop")))
    }

    /// `renameat2`. Returns the inode that lost a name, if any.
    pub fn rename(
        &mut self,
        caller: Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
        now: Time,
    ) -> Result<Option<Ino>> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT) {
            return Err(Error::Invalid("exchange goes with no other flag"));
        }
        check_name(from.1)?;
        check_name(to.1)?;
        for dir in [from.0, to.0] {
            if !self.inode(dir)?.is_dir() {
                return Err(Error::NotDirectory);
            }
        }
        let across = from.0 != to.0;
        let source = self.with(from.0, |st, dir| {
            check_dir(dir, false)?;
            st.find(dir, from.1)?.ok_or(Error::NotFound)
        })?;
        let target = self.with(to.0, |st, dir| {
            let target = st.find(dir, to.1)?;
            check_dir(dir, target.is_none())?;
            Ok(target)
        })?;
        if source.ino == from.0 || target.is_some_and(|t| t.ino == to.0) {
            return Err(Error::corrupt(format_args!("directory {}: holds itself", from.0)));
        }
        self.named(source.ino, |_, moving| check_removable(moving))?;
        if flags.contains(RenameFlags::NO_REPLACE) && target.is_some() {
            return Err(Error::Exists);
        }
        if exchange && target.is_none() {
            return Err(Error::NotFound);
        }
        if target.is_some_and(|t| t.ino == source.ino) {
            return Ok(None); // two names of one inode
        }
        let is_dir = |spot: Spot| spot.kind == FileKind::Directory;
        let into_itself = || Err(Error::Invalid("a directory cannot move into itself"));
        if across && is_dir(source) && self.is_inside(to.0, source.ino)? {
            return into_itself();
        }
        if let Some(t) = target {
            self.named(t.ino, |_, replaced| check_removable(replaced))?;
            let holds_source = across && is_dir(t) && self.is_inside(from.0, t.ino)?;
            match (is_dir(source), is_dir(t)) {
                _ if exchange && holds_source => return into_itself(),
                _ if exchange => {}
                _ if holds_source => return Err(Error::NotEmpty),
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !self.with(t.ino, |st, dir| Ok(st.names(dir)?.is_empty()))? => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
        }
        self.with(to.0, |st, dir| st.with(source.ino, |_, moving| check_project(moving, dir)))?;
        if let Some(t) = target.filter(|_| exchange && across) {
            self.with(from.0, |st, dir| st.with(t.ino, |_, moving| check_project(moving, dir)))?;
        }
        let extents = |st: &mut State, ino| Ok::<_, Error>(st.inode(ino)?.extents.cost_of_all(0));
        let mut need = 2 * DIR + 8 + extents(self, source.ino)?;
        if let Some(t) = target {
            need += extents(self, t.ino)?;
        }
        self.admit(need, false)?;

        // From here on only the device can fail, which prevents later writes.
        let white = match flags.contains(RenameFlags::WHITEOUT) {
            true => {
                let wish = Wish {
                    caller,
                    kind: FileKind::CharDevice,
                    perm: 0,
                    umask: 0,
                    rdev: DeviceNumber::default(),
                    target: b"",
                };
                let inode = self.with(from.0, |st, dir| st.new_inode(dir, &wish, now))?;
                let ino = inode.ino;
                self.inodes.insert(ino, Box::new(inode));
                self.with(ino, |st, inode| {
                    st.keep(inode);
                    Ok(())
                })?;
                Some(ino)
            }
            false => None,
        };
        let moved = (source.ino, source.kind);
        self.with(to.0, |st, dir| match target {
            Some(t) => st.redirect_name(dir, to.1, t, moved),
            None => st.add_name(dir, to.1, moved.0, moved.1),
        })?;
        let left = target.filter(|_| exchange).map(|t| (t.ino, t.kind)).or(white.map(|w| (w, FileKind::CharDevice)));
        self.with(from.0, |st, dir| match left {
            Some(left) => st.redirect_name(dir, from.1, source, left),
            None => st.remove_name(dir, from.1, source),
        })?;
        let place = |st: &mut State, ino: Ino, parent: Ino| {
            st.with(ino, |st, inode| {
                inode.a.parent = parent;
                inode.changed(now);
                st.keep(inode);
                Ok(())
            })
        };
        place(self, source.ino, to.0)?;
        let mut lost = None;
        if let Some(t) = target {
            if exchange {
                place(self, t.ino, from.0)?;
            } else {
                self.with(t.ino, |st, replaced| {
                    st.unlinked(replaced, now);
                    if replaced.a.nlink == 0 {
                        st.gone_names.note(replaced.ino, to.0, to.1);
                    }
                    Ok(())
                })?;
                lost = Some(t.ino);
            }
        }
        let gone = target.filter(|t| is_dir(*t));
        let (mut leave, mut come) = (i64::from(across && is_dir(source)), i64::from(across && is_dir(source)));
        if gone.is_some() {
            // A replaced directory leaves `to`; an exchanged one moves to `from`.
            come -= i64::from(!exchange || across);
            leave -= i64::from(exchange && across);
        }
        let count = |st: &mut State, dir: Ino, by: i64| {
            st.with(dir, |st, inode| {
                inode.a.nlink = (i64::from(inode.a.nlink) + by).clamp(0, u32::MAX.into()) as u32;
                inode.modified(now);
                st.keep(inode);
                Ok(())
            })
        };
        if across {
            count(self, from.0, -leave)?;
            count(self, to.0, come)?;
        } else {
            count(self, to.0, come)?;
        }
        Ok(lost)
    }
}
