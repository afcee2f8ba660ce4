//! How do calls by inode become calls by path?
//!
//! Names are tracked from the root: a file that a call found or created has its latest name. A file that is open
//! several times has one handle per open; reads and writes go to the last one. Calls that correspond to no counted
//! system call (`forget`, attributes, `tick`) are counted as "others". Contents are left out.

use std::collections::VecDeque;
use std::path::PathBuf;

use record::calls::{Call as Asked, Event, Events};
use rustc_hash::FxHashMap;
use vfs::{Allocate, Ino, RenameFlags, WriteFlags};

use super::damage;
use crate::call::{Call, Calls, Handle, How, Op, Target};
use crate::input::Consumption;
use crate::names::count;
use crate::{Format, OtherCounts, TraceError};

/// A recording of calls, by path.
pub(super) struct ByPath {
    events: Events,
    path: PathBuf,
    consumed: Consumption,
    others: OtherCounts,
    /// Directory and name of every inode found.
    names: FxHashMap<u64, (u64, Vec<u8>)>,
    /// The inode of each directory entry.
    entries: FxHashMap<(u64, Vec<u8>), u64>,
    /// Handles of inodes, the last opened last.
    open: FxHashMap<u64, Vec<Handle>>,
    next: u64,
    /// Calls derived from one event and not returned yet.
    waiting: VecDeque<Call>,
}

/// Deepest path, in directories; a deeper one is a cycle.
const DEEPEST: usize = 4096;

