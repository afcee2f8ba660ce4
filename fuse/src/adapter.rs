//! Which `vfs` calls does each FUSE request need?
//!
//! One method per request, in the order of `fuser`'s trait; shared steps are in [`crate::operations`]. The kernel
//! checks permissions (`default_permissions`) and handles locks; error numbers come from [`crate::errno`].
//!
//! # Opens
//! Files are opened, because an immutable or append-only file is refused at open, as on every other Linux file system.
//! `O_TRUNC` arrives as a separate truncation, except if caching is [`Live`](crate::Caching::Live).
//! Directories need no open, nor do the files of a read-only mount that refuses none (`FUSE_NO_OPEN_SUPPORT`,
//! `FUSE_NO_OPENDIR_SUPPORT`): the kernel then sends neither `OPEN` nor `RELEASE`, which saves two requests per use of
//! a file. A file that is unlinked while open still stays alive, because the kernel keeps its inode, and with it a
//! `vfs` reference, until the last handle is closed.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyBmap, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
};
use vfs::{Error, FileKind, NewNode, RenameFlags, Seek, SetAttr, WriteFlags, XattrFlags};

use crate::admission::READER;
use crate::attr::{bare, from_system, set_time, unpack};
use crate::errno::failed;
use crate::notices::Job;
use crate::operations::{Adapter, allocate, caller, new_node, perm, reply_empty, reply_xattr};
use crate::seek::SeekJob;
use crate::{acl, capability, control, features, listing};

