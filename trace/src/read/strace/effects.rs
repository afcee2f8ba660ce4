//! What does a call do to files, and to who has which of them open?

use std::collections::{BTreeSet, VecDeque};

use super::arguments::{Call as Made, Descriptor, Returned};
use super::processes::{Processes, Slot, What};
use crate::Others;
use crate::call::{Call, Handle, How, Op, Target};
use crate::names::count;
use crate::read::paths::{is_special, normal};

/// Why a call cannot be read: its name is one that is followed, and what it was given makes no sense.
#[derive(Debug)]
pub(super) struct Senseless;

/// Who called, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) pid: u32,
    pub(super) time: u64,
}

/// What a descriptor is to who reads and writes.
enum Fd {
    File(Handle),
    Other,
    Unknown,
}

/// What the calls so far led to.
pub(super) struct Effects {
    pub(super) processes: Processes,
    /// Calls that were not taken yet.
    pub(super) out: VecDeque<Call>,
    pub(super) others: Others,
    handles: u64,
    /// Pipes, sockets and devices that have a path.
    special: BTreeSet<Vec<u8>>,
}

const SPECIAL: &str = "calls on sockets, pipes and devices";
const UNKNOWN: &str = "calls on descriptors whose opening was not recorded";

impl Effects {
    pub(super) fn new(directory: Vec<u8>) -> Self {
        Effects {
            processes: Processes::new(directory),
            out: VecDeque::new(),
            others: Others::new(),
            handles: 0,
            special: BTreeSet::new(),
        }
    }

    fn count(&mut self, what: &str) {
        count(&mut self.others, what);
    }

    fn count_call(&mut self, name: &[u8]) {
        match std::str::from_utf8(name) {
            Ok(name) => self.count(name),
            Err(_) => self.count("calls without a name"),
        }
    }

    fn handle(&mut self) -> Handle {
        self.handles += 1;
        Handle(self.handles)
    }

    fn emit(&mut self, who: Who, op: Op, call: &Made<'_>) {
        let failed = match call.result {
            Returned::Failed(error) => Some(String::from_utf8_lossy(error).into_owned()),
            _ => None,
        };
        self.out.push_back(Call { time: who.time, thread: who.pid, op, took: call.took, failed });
    }

    /// Files nobody has any more are closed.
    pub(super) fn closed(&mut self, who: Who, gone: impl IntoIterator<Item = Handle>) {
        for handle in gone {
            let op = Op::Close { handle };
            self.out.push_back(Call { time: who.time, thread: who.pid, op, took: None, failed: None });
        }
    }

    /// A task's end.
    pub(super) fn exit(&mut self, who: Who) {
        let gone = self.processes.exit(who.pid);
        self.closed(who, gone);
    }

    fn set(&mut self, who: Who, fd: i32, what: What, until_exec: bool) {
        let gone = self.processes.set(who.pid, fd, Slot { what, until_exec });
        self.closed(who, gone);
    }

    /// Where a path leads; `None` if that is not told.
    fn path(&mut self, who: Who, directory: Option<Descriptor<'_>>, path: &[u8]) -> Option<Vec<u8>> {
        if path.starts_with(b"/") {
            return Some(normal(b"/", path));
        }
        let from = match directory {
            Some(Descriptor { shown: Some(shown), .. }) if shown.starts_with(b"/") => shown.to_vec(),
            Some(Descriptor { number: Some(fd), .. }) => self.processes.path(who.pid, fd)?,
            _ => self.processes.directory(who.pid).to_vec(),
        };
        Some(normal(&from, path))
    }

    fn is_other(&self, path: &[u8]) -> bool {
        is_special(path) || self.special.contains(path)
    }

    /// The path in arguments `n` and, if it may be relative to a directory, `of`. `Ok(None)`: it is not one of a
    /// file, or nobody knows; that was counted.
    fn file_path(
        &mut self,
        who: Who,
        call: &Made<'_>,
        of: Option<usize>,
        n: usize,
    ) -> Result<Option<Vec<u8>>, Senseless> {
        let Some(text) = call.string(n) else {
            if matches!(call.result, Returned::Failed(_)) {
                self.count("calls without a path");
                return Ok(None);
            }
            return Err(Senseless);
        };
        let directory = match of {
            Some(of) => Some(call.descriptor(of).ok_or(Senseless)?),
            None => None,
        };
        match self.path(who, directory, &text) {
            Some(path) if self.is_other(&path) => self.count("paths of devices and of the kernel"),
            Some(path) => return Ok(Some(path)),
            None => self.count("paths in directories that are not known"),
        }
        Ok(None)
    }

