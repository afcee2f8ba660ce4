//! What has to be done around a file system's own operations to serve FUSE?
//!
//! The state of a served file system and the steps several requests share: making nodes, writing,
//! killing privileges, and answering. [`crate::adapter`] says which request needs which.

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

/// How long the kernel may believe a name or an attribute of a volume without asking. The kernel is the
/// only one who changes it, so this is "as long as it likes"; ten years, to keep its timer arithmetic far from
/// any limit. No mount lasts so long: a question about an attribute that ran out could be taken for a write
/// ([`crate::admission`]).
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Serves one file system.
pub(crate) struct Adapter {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) numbers: Numbers,
    pub(crate) caching: Caching,
    pub(crate) read_only: bool,
    /// Whether readings change access times.
    pub(crate) atime: bool,
    /// How long the kernel may believe an attribute.
    pub(crate) ttl: Duration,
    /// How long it may believe a name, and the attributes that come with one. It compares names by their bytes: where
    /// directories fold case, it would hear nothing of the other spellings of a name that changed. (A name that is moved
    /// keeps the time it came with, so no directory of such a volume may have a longer one.)
    pub(crate) names_ttl: Duration,
    pub(crate) agreed: Agreed,
    pub(crate) capabilities: Capabilities,
    pub(crate) ungranted: Ungranted,
    pub(crate) room: Room,
    pub(crate) notices: Arc<Notices>,
    /// Where requests go that must wait for the kernel's cache; none without one.
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

    /// Answers a request once the kernel has written back what it holds of the file from `offset` on.
    pub(crate) fn after_writeback(
        &self,
        ino: Ino,
        offset: u64,
        answer: impl FnOnce(std::result::Result<&dyn FileSystem, Errno>) + Send + 'static,
    ) {
        match &self.waiting {
            // The thread ends only after this sender.
            Some(waiting) => drop(waiting.send(Job::AfterWriteback(ino, offset, Box::new(answer)))),
            None => answer(Ok(&*self.fs)),
        }
    }

    pub(crate) fn ino(&self, ino: INodeNo) -> Ino {
        self.numbers.to_vfs(ino)
    }

    /// An inode that a process asks for: while the second value lives, the file system can know who that is.
    pub(crate) fn asked(&self, req: &Request, ino: INodeNo) -> (Ino, Asking) {
        (self.ino(ino), asking::asks(req.pid()))
    }

    /// A caller read of `ino`. Before the answer: the kernel asks for the time anew once
    /// it has it.
    pub(crate) fn accessed(&self, ino: Ino) {
        if self.atime {
            self.fs.accessed(ino);
        }
    }

    /// A file was opened to be read only. What is then read of the kernel's cache does not reach this side, so opening
    /// counts as the reading.
    fn opened_to_read(&self, ino: Ino, flags: OpenFlags) {
        if self.atime && flags.0 & libc::O_NOATIME == 0 && self.fs.accessed(ino) {
            // The caller holds the inode.
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
    }

    /// Contents were read through a handle. (A directory's `O_NOATIME` does not arrive here: `fuser` keeps the flags of
    /// `READDIR` to itself.)
    pub(crate) fn read_through(&self, ino: Ino, flags: OpenFlags) {
        if flags.0 & libc::O_NOATIME == 0 {
            self.accessed(ino);
        }
    }

    pub(crate) fn reply_entry(&self, what: &str, ino: Ino, result: Result<Entry>, reply: ReplyEntry) {
        match result {
            Ok(entry) => {
                reply.entry(
                    &self.names_ttl,
                    &self.numbers.attr(&entry.attr),
                    Generation(u64::from(entry.attr.generation)),
                );
                self.told(entry.attr.ino);
            }
            Err(error) => reply.error(failed(what, ino, &error)),
        }
    }

    pub(crate) fn make(&self, req: &Request, parent: Ino, name: &OsStr, new: &NewNode) -> Result<Entry> {
        let make = || self.fs.mknod(caller(req), parent, name.as_bytes(), new);
        let entry = self.room.with(make)?;
        self.capabilities.bare(entry.attr.ino);
        Ok(entry)
    }

    /// Writes all of `data`, or for a program's own write as much as there is room for. The kernel's
    /// cache does not look at how much of a page was taken: there it is all or an error.
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
            let length = self.room.with(|| self.fs.write(ino, at, rest, flags))?;
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

    /// What follows a write from the kernel's cache: see [`crate::admission`].
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
                // Of others the kernel may hold as much that does not fit.
                admission.look_again();
                self.is_short(0);
                self.notices.refused(self.numbers.to_fuse(ino));
            }
        }
        // Whoever closes the file waits until this write is answered, so that it is not freed by the notice.
        self.notices.attributes_changed(self.numbers.to_fuse(ino));
    }

    /// Whether room is short after so many bytes came; when that begins, all writers' writes are to announce themselves.
    fn is_short(&self, came: usize) -> bool {
        let short = self.caching == Caching::Writeback && self.notices.admission.is_short(&*self.fs, came);
        if short {
            self.notices.admission.watch_all().into_iter().for_each(|ino| self.soon(Job::Stale(ino)));
        }
        short
    }

    /// The kernel was told the attributes of a file whose writes are to announce themselves.
    pub(crate) fn told(&self, ino: Ino) {
        if self.notices.admission.watches(ino) {
            self.soon(Job::Stale(ino));
        }
    }

    /// Has something done by the thread that serves no requests; without a cache there is nothing to do.
    pub(crate) fn soon(&self, job: Job) {
        // The thread ends only after this sender.
        drop(self.waiting.as_ref().map(|waiting| waiting.send(job)));
    }

    /// Answers a `GETATTR` with a handle: a write is about to be taken by the kernel's cache.
    pub(crate) fn announced(&self, ino: Ino, handle: FileHandle, reply: ReplyAttr) {
        let (notices, numbers, ttl) = (self.notices.clone(), self.numbers, self.ttl);
        // What is sent after this notice the kernel answers with, but does not keep: the next write asks again.
        self.after_writeback(ino, 0, move |asked| match asked {
            Ok(fs) => match notices.admission.announced(fs, ino, handle) {
                Ok(attr) => reply.attr(&ttl, &numbers.attr(&attr)),
                Err(error) => reply.error(failed("write", ino, &error)),
            },
            Err(error) => reply.error(error),
        });
    }

    /// Whether the writes of a file just made are to announce themselves, because room is short.
    pub(crate) fn watches_new(&self, ino: Ino) -> bool {
        let short = self.is_short(0);
        if short {
            self.notices.admission.watch(ino);
        }
        short
    }

    /// Free blocks that are not available.
    pub(crate) fn reserved(&self, block_size: u32) -> u64 {
        match self.caching {
            Caching::Writeback if !self.read_only => self.notices.admission.reserve() / u64::from(block_size.max(1)),
            _ => 0,
        }
    }

    /// Whether a file may be opened, and what it is opened as.
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
        if !writes || self.caching != Caching::Writeback {
            return Ok(READER);
        }
        if self.is_short(0) {
            admission.watch(ino);
            // The caller holds the inode.
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
        Ok(admission.opened(ino))
    }

    /// What the kernel may do with a file that is opened: for writing, nothing by its cache where only the reserve is left,
    /// and nothing of an append-only file. Whoever opened it may take `O_APPEND` back (`fcntl`), of which only the kernel
    /// hears: then each write is judged by where it goes, before it returns.
    pub(crate) fn way_of(&self, ino: Ino, handle: FileHandle) -> FopenFlags {
        let cached = self.caching.of_open();
        let append_only = || self.fs.flags(ino).is_ok_and(|now| now.flags.contains(FileFlags::APPEND));
        let direct = handle != READER
            && self.caching == Caching::Writeback
            && self.agreed.direct_opens
            && (self.notices.admission.is_spent(&*self.fs) || append_only());
        if direct {
            // The kernel keeps its own times of the file, which it does not change by such writes.
            self.notices.change_time_changed(ino);
        }
        if direct { (cached - FopenFlags::FOPEN_KEEP_CACHE) | FopenFlags::FOPEN_DIRECT_IO } else { cached }
    }

    /// What goes with a truncation and with a change of owner: file capabilities go, suid and sgid may.
    pub(crate) fn truncating_or_owning(&self, req: &Request, ino: Ino, set: &mut SetAttr) -> Result<()> {
        let owning = set.uid.is_some() || set.gid.is_some();
        if !owning && set.size.is_none() {
            return Ok(());
        }
        self.capabilities.drop_from(&*self.fs, ino)?;
        // The kernel says which truncations are by an unprivileged caller (`FATTR_KILL_SUIDGID`), but
        // fuser 0.18 does not pass that on: every caller but the super-user counts as unprivileged.
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
    // The kind is in bits 12 to 15; no kind at all means a regular file, as in mknod(2).
    let kind = match (mode & 0o170000) as u16 {
        0 => FileKind::Regular,
        bits => FileKind::from_mode(bits).ok_or(Error::Invalid("mode names no kind of file"))?,
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
