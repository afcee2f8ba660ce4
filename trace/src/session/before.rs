//! Which files were open when the session began, and at which positions?
//!
//! A call in the session may use a file that was opened before it. Its open is inserted just before the first such
//! call, without creating or truncating the file, followed by a seek to the end of the last call. A file without a name
//! by then is opened under a temporary name that is unlinked immediately.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::call::{Call, Handle, How, Op, Target};

struct Open {
    path: Vec<u8>,
    how: How,
    /// Position of the next call without an offset; `None`: the end.
    at: Option<u64>,
    nameless: bool,
}

/// Files left open by calls before the session, and the session's calls with inserted opens.
#[derive(Default)]
pub(super) struct Before {
    open: FxHashMap<Handle, Open>,
    out: VecDeque<Call>,
}

/// The open file of a call.
fn handle(op: &Op) -> Option<Handle> {
    match op {
        Op::Close { handle }
        | Op::Read { handle, .. }
        | Op::Write { handle, .. }
        | Op::Seek { handle, .. }
        | Op::Sync { handle, .. }
        | Op::Allocate { handle, .. }
        | Op::List { handle }
        | Op::Truncate { file: Target::Open(handle), .. }
        | Op::Stat { file: Target::Open(handle) } => Some(*handle),
        _ => None,
    }
}

impl Before {
    /// The next call of the session that is ready.
    pub(super) fn pop(&mut self) -> Option<Call> {
        self.out.pop_front()
    }

    /// Tracks a call before the session.
    pub(super) fn track(&mut self, call: &Call) {
        if call.failed.is_some() {
            return;
        }
        if let Op::Open { handle, path, how } = &call.op {
            let how = *how - (How::CREATE | How::TRUNCATE | How::EXCLUSIVE);
            self.open.insert(*handle, Open { path: path.clone(), how, at: Some(0), nameless: false });
            return;
        }
        self.names(&call.op);
        match &call.op {
            Op::Close { handle } => _ = self.open.remove(handle),
            Op::Read { handle, at: None, bytes } | Op::Write { handle, at: None, bytes } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.at = open.at.map(|at| at.saturating_add(*bytes));
                }
            }
            Op::Seek { handle, to } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.at = *to;
                }
            }
            _ => {}
        }
    }

    /// Tracks changes of open files' names.
    fn names(&mut self, op: &Op) {
        match op {
            Op::Rename { from, to } => {
                for open in self.open.values_mut().filter(|open| !open.nameless) {
                    match open.path.strip_prefix(from.as_slice()) {
                        Some(below) if below.is_empty() || below[0] == b'/' => {
                            open.path = [to, below].concat();
                        }
                        _ if open.path == *to => open.nameless = true,
                        _ => {}
                    }
                }
            }
            Op::Unlink { path } => {
                self.open.values_mut().filter(|open| open.path == *path).for_each(|open| open.nameless = true);
            }
            _ => {}
        }
    }

    /// Adds a call of the session; true if its file was opened before, and so an open was inserted.
    pub(super) fn push(&mut self, call: Call) -> bool {
        if !self.open.is_empty() && call.failed.is_none() {
            self.names(&call.op);
        }
        let opened = handle(&call.op).and_then(|handle| Some((handle, self.open.remove(&handle)?)));
        let opened_before = opened.is_some();
        if let Some((handle, Open { mut path, how, at, nameless })) = opened {
            let mut made = |op| {
                self.out.push_back(Call { time: call.time, thread: call.thread, op, took: None, failed: None });
            };
            if nameless {
                path.extend_from_slice(format!(".nameless-{}", handle.0).as_bytes());
            }
            made(Op::Open { handle, path: path.clone(), how });
            if nameless {
                made(Op::Unlink { path });
            }
            if at != Some(0) {
                made(Op::Seek { handle, to: at });
            }
        }
        self.out.push_back(call);
        opened_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: Op) -> Call {
        Call { time: 7, thread: 1, op, took: None, failed: None }
    }

    fn open(n: u64, path: &str, how: How) -> Op {
        Op::Open { handle: Handle(n), path: path.into(), how }
    }

    fn session_ops(before: Vec<Op>, within: Vec<Op>) -> Vec<Op> {
        let mut all = Before::default();
        before.into_iter().for_each(|op| all.track(&call(op)));
        within.into_iter().for_each(|op| _ = all.push(call(op)));
        std::iter::from_fn(|| all.pop()).map(|call| call.op).collect()
    }

    #[test]
    fn a_file_opened_before_is_opened_once_where_its_last_call_ended() {
        let (a, how) = (Handle(1), How::WRITE | How::CREATE | How::TRUNCATE);
        let write = Op::Write { handle: a, at: None, bytes: 100 };
        let all = session_ops(
            vec![open(1, "/a", how), open(2, "/never used", how), write.clone(), write.clone()],
            vec![write.clone(), write.clone(), Op::Close { handle: a }],
        );
        let seek = Op::Seek { handle: a, to: Some(200) };
        assert_eq!(all, [open(1, "/a", How::WRITE), seek, write.clone(), write, Op::Close { handle: a }]);
    }

    #[test]
    fn names_are_those_at_its_first_call() {
        let sync = |n| Op::Sync { handle: Handle(n), data_only: false };
        let rename = |from: &str, to: &str| Op::Rename { from: from.into(), to: to.into() };
        let unlink = |path: &str| Op::Unlink { path: path.into() };
        let all = session_ops(
            vec![open(1, "/d/a", How::READ), open(2, "/b", How::READ), open(3, "/da", How::READ), rename("/d", "/e")],
            vec![unlink("/b"), sync(1), sync(2), sync(3)],
        );
        assert_eq!(
            all,
            [
                unlink("/b"),
                open(1, "/e/a", How::READ),
                sync(1),
                open(2, "/b.nameless-2", How::READ),
                unlink("/b.nameless-2"),
                sync(2),
                open(3, "/da", How::READ),
                sync(3)
            ]
        );
    }

    #[test]
    fn closed_and_failed_opens_are_not_repeated() {
        let mut all = Before::default();
        all.track(&Call { failed: Some("ENOENT".into()), ..call(open(1, "/a", How::READ)) });
        all.track(&call(open(2, "/b", How::READ)));
        all.track(&call(Op::Close { handle: Handle(2) }));
        assert!(!all.push(call(Op::Close { handle: Handle(1) })) && !all.push(call(Op::Close { handle: Handle(2) })));
    }
}
