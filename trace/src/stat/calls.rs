//! What does a recording of file system calls contain?

use std::collections::BTreeMap;

use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::activity::Activity;
use super::distribution::{Sizes, Spread, Times};
use super::share;
use crate::TraceError;
use crate::call::{Call, Calls, Handle, How, Op, Target};

/// Most files reported, the busiest first.
const FILES: usize = 20;
/// Bytes per block, the unit of remembered ranges.
const BLOCK: u64 = 4096;
/// Longest remembered range of a file; no system call moves more.
const LONGEST: u64 = 1 << 32;

/// Reads or writes.
#[derive(Debug, Clone, Serialize)]
pub struct Moved {
    /// Number of calls per size class; a class begins at this size and ends below twice of it.
    pub classes: Vec<(u64, u64)>,
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Calls that begin at the end of the previous one of the same file.
    pub continued: u64,
}

/// A file.
#[derive(Debug, Clone, Serialize)]
pub struct FileStat {
    /// Its path at the first open.
    pub path: String,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Number of syncs.
    pub syncs: u64,
}

/// Statistics of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct CallStat {
    /// Its format.
    pub format: String,
    /// Number of calls.
    pub calls: u64,
    /// Calls by name.
    pub operations: BTreeMap<&'static str, u64>,
    /// Calls that failed.
    pub failed: u64,
    /// Nanoseconds from the first call to the last.
    pub span_ns: u64,
    /// Number of threads.
    pub threads: u64,
    /// Reads.
    pub read: Moved,
    /// Writes.
    pub written: Moved,
    /// Bytes written to file blocks that had been written before: updates.
    pub overwritten: u64,
    /// fsync, fdatasync, and writes to files opened for synchronous writing.
    pub fsyncs: u64,
    /// Bytes of file blocks read or written at least once: the working set.
    pub touched: u64,
    /// Number of files.
    pub files: u64,
    /// Nanoseconds between consecutive calls.
    pub between: Option<Spread>,
    /// Bytes read and written over time.
    pub activity: Activity,
    /// Latencies, if recorded.
    pub took: Option<Spread>,
    /// The busiest files, at most 20.
    pub busiest: Vec<FileStat>,
    /// Other contents of the recording.
    pub others: BTreeMap<String, u64>,
}

impl CallStat {
    /// Converts a count to a rate per second of the recording; 0 if it has no duration.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.span_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.span_ns as f64 }
    }
}

/// A call's name.
pub fn name(op: &Op) -> &'static str {
    match op {
        Op::Open { .. } => "open",
        Op::Close { .. } => "close",
        Op::Read { .. } => "read",
        Op::Write { .. } => "write",
        Op::Seek { .. } => "seek",
        Op::Sync { data_only: false, .. } => "fsync",
        Op::Sync { data_only: true, .. } => "fdatasync",
        Op::SyncAll => "sync",
        Op::Truncate { .. } => "truncate",
        Op::Allocate { .. } => "fallocate",
        Op::Unlink { .. } => "unlink",
        Op::RemoveDir { .. } => "rmdir",
        Op::MakeDir { .. } => "mkdir",
        Op::Rename { .. } => "rename",
        Op::Link { .. } => "link",
        Op::Symlink { .. } => "symlink",
        Op::Stat { .. } => "stat",
        Op::List { .. } => "list",
    }
}

/// An open file.
struct Open {
    file: usize,
    how: How,
    /// Position of a call without an offset.
    at: u64,
    /// End of the last call.
    end: u64,
}

struct File {
    path: Vec<u8>,
    /// Link count and open count: with neither, the file cannot be used any more.
    names: u32,
    opened: u32,
    length: u64,
    read: u64,
    written: u64,
    syncs: u64,
    blocks_touched: RoaringTreemap,
    blocks_written: RoaringTreemap,
}

impl File {
    fn stat(&self) -> FileStat {
        FileStat {
            path: String::from_utf8_lossy(&self.path).into_owned(),
            read: self.read,
            written: self.written,
            syncs: self.syncs,
        }
    }
}

/// Keeps only the busiest files.
fn busiest(list: &mut Vec<FileStat>) {
    list.sort_by(|a, b| (b.read + b.written).cmp(&(a.read + a.written)).then_with(|| a.path.cmp(&b.path)));
    list.truncate(FILES);
}

#[derive(Default)]
struct Counter {
    operations: BTreeMap<&'static str, u64>,
    calls: u64,
    failed: u64,
    threads: RoaringTreemap,
    read: (Sizes, u64),
    written: (Sizes, u64),
    overwritten: u64,
    fsyncs: u64,
    open: FxHashMap<Handle, Open>,
    /// Files that can still be used; `None` is a free slot.
    files: Vec<Option<File>>,
    free: Vec<usize>,
    /// Number of files so far, and data of removed ones: their blocks, and the busiest.
    all: u64,
    touched: u64,
    gone: Vec<FileStat>,
    by_path: FxHashMap<Vec<u8>, usize>,
    between: Times,
    activity: Activity,
    took: Times,
    first: Option<u64>,
    last: u64,
}