    /// What a descriptor is. One that `-y` shows to be a file is opened where it is seen first.
    fn fd(&mut self, who: Who, fd: Descriptor<'_>, how: How) -> Fd {
        let Some(number) = fd.number else { return Fd::Unknown };
        match self.processes.slot(who.pid, number).map(|s| s.what.clone()) {
            Some(What::Open(handle)) => match self.processes.file(handle) {
                Some(file) if !file.is_other => Fd::File(handle),
                _ => Fd::Other,
            },
            Some(What::Other(_)) => Fd::Other,
            None => match fd.shown {
                Some(path) if path.starts_with(b"/") && !self.is_other(path) => {
                    let (handle, path) = (self.handle(), normal(b"/", path));
                    self.count("files opened before the recording");
                    let op = Op::Open { handle, path: path.clone(), how };
                    self.out.push_back(Call { time: who.time, thread: who.pid, op, took: None, failed: None });
                    self.processes.opened(handle, path);
                    self.set(who, number, What::Open(handle), false);
                    Fd::File(handle)
                }
                Some(path) => {
                    self.set(who, number, What::Other(Some(path.to_vec())), false);
                    Fd::Other
                }
                None => Fd::Unknown,
            },
        }
    }

    /// The file in an argument; `Ok(None)` if it is none, which was counted.
    fn file(&mut self, who: Who, call: &Made<'_>, n: usize, how: How) -> Result<Option<Handle>, Senseless> {
        let Some(fd) = call.descriptor(n) else {
            // `fsync(-1)`, for instance.
            return if matches!(call.result, Returned::Failed(_)) {
                self.count(UNKNOWN);
                Ok(None)
            } else {
                Err(Senseless)
            };
        };
        match self.fd(who, fd, how) {
            Fd::File(handle) => return Ok(Some(handle)),
            Fd::Other => self.count(SPECIAL),
            Fd::Unknown => self.count(UNKNOWN),
        }
        Ok(None)
    }

    /// What `close` begins with: the descriptor is free for others before the call returns.
    pub(super) fn closing(&mut self, who: Who, fd: Descriptor<'_>) -> Option<What> {
        fd.number.and_then(|fd| self.processes.take(who.pid, fd))
    }

