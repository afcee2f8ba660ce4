//! Which steps around a file system's own operations does FUSE need?
//!
//! The state of a served file system and the steps that several requests share: creating nodes, writing, removing
//! privileges, and answering. [`crate::adapter`] selects the steps for each request.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, OpenFlags, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr,
    Request,
};
use vfs::asking::{self, Asking};
use vfs::{Allocate, Caller, Entry, Error, FileFlags, FileKind, FileSystem, Ino, NewNode, Result, SetAttr, WriteFlags};

use crate::admission::READER;
use crate::attr::{Numbers, SUID, unpack};
use crate::capability::Capabilities;
use crate::errno::{self, failed};
use crate::features::{Agreed, Caching};
use crate::listing::Ungranted;
use crate::notices::{self, Job, Notices};
use crate::room::Room;

/// How long the kernel may cache a name or an attribute of a volume. Only the kernel changes the volume, so this means
/// "for ever"; ten years keep its timer arithmetic far from any limit. No mount lasts so long: a request for an expired
/// attribute could be taken for a write ([`crate::admission`]).
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Serves one file system.
pub(crate) struct Adapter {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) numbers: Numbers,
    pub(crate) caching: Caching,
    pub(crate) read_only: bool,
    /// Whether reads change access times.
    pub(crate) atime: bool,
    /// How long the kernel may cache an attribute.
    pub(crate) ttl: Duration,
    /// How long it may cache a name, and the attributes that come with it. It compares names by their bytes: in a
    /// casefolded directory it would miss a change made under another spelling. (A moved name keeps its original time,
    /// so this applies to all directories of such a volume.)
    pub(crate) names_ttl: Duration,
    pub(crate) agreed: Agreed,
    pub(crate) capabilities: Capabilities,
    pub(crate) ungranted: Ungranted,
    pub(crate) room: Room,
    pub(crate) notices: Arc<Notices>,
    /// The thread for requests that must wait for the kernel's cache; `None` without a cache.
    pub(crate) waiting: Option<Sender<Job>>,
    /// The name of the mount's socket, if it has one.
    pub(crate) socket: Option<String>,
}

