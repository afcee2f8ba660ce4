//! How does a volume implement [`vfs::FileSystem`]? Only translates calls.

use std::ops::Range;
use std::time::Duration;

use vfs::{
    Allocate, Attr, Caller, Compression, DeviceNumber, DirEntry, Entry, Error, Extent, FileFlags, FileKind, FileSystem,
    Flags, Flow, Ino, Moving, NewNode, RenameFlags, Result, Room, Seek, SetAttr, StatFs, WriteFlags, XattrFlags,
};

use format::inode::{Advise, InodeFlags};
use format::superblock::Features;
use format::xattr::{index, split_name};

use crate::context::Begin;
use crate::names::create::Wish;
use crate::no_key;
use crate::volume::Volume;

/// An inode number of this volume; `None` for any other.
fn inner(ino: Ino) -> Option<format::Ino> {
    u32::try_from(ino.0).ok().map(format::Ino)
}

fn attribute(name: &[u8]) -> Result<(u8, &[u8])> {
    split_name(name).ok_or_else(|| Error::Unsupported(format!("attributes named {:?}", String::from_utf8_lossy(name))))
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        Ino(self.ctx.sb.root.0.into())
    }

    fn statfs(&self) -> Result<StatFs> {
        let user = self.nodes.space.user_blocks();
        let free = user.saturating_sub(self.nodes.space.valid_blocks());
        let numbers = u64::from(self.ctx.sb.max_nid()) - 3;
        let files = numbers.min(user);
        let files_free = numbers.saturating_sub(self.nodes.space.nodes().into()).min(free);
        Ok(StatFs {
            block_size: 4096,
            blocks: user,
            blocks_free: free,
            // Zero while the host has no room for more.
            blocks_available: if self.files.host_is_short() { 0 } else { free },
            files,
            files_free,
            name_max: 255,
        })
    }

    fn read_only(&self) -> bool {
        self.ctx.is_read_only()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.cleaning.note_use();
        if name == b"." {
            return Ok(self.names.itself(self, parent)?);
        }
        let dir = self.names.outer_dir(parent)?;
        // Under the directory's lock: the name must not be removed before the reference is counted. A shared lock is
        // enough unless a block must be loaded.
        let content = dir.content.read();
        if let Some(found) = self.names.find_in_memory(&dir, &content, name)? {
            return Ok(self.names.found_entry(&dir, name, found)?);
        }
        drop(content);
        let mut content = dir.content.write();
        let found = self.names.find_entry(&dir, &mut content, name)?;
        Ok(self.names.found_entry(&dir, name, found)?)
    }

    fn folds(&self) -> bool {
        self.ctx.has(Features::CASEFOLD)
    }

    fn refuses_opening(&self) -> bool {
        self.ctx.has(Features::ENCRYPT) || self.ctx.has(Features::VERITY)
    }

    fn forget(&self, ino: Ino, count: u64) {
        if let Some(ino) = inner(ino)
            && self.inodes.table.unhold(ino, count)
            && let Err(e) = self.names.unreferenced(self, ino)
        {
            // No caller waits for a result; the inode stays an orphan, which the next mount frees.
            log::warn!("inode {ino}: could not be freed: {e}");
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.cleaning.note_use();
        Ok(self.inodes.attr(&*self.names.outer(ino)?)?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        Ok(self.set_attributes(&self.names.outer(ino)?, set)?)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.names.outer(ino)?;
        if inode.kind != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let size = inode.size();
        if size > 4096 {
            return Err(Error::corrupt(format_args!("symlink {}: size {size} passes one block", inode.ino)));
        }
        let mut target = vec![0; size as usize];
        let n = self.files.read_file(&inode, 0, &mut target)?;
        target.truncate(n);
        match inode.node.inode(|r| r.advise().contains(Advise::ENCRYPT)) {
            true => no_key::target(&target)
                .map(String::into_bytes)
                .ok_or_else(|| Error::corrupt(format_args!("symlink {}: no ciphertext", inode.ino))),
            false if target.contains(&0) => {
                Err(Error::corrupt(format_args!("symlink {}: its target holds a NUL byte", inode.ino)))
            }
            false => Ok(target),
        }
    }

    fn mknod(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode) -> Result<Entry> {
        if matches!(new.kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Error::Invalid("mknod makes neither directories nor symlinks"));
        }
        let wish = Wish { caller, kind: new.kind, perm: new.perm, umask: new.umask, rdev: new.rdev, target: b"" };
        Ok(self.names.create(self, parent, name, &wish)?)
    }

    fn mkdir(&self, caller: Caller, parent: Ino, name: &[u8], perm: u16, umask: u16) -> Result<Entry> {
        let rdev = DeviceNumber::default();
        let wish = Wish { caller, kind: FileKind::Directory, perm, umask, rdev, target: b"" };
        Ok(self.names.create(self, parent, name, &wish)?)
    }

    fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("a target holds no NUL"));
        }
        let rdev = DeviceNumber::default();
        let wish = Wish { caller, kind: FileKind::Symlink, perm: 0o777, umask: 0, rdev, target };
        Ok(self.names.create(self, parent, name, &wish)?)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        Ok(self.names.link_inode(self, ino, parent, name)?)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Ok(self.names.remove_name(self, parent, name, false)?)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Ok(self.names.remove_name(self, parent, name, true)?)
    }

    fn rename(&self, caller: Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        Ok(self.names.rename_name(self, caller, from, to, flags)?)
    }

    fn tmpfile(&self, caller: Caller, parent: Ino, perm: u16, umask: u16) -> Result<Entry> {
        let rdev = DeviceNumber::default();
        let wish = Wish { caller, kind: FileKind::Regular, perm, umask, rdev, target: b"" };
        Ok(self.names.create_nameless(self, parent, &wish)?)
    }

    fn open(&self, ino: Ino, truncate: bool) -> Result<()> {
        let inode = self.names.outer(ino)?;
        self.files.check_contents_have_key(&inode)?;
        if truncate && inode.kind == FileKind::Regular {
            self.files.set_size(self, &inode, 0)?;
        }
        self.inodes.table.open(inode.ino);
        Ok(())
    }

    fn may_write(&self, ino: Ino, appending: bool) -> Result<()> {
        let inode = self.names.outer(ino)?;
        let flags = inode.node.inode(|r| r.flags());
        if flags.contains(InodeFlags::IMMUTABLE) {
            return Err(vfs::Error::NotPermitted("the file is immutable"));
        }
        if flags.contains(InodeFlags::APPEND) && !appending {
            return Err(vfs::Error::NotPermitted("the file is append-only"));
        }
        // In the kernel's order: a file that fails both checks reports the missing key.
        self.files.check_contents_have_key(&inode)?;
        Ok(self.files.check_not_sealed(&inode)?)
    }

    fn release(&self, ino: Ino) {
        if let Some(ino) = inner(ino)
            && self.inodes.table.close(ino)
            && let Err(e) = self.names.unreferenced(self, ino)
        {
            log::warn!("inode {ino}: could not be freed: {e}");
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.cleaning.note_use();
        let inode = self.names.outer(ino)?;
        self.files.check_contents_have_key(&inode)?;
        Ok(self.files.read_file(&inode, offset, buf)?)
    }

    fn accessed(&self, ino: Ino) -> bool {
        !self.ctx.is_read_only()
            && self.names.outer(ino).and_then(|inode| self.note_access(&inode)).unwrap_or_else(|e| {
                log::debug!("inode {}: access not noted: {e}", ino.0);
                false
            })
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let inode = self.names.outer(ino)?;
        let out = self.files.write_file(self, &inode, offset, data, flags).map_err(Error::from);
        match &out {
            Ok(n) if *n == data.len() => {}
            Ok(_) => self.files.fail_set(&inode, &Error::NoSpace),
            Err(e) => self.files.fail_set(&inode, e),
        }
        out
    }

    fn fallocate(&self, ino: Ino, what: Allocate, offset: u64, len: u64) -> Result<()> {
        Ok(self.files.fallocate_file(self, &self.names.outer(ino)?, what, offset, len)?)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        Ok(self.files.seek_file(&self.names.outer(ino)?, offset, what)?)
    }

    fn readdir(&self, ino: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        self.cleaning.note_use();
        Ok(self.names.list(&*self.names.outer_dir(ino)?, cookie, each)?)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        Ok(self.fsync_inode(&self.names.outer(ino)?, data_only)?)
    }

    fn fsyncdir(&self, ino: Ino, data_only: bool) -> Result<()> {
        Ok(self.fsync_inode(&self.names.outer_dir(ino)?, data_only)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.names.outer(ino)?;
        let (index, rest) = attribute(name)?;
        let _content = inode.content.read();
        let value = match index {
            index::ACL_ACCESS | index::ACL_DEFAULT => self.xattrs.acl_value(&inode, index)?,
            index::ADVISE => Some(vec![inode.node.inode(|r| r.i_advise)]),
            _ => self.xattrs.xattr(&inode, index, rest)?,
        };
        value.ok_or(Error::NoAttribute)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.names.outer(ino)?;
        let _content = inode.content.read();
        Ok(self.xattrs.xattr_names(&inode)?)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let inode = self.names.outer(ino)?;
        let (index, rest) = attribute(name)?;
        inode.check_unsealed()?;
        let change = self.begin()?;
        let _content = inode.content.write();
        self.inodes.check_there(&inode)?;
        inode.check_unsealed()?;
        self.note_altered(&inode);
        match index {
            index::ACL_ACCESS | index::ACL_DEFAULT => self.xattrs.set_acl(&change, &inode, index, value, flags)?,
            index::ADVISE => return Err(Error::NotPermitted("system.advise is the file system's own")),
            _ => self.xattrs.put_xattr(&change, &inode, index, rest, Some(value), flags)?,
        }
        Ok(())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let inode = self.names.outer(ino)?;
        let (index, rest) = attribute(name)?;
        {
            // Called for every written file: no change begins unless needed.
            let _content = inode.content.read();
            if self.xattrs.xattr(&inode, index, rest)?.is_none() {
                return match index {
                    index::ACL_ACCESS | index::ACL_DEFAULT => Ok(self.xattrs.has_no_acl(&inode)?),
                    _ => Err(Error::NoAttribute),
                };
            }
        }
        inode.check_unsealed()?;
        let change = self.begin_modest()?;
        let _content = inode.content.write();
        self.inodes.check_there(&inode)?;
        inode.check_unsealed()?;
        self.note_altered(&inode);
        match index {
            index::ACL_ACCESS | index::ACL_DEFAULT => self.xattrs.drop_acl(&change, &inode, index)?,
            _ => self.xattrs.put_xattr(&change, &inode, index, rest, None, XattrFlags::empty())?,
        }
        Ok(())
    }

    fn flags(&self, ino: Ino) -> Result<Flags> {
        Ok(self.flags_of(&*self.names.outer(ino)?))
    }

    fn set_flags(&self, ino: Ino, flags: FileFlags, project: Option<u32>) -> Result<()> {
        Ok(self.set_flags_of(&self.names.outer(ino)?, flags, project)?)
    }

    fn start_atomic(&self, ino: Ino, owner: u64) -> Result<()> {
        Ok(self.files.start_set(&self.names.outer(ino)?, owner)?)
    }

    fn commit_atomic(&self, ino: Ino, owner: u64) -> Result<()> {
        Ok(self.commit_set(&self.names.outer(ino)?, owner)?)
    }

    fn abort_atomic(&self, ino: Ino, owner: u64) -> Result<bool> {
        match inner(ino).and_then(|ino| self.files.sets.with_set(ino)) {
            Some(inode) => Ok(self.files.drop_set(&inode, owner)?),
            None => Ok(false),
        }
    }

    fn feature_bits(&self) -> Result<u32> {
        Ok(((self.ctx.sb.features | Features::ATOMIC_WRITE) - Features::DELTA).bits())
    }

    fn compression(&self, ino: Ino) -> Result<Option<Compression>> {
        let inode = self.names.outer(ino)?;
        let _content = inode.content.read();
        Ok(self.files.compression_of(&inode)?)
    }

    fn set_compression(&self, ino: Ino, algorithm: u8, log_cluster: u8) -> Result<()> {
        Ok(self.set_method_of(&self.names.outer(ino)?, algorithm, log_cluster)?)
    }

    fn repack(&self, ino: Ino, packed: bool) -> Result<()> {
        Ok(self.files.repack(self, &self.names.outer(ino)?, packed)?)
    }

    fn release_saved(&self, ino: Ino) -> Result<u64> {
        Ok(self.files.release_saved(self, &self.names.outer(ino)?)?)
    }

    fn reserve_saved(&self, ino: Ino) -> Result<u64> {
        Ok(self.files.reserve_saved(self, &self.names.outer(ino)?)?)
    }

    fn extents(&self, ino: Ino, from: u64, most: usize) -> Result<Vec<Extent>> {
        Ok(self.files.file_extents(&*self.names.outer(ino)?, from, most)?)
    }

    fn defragment(&self, ino: Ino, blocks: Range<u64>, how: Moving) -> Result<(u64, u64)> {
        Ok(self.files.defragment_some(self, &self.names.outer(ino)?, blocks, how)?)
    }

    fn room(&self, blocks: u64, clean: bool) -> Result<Room> {
        Ok(self.cleaning.room_for_blocks(blocks, clean)?)
    }

    fn tick(&self) -> Result<Duration> {
        Ok(self.tick_all()?)
    }

    fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.ctx.changes.wake_by(wake);
    }

    fn report(&self) -> Vec<(String, String)> {
        Volume::report(self)
    }

    fn account(&self, files: usize, since: u64) -> Option<String> {
        let by = self.accountant.lock().clone();
        by.map(|account| account(files, since))
    }

    fn tune(&self, name: &str, value: &str) -> std::result::Result<(), String> {
        self.cleaning.tune(name, value)
    }

    fn unmount(&self) -> Result<()> {
        Ok(self.unmount_clean()?)
    }
}
