//! The volume as a [`vfs::FileSystem`]: converts calls, takes the lock, counts references.

use std::time::Duration;

use scherlfs_format::{BLOCK, IFILE, Ino, NAME_MAX, ROOT};
use vfs::{
    Allocate, Attr, Caller, DeviceNumber, DirEntry, Entry, Error, Extent, FileFlags, FileKind, FileSystem, Flags, Flow,
    NewNode, RenameFlags, Result, Seek, SetAttr, StatFs, WriteFlags, XattrFlags,
};

use crate::archive::wakes::{Why, because};
use crate::attributes::{check_appendable, check_unsealed, readable};
use crate::cause::Cause;
use crate::file::{check_file, whole_blocks};
use crate::inode::{APPEND_ONLY, SEALED};
use crate::names::Wish;
use crate::volume::{State, Volume};

fn outer(ino: Ino) -> vfs::Ino {
    vfs::Ino(ino.0.into())
}

impl State {
    /// Reads the current inode map, including waiting blocks.
    fn read_map(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = (offset + buf.len() as u64).min(self.imap.inode.a.size);
        let dev = self.dev.clone();
        let mut at = offset;
        while at < end {
            let (index, within) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let n = (BLOCK - within).min((end - at) as usize);
            let block = self.imap.load(&*dev, index)?;
            buf[(at - offset) as usize..][..n].copy_from_slice(&block[within..within + n]);
            at += n as u64;
        }
        Ok(end.saturating_sub(offset) as usize)
    }
}

impl Volume {
    fn hold(&self, ino: Ino, count: u64) {
        *self.references.lock().entry(ino).or_default() += count;
    }

    /// Gives references back; the last one of an inode without a name frees it.
    fn unhold(&self, ino: Ino, count: u64) {
        let mut references = self.references.lock();
        let Some(held) = references.get_mut(&ino) else { return };
        *held = held.saturating_sub(count);
        if *held > 0 {
            return;
        }
        references.remove(&ino);
        drop(references);
        let orphan = self.state.read().orphans.contains(&ino);
        if orphan && !self.options.read_only {
            // There is no caller to report to; the next mount repeats what fails here.
            if let Err(e) = self.change(|st| self.reap_unused(st, ino)) {
                log::warn!("inode {ino}: could not be freed: {e}");
            }
        }
    }

    fn reap_unused(&self, st: &mut State, ino: Ino) -> Result<()> {
        if self.references.lock().contains_key(&ino) { Ok(()) } else { st.reap(ino) }
    }

    /// Reads an inode: under the shared lock if it is in memory.
    fn look<T>(&self, ino: vfs::Ino, work: impl Fn(&State, &crate::inode::Inode) -> Result<T>) -> Result<T> {
        let ino = Volume::number(ino)?;
        {
            let state = self.state.read();
            if ino == IFILE {
                return work(&state, &state.imap.inode);
            }
            if let Some(inode) = state.inodes.get(&ino) {
                return work(&state, inode);
            }
        }
        let mut state = self.state.write();
        state.with(ino, |st, inode| work(st, inode))
    }

    /// Looks up a name under the shared lock. `None` if the directory or the inode is not completely in memory.
    fn lookup_in_memory(&self, parent: Ino, name: &[u8]) -> Option<Result<Entry>> {
        let state = self.state.read();
        if name == b"." || name == b".." || name.len() > NAME_MAX || state.dir_blocks > state.dir_cache {
            return None;
        }
        let Some(spot) = state.inodes.get(&parent)?.names.as_ref()?.find(name) else {
            return Some(Err(Error::NotFound));
        };
        let attr = state.inodes.get(&spot.ino)?.attr();
        // The lock is still held, so it was not freed.
        self.hold(spot.ino, 1);
        Some(Ok(Entry { attr }))
    }

