//! What is in a recording of a file system's calls.

use std::collections::BTreeMap;

use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::activity::Activity;
use super::distribution::{Sizes, Spread, Times};
use super::share;
use crate::TraceError;
use crate::call::{Call, Calls, Handle, How, Op, Target};

/// Files that are told of, those that moved most first.
const FILES: usize = 20;
/// Bytes of a block, the unit in which places are remembered.
const BLOCK: u64 = 4096;
/// The longest range of a file that is remembered; no system call moves more.
const LONGEST: u64 = 1 << 32;

/// What is moved in one direction.
#[derive(Debug, Clone, Serialize)]
pub struct Moved {
    /// Sizes, from so many bytes to less than twice as many: how many.
    pub classes: Vec<(u64, u64)>,
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Calls that begin where the one before of the same file ended.
    pub continued: u64,
}

/// A file.
#[derive(Debug, Clone, Serialize)]
pub struct FileStat {
    /// Its path, as it was opened first.
    pub path: String,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Times it was made durable.
    pub syncs: u64,
}

/// All that is told of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct CallStat {
    /// Its format.
    pub format: String,
    /// All calls.
    pub calls: u64,
    /// Calls by name.
    pub operations: BTreeMap<&'static str, u64>,
    /// Calls that failed.
    pub failed: u64,
    /// Nanoseconds from the first call to the last.
    pub span_ns: u64,
    /// Threads.
    pub threads: u64,
    /// What is read.
    pub read: Moved,
    /// What is written.
    pub written: Moved,
    /// Bytes written to blocks of files that were written before: updates.
    pub overwritten: u64,
    /// fsync, fdatasync, and writes to files opened to be durable at once.
    pub fsyncs: u64,
    /// Bytes of blocks of files that were read or written at least once: the working set.
    pub touched: u64,
    /// Files.
    pub files: u64,
    /// Nanoseconds between one call and the next.
    pub between: Option<Spread>,
    /// When it was read and written.
    pub activity: Activity,
    /// How long calls took, where the recording tells.
    pub took: Option<Spread>,
    /// Files that moved most, at most 20.
    pub busiest: Vec<FileStat>,
    /// What else was in the recording.
    pub others: BTreeMap<String, u64>,
}

impl CallStat {
    /// Calls and so on in a second of the recording; 0 if it has no length.
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
    /// Where a call without a place begins.
    at: u64,
    /// Where the last call ended.
    end: u64,
}

struct File {
    path: Vec<u8>,
    length: u64,
    read: u64,
    written: u64,
    syncs: u64,
    blocks_touched: RoaringTreemap,
    blocks_written: RoaringTreemap,
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
    files: Vec<File>,
    by_path: FxHashMap<Vec<u8>, usize>,
    between: Times,
    activity: Activity,
    took: Times,
    first: Option<u64>,
    last: u64,
}

/// Reads a recording to its end, or up to damage: the error comes beside what was counted. `progress` is told now and then how many bytes of the file were read.
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
                if how.contains(How::TRUNCATE) {
                    self.files[file].length = 0;
                }
                self.open.insert(*handle, Open { file, how: *how, at: 0, end: 0 });
            }
            Op::Close { handle } => _ = self.open.remove(handle),
            Op::Read { handle, at, bytes } => self.moved(*handle, *at, *bytes, false),
            Op::Write { handle, at, bytes } => self.moved(*handle, *at, *bytes, true),
            Op::Seek { handle, to } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.at = to.unwrap_or(self.files[open.file].length);
                }
            }
            Op::Sync { handle, .. } => {
                self.fsyncs += 1;
                if let Some(open) = self.open.get(handle) {
                    self.files[open.file].syncs += 1;
                }
            }
            Op::Truncate { file, length } => {
                let file = match file {
                    Target::Open(handle) => self.open.get(handle).map(|o| o.file),
                    Target::Path(path) => self.by_path.get(path).copied(),
                };
                if let Some(file) = file {
                    self.files[file].length = *length;
                }
            }
            Op::Rename { from, to } => {
                // Two names of one file: nothing happens (rename(2)).
                if self.by_path.get(from) != self.by_path.get(to)
                    && let Some(file) = self.by_path.remove(from)
                {
                    self.by_path.insert(to.clone(), file);
                }
            }
            Op::Link { from, to } => {
                if let Some(file) = self.by_path.get(from) {
                    self.by_path.insert(to.clone(), *file);
                }
            }
            Op::Unlink { path } => _ = self.by_path.remove(path),
            _ => {}
        }
    }

    fn file(&mut self, path: &[u8]) -> usize {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let (read, written, length, syncs) = (0, 0, 0, 0);
        let (blocks_touched, blocks_written) = Default::default();
        self.files.push(File { path: path.to_owned(), length, read, written, syncs, blocks_touched, blocks_written });
        self.by_path.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    fn moved(&mut self, handle: Handle, at: Option<u64>, bytes: u64, write: bool) {
        let (sizes, continued) = if write { &mut self.written } else { &mut self.read };
        sizes.add(bytes);
        let Some(open) = self.open.get_mut(&handle) else { return };
        let file = &mut self.files[open.file];
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
        let touched = self.files.iter().map(|f| f.blocks_touched.len() * BLOCK).sum();
        let files = self.files.len() as u64;
        let mut busiest: Vec<FileStat> = self
            .files
            .into_iter()
            .map(|f| FileStat {
                path: String::from_utf8_lossy(&f.path).into_owned(),
                read: f.read,
                written: f.written,
                syncs: f.syncs,
            })
            .collect();
        busiest.sort_by(|a, b| (b.read + b.written).cmp(&(a.read + a.written)).then_with(|| a.path.cmp(&b.path)));
        busiest.truncate(FILES);
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
            busiest,
            others: calls.others().clone(),
        }
    }
}
