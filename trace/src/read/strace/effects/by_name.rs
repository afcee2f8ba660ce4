//! Which call does what?

use super::descriptors::closes_on_exec;
use super::{Effects, Fd, Senseless, Who};
use crate::call::{Handle, How, Op, Target};
use crate::read::strace::arguments::{Call as Made, Returned, string};
use crate::read::strace::processes::What;

impl Effects {
    /// Handles a completed call. `closing` is the result of [`closing`](Self::closing), if that was called before.
    pub(in crate::read::strace) fn call(
        &mut self,
        who: Who,
        call: &Made<'_>,
        closing: Option<Option<What>>,
    ) -> Result<(), Senseless> {
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
            b"read" | b"readv" => {
                self.emit_on_handle(who, call, How::READ, |handle| Op::Read { handle, at: None, bytes })?
            }
            b"write" | b"writev" => {
                self.emit_on_handle(who, call, How::WRITE, |handle| Op::Write { handle, at: None, bytes })?
            }
            b"pread" | b"pread64" | b"preadv" | b"preadv2" => {
                let at = self.offset(call)?;
                self.emit_on_handle(who, call, How::READ, |handle| Op::Read { handle, at, bytes })?;
            }
            b"pwrite" | b"pwrite64" | b"pwritev" | b"pwritev2" => {
                let at = self.offset(call)?;
                self.emit_on_handle(who, call, How::WRITE, |handle| Op::Write { handle, at, bytes })?;
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
                self.emit_on_handle(who, call, How::READ, |handle| Op::Seek { handle, to: Some(to.unwrap_or(0)) })?;
            }
            b"fsync" => self.emit_on_handle(who, call, How::READ, |handle| Op::Sync { handle, data_only: false })?,
            b"fdatasync" => self.emit_on_handle(who, call, How::READ, |handle| Op::Sync { handle, data_only: true })?,
            b"sync" => self.emit(who, Op::SyncAll, call),
            b"syncfs" => self.emit_on_handle(who, call, How::READ, |_| Op::SyncAll)?,
            b"ftruncate" | b"ftruncate64" => {
                let length = self.length(call, 1)?;
                self.emit_on_handle(who, call, How::WRITE, |handle| Op::Truncate {
                    file: Target::Open(handle),
                    length,
                })?;
            }
            b"truncate" | b"truncate64" => {
                let length = self.length(call, 1)?;
                self.emit_on_path(who, call, None, 0, |path| Op::Truncate { file: Target::Path(path), length })?;
            }
            b"fallocate" => self.allocate(who, call)?,
            b"rename" => self.emit_on_two_paths(who, call, (None, 0), (None, 1), |from, to| Op::Rename { from, to })?,
            b"renameat" | b"renameat2" if !call.has(4, b"RENAME_EXCHANGE") => {
                self.emit_on_two_paths(who, call, (Some(0), 1), (Some(2), 3), |from, to| Op::Rename { from, to })?;
            }
            b"link" => self.emit_on_two_paths(who, call, (None, 0), (None, 1), |from, to| Op::Link { from, to })?,
            b"linkat" if !call.has(4, b"AT_EMPTY_PATH") => {
                self.emit_on_two_paths(who, call, (Some(0), 1), (Some(2), 3), |from, to| Op::Link { from, to })?;
            }
            b"symlink" | b"symlinkat" => {
                let target = call.string(0).ok_or(Senseless)?.into_owned();
                let (of, n) = if call.name == b"symlink" { (None, 1) } else { (Some(1), 2) };
                self.emit_on_path(who, call, of, n, |path| Op::Symlink { path, target })?;
            }
            b"unlink" => self.unlink(who, call, None, 0)?,
            b"unlinkat" if call.has(2, b"AT_REMOVEDIR") => {
                self.emit_on_path(who, call, Some(0), 1, |path| Op::RemoveDir { path })?;
            }
            b"unlinkat" => self.unlink(who, call, Some(0), 1)?,
            b"rmdir" => self.emit_on_path(who, call, None, 0, |path| Op::RemoveDir { path })?,
            b"mkdir" => self.emit_on_path(who, call, None, 0, |path| Op::MakeDir { path })?,
            b"mkdirat" => self.emit_on_path(who, call, Some(0), 1, |path| Op::MakeDir { path })?,
            b"mknod" => self.special_file(who, call, None, 0)?,
            b"mknodat" => self.special_file(who, call, Some(0), 1)?,
            b"stat" | b"stat64" | b"lstat" | b"lstat64" | b"access" => {
                self.emit_on_path(who, call, None, 0, |path| Op::Stat { file: Target::Path(path) })?;
            }
            b"newfstatat" | b"fstatat64" | b"statx" | b"faccessat" | b"faccessat2" => {
                if call.string(1).is_some_and(|s| s.is_empty())
                    && call.descriptor(0).is_some_and(|d| d.number.is_some())
                {
                    self.stat_open(who, call)?;
                } else {
                    self.emit_on_path(who, call, Some(0), 1, |path| Op::Stat { file: Target::Path(path) })?;
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
                // A socket's name is a file.
                if let Some(at) = memchr::memmem::find(call.text(1), b"sun_path=\"")
                    && let Some(text) = string(&call.text(1)[at + b"sun_path=".len()..])
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
            b"mmap" | b"mmap2" => self.map(who, call),
            b"msync" => self.synced_map(),
            b"io_submit" => self.submit(who, call)?,
            b"io_uring_enter" => self.enter(call),
            name => self.count_call(name),
        }
        Ok(())
    }

    /// The offset of `pread` and similar calls, their fourth argument; -1 means the current position.
    pub(super) fn offset(&mut self, call: &Made<'_>) -> Result<Option<u64>, Senseless> {
        match call.text(3) {
            b"-1" => Ok(None),
            _ => self.length(call, 3).map(Some),
        }
    }

    /// A number, which may be invalid in a failed call (`ftruncate(3, -1)`).
    pub(super) fn length(&mut self, call: &Made<'_>, n: usize) -> Result<u64, Senseless> {
        match call.number(n) {
            Some(length) => Ok(length),
            None if matches!(call.result, Returned::Failed(_)) => Ok(0),
            None => Err(Senseless),
        }
    }

    pub(super) fn emit_on_handle(
        &mut self,
        who: Who,
        call: &Made<'_>,
        how: How,
        op: impl FnOnce(Handle) -> Op,
    ) -> Result<(), Senseless> {
        if let Some(handle) = self.file(who, call, 0, how)? {
            self.emit(who, op(handle), call);
        }
        Ok(())
    }

    pub(super) fn emit_on_path(
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

    pub(super) fn emit_on_two_paths(
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
}

/// The process number outside of a namespace: `5 /* 2305 in strace's PID NS */`.
fn outside(behind: &[u8]) -> Option<i64> {
    let inner = behind.trim_ascii().strip_prefix(b"/*")?.trim_ascii_start();
    let end = memchr::memchr(b' ', inner)?;
    inner[end..]
        .starts_with(b" in strace")
        .then(|| crate::read::decimal::number(&inner[..end]))?
        .and_then(|n| i64::try_from(n).ok())
}