    /// A call that returned. `closing` is what [`closing`](Self::closing) gave, if it had been told before.
    pub(super) fn call(&mut self, who: Who, call: &Made<'_>, closing: Option<Option<What>>) -> Result<(), Senseless> {
        if call.result == Returned::Nothing {
            if matches!(call.name, b"exit" | b"exit_group") {
                self.count_call(call.name);
            } else {
                self.count("calls that did not return");
            }
            return Ok(());
        }
        let value = match call.result {
            Returned::Value(value, _) => u64::try_from(value).ok(),
            _ => None,
        };
        let new_fd = value.and_then(|v| i32::try_from(v).ok());
        let bytes = value.unwrap_or(0);
        match call.name {
            b"open" => self.open(who, call, None, 0, call.text(1))?,
            b"creat" => self.open(who, call, None, 0, b"O_WRONLY|O_CREAT|O_TRUNC")?,
            b"openat" | b"openat2" => self.open(who, call, Some(0), 1, call.text(2))?,
            b"close" => self.close(who, call, closing)?,
            b"close_range" => self.close_range(who, call)?,
            b"read" | b"readv" => self.on(who, call, How::READ, |handle| Op::Read { handle, at: None, bytes })?,
            b"write" | b"writev" => self.on(who, call, How::WRITE, |handle| Op::Write { handle, at: None, bytes })?,
            b"pread" | b"pread64" | b"preadv" | b"preadv2" => {
                let at = self.offset(call)?;
                self.on(who, call, How::READ, |handle| Op::Read { handle, at, bytes })?;
            }
            b"pwrite" | b"pwrite64" | b"pwritev" | b"pwritev2" => {
                let at = self.offset(call)?;
                self.on(who, call, How::WRITE, |handle| Op::Write { handle, at, bytes })?;
            }
            b"lseek" | b"_llseek" => {
                let to = if call.name == b"_llseek" { call.pointed(2) } else { value };
                if let Some(fd) = call.descriptor(0)
                    && let Fd::File(handle) = self.fd(who, fd, How::READ)
                    && let Some(file) = self.processes.file(handle)
                {
                    file.listing = false;
                }
                if to.is_none() && value.is_some() {
                    return Err(Senseless);
                }
                self.on(who, call, How::READ, |handle| Op::Seek { handle, to: Some(to.unwrap_or(0)) })?;
            }
            b"fsync" => self.on(who, call, How::READ, |handle| Op::Sync { handle, data_only: false })?,
            b"fdatasync" => self.on(who, call, How::READ, |handle| Op::Sync { handle, data_only: true })?,
            b"sync" => self.emit(who, Op::SyncAll, call),
            b"syncfs" => self.on(who, call, How::READ, |_| Op::SyncAll)?,
            b"ftruncate" | b"ftruncate64" => {
                let length = self.length(call, 1)?;
                self.on(who, call, How::WRITE, |handle| Op::Truncate { file: Target::Open(handle), length })?;
            }
            b"truncate" | b"truncate64" => {
                let length = self.length(call, 1)?;
                self.at_path(who, call, None, 0, |path| Op::Truncate { file: Target::Path(path), length })?;
            }
            b"fallocate" => self.allocate(who, call)?,
            b"rename" => self.two_paths(who, call, (None, 0), (None, 1), |from, to| Op::Rename { from, to })?,
            b"renameat" | b"renameat2" if !call.has(4, b"RENAME_EXCHANGE") => {
                self.two_paths(who, call, (Some(0), 1), (Some(2), 3), |from, to| Op::Rename { from, to })?;
            }
            b"link" => self.two_paths(who, call, (None, 0), (None, 1), |from, to| Op::Link { from, to })?,
            b"linkat" if !call.has(4, b"AT_EMPTY_PATH") => {
                self.two_paths(who, call, (Some(0), 1), (Some(2), 3), |from, to| Op::Link { from, to })?;
            }
            b"symlink" | b"symlinkat" => {
                let target = call.string(0).ok_or(Senseless)?.into_owned();
                let (of, n) = if call.name == b"symlink" { (None, 1) } else { (Some(1), 2) };
                self.at_path(who, call, of, n, |path| Op::Symlink { path, target })?;
            }
            b"unlink" => self.unlink(who, call, None, 0)?,
            b"unlinkat" if call.has(2, b"AT_REMOVEDIR") => {
                self.at_path(who, call, Some(0), 1, |path| Op::RemoveDir { path })?;
            }
            b"unlinkat" => self.unlink(who, call, Some(0), 1)?,
            b"rmdir" => self.at_path(who, call, None, 0, |path| Op::RemoveDir { path })?,
            b"mkdir" => self.at_path(who, call, None, 0, |path| Op::MakeDir { path })?,
            b"mkdirat" => self.at_path(who, call, Some(0), 1, |path| Op::MakeDir { path })?,
            b"mknod" => self.special_file(who, call, None, 0)?,
            b"mknodat" => self.special_file(who, call, Some(0), 1)?,
            b"stat" | b"stat64" | b"lstat" | b"lstat64" | b"access" => {
                self.at_path(who, call, None, 0, |path| Op::Stat { file: Target::Path(path) })?;
            }
            b"newfstatat" | b"fstatat64" | b"statx" | b"faccessat" | b"faccessat2" => {
                if call.string(1).is_some_and(|s| s.is_empty())
                    && call.descriptor(0).is_some_and(|d| d.number.is_some())
                {
                    self.stat_open(who, call)?;
                } else {
                    self.at_path(who, call, Some(0), 1, |path| Op::Stat { file: Target::Path(path) })?;
                }
            }
            b"fstat" | b"fstat64" => self.stat_open(who, call)?,
            b"getdents" | b"getdents64" => self.list(who, call, bytes)?,
            b"sendfile" | b"sendfile64" => self.copy(who, call, (1, call.pointed(2)), (0, None))?,
            b"copy_file_range" | b"splice" => {
                self.copy(who, call, (0, call.pointed(1)), (2, call.pointed(3)))?;
            }
            b"dup" | b"dup2" | b"dup3" => {
                self.count_call(call.name);
                self.duplicate(who, call, new_fd, call.has(2, b"O_CLOEXEC"));
            }
            b"fcntl" | b"fcntl64" => {
                self.count_call(call.name);
                match call.text(1) {
                    b"F_DUPFD" => self.duplicate(who, call, new_fd, false),
                    b"F_DUPFD_CLOEXEC" => self.duplicate(who, call, new_fd, true),
                    b"F_SETFD" if value.is_some() => {
                        let until_exec = call.has(2, b"FD_CLOEXEC");
                        if let Some(fd) = call.descriptor(0).and_then(|d| d.number)
                            && let Some(slot) = self.processes.slot(who.pid, fd)
                        {
                            slot.until_exec = until_exec;
                        }
                    }
                    _ => {}
                }
            }
            b"chdir" if value.is_some() => {
                self.count_call(call.name);
                let text = call.string(0).ok_or(Senseless)?;
                if let Some(path) = self.path(who, None, &text) {
                    self.processes.go(who.pid, path);
                }
            }
            b"fchdir" if value.is_some() => {
                self.count_call(call.name);
                let fd = call.descriptor(0).ok_or(Senseless)?;
                if let Some(path) = self.path(who, Some(fd), b"") {
                    self.processes.go(who.pid, path);
                }
            }
            b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork" => {
                self.count_call(call.name);
                if let Returned::Value(child, behind) = call.result
                    && let Some(child) = u32::try_from(outside(behind).unwrap_or(child)).ok().filter(|c| *c > 0)
                {
                    let has = |flag| (0..6).any(|n| call.has(n, flag));
                    self.processes.fork(who.pid, child, has(b"CLONE_FILES"), has(b"CLONE_FS"));
                }
            }
            b"unshare" if value.is_some() => {
                self.count_call(call.name);
                self.processes.unshare(who.pid, call.has(0, b"CLONE_FILES"), call.has(0, b"CLONE_FS"));
            }
            b"execve" | b"execveat" if value.is_some() => {
                self.count_call(call.name);
                let gone = self.processes.exec(who.pid);
                self.closed(who, gone);
            }
            b"pipe" | b"pipe2" => self.two_others(who, call, 0)?,
            b"socketpair" => self.two_others(who, call, 3)?,
            b"bind" => {
                self.count_call(call.name);
                // The name of a socket is one of the file system.
                if let Some(at) = memchr::memmem::find(call.text(1), b"sun_path=\"")
                    && let Some(text) = super::arguments::string(&call.text(1)[at + b"sun_path=".len()..])
                    && let Some(path) = self.path(who, None, &text).filter(|_| value.is_some())
                {
                    self.special.insert(path);
                }
            }
            b"socket"
            | b"accept"
            | b"accept4"
            | b"epoll_create"
            | b"epoll_create1"
            | b"eventfd"
            | b"eventfd2"
            | b"timerfd_create"
            | b"signalfd"
            | b"signalfd4"
            | b"inotify_init"
            | b"inotify_init1"
            | b"memfd_create"
            | b"memfd_secret"
            | b"userfaultfd"
            | b"pidfd_open"
            | b"pidfd_getfd"
            | b"io_uring_setup"
            | b"perf_event_open"
            | b"bpf"
            | b"fanotify_init"
            | b"landlock_create_ruleset"
            | b"fsopen"
            | b"fsmount"
            | b"fspick"
            | b"open_tree"
            | b"mq_open"
            | b"open_by_handle_at" => {
                self.count_call(call.name);
                if let Some(fd) = new_fd {
                    self.set(who, fd, What::Other(None), closes_on_exec(call));
                }
            }
            b"mmap" | b"mmap2" => {
                let file = call.descriptor(4).is_some() && !call.has(3, b"MAP_ANONYMOUS");
                self.count(if file { "mmap of files" } else { "mmap" });
            }
            name => self.count_call(name),
        }
        Ok(())
    }

    /// The offset of `pread` and its like, which is their fourth argument; -1 stands for the place where the last
    /// call ended.
    fn offset(&mut self, call: &Made<'_>) -> Result<Option<u64>, Senseless> {
        match call.text(3) {
            b"-1" => Ok(None),
            _ => self.length(call, 3).map(Some),
        }
    }

    /// A number, which a call that failed need not have (`ftruncate(3, -1)`).
    fn length(&mut self, call: &Made<'_>, n: usize) -> Result<u64, Senseless> {
        match call.number(n) {
            Some(length) => Ok(length),
            None if matches!(call.result, Returned::Failed(_)) => Ok(0),
            None => Err(Senseless),
        }
    }

    fn on(&mut self, who: Who, call: &Made<'_>, how: How, op: impl FnOnce(Handle) -> Op) -> Result<(), Senseless> {
        if let Some(handle) = self.file(who, call, 0, how)? {
            self.emit(who, op(handle), call);
        }
        Ok(())
    }

    fn at_path(
        &mut self,
        who: Who,
        call: &Made<'_>,
        of: Option<usize>,
        n: usize,
        op: impl FnOnce(Vec<u8>) -> Op,
    ) -> Result<(), Senseless> {
        if let Some(path) = self.file_path(who, call, of, n)? {
            self.emit(who, op(path), call);
        }
        Ok(())
    }

    fn two_paths(
        &mut self,
        who: Who,
        call: &Made<'_>,
        from: (Option<usize>, usize),
        to: (Option<usize>, usize),
        op: impl FnOnce(Vec<u8>, Vec<u8>) -> Op,
    ) -> Result<(), Senseless> {
        let Some(from) = self.file_path(who, call, from.0, from.1)? else { return Ok(()) };
        let Some(to) = self.file_path(who, call, to.0, to.1)? else { return Ok(()) };
        let op = op(from, to);
        if let (Op::Rename { from, to }, Returned::Value(..)) = (&op, call.result) {
            self.processes.moved(from, to);
        }
        self.emit(who, op, call);
        Ok(())
    }

    fn open(&mut self, who: Who, call: &Made<'_>, of: Option<usize>, n: usize, flags: &[u8]) -> Result<(), Senseless> {
        let fd = match call.result {
            Returned::Value(value, behind) => {
                let shown =
                    behind.strip_prefix(b"<").map(|s| &s[..s.iter().position(|b| b"<>".contains(b)).unwrap_or(0)]);
                Some((i32::try_from(value).map_err(|_| Senseless)?, shown))
            }
            _ => None,
        };
        let until_exec = has(flags, b"O_CLOEXEC");
        let mut path = match self.file_path(who, call, of, n)? {
            Some(path) => path,
            None => {
                if let Some((fd, shown)) = fd {
                    let path = call.string(n).filter(|p| p.starts_with(b"/")).map(|p| normal(b"/", &p));
                    self.set(who, fd, What::Other(shown.map(<[u8]>::to_vec).or(path)), until_exec);
                }
                return Ok(());
            }
        };
        // Where it leads, if that is not where it seems to: `/dev/stdout` by another name.
        if let Some((fd, Some(shown))) = fd
            && (self.is_other(shown) || !shown.starts_with(b"/"))
        {
            self.count(SPECIAL);
            self.set(who, fd, What::Other(Some(shown.to_vec())), until_exec);
            return Ok(());
        }
        if has(flags, b"O_PATH") {
            self.count("opens of paths alone");
            if let Some((fd, _)) = fd {
                self.set(who, fd, What::Other(Some(path)), until_exec);
            }
            return Ok(());
        }
        let handle = self.handle();
        let mut how = how(flags);
        let nameless = has(flags, b"O_TMPFILE");
        if nameless {
            path.extend_from_slice(format!("/nameless-{}", handle.0).as_bytes());
            how = (how | How::CREATE | How::EXCLUSIVE) - How::DIRECTORY;
        }
        self.emit(who, Op::Open { handle, path: path.clone(), how }, call);
        if let Some((fd, _)) = fd {
            self.processes.opened(handle, path.clone());
            self.set(who, fd, What::Open(handle), until_exec);
            if nameless {
                let op = Op::Unlink { path };
                self.out.push_back(Call { time: who.time, thread: who.pid, op, took: None, failed: None });
            }
        }
        Ok(())
    }

    fn close(&mut self, who: Who, call: &Made<'_>, closing: Option<Option<What>>) -> Result<(), Senseless> {
        let what = match closing {
            Some(what) => what,
            None => match call.descriptor(0) {
                Some(fd) => self.closing(who, fd),
                None if matches!(call.result, Returned::Failed(_)) => None,
                None => return Err(Senseless),
            },
        };
        match what {
            Some(What::Open(handle)) => {
                if self.processes.file(handle).is_none_or(|f| f.is_other) {
                    self.processes.let_go(&What::Open(handle));
                    self.count(SPECIAL);
                } else if self.processes.let_go(&What::Open(handle)).is_some() {
                    self.emit(who, Op::Close { handle }, call);
                } else {
                    self.count("closes of files that stay open elsewhere");
                }
            }
            Some(What::Other(_)) => self.count(SPECIAL),
            None => self.count(UNKNOWN),
        }
        Ok(())
    }

    fn close_range(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
        self.count_call(call.name);
        if !matches!(call.result, Returned::Value(..)) {
            return Ok(());
        }
        let first = call.number(0).and_then(|n| i32::try_from(n).ok()).ok_or(Senseless)?;
        let last = call.number(1).and_then(|n| i32::try_from(n).ok()).unwrap_or(i32::MAX);
        if call.has(2, b"CLOSE_RANGE_UNSHARE") {
            self.processes.unshare(who.pid, true, false);
        }
        for fd in self.processes.range(who.pid, first, last) {
            if call.has(2, b"CLOSE_RANGE_CLOEXEC") {
                if let Some(slot) = self.processes.slot(who.pid, fd) {
                    slot.until_exec = true;
                }
            } else if let Some(what) = self.processes.take(who.pid, fd) {
                let gone = self.processes.let_go(&what);
                self.closed(who, gone);
            }
        }
        Ok(())
    }

    fn unlink(&mut self, who: Who, call: &Made<'_>, of: Option<usize>, n: usize) -> Result<(), Senseless> {
        // Counted as a path of a special file once more; then the name is free.
        let path = call.string(n).and_then(|text| {
            let directory = of.and_then(|of| call.descriptor(of));
            self.path(who, directory, &text)
        });
        self.at_path(who, call, of, n, |path| Op::Unlink { path })?;
        if let (Some(path), Returned::Value(..)) = (path, call.result) {
            self.special.remove(&path);
        }
        Ok(())
    }

    fn special_file(&mut self, who: Who, call: &Made<'_>, of: Option<usize>, n: usize) -> Result<(), Senseless> {
        self.count_call(call.name);
        let text = call.string(n).ok_or(Senseless)?;
        let directory = of.and_then(|of| call.descriptor(of));
        if let Some(path) = self.path(who, directory, &text)
            && matches!(call.result, Returned::Value(..))
            && !call.has(n + 1, b"S_IFREG")
        {
            self.special.insert(path);
        }
        Ok(())
    }

    fn stat_open(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
        let Some(handle) = self.file(who, call, 0, How::READ)? else { return Ok(()) };
        let is = |kind| (1..6).any(|n| call.has(n, kind));
        if [&b"S_IFCHR"[..], b"S_IFBLK", b"S_IFIFO", b"S_IFSOCK"].into_iter().any(is) {
            self.count(SPECIAL);
            if let Some(file) = self.processes.file(handle) {
                file.is_other = true;
            }
            self.closed(who, [handle]);
        } else {
            self.emit(who, Op::Stat { file: Target::Open(handle) }, call);
        }
        Ok(())
    }

    /// One listing takes several calls; it is one here.
    fn list(&mut self, who: Who, call: &Made<'_>, bytes: u64) -> Result<(), Senseless> {
        let Some(handle) = self.file(who, call, 0, How::READ | How::DIRECTORY)? else { return Ok(()) };
        let before = match self.processes.file(handle) {
            Some(file) => std::mem::replace(&mut file.listing, bytes > 0),
            None => false,
        };
        if before {
            self.count("further parts of lists");
        } else {
            self.emit(who, Op::List { handle }, call);
        }
        Ok(())
    }

    fn allocate(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
        let mode = call.text(1);
        let other = [&b"FALLOC_FL_COLLAPSE_RANGE"[..], b"FALLOC_FL_ZERO_RANGE", b"FALLOC_FL_INSERT_RANGE"];
        if other.into_iter().any(|flag| has(mode, flag)) {
            self.count("fallocate of other kinds");
            return Ok(());
        }
        let (punch, keep_size) = (has(mode, b"FALLOC_FL_PUNCH_HOLE"), has(mode, b"FALLOC_FL_KEEP_SIZE"));
        let (at, bytes) = (self.length(call, 2)?, self.length(call, 3)?);
        self.on(who, call, How::WRITE, |handle| Op::Allocate { handle, at, bytes, punch, keep_size })
    }

    /// From one descriptor to another, each with a place or without: a read and a write, as far as they are of
    /// files. The time it took is the first's.
    fn copy(
        &mut self,
        who: Who,
        call: &Made<'_>,
        from: (usize, Option<u64>),
        to: (usize, Option<u64>),
    ) -> Result<(), Senseless> {
        let bytes = match call.result {
            Returned::Value(value, _) => u64::try_from(value).map_err(|_| Senseless)?,
            _ => 0,
        };
        let (source, sink) = (call.descriptor(from.0), call.descriptor(to.0));
        let (Some(source), Some(sink)) = (source, sink) else { return Err(Senseless) };
        let source = self.fd(who, source, How::READ);
        let sink = self.fd(who, sink, How::WRITE);
        if !matches!(source, Fd::File(_)) && !matches!(sink, Fd::File(_)) {
            self.count(SPECIAL);
            return Ok(());
        }
        let mut took = call.took;
        let failed = match call.result {
            Returned::Failed(error) => Some(String::from_utf8_lossy(error).into_owned()),
            _ => None,
        };
        let mut parts = Vec::new();
        if let Fd::File(handle) = source {
            parts.push(Op::Read { handle, at: from.1, bytes });
        }
        if let Fd::File(handle) = sink {
            parts.push(Op::Write { handle, at: to.1, bytes });
        }
        for op in parts {
            let (took, failed) = (took.take(), failed.clone());
            self.out.push_back(Call { time: who.time, thread: who.pid, op, took, failed });
        }
        Ok(())
    }

    fn duplicate(&mut self, who: Who, call: &Made<'_>, new: Option<i32>, until_exec: bool) {
        let (Some(old), Some(new)) = (call.descriptor(0), new) else { return };
        if old.number == Some(new) {
            return;
        }
        // A file that `-y` shows is opened by this.
        let _ = self.fd(who, old, How::READ | How::WRITE);
        match old.number.and_then(|old| self.processes.slot(who.pid, old)).map(|slot| slot.what.clone()) {
            Some(what) => self.set(who, new, what, until_exec),
            None => {
                let gone = self.processes.take(who.pid, new).and_then(|what| self.processes.let_go(&what));
                self.closed(who, gone);
            }
        }
    }

    fn two_others(&mut self, who: Who, call: &Made<'_>, n: usize) -> Result<(), Senseless> {
        self.count_call(call.name);
        if matches!(call.result, Returned::Value(..)) {
            for fd in call.pair(n).ok_or(Senseless)? {
                if let Some(fd) = fd.number {
                    self.set(who, fd, What::Other(None), closes_on_exec(call));
                }
            }
        }
        Ok(())
    }
}