impl ByPath {
    pub(super) fn new(events: Events, path: PathBuf, consumed: Consumption) -> Self {
        ByPath {
            events,
            path,
            consumed,
            others: OtherCounts::new(),
            names: FxHashMap::default(),
            entries: FxHashMap::default(),
            open: FxHashMap::default(),
            next: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The path of an inode; inodes that no call has found are named by number.
    fn path_of(&self, ino: Ino) -> Vec<u8> {
        let (mut parts, mut at) = (Vec::new(), ino.0);
        while at != self.events.root().0 && parts.len() < DEEPEST {
            let Some((parent, name)) = self.names.get(&at) else {
                parts.push(format!("<inode {at}>").into_bytes());
                break;
            };
            parts.push(name.clone());
            at = *parent;
        }
        if parts.is_empty() {
            return b"/".to_vec();
        }
        parts.iter().rev().flat_map(|part| [b"/", part.as_slice()].concat()).collect()
    }

    fn below(&self, parent: Ino, name: &[u8]) -> Vec<u8> {
        let mut path = self.path_of(parent);
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    fn named(&mut self, parent: Ino, name: Vec<u8>, ino: u64) {
        if matches!(name.as_slice(), b"." | b"..") || ino == self.events.root().0 {
            return;
        }
        self.names.insert(ino, (parent.0, name.clone()));
        self.entries.insert((parent.0, name), ino);
    }

    fn unnamed(&mut self, parent: Ino, name: &[u8]) {
        self.entries.remove(&(parent.0, name.to_vec()));
    }

    fn opened(&mut self, ino: Ino) -> Handle {
        self.next += 1;
        let handle = Handle(self.next);
        self.open.entry(ino.0).or_default().push(handle);
        handle
    }

    /// The handle of an inode; a new one if it has none, for example when the kernel writes from its cache after a
    /// close.
    fn handle(&mut self, ino: Ino, before: &mut Vec<Op>) -> Handle {
        if let Some(handle) = self.open.get(&ino.0).and_then(|all| all.last()) {
            return *handle;
        }
        let path = self.path_of(ino);
        let handle = self.opened(ino);
        before.push(Op::Open { handle, path, how: How::READ | How::WRITE });
        handle
    }

    fn other(&mut self, name: &str) {
        count(&mut self.others, name);
    }

    /// The system calls for an event.
    fn ops(&mut self, event: &Event) -> Vec<Op> {
        let mut ops = Vec::new();
        let answer = event.answer.ok();
        match &event.call {
            Asked::Lookup { parent, name } => {
                if let Some(ino) = answer {
                    self.named(*parent, name.clone(), ino);
                }
                ops.push(Op::Stat { file: Target::Path(self.below(*parent, name)) });
            }
            Asked::Getattr { ino } => ops.push(Op::Stat { file: Target::Path(self.path_of(*ino)) }),
            Asked::Setattr { ino, set } => match set.size {
                Some(length) => ops.push(Op::Truncate { file: Target::Path(self.path_of(*ino)), length }),
                None => self.other("attributes set"),
            },
            Asked::Mknod { parent, name, .. } => {
                let path = self.below(*parent, name);
                self.next += 1;
                let handle = Handle(self.next);
                ops.push(Op::Open { handle, path, how: How::WRITE | How::CREATE | How::EXCLUSIVE });
                if let Some(ino) = answer {
                    ops.push(Op::Close { handle });
                    self.named(*parent, name.clone(), ino);
                }
            }
            Asked::Mkdir { parent, name, .. } => {
                ops.push(Op::MakeDir { path: self.below(*parent, name) });
                self.created(*parent, name, answer);
            }
            Asked::Symlink { parent, name, target, .. } => {
                ops.push(Op::Symlink { path: self.below(*parent, name), target: target.clone() });
                self.created(*parent, name, answer);
            }
            Asked::Link { ino, parent, name } => {
                ops.push(Op::Link { from: self.path_of(*ino), to: self.below(*parent, name) });
                self.created(*parent, name, answer);
            }
            Asked::Unlink { parent, name } => {
                ops.push(Op::Unlink { path: self.below(*parent, name) });
                if answer.is_some() {
                    self.unnamed(*parent, name);
                }
            }
            Asked::Rmdir { parent, name } => {
                ops.push(Op::RemoveDir { path: self.below(*parent, name) });
                if answer.is_some() {
                    self.unnamed(*parent, name);
                }
            }
            Asked::Rename { parent, name, to_parent, to_name, flags, .. } => {
                ops.push(Op::Rename { from: self.below(*parent, name), to: self.below(*to_parent, to_name) });
                if answer.is_some() {
                    let moved = self.entries.remove(&(parent.0, name.clone()));
                    let replaced = self.entries.remove(&(to_parent.0, to_name.clone()));
                    if let Some(ino) = moved {
                        self.named(*to_parent, to_name.clone(), ino);
                    }
                    if let Some(ino) = replaced.filter(|_| flags.contains(RenameFlags::EXCHANGE)) {
                        self.named(*parent, name.clone(), ino);
                    }
                }
            }
            Asked::Open { ino, truncate } => {
                let path = self.path_of(*ino);
                let mut how = How::READ | How::WRITE;
                how.set(How::TRUNCATE, *truncate);
                let handle = if answer.is_some() { self.opened(*ino) } else { Handle(u64::MAX) };
                ops.push(Op::Open { handle, path, how });
            }
            Asked::Release { ino } => {
                if let Some(handle) = self.open.get_mut(&ino.0).and_then(Vec::pop) {
                    ops.push(Op::Close { handle });
                }
            }
            Asked::Read { ino, offset, len } => {
                let handle = self.handle(*ino, &mut ops);
                ops.push(Op::Read { handle, at: Some(*offset), bytes: answer.unwrap_or(*len) });
            }
            Asked::Write { ino, offset, contents, flags } => {
                if flags.contains(WriteFlags::FROM_CACHE) {
                    self.other("writes from the kernel's cache, of these");
                }
                let handle = self.handle(*ino, &mut ops);
                ops.push(Op::Write { handle, at: Some(*offset), bytes: answer.unwrap_or(contents.len()) });
            }
            Asked::Fallocate { ino, what, offset, len } => {
                let (punch, keep_size) = match what {
                    Allocate::Reserve { keep_size } => (false, *keep_size),
                    Allocate::PunchHole => (true, true),
                    _ => return self.none("ranges zeroed or shifted"),
                };
                let handle = self.handle(*ino, &mut ops);
                ops.push(Op::Allocate { handle, at: *offset, bytes: *len, punch, keep_size });
            }
            Asked::Readdir { ino, .. } => {
                let handle = self.handle(*ino, &mut ops);
                if let Some(Op::Open { how, .. }) = ops.last_mut() {
                    *how = How::READ | How::DIRECTORY;
                }
                ops.push(Op::List { handle });
            }
            Asked::Fsync { ino, data_only } | Asked::Fsyncdir { ino, data_only } => {
                let handle = self.handle(*ino, &mut ops);
                ops.push(Op::Sync { handle, data_only: *data_only });
            }
            Asked::Sync {} => ops.push(Op::SyncAll),
            Asked::Readlink { .. } | Asked::Seek { .. } | Asked::Statfs {} => self.other("looked at"),
            Asked::Getxattr { .. } | Asked::Listxattr { .. } => self.other("extended attributes looked at"),
            Asked::Setxattr { .. } | Asked::Removexattr { .. } => self.other("extended attributes changed"),
            Asked::Tmpfile { .. } => self.other("files made without a name"),
            Asked::Forget { .. } => self.other("inodes forgotten"),
            Asked::Tick {} => self.other("background work"),
            Asked::Unmount {} => self.other("unmounts"),
            Asked::Was { .. } => self.other("files that were there before"),
            Asked::Part { .. } | Asked::WasAttribute { .. } => {}
            Asked::WasContents { .. } => self.other("pieces of what files held before"),
        }
        ops
    }

    fn created(&mut self, parent: Ino, name: &[u8], answer: Option<u64>) {
        if let Some(ino) = answer {
            self.named(parent, name.to_vec(), ino);
        }
    }

    fn none(&mut self, name: &str) -> Vec<Op> {
        self.other(name);
        Vec::new()
    }
}

impl Calls for ByPath {
    fn format(&self) -> Format {
        Format::JouleRec
    }
    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        loop {
            if let Some(call) = self.waiting.pop_front() {
                return Ok(Some(call));
            }
            let event = match self.events.next() {
                None => return Ok(None),
                Some(Ok(event)) => event,
                Some(Err(e)) => return Err(damage(&self.path, &e)),
            };
            let ops = self.ops(&event);
            let last = ops.len().saturating_sub(1);
            for (n, op) in ops.into_iter().enumerate() {
                // Additional calls take no time and do not fail. The event itself is the last, or an open.
                let is_it = n == last || matches!(event.call, Asked::Mknod { .. }) && n == 0;
                self.waiting.push_back(Call {
                    time: event.arrival,
                    thread: 1,
                    op,
                    took: is_it.then_some(event.took),
                    failed: event.answer.err().filter(|_| is_it).map(|failure| format!("{failure:?}")),
                });
            }
        }
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }
    fn consumed(&self) -> u64 {
        self.consumed.bytes()
    }
}