    /// Changes an inode, with room for `blocks` blocks in addition to its own.
    fn edit<T>(
        &self,
        ino: vfs::Ino,
        blocks: u64,
        gives_back: bool,
        work: impl FnOnce(&mut State, &mut crate::inode::Inode) -> Result<T>,
    ) -> Result<T> {
        self.edit_admitted(ino, |st, ino| st.admit_inode(ino, blocks, gives_back), work)
    }

    fn edit_admitted<T>(
        &self,
        ino: vfs::Ino,
        admit: impl FnOnce(&mut State, scherlfs_format::Ino) -> Result<()>,
        work: impl FnOnce(&mut State, &mut crate::inode::Inode) -> Result<T>,
    ) -> Result<T> {
        let ino = Volume::number(ino)?;
        if ino == IFILE {
            return Err(Error::NotPermitted("the inode map is the file system's own"));
        }
        self.change(|st| {
            admit(st, ino)?;
            st.with(ino, work)
        })
    }

    fn make(&self, parent: vfs::Ino, name: &[u8], wish: &Wish<'_>) -> Result<Entry> {
        let (parent, now) = (Volume::number(parent)?, self.now());
        self.change(|st| {
            let entry = st.create(parent, name, wish, now)?;
            self.hold(Volume::number(entry.attr.ino)?, 1);
            Ok(entry)
        })
    }
}

impl FileSystem for Volume {
    fn root(&self) -> vfs::Ino {
        outer(ROOT)
    }

    fn statfs(&self) -> Result<StatFs> {
        let state = self.state.read();
        let free = state.free_for_users();
        let files_free = (1 << 32) - state.imap.used.min(1 << 32);
        Ok(StatFs {
            block_size: BLOCK as u32,
            blocks: state.sb.blocks - scherlfs_format::FIRST,
            blocks_free: free,
            // 0 while the host has no room.
            blocks_available: if state.host_is_short() { 0 } else { free },
            files: (1 << 32) - 1,
            files_free: files_free.min(free),
            name_max: NAME_MAX as u32,
        })
    }

    fn read_only(&self) -> bool {
        self.options.read_only
    }

    fn lookup(&self, parent: vfs::Ino, name: &[u8]) -> Result<Entry> {
        let parent = Volume::number(parent)?;
        if let Some(seen) = self.lookup_in_memory(parent, name) {
            return seen;
        }
        let mut state = self.state.write();
        if name == b"." {
            let attr = if parent == IFILE { state.imap.inode.attr() } else { state.inode(parent)?.attr() };
            if attr.nlink == 0 {
                return Err(Error::NotFound);
            }
            self.hold(parent, 1);
            return Ok(Entry { attr });
        }
        let found = if parent == IFILE {
            Err(Error::NotDirectory)
        } else {
            state.with(parent, |st, dir| {
                let found =
                    if name == b".." && dir.is_dir() { Some(dir.a.parent) } else { st.find(dir, name)?.map(|s| s.ino) };
                st.forget_names(dir);
                Ok(found)
            })
        };
        let ino = found?.ok_or(Error::NotFound)?;
        let attr = match ino {
            IFILE => state.imap.inode.attr(),
            ino => match state.inode(ino) {
                Ok(inode) => inode.attr(),
                Err(Error::NotFound) => {
                    return Err(Error::corrupt(format_args!("a name leads to inode {ino}, which does not exist")));
                }
                Err(e) => return Err(e),
            },
        };
        self.hold(ino, 1);
        Ok(Entry { attr })
    }

    fn forget(&self, ino: vfs::Ino, count: u64) {
        if let Ok(ino) = Volume::number(ino) {
            self.unhold(ino, count);
        }
    }

    fn getattr(&self, ino: vfs::Ino) -> Result<Attr> {
        self.look(ino, |_, inode| Ok(inode.attr()))
    }

    fn setattr(&self, ino: vfs::Ino, set: &SetAttr) -> Result<Attr> {
        let now = self.now();
        // A size that is not whole blocks changes the last one.
        self.edit(ino, 1, set.size.is_some(), |st, inode| st.set_attributes(inode, set, now))
    }

