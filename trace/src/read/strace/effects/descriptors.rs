//! How are calls handled that create, copy and remove descriptors and names?

use super::{Effects, SPECIAL, Senseless, UNKNOWN, Who, has};
use crate::call::{Call, How, Op};
use crate::read::paths::normal;
use crate::read::strace::arguments::{Call as Made, Returned};
use crate::read::strace::processes::What;

impl Effects {
    pub(super) fn open(
        &mut self,
        who: Who,
        call: &Made<'_>,
        of: Option<usize>,
        n: usize,
        flags: &[u8],
    ) -> Result<(), Senseless> {
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
        // The real path, if it differs: for example an alias of `/dev/stdout`.
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

    pub(super) fn close(&mut self, who: Who, call: &Made<'_>, closing: Option<Option<What>>) -> Result<(), Senseless> {
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

    pub(super) fn close_range(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
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

    pub(super) fn duplicate(&mut self, who: Who, call: &Made<'_>, new: Option<i32>, until_exec: bool) {
        let (Some(old), Some(new)) = (call.descriptor(0), new) else { return };
        if old.number == Some(new) {
            return;
        }
        // Opens a file shown by `-y`.
        let _ = self.fd(who, old, How::READ | How::WRITE);
        match old.number.and_then(|old| self.processes.slot(who.pid, old)).map(|slot| slot.what.clone()) {
            Some(what) => self.set(who, new, what, until_exec),
            None => {
                let gone = self.processes.take(who.pid, new).and_then(|what| self.processes.let_go(&what));
                self.closed(who, gone);
            }
        }
    }

    pub(super) fn two_others(&mut self, who: Who, call: &Made<'_>, n: usize) -> Result<(), Senseless> {
        self.count_call(call.name);
        // With a short `-s`, strace prints `[...]`: later calls on these descriptors are calls on unknown ones.
        if matches!(call.result, Returned::Value(..)) && call.text(n) != b"[...]" {
            for fd in call.pair(n).ok_or(Senseless)? {
                if let Some(fd) = fd.number {
                    self.set(who, fd, What::Other(None), closes_on_exec(call));
                }
            }
        }
        Ok(())
    }

    pub(super) fn special_file(
        &mut self,
        who: Who,
        call: &Made<'_>,
        of: Option<usize>,
        n: usize,
    ) -> Result<(), Senseless> {
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

    pub(super) fn unlink(&mut self, who: Who, call: &Made<'_>, of: Option<usize>, n: usize) -> Result<(), Senseless> {
        // Count it once more as a special file; then the name is free.
        let path = call.string(n).and_then(|text| {
            let directory = of.and_then(|of| call.descriptor(of));
            self.path(who, directory, &text)
        });
        self.emit_on_path(who, call, of, n, |path| Op::Unlink { path })?;
        if let (Some(path), Returned::Value(..)) = (path, call.result) {
            self.special.remove(&path);
        }
        Ok(())
    }
}

/// `O_CLOEXEC`, `SOCK_CLOEXEC`, `EFD_CLOEXEC`, ...
pub(super) fn closes_on_exec(call: &Made<'_>) -> bool {
    (0..6).any(|n| call.text(n).split(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).any(|f| f.ends_with(b"_CLOEXEC")))
}

/// Parses the flags of an open.
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