impl Adapter {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        caching: Caching,
        read_only: bool,
        atime: bool,
        notices: Arc<Notices>,
    ) -> io::Result<Self> {
        let numbers = Numbers::new(fs.root());
        let waiting = match caching {
            Caching::Writeback => Some(notices::wait_for_cache(fs.clone(), numbers, notices.clone())?),
            Caching::Through | Caching::Live => None,
        };
        let ttl = if caching == Caching::Live { Duration::ZERO } else { FOREVER };
        let names_ttl = if fs.folds() { Duration::ZERO } else { ttl };
        Ok(Adapter {
            fs,
            numbers,
            caching,
            read_only,
            atime,
            ttl,
            names_ttl,
            agreed: Agreed::default(),
            capabilities: Capabilities::default(),
            ungranted: Ungranted::default(),
            room: Room::default(),
            notices,
            waiting,
            socket: None,
        })
    }

    /// Answers a request after the kernel has written back the file's data from `offset` on.
    pub(crate) fn after_writeback(
        &self,
        ino: Ino,
        offset: u64,
        answer: impl FnOnce(std::result::Result<&dyn FileSystem, Errno>) + Send + 'static,
    ) {
        match &self.waiting {
            // The thread outlives this sender.
            Some(waiting) => drop(waiting.send(Job::AfterWriteback(ino, offset, Box::new(answer)))),
            None => answer(Ok(&*self.fs)),
        }
    }

    pub(crate) fn ino(&self, ino: INodeNo) -> Ino {
        self.numbers.to_vfs(ino)
    }

    /// The inode of a request. While the second value lives, the file system can identify the requesting process.
    pub(crate) fn asked(&self, req: &Request, ino: INodeNo) -> (Ino, Asking) {
        (self.ino(ino), asking::asks(req.pid()))
    }

    /// A caller has read `ino`. Called before the reply, so that the kernel then reads the time again.
    pub(crate) fn accessed(&self, ino: Ino) {
        if self.atime {
            self.fs.accessed(ino);
        }
    }

    /// A file was opened read-only. Later reads from the kernel's cache do not arrive here, so opening counts as
    /// reading.
    fn opened_to_read(&self, ino: Ino, flags: OpenFlags) {
        if self.atime && flags.0 & libc::O_NOATIME == 0 && self.fs.accessed(ino) {
            // The caller holds the inode.
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
    }

    /// Contents were read through a handle. (For a directory, `fuser` does not pass on the flags of `READDIR`, so
    /// `O_NOATIME` is not seen.)
    pub(crate) fn read_through(&self, ino: Ino, flags: OpenFlags) {
        if flags.0 & libc::O_NOATIME == 0 {
            self.accessed(ino);
        }
    }

    pub(crate) fn reply_entry(&self, what: &str, ino: Ino, result: Result<Entry>, reply: ReplyEntry) {
        match result {
            Ok(entry) => {
                reply.entry_with_ttls(
                    &self.kept(entry.attr.ino),
                    &self.names_ttl,
                    &self.numbers.attr(&entry.attr),
                    Generation(u64::from(entry.attr.generation)),
                );
            }
            Err(error) => reply.error(failed(what, ino, &error)),
        }
    }

    pub(crate) fn make(&self, req: &Request, parent: Ino, name: &OsStr, new: &NewNode) -> Result<Entry> {
        let make = || self.fs.mknod(caller(req), parent, name.as_bytes(), new);
        let entry = self.room.retry(make)?;
        self.capabilities.bare(entry.attr.ino);
        Ok(entry)
    }

    /// Writes all of `data`, or for a program's own write as much as fits. The kernel's cache ignores how much of a
    /// page was stored: there it is all or an error.
    pub(crate) fn store(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let stored = self.store_all(ino, offset, data, flags);
        if flags.contains(WriteFlags::FROM_CACHE) {
            self.stored_from_cache(ino, &stored);
        }
        stored
    }

    fn store_all(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        self.capabilities.drop_from(&*self.fs, ino)?;
        let from_cache = flags.contains(WriteFlags::FROM_CACHE);
        let mut done = 0;
        loop {
            let (at, rest) = (offset.saturating_add(done as u64), &data[done..]);
            let length = self.room.retry(|| self.fs.write(ino, at, rest, flags))?;
            done += length.min(rest.len());
            if done == data.len() || !from_cache {
                break;
            }
            if length == 0 {
                return Err(Error::NoSpace);
            }
        }
        Ok(done)
    }

    /// Updates [`crate::admission`] after a write from the kernel's cache.
    fn stored_from_cache(&self, ino: Ino, stored: &Result<usize>) {
        let admission = &self.notices.admission;
        match stored {
            Ok(length) => {
                self.notices.written_back(self.numbers.to_fuse(ino));
                if !self.is_short(*length) {
                    return;
                }
                admission.watch(ino);
            }
            Err(error) => {
                admission.not_stored(ino, error);
                // The kernel may hold as much data for other files that does not fit.
                admission.look_again();
                self.is_short(0);
                self.notices.refused(self.numbers.to_fuse(ino));
            }
        }
        // A `close` waits for the reply to this write, so the notice cannot free the inode.
        self.notices.attributes_changed(self.numbers.to_fuse(ino));
    }

    /// Whether space is short after `came` more bytes. When that begins, all writers' writes must be announced.
    fn is_short(&self, came: usize) -> bool {
        let short = self.caching == Caching::Writeback && self.notices.admission.is_short(&*self.fs, came);
        if short {
            self.notices.admission.watch_all().into_iter().for_each(|ino| self.soon(Job::Stale(ino)));
        }
        short
    }

    /// How long the kernel may keep attributes that it is sent. Not at all if the file's writes must be announced: a
    /// notice after the answer would come too late for a write that comes first.
    pub(crate) fn kept(&self, ino: Ino) -> Duration {
        if self.notices.admission.watches(ino) { Duration::ZERO } else { self.ttl }
    }

    /// Hands a job to the thread that serves no requests; without a cache there is nothing to do.
    pub(crate) fn soon(&self, job: Job) {
        // The thread outlives this sender.
        drop(self.waiting.as_ref().map(|waiting| waiting.send(job)));
    }

    /// Answers a `GETATTR` with a handle: the kernel's cache is about to take a write.
    pub(crate) fn announced(&self, ino: Ino, handle: FileHandle, reply: ReplyAttr) {
        let (notices, numbers, ttl) = (self.notices.clone(), self.numbers, self.ttl);
        // The kernel passes on attributes sent after this notice, but does not cache them: the next write asks again.
        self.after_writeback(ino, 0, move |asked| match asked {
            Ok(fs) => match notices.admission.announced(fs, ino, handle) {
                Ok(attr) => reply.attr(&ttl, &numbers.attr(&attr)),
                Err(error) => reply.error(failed("write", ino, &error)),
            },
            Err(error) => reply.error(error),
        });
    }

    /// Whether the writes to a new file must be announced, because space is short.
    pub(crate) fn watches_new(&self, ino: Ino) -> bool {
        let short = self.is_short(0);
        if short {
            self.notices.admission.watch(ino);
        }
        short
    }

    /// Blocks that are free but not available.
    pub(crate) fn reserved(&self, block_size: u32) -> u64 {
        match self.caching {
            Caching::Writeback if !self.read_only => self.notices.admission.reserve() / u64::from(block_size.max(1)),
            _ => 0,
        }
    }

    /// Opens a file if permitted, and returns its handle.
    pub(crate) fn opened(&self, ino: Ino, flags: OpenFlags) -> Result<FileHandle> {
        let truncate = self.agreed.truncating_open && flags.0 & libc::O_TRUNC != 0;
        let writes = truncate || flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            self.fs.may_write(ino, flags.0 & libc::O_APPEND != 0)?;
        }
        if self.agreed.counts_opens {
            self.fs.open(ino, truncate)?;
        }
        if !writes {
            self.opened_to_read(ino, flags);
        }
        let admission = &self.notices.admission;
        if !writes {
            return Ok(READER);
        }
        if self.caching != Caching::Writeback {
            return Ok(admission.opened(ino));
        }
        if self.is_short(0) {
            admission.watch(ino);
            // The caller holds the inode.
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
        Ok(admission.opened(ino))
    }

    /// The kernel's caching of an opened file: a writer bypasses the cache if only the reserve is left, or if the file is
    /// append-only. A process that opened such a file may clear `O_APPEND` (`fcntl`), which only the kernel notices: so each
    /// write is judged by its offset before it returns.
    pub(crate) fn way_of(&self, ino: Ino, handle: FileHandle) -> FopenFlags {
        let cached = self.caching.of_open();
        let append_only = || self.fs.flags(ino).is_ok_and(|now| now.flags.contains(FileFlags::APPEND));
        let direct = handle != READER
            && self.caching == Caching::Writeback
            && self.agreed.direct_opens
            && (self.notices.admission.is_spent(&*self.fs) || append_only());
        if direct {
            // The kernel keeps its own times for the file, which such writes do not change.
            self.notices.change_time_changed(ino);
        }
        if direct { (cached - FopenFlags::FOPEN_KEEP_CACHE) | FopenFlags::FOPEN_DIRECT_IO } else { cached }
    }

    /// Drops privileges for a truncation or a change of owner: file capabilities, and suid and sgid if needed.
    pub(crate) fn truncating_or_owning(&self, req: &Request, ino: Ino, set: &mut SetAttr) -> Result<()> {
        let owning = set.uid.is_some() || set.gid.is_some();
        if !owning && set.size.is_none() {
            return Ok(());
        }
        self.capabilities.drop_from(&*self.fs, ino)?;
        // The kernel marks truncations by unprivileged callers (`FATTR_KILL_SUIDGID`), but fuser 0.18 does not pass
        // this on: every caller except the super-user counts as unprivileged.
        let privileged = req.uid() == 0;
        if privileged && !owning {
            return Ok(());
        }
        let attr = self.fs.getattr(ino)?;
        set.kill_suid_sgid = attr.kind != FileKind::Directory;
        if set.kill_suid_sgid && !privileged && set.perm.is_none() {
            set.perm = self.without_sgid(req, &attr).map(|perm| perm & !SUID);
        }
        Ok(())
    }
}