    fn readlink(&self, ino: vfs::Ino) -> Result<Vec<u8>> {
        self.look(ino, |st, inode| {
            if inode.kind() != Some(FileKind::Symlink) {
                return Err(Error::Invalid("not a symbolic link"));
            }
            if inode.a.size >= BLOCK as u64 {
                return Err(Error::corrupt(format_args!("symlink {}: {} bytes", inode.ino, inode.a.size)));
            }
            let mut target = vec![0; inode.a.size as usize];
            st.read_contents(inode, 0, &mut target)?;
            if target.contains(&0) {
                return Err(Error::corrupt(format_args!("symlink {}: its target holds a NUL byte", inode.ino)));
            }
            Ok(target)
        })
    }

    fn mknod(&self, caller: Caller, parent: vfs::Ino, name: &[u8], new: &NewNode) -> Result<Entry> {
        if matches!(new.kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Error::Invalid("mknod makes neither directories nor symlinks"));
        }
        let wish = Wish { caller, kind: new.kind, perm: new.perm, umask: new.umask, rdev: new.rdev, target: b"" };
        self.make(parent, name, &wish)
    }

    fn mkdir(&self, caller: Caller, parent: vfs::Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry> {
        let rdev = DeviceNumber::default();
        self.make(parent, name, &Wish { caller, kind: FileKind::Directory, perm, umask, rdev, target: b"" })
    }

    fn symlink(&self, caller: Caller, parent: vfs::Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("a target holds no NUL"));
        }
        let rdev = DeviceNumber::default();
        self.make(parent, name, &Wish { caller, kind: FileKind::Symlink, perm: 0o777, umask: 0, rdev, target })
    }

    fn link(&self, ino: vfs::Ino, parent: vfs::Ino, name: &[u8]) -> Result<Entry> {
        let (ino, parent, now) = (Volume::number(ino)?, Volume::number(parent)?, self.now());
        if ino == IFILE {
            return Err(Error::NotPermitted("the inode map is the file system's own"));
        }
        self.change(|st| {
            let entry = st.link(ino, parent, name, now)?;
            self.hold(ino, 1);
            Ok(entry)
        })
    }

    fn unlink(&self, parent: vfs::Ino, name: &[u8]) -> Result<()> {
        let (parent, now) = (Volume::number(parent)?, self.now());
        self.change(|st| {
            let ino = st.remove(parent, name, false, now)?;
            self.reap_unused(st, ino)
        })
    }

    fn rmdir(&self, parent: vfs::Ino, name: &[u8]) -> Result<()> {
        let (parent, now) = (Volume::number(parent)?, self.now());
        self.change(|st| {
            let ino = st.remove(parent, name, true, now)?;
            self.reap_unused(st, ino)
        })
    }

    fn rename(&self, caller: Caller, from: (vfs::Ino, &[u8]), to: (vfs::Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        let ends = ((Volume::number(from.0)?, from.1), (Volume::number(to.0)?, to.1));
        let now = self.now();
        self.change(|st| match st.rename(caller, ends.0, ends.1, flags, now)? {
            Some(ino) => self.reap_unused(st, ino),
            None => Ok(()),
        })
    }

    fn tmpfile(&self, caller: Caller, parent: vfs::Ino, perm: u16, umask: u16) -> Result<Entry> {
        let (parent, now, rdev) = (Volume::number(parent)?, self.now(), DeviceNumber::default());
        let wish = Wish { caller, kind: FileKind::Regular, perm, umask, rdev, target: b"" };
        self.change(|st| {
            let entry = st.create_nameless(parent, &wish, now)?;
            self.hold(Volume::number(entry.attr.ino)?, 1);
            Ok(entry)
        })
    }

    fn open(&self, ino: vfs::Ino, truncate: bool) -> Result<()> {
        let is_file = self.look(ino, |_, inode| Ok(inode.is_file()))?;
        if truncate && is_file {
            self.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        let ino = Volume::number(ino)?;
        if is_file {
            self.state.read().accesses.lock().opened(ino);
        }
        self.hold(ino, 1);
        Ok(())
    }

    fn may_write(&self, ino: vfs::Ino, appending: bool) -> Result<()> {
        self.look(ino, |_, inode| if appending { check_appendable(inode) } else { check_unsealed(inode) })
    }

    fn release(&self, ino: vfs::Ino) {
        self.forget(ino, 1);
    }

    fn read(&self, ino: vfs::Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if Volume::number(ino)? == IFILE {
            return self.state.write().read_map(offset, buf);
        }
        let out = parking_lot::Mutex::new(buf);
        self.look(ino, |st, inode| {
            check_file(inode)?;
            let mut buf = out.lock();
            let end = offset.saturating_add(buf.len() as u64).min(inode.a.size);
            let n = end.saturating_sub(offset) as usize;
            st.read_contents(inode, offset, &mut buf[..n])?;
            Ok(n)
        })
    }

    fn accessed(&self, ino: vfs::Ino) -> bool {
        let now = self.now();
        let due = self.look(ino, |_, i| Ok(i.attr().access_is_due(vfs::Timestamp { sec: now.secs, nsec: now.nanos })));
        !self.options.read_only
            && due == Ok(true)
            && self.edit(ino, 0, false, |st, inode| st.note_access(inode, now)).unwrap_or_else(|e| {
                log::debug!("inode {}: access not noted: {e}", ino.0);
                false
            })
    }

    fn write(&self, ino: vfs::Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let now = self.now();
        let ino = Volume::number(ino)?;
        if ino == IFILE {
            return Err(Error::NotPermitted("the inode map is the file system's own"));
        }
        let whole = whole_blocks(offset, data);
        self.change(|st| {
            let fits = st.admit_write(ino, offset, data.len())?;
            st.with(ino, |st, inode| {
                let (there, whole) = match inode.a.flags & SEALED {
                    0 => (0, whole),
                    _ => {
                        let there = st.already_appended(inode, offset, data, flags)?.min(fits);
                        (there, whole_blocks(offset + there as u64, &data[there..]))
                    }
                };
                let written = st.write_file(inode, offset + there as u64, (&data[there..fits], whole), flags, now);
                // A failed operation may have changed something.
                st.keep(inode);
                st.user_bytes += *written.as_ref().unwrap_or(&0) as u64;
                written.map(|written| there + written)
            })
        })
    }

    fn fallocate(&self, ino: vfs::Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        let now = self.now();
        let admit = |st: &mut State, ino| st.admit_allocation(ino, what, offset, len);
        self.edit_admitted(ino, admit, |st, inode| {
            let grows = matches!(what, Allocate::Reserve { .. }) && inode.a.flags & SEALED == APPEND_ONLY;
            if !grows {
                check_unsealed(inode)?;
            }
            let done = st.allocate(inode, what, offset, len, now);
            // A failed operation may have changed something.
            st.keep(inode);
            done
        })
    }

    fn seek(&self, ino: vfs::Ino, offset: u64, what: Seek) -> Result<u64> {
        self.look(ino, |st, inode| st.seek_in(inode, offset, what))
    }

    fn readdir(&self, ino: vfs::Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        let ino = Volume::number(ino)?;
        if ino == IFILE {
            return Err(Error::NotDirectory);
        }
        self.state.write().with(ino, |st, dir| {
            let done = st.list(dir, cookie, each);
            st.forget_names(dir);
            done
        })
    }

    fn fsync(&self, ino: vfs::Ino, _data_only: bool) -> Result<()> {
        let ino = Volume::number(ino)?;
        because(Why::Fsync, || {
            self.settle(Cause::Log, |st| if ino == IFILE { Ok(()) } else { st.inode(ino).map(drop) })
        })
    }

    fn fsyncdir(&self, ino: vfs::Ino, _data_only: bool) -> Result<()> {
        let ino = Volume::number(ino)?;
        let is_directory =
            |st: &mut State| if ino != IFILE && st.inode(ino)?.is_dir() { Ok(()) } else { Err(Error::NotDirectory) };
        because(Why::Fsync, || self.settle(Cause::Log, is_directory))
    }

    fn sync(&self) -> Result<()> {
        self.retry()?;
        let done = because(Why::Fsync, || self.settle(Cause::Log, |_| Ok(())));
        done.inspect_err(|e| {
            if matches!(e, Error::Device(_)) {
                self.state.write().fail(format!("what was written could not be made durable: {e}"));
            }
        })
    }

    fn getxattr(&self, ino: vfs::Ino, name: &[u8]) -> Result<Vec<u8>> {
        readable(name)?;
        self.look(ino, |_, inode| inode.xattrs.get(name).cloned().ok_or(Error::NoAttribute))
    }

    fn listxattr(&self, ino: vfs::Ino) -> Result<Vec<Vec<u8>>> {
        self.look(ino, |_, inode| Ok(inode.xattrs.keys().cloned().collect()))
    }

    fn setxattr(&self, ino: vfs::Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let now = self.now();
        self.edit(ino, 3, false, |st, inode| st.set_xattr(inode, name, value, flags, now))
    }

    fn removexattr(&self, ino: vfs::Ino, name: &[u8]) -> Result<()> {
        let now = self.now();
        self.edit(ino, 1, true, |st, inode| st.remove_xattr(inode, name, now))
    }

    fn flags(&self, ino: vfs::Ino) -> Result<Flags> {
        self.look(ino, |_, i| Ok(Flags { flags: FileFlags::from_bits_retain(i.a.flags), project: i.a.project }))
    }

    fn set_flags(&self, ino: vfs::Ino, flags: FileFlags, project: Option<u32>) -> Result<()> {
        let now = self.now();
        self.edit(ino, 0, false, |st, inode| st.set_flags(inode, flags, project, now))
    }

    fn extents(&self, ino: vfs::Ino, from: u64, most: usize) -> Result<Vec<Extent>> {
        self.look(ino, |_, inode| {
            check_file(inode)?;
            let stored = inode.extents.stored(from).take(most);
            Ok(stored
                .map(|(from, at, blocks)| Extent {
                    from,
                    addr: at.0,
                    blocks,
                    begins: from == 0 || !matches!(inode.extents.at(from - 1).0, Some(crate::extents::Place::At(_))),
                })
                .collect())
        })
    }

    fn tick(&self) -> Result<Duration> {
        self.tick_all()
    }

    fn tune(&self, name: &str, value: &str) -> std::result::Result<(), String> {
        self.set(name, value)
    }

    fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Only the first one is used: there is one mount.
        let _ = self.hooks.wake.set(wake);
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut out = self.lines();
        if let Some(archive) = &self.archive {
            out.extend(archive.report(|owner| self.path_of(owner)));
        }
        if let Some(more) = &*self.hooks.reporter.lock() {
            out.extend(more());
        }
        out
    }

    fn account(&self, files: usize, since: u64) -> Option<String> {
        let accountant = self.hooks.accountant.lock().clone();
        accountant.map(|account| account(files, since))
    }

    fn unmount(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        if self.state.read().ended {
            return Ok(());
        }
        self.retry()?;
        let mut state = self.state.write();
        let begun = state.begun || !state.waiting.is_empty() || !state.gone.is_empty() || !state.sb.clean;
        let done = if begun { because(Why::Unmount, || state.checkpoint(true)) } else { Ok(()) };
        // After a failure another call retries.
        done.inspect_err(|e| state.fail(format!("the last checkpoint failed: {e}")))?;
        state.ended = true;
        if let Some(archive) = &self.archive {
            archive.close();
        }
        Ok(())
    }
}
