//! Which parts of which files does a recording read together?
//!
//! The range of one call is read together, and so is what follows it without a gap through the same handle, because
//! read-ahead requests both. Repeated reads of the same blocks are counted. A file is identified by its last name, and
//! a file without a name at the end is left out, since it can no longer be read.
//!
//! Left out: writes, and the effect of a cache above the file system; every call is treated as a request to the device,
//! as after a reboot.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::TraceError;
use crate::call::{Call, Calls, Handle, Op};

/// Bytes per block.
const BLOCK: u64 = 4096;

/// Block ranges of a file that are read together, with their counts.
pub type Parts = BTreeMap<(u64, u64), u64>;

/// An open file.
struct Open {
    file: usize,
    /// Position of a call without an offset.
    at: u64,
    /// Bytes read without a gap so far.
    run: Range<u64>,
}

/// The reads of a recording's files.
#[derive(Default)]
struct Scan {
    files: Vec<Parts>,
    by_path: BTreeMap<Vec<u8>, usize>,
    open: FxHashMap<Handle, Open>,
}

impl Scan {
    fn file(&mut self, path: &[u8]) -> usize {
        if let Some(file) = self.by_path.get(path) {
            return *file;
        }
        self.files.push(Parts::new());
        self.by_path.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    /// Ends a run without a gap.
    fn end(&mut self, handle: Handle) {
        let Some(open) = self.open.get_mut(&handle) else { return };
        let run = std::mem::take(&mut open.run);
        if !run.is_empty() {
            *self.files[open.file].entry((run.start / BLOCK, run.end.div_ceil(BLOCK))).or_default() += 1;
        }
    }

    fn read(&mut self, handle: Handle, at: Option<u64>, bytes: u64) {
        let Some(open) = self.open.get_mut(&handle) else { return };
        let from = at.unwrap_or(open.at);
        let to = from.saturating_add(bytes);
        if at.is_none() {
            open.at = to;
        }
        if from != open.run.end || open.run.is_empty() {
            self.end(handle);
        }
        if let Some(open) = self.open.get_mut(&handle) {
            open.run = if open.run.is_empty() { from..to } else { open.run.start..to };
        }
    }

    fn add(&mut self, call: &Call) {
        if call.failed.is_some() {
            return;
        }
        match &call.op {
            Op::Open { handle, path, .. } => {
                let file = self.file(path);
                self.open.insert(*handle, Open { file, at: 0, run: 0..0 });
            }
            Op::Close { handle } => {
                self.end(*handle);
                self.open.remove(handle);
            }
            Op::Read { handle, at, bytes } => self.read(*handle, *at, *bytes),
            Op::Write { handle, at: None, bytes } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.at = open.at.saturating_add(*bytes);
                }
            }
            Op::Seek { handle, to: Some(to) } => {
                if let Some(open) = self.open.get_mut(handle) {
                    open.at = *to;
                }
            }
            Op::Unlink { path } => {
                self.by_path.remove(path);
            }
            Op::Rename { from, to } => {
                if let Some(file) = self.by_path.remove(from) {
                    self.by_path.insert(to.clone(), file);
                }
            }
            Op::Link { from, to } => {
                let file = self.file(from);
                self.by_path.insert(to.clone(), file);
            }
            _ => {}
        }
    }
}

/// Reads a recording to its end, or up to damage: the error is returned together with the parts up to there. `progress`
/// receives the number of bytes read so far, at intervals.
pub fn scan(
    calls: &mut dyn Calls,
    mut progress: impl FnMut(u64),
) -> (BTreeMap<Vec<u8>, Parts>, Result<(), TraceError>) {
    let mut scan = Scan::default();
    let mut n = 0_u64;
    let whole = loop {
        match calls.next() {
            Ok(Some(call)) => scan.add(&call),
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        n += 1;
        if n.is_multiple_of(1 << 14) {
            progress(calls.consumed());
        }
    };
    let handles: Vec<Handle> = scan.open.keys().copied().collect();
    handles.into_iter().for_each(|h| scan.end(h));
    let files = scan.files;
    let read = scan.by_path.into_iter().map(|(path, file)| (path, files[file].clone()));
    (read.filter(|(_, parts)| !parts.is_empty()).collect(), whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::How;

    fn parts(ops: Vec<Op>) -> BTreeMap<Vec<u8>, Parts> {
        let mut scan = Scan::default();
        for op in ops {
            scan.add(&Call { time: 0, thread: 1, op, took: None, failed: None });
        }
        let handles: Vec<Handle> = scan.open.keys().copied().collect();
        handles.into_iter().for_each(|h| scan.end(h));
        let files = scan.files;
        scan.by_path.into_iter().map(|(path, file)| (path, files[file].clone())).collect()
    }

    fn open(n: u64, path: &str) -> Op {
        Op::Open { handle: Handle(n), path: path.into(), how: How::READ }
    }
    fn read(n: u64, at: Option<u64>, bytes: u64) -> Op {
        Op::Read { handle: Handle(n), at, bytes }
    }

    #[test]
    fn reads_without_a_gap_are_one_part_and_repeats_are_counted() {
        let found = parts(vec![
            open(1, "/a"),
            read(1, None, 5000),
            read(1, None, 5000),
            read(1, Some(40_960), 4096),
            read(1, Some(45_056), 1),
            open(2, "/a"),
            read(2, Some(40_960), 4097),
            Op::Seek { handle: Handle(1), to: Some(81_920) },
            read(1, None, 10),
        ]);
        let want: Parts = [((0, 3), 1), ((10, 12), 2), ((20, 21), 1)].into();
        assert_eq!(found[&b"/a"[..]], want);
    }

    #[test]
    fn a_file_has_its_last_name_and_without_one_is_left_out() {
        let found = parts(vec![
            open(1, "/a"),
            read(1, None, 10),
            Op::Rename { from: b"/a".to_vec(), to: b"/b".to_vec() },
            open(2, "/gone"),
            read(2, None, 10),
            Op::Unlink { path: b"/gone".to_vec() },
        ]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&b"/b".to_vec()]);
    }
}