pub(crate) fn reply_empty(what: &str, ino: Ino, result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(failed(what, ino, &error)),
    }
}

pub(crate) fn reply_xattr(what: &str, ino: Ino, result: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(&value),
            _ => reply.error(errno::reply(&Error::Range)),
        },
        Err(error) => reply.error(failed(what, ino, &error)),
    }
}

pub(crate) fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

/// The low 12 bits: permissions, suid, sgid, sticky.
pub(crate) fn perm(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(crate) fn new_node(mode: u32, umask: u32, rdev: u32) -> Result<NewNode> {
    // The file type is in bits 12 to 15; 0 means a regular file, as in mknod(2).
    let kind = match (mode & 0o170000) as u16 {
        0 => FileKind::Regular,
        bits => FileKind::from_mode(bits).ok_or(Error::Invalid("mode has no file type"))?,
    };
    Ok(NewNode { kind, perm: perm(mode), umask: perm(umask), rdev: unpack(rdev) })
}

pub(crate) fn allocate(mode: i32) -> Result<Allocate> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Ok(Allocate::Reserve { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Ok(Allocate::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(Allocate::Zero { keep_size }),
        libc::FALLOC_FL_COLLAPSE_RANGE if !keep_size => Ok(Allocate::Collapse),
        libc::FALLOC_FL_INSERT_RANGE if !keep_size => Ok(Allocate::Insert),
        _ => Err(Error::Unsupported(format!("fallocate mode {mode:#x}"))),
    }
}
