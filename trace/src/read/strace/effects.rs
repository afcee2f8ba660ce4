//! What does a call do to files, and to the processes' descriptors?

mod asynchronous;
mod by_name;
mod contents;
mod descriptors;

use std::collections::{BTreeSet, VecDeque};

use super::arguments::{Call as Made, Descriptor, Returned};
use super::processes::{Processes, Slot, What};
use crate::OtherCounts;
use crate::call::{Call, Handle, How, Op};
use crate::names::count;
use crate::read::paths::{is_special, normal};

/// A tracked call whose arguments make no sense.
#[derive(Debug)]
pub(super) struct Senseless;

/// The caller, and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) pid: u32,
    pub(super) time: u64,
}

/// Meaning of a descriptor for reads and writes.
enum Fd {
    File(Handle),
    Other,
    Unknown,
}

/// The effects of the calls so far.
pub(super) struct Effects {
    pub(super) processes: Processes,
    /// Calls not returned yet.
    pub(super) out: VecDeque<Call>,
    pub(super) others: OtherCounts,
    handles: u64,
    /// Paths of pipes, sockets and devices.
    special: BTreeSet<Vec<u8>>,
}

const SPECIAL: &str = "calls on sockets, pipes and devices";
const UNKNOWN: &str = "calls on descriptors whose opening was not recorded";

impl Effects {
    pub(super) fn new(directory: Vec<u8>) -> Self {
        Effects {
            processes: Processes::new(directory),
            out: VecDeque::new(),
            others: OtherCounts::new(),
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

    /// Closes files that no process has open any more.
    pub(super) fn closed(&mut self, who: Who, gone: impl IntoIterator<Item = Handle>) {
        for handle in gone {
            let op = Op::Close { handle };
            self.out.push_back(Call { time: who.time, thread: who.pid, op, took: None, failed: None });
        }
    }

    /// Handles the end of a task.
    pub(super) fn exit(&mut self, who: Who) {
        let gone = self.processes.exit(who.pid);
        self.closed(who, gone);
    }

    fn set(&mut self, who: Who, fd: i32, what: What, until_exec: bool) {
        let gone = self.processes.set(who.pid, fd, Slot { what, until_exec });
        self.closed(who, gone);
    }

    /// Resolves a path; `None` if that is unknown.
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

    /// The path in arguments `n` and, if it may be relative to a directory, `of`. `Ok(None)`: it is not a file's, or
    /// unknown; that was counted.
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

    /// The meaning of a descriptor. A file shown by `-y` is opened at its first appearance.
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

    /// The file in an argument; `Ok(None)` if there is none, which was counted.
    fn file(&mut self, who: Who, call: &Made<'_>, n: usize, how: How) -> Result<Option<Handle>, Senseless> {
        let Some(fd) = call.descriptor(n) else {
            // For example `fsync(-1)`.
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

    /// The start of a `close`: the descriptor can be reused before the call returns.
    pub(super) fn closing(&mut self, who: Who, fd: Descriptor<'_>) -> Option<What> {
        fd.number.and_then(|fd| self.processes.take(who.pid, fd))
    }
}

/// True if the flags include `flag`.
fn has(flags: &[u8], flag: &[u8]) -> bool {
    flags.split(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).any(|f| f == flag)
}