/// The process number outside of a name space: `5 /* 2305 in strace's PID NS */`.
fn outside(behind: &[u8]) -> Option<i64> {
    let inner = behind.trim_ascii().strip_prefix(b"/*")?.trim_ascii_start();
    let end = memchr::memchr(b' ', inner)?;
    inner[end..]
        .starts_with(b" in strace")
        .then(|| crate::read::decimal::number(&inner[..end]))?
        .and_then(|n| i64::try_from(n).ok())
}

/// True if one of these flags is `flag`.
fn has(flags: &[u8], flag: &[u8]) -> bool {
    flags.split(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).any(|f| f == flag)
}

/// `O_CLOEXEC`, `SOCK_CLOEXEC`, `EFD_CLOEXEC`, ...
fn closes_on_exec(call: &Made<'_>) -> bool {
    (0..6).any(|n| call.text(n).split(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).any(|f| f.ends_with(b"_CLOEXEC")))
}

/// How a file is opened.
fn how(flags: &[u8]) -> How {
    let mut how = How::READ;
    for (flag, is) in [
        (&b"O_CREAT"[..], How::CREATE),
        (b"O_TRUNC", How::TRUNCATE),
        (b"O_APPEND", How::APPEND),
        (b"O_EXCL", How::EXCLUSIVE),
        (b"O_SYNC", How::SYNC),
        (b"O_DSYNC", How::DATA_SYNC),
        (b"O_DIRECTORY", How::DIRECTORY),
        (b"O_RDWR", How::WRITE),
    ] {
        if has(flags, flag) {
            how |= is;
        }
    }
    if has(flags, b"O_WRONLY") { (how - How::READ) | How::WRITE } else { how }
}