thread_local! {
    /// Per-thread buffer for file contents between read and reply, at most as large as the largest read.
    static CONTENTS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.agreed = features::negotiate(config, self.caching, self.read_only, self.fs.refuses_opening());
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, _asks) = self.asked(req, parent);
        match self.fs.lookup(parent, name.as_bytes()) {
            // Inode number 0 lets the kernel cache that the name does not exist.
            Err(Error::NotFound) => {
                reply.entry(&self.names_ttl, &bare(INodeNo(0), FileKind::Regular, 0), Generation(0))
            }
            result => self.reply_entry("lookup", parent, result, reply),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        let ino = self.ino(ino);
        if ino == self.fs.root() {
            return;
        }
        let count = self.ungranted.granted(ino, count);
        if count > 0 {
            self.capabilities.unknown(ino);
            self.notices.admission.forgotten(ino);
            self.fs.forget(ino, count);
        }
    }

    fn getattr(&self, req: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let (ino, _asks) = self.asked(req, ino);
        if let Some(handle) = handle.filter(|handle| *handle != READER && self.notices.admission.watches(ino)) {
            return self.announced(ino, handle, reply);
        }
        match self.fs.getattr(ino) {
            Ok(attr) => reply.attr(&self.kept(ino), &self.numbers.attr(&attr)),
            Err(error) => reply.error(failed("getattr", ino, &error)),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (ino, _asks) = self.asked(req, ino);
        let mut set = SetAttr {
            perm: mode.map(perm),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(from_system),
            crtime: None,
            kill_suid_sgid: false,
        };
        let result = self.truncating_or_owning(req, ino, &mut set).and_then(|()| self.fs.setattr(ino, &set));
        match result {
            Ok(attr) => reply.attr(&self.kept(ino), &self.numbers.attr(&attr)),
            Err(error) => reply.error(failed("setattr", ino, &error)),
        }
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let (ino, _asks) = self.asked(req, ino);
        match self.fs.readlink(ino) {
            Ok(target) => {
                self.accessed(ino);
                reply.data(&target)
            }
            Err(error) => reply.error(failed("readlink", ino, &error)),
        }
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let (parent, _asks) = self.asked(req, parent);
        let result = new_node(mode, umask, rdev).and_then(|new| self.make(req, parent, name, &new));
        self.reply_entry("mknod", parent, result, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (parent, _asks) = self.asked(req, parent);
        let (mode, umask) = (perm(mode), perm(umask));
        let result = self.room.retry(|| self.fs.mkdir(caller(req), parent, name.as_bytes(), mode, umask));
        self.reply_entry("mkdir", parent, result, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, _asks) = self.asked(req, parent);
        let result = self.fs.unlink(parent, name.as_bytes());
        self.room.removed();
        reply_empty("unlink", parent, result, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, _asks) = self.asked(req, parent);
        let result = self.fs.rmdir(parent, name.as_bytes());
        self.room.removed();
        reply_empty("rmdir", parent, result, reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (parent, _asks) = self.asked(req, parent);
        let target = target.as_os_str().as_bytes();
        let result = self.room.retry(|| self.fs.symlink(caller(req), parent, name.as_bytes(), target));
        self.reply_entry("symlink", parent, result, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let ((parent, _asks), to_parent) = (self.asked(req, parent), self.ino(to_parent));
        let result =
            RenameFlags::from_bits(flags.bits()).ok_or(Error::Invalid("unknown rename flag")).and_then(|flags| {
                let from = (parent, name.as_bytes());
                let to = (to_parent, to_name.as_bytes());
                self.room.retry(|| self.fs.rename(caller(req), from, to, flags))
            });
        self.room.removed();
        reply_empty("rename", parent, result, reply);
    }

    fn link(&self, req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (ino, (parent, _asks)) = (self.ino(ino), self.asked(req, parent));
        let result = self.room.retry(|| self.fs.link(ino, parent, name.as_bytes()));
        self.reply_entry("link", parent, result, reply);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, _asks) = self.asked(req, parent);
        let new = NewNode { kind: FileKind::Regular, perm: perm(mode), umask: perm(umask), rdev: unpack(0) };
        let made = self.make(req, parent, name, &new).and_then(|entry| {
            if self.agreed.counts_opens {
                self.fs.open(entry.attr.ino, false).inspect_err(|_| {
                    self.fs.forget(entry.attr.ino, 1);
                })?;
            }
            Ok(entry)
        });
        match made {
            Ok(entry) => {
                let handle = match flags & libc::O_ACCMODE {
                    libc::O_RDONLY => READER,
                    _ => self.notices.admission.opened(entry.attr.ino),
                };
                reply.created(
                    // If space is short, the first write must be announced too.
                    if self.watches_new(entry.attr.ino) { &Duration::ZERO } else { &self.names_ttl },
                    &self.numbers.attr(&entry.attr),
                    Generation(u64::from(entry.attr.generation)),
                    handle,
                    self.way_of(entry.attr.ino, handle),
                )
            }
            Err(error) => reply.error(failed("create", parent, &error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.agreed.no_open {
            return reply.error(Errno::ENOSYS);
        }
        let ino = self.ino(ino);
        match self.opened(ino, flags) {
            Ok(handle) => reply.opened(handle, self.way_of(ino, handle)),
            Err(error) => reply.error(failed("open", ino, &error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let ino = self.ino(ino);
        self.drop_set_of(ino, handle);
        if self.agreed.counts_opens {
            self.fs.release(ino);
        }
        if flags.0 & libc::O_ACCMODE != libc::O_RDONLY {
            self.notices.admission.closed(ino, handle);
        }
        let forget = self.notices.is_to_be_forgotten(ino);
        reply.ok();
        if forget {
            self.soon(Job::ForgetUnused(ino));
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // There is no per-handle state; the kernel sends this request only once.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (ino, _asks) = self.asked(req, ino);
        let size = size as usize;
        CONTENTS.with_borrow_mut(|contents| {
            if contents.len() < size {
                contents.resize(size, 0);
            }
            match self.fs.read(ino, offset, &mut contents[..size]) {
                Ok(length) => {
                    self.read_through(ino, flags);
                    reply.data(&contents[..length.min(size)])
                }
                Err(error) => reply.error(failed("read", ino, &error)),
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: fuser::WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (ino, _asks) = self.asked(req, ino);
        let from_cache = write_flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE);
        let mut flags = WriteFlags::empty();
        flags.set(WriteFlags::FROM_CACHE, from_cache);
        flags.set(WriteFlags::KILL_SUID_SGID, write_flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID));
        // O_SYNC contains O_DSYNC. Pages from the cache are synced by the kernel's own fsync.
        let sync = !from_cache && open_flags.0 & libc::O_DSYNC != 0;
        let kills = flags.contains(WriteFlags::KILL_SUID_SGID);
        let stored = self.clearing(req, ino, kills, || self.store(ino, offset, data, flags));
        let result = stored.and_then(|length| {
            if sync {
                self.fs.fsync(ino, open_flags.0 & libc::O_SYNC != libc::O_SYNC)?;
            }
            Ok(length)
        });
        match result {
            Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
            Err(error) => reply.error(failed("write", ino, &error)),
        }
    }

    fn fsync(&self, req: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let (ino, _asks) = self.asked(req, ino);
        reply_empty("fsync", ino, self.fs.fsync(ino, data_only), reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.agreed.no_opendir {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let (ino, _asks) = self.asked(req, ino);
        match listing::plain(&*self.fs, self.numbers, ino, offset, &mut reply) {
            Ok(()) => {
                self.accessed(ino);
                reply.ok()
            }
            Err(error) => reply.error(failed("readdir", ino, &error)),
        }
    }

    fn readdirplus(&self, req: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let (ino, _asks) = self.asked(req, ino);
        // `fuser` sends one time for the name and the attributes.
        let kept = |ino| self.kept(ino).min(self.names_ttl);
        let from = (self.numbers, &self.ungranted);
        let result = listing::with_attributes(&*self.fs, from, (ino, offset), kept, &mut reply);
        match result {
            Ok(()) => {
                self.accessed(ino);
                reply.ok()
            }
            Err(error) => reply.error(failed("readdir", ino, &error)),
        }
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let (ino, _asks) = self.asked(req, ino);
        reply_empty("fsyncdir", ino, self.fs.fsyncdir(ino, data_only), reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.fs.statfs() {
            Ok(s) => reply.statfs(
                s.blocks,
                s.blocks_free,
                s.blocks_available.saturating_sub(self.reserved(s.block_size)),
                s.files,
                s.files_free,
                s.block_size,
                s.name_max,
                s.block_size,
            ),
            Err(error) => reply.error(failed("statfs", self.ino(ino), &error)),
        }
    }

    fn setxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        let (ino, _asks) = self.asked(req, ino);
        let name = name.as_bytes();
        if let Some(result) = control::write(&*self.fs, req, ino, name, value) {
            return reply_empty("setxattr", ino, result, reply);
        }
        let mut how = XattrFlags::empty();
        how.set(XattrFlags::CREATE, flags & libc::XATTR_CREATE != 0);
        how.set(XattrFlags::REPLACE, flags & libc::XATTR_REPLACE != 0);
        let result = acl::drops_sgid(&*self.fs, req, ino, name).and_then(|drops| {
            how.set(XattrFlags::ACL_KILL_SGID, drops);
            self.room.retry(|| self.fs.setxattr(ino, name, value, how))
        });
        if name == capability::NAME {
            self.capabilities.unknown(ino);
        }
        reply_empty("setxattr", ino, result, reply);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (ino, _asks) = self.asked(req, ino);
        if let Some(result) = control::read(&*self.fs, self.socket.as_deref(), req, ino, name.as_bytes()) {
            return reply_xattr("getxattr", ino, result, size, reply);
        }
        let result = match name.as_bytes() {
            capability::NAME => self.capabilities.get(&*self.fs, ino),
            name => self.fs.getxattr(ino, name),
        };
        reply_xattr("getxattr", ino, result, size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (ino, _asks) = self.asked(req, ino);
        let privileged = req.uid() == 0;
        let result = self.fs.listxattr(ino).map(|names| {
            let mut list = Vec::new();
            // As in xattr(7), trusted names are listed only for privileged callers.
            for name in names.iter().filter(|n| privileged || !n.starts_with(b"trusted.")) {
                list.extend_from_slice(name);
                list.push(0);
            }
            list
        });
        reply_xattr("listxattr", ino, result, size, reply);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (ino, _asks) = self.asked(req, ino);
        reply_empty("removexattr", ino, self.fs.removexattr(ino, name.as_bytes()), reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (ino, _asks) = self.asked(req, ino);
        let result = allocate(mode).and_then(|what| {
            self.before_fallocate(req, ino)?;
            self.room.retry(|| self.fs.fallocate(ino, what, offset, length))
        });
        self.notices.admission.look_again();
        reply_empty("fallocate", ino, result, reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let ino = self.ino(ino);
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        let job = SeekJob { ino, offset, what, reply };
        self.after_writeback(ino, offset, move |asked| match asked {
            Ok(fs) => job.answer(fs),
            Err(error) => job.reply.error(error),
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let ino = self.ino(ino);
        if Self::is_atomic(command) {
            self.atomic_ioctl(req, ino, handle, command, reply);
        } else if Self::is_of_compression(command) {
            self.compression_ioctl(req, ino, command, data, reply);
        } else {
            self.flags_ioctl(req, ino, command, data, reply);
        }
    }

    // The answers below make the kernel handle these requests itself; without these methods, fuser logs a warning for
    // each.

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }
}