/// Reads a recording to its end, or up to damage: the error is returned together with the counts up to there.
/// `progress` receives the number of bytes read so far, at intervals.
pub fn count(calls: &mut dyn Calls, mut progress: impl FnMut(u64)) -> (CallStat, Result<(), TraceError>) {
    let mut counter = Counter::default();
    let whole = loop {
        match calls.next() {
            Ok(Some(call)) => counter.add(&call),
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        if counter.calls.is_multiple_of(1 << 14) {
            progress(calls.consumed());
        }
    };
    (counter.done(calls), whole)
}

impl Counter {
    fn add(&mut self, call: &Call) {
        self.calls += 1;
        if self.first.is_some() {
            self.between.add(call.time.saturating_sub(self.last));
        }
        let first = self.first.map_or(call.time, |f| f.min(call.time));
        self.first = Some(first);
        self.last = self.last.max(call.time);
        *self.operations.entry(name(&call.op)).or_default() += 1;
        self.threads.insert(u64::from(call.thread));
        call.took.into_iter().for_each(|t| self.took.add(t));
        if call.failed.is_some() {
            self.failed += 1;
            return;
        }
        if let Op::Read { bytes, .. } | Op::Write { bytes, .. } = &call.op {
            self.activity.add(call.time - first, *bytes, matches!(call.op, Op::Write { .. }));
        }
        match &call.op {
            Op::Open { handle, path, how } => {
                let file = self.file(path);
                if let Some(file) = &mut self.files[file] {
                    file.opened += 1;
                    if how.contains(How::TRUNCATE) {
                        file.length = 0;
                    }
                }
                let before = self.open.insert(*handle, Open { file, how: *how, at: 0, end: 0 });
                before.into_iter().for_each(|open| self.closed(open.file));
            }
            Op::Close { handle } => {
                if let Some(open) = self.open.remove(handle) {
                    self.closed(open.file);
                }
            }
            Op::Read { handle, at, bytes } => self.moved(*handle, *at, *bytes, false),
            Op::Write { handle, at, bytes } => self.moved(*handle, *at, *bytes, true),
            Op::Seek { handle, to } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.at = to.unwrap_or(self.files[open.file].as_ref().map_or(0, |f| f.length));
                }
            }
            Op::Sync { handle, .. } => {
                self.fsyncs += 1;
                if let Some(file) = self.open.get(handle).and_then(|open| self.files[open.file].as_mut()) {
                    file.syncs += 1;
                }
            }
            Op::Truncate { file, length } => {
                let file = match file {
                    Target::Open(handle) => self.open.get(handle).map(|o| o.file),
                    Target::Path(path) => self.by_path.get(path).copied(),
                };
                if let Some(file) = file.and_then(|file| self.files[file].as_mut()) {
                    file.length = *length;
                }
            }
            Op::Rename { from, to } => {
                // Two names of one file: rename(2) does nothing.
                if self.by_path.get(from) != self.by_path.get(to)
                    && let Some(file) = self.by_path.remove(from)
                {
                    let before = self.by_path.insert(to.clone(), file);
                    before.into_iter().for_each(|file| self.unnamed(file));
                }
            }
            Op::Link { from, to } => {
                if let Some(&number) = self.by_path.get(from)
                    && let Some(file) = &mut self.files[number]
                {
                    file.names += 1;
                    let before = self.by_path.insert(to.clone(), number);
                    before.into_iter().for_each(|file| self.unnamed(file));
                }
            }
            Op::Unlink { path } => {
                if let Some(file) = self.by_path.remove(path) {
                    self.unnamed(file);
                }
            }
            _ => {}
        }
    }

    fn file(&mut self, path: &[u8]) -> usize {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let (read, written, length, syncs) = (0, 0, 0, 0);
        let (blocks_touched, blocks_written) = Default::default();
        let (path, names, opened) = (path.to_owned(), 1, 0);
        self.by_path.insert(path.clone(), self.free.last().copied().unwrap_or(self.files.len()));
        let new = Some(File { path, names, opened, length, read, written, syncs, blocks_touched, blocks_written });
        self.all += 1;
        match self.free.pop() {
            Some(place) => {
                self.files[place] = new;
                place
            }
            None => {
                self.files.push(new);
                self.files.len() - 1
            }
        }
    }

    fn closed(&mut self, number: usize) {
        if let Some(file) = &mut self.files[number] {
            file.opened = file.opened.saturating_sub(1);
        }
        self.fold(number);
    }

    fn unnamed(&mut self, number: usize) {
        if let Some(file) = &mut self.files[number] {
            file.names = file.names.saturating_sub(1);
        }
        self.fold(number);
    }

    /// Keeps the results of a file without names and opens, and frees its slot.
    fn fold(&mut self, number: usize) {
        let Some(file) = self.files[number].take_if(|f| f.names == 0 && f.opened == 0) else { return };
        self.free.push(number);
        self.touched += file.blocks_touched.len() * BLOCK;
        self.gone.push(file.stat());
        if self.gone.len() > 64 * FILES {
            busiest(&mut self.gone);
        }
    }

    fn moved(&mut self, handle: Handle, at: Option<u64>, bytes: u64, write: bool) {
        let (sizes, continued) = if write { &mut self.written } else { &mut self.read };
        sizes.add(bytes);
        let Some(open) = self.open.get_mut(&handle) else { return };
        let Some(file) = &mut self.files[open.file] else { return };
        let from = match at {
            Some(at) => at,
            None if write && open.how.contains(How::APPEND) => file.length,
            None => open.at,
        };
        *continued += u64::from(bytes > 0 && from == open.end && from > 0);
        let end = from.saturating_add(bytes);
        open.end = end;
        if at.is_none() {
            open.at = end;
        }
        let blocks = if bytes > LONGEST { 0..0 } else { from / BLOCK..end.div_ceil(BLOCK) };
        let asked = blocks.end - blocks.start;
        if write {
            file.written += bytes;
            file.length = file.length.max(end);
            let old = asked - file.blocks_written.insert_range(blocks.clone());
            self.overwritten += share(bytes, old, asked);
            if open.how.intersects(How::SYNC | How::DATA_SYNC) {
                self.fsyncs += 1;
                file.syncs += 1;
            }
        } else {
            file.read += bytes;
        }
        file.blocks_touched.insert_range(blocks);
    }

    fn done(self, calls: &dyn Calls) -> CallStat {
        let moved = |(sizes, continued): (Sizes, u64)| Moved { classes: sizes.classes().collect(), sizes, continued };
        let left = self.files.iter().flatten();
        let touched = self.touched + left.clone().map(|f| f.blocks_touched.len() * BLOCK).sum::<u64>();
        let files = self.all;
        let mut list = self.gone;
        list.extend(left.map(File::stat));
        busiest(&mut list);
        CallStat {
            format: calls.format().to_string(),
            calls: self.calls,
            operations: self.operations,
            failed: self.failed,
            span_ns: self.last.saturating_sub(self.first.unwrap_or(0)),
            threads: self.threads.len(),
            read: moved(self.read),
            written: moved(self.written),
            overwritten: self.overwritten,
            fsyncs: self.fsyncs,
            touched,
            files,
            between: self.between.spread(),
            activity: self.activity,
            took: self.took.spread(),
            busiest: list,
            others: calls.other_counts().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_gone_are_counted_and_take_no_room() {
        let mut counter = Counter::default();
        let mut say = |n: u64, op: Op| counter.add(&Call { time: n, thread: 1, op, took: None, failed: None });
        for n in 0..5000_u64 {
            let (handle, path) = (Handle(n), format!("/t{n}").into_bytes());
            say(n, Op::Open { handle, path: path.clone(), how: How::WRITE | How::CREATE });
            say(n, Op::Write { handle, at: None, bytes: 100 + n });
            // Removed before the close, like temporary files, or after it.
            let (close, unlink) = (Op::Close { handle }, Op::Unlink { path });
            for op in if n % 2 == 0 { [unlink, close] } else { [close, unlink] } {
                say(n, op);
            }
        }
        assert!(counter.files.len() <= 2, "{} files are kept", counter.files.len());
        assert!(counter.gone.len() <= 64 * FILES);
        assert_eq!(
            (counter.all, counter.touched),
            (5000, (0..5000_u64).map(|n| (100 + n).div_ceil(4096) * 4096).sum())
        );
        busiest(&mut counter.gone);
        assert_eq!((counter.gone[0].path.as_str(), counter.gone[0].written), ("/t4999", 5099));
    }

    #[test]
    fn a_file_with_a_second_name_or_still_open_stays_the_same_file() {
        let mut counter = Counter::default();
        let path = |p: &str| p.as_bytes().to_vec();
        let how = How::READ | How::WRITE | How::CREATE;
        let ops = [
            Op::Open { handle: Handle(1), path: path("/a"), how },
            Op::Write { handle: Handle(1), at: None, bytes: 4096 },
            Op::Link { from: path("/a"), to: path("/b") },
            Op::Close { handle: Handle(1) },
            Op::Unlink { path: path("/a") },
            Op::Open { handle: Handle(2), path: path("/b"), how },
            Op::Unlink { path: path("/b") },
            Op::Write { handle: Handle(2), at: None, bytes: 4096 },
            Op::Open { handle: Handle(3), path: path("/b"), how },
            Op::Write { handle: Handle(3), at: None, bytes: 4096 },
        ];
        (0..).zip(ops).for_each(|(time, op)| counter.add(&Call { time, thread: 1, op, took: None, failed: None }));
        assert_eq!((counter.all, counter.overwritten), (2, 4096));
    }
}
