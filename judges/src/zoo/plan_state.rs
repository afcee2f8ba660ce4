//! A plan under construction: its operations so far, and the resulting paths.

use std::collections::BTreeMap;

use super::{FileKind, RenameFlags, ZooOp, mixed};

/// Collects operations and tracks the resulting tree.
pub(super) struct Plan {
    ops: Vec<ZooOp>,
    /// Current paths.
    paths: BTreeMap<Vec<u8>, FileKind>,
    state: u64,
    streams: u64,
    seed: u64,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        Plan { ops: Vec::new(), paths: BTreeMap::new(), state: mixed(seed), streams: 0, seed }
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.state) % bound.max(1)
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub(super) fn op(&mut self, op: ZooOp) {
        self.ops.push(op);
    }

    pub(super) fn mkdir(&mut self, path: &[u8]) {
        self.paths.insert(path.to_vec(), FileKind::Directory);
        self.op(ZooOp::Mkdir { path: path.to_vec(), perm: 0o755 });
    }

    pub(super) fn create(&mut self, path: &[u8]) {
        self.paths.insert(path.to_vec(), FileKind::Regular);
        self.op(ZooOp::Create { path: path.to_vec(), perm: 0o644 });
    }

    pub(super) fn mknod(&mut self, path: &[u8], kind: FileKind, (major, minor): (u32, u32)) {
        self.paths.insert(path.to_vec(), kind);
        self.op(ZooOp::Mknod { path: path.to_vec(), kind, perm: 0o640, major, minor });
    }

    pub(super) fn symlink(&mut self, path: &[u8], target: &[u8]) {
        self.paths.insert(path.to_vec(), FileKind::Symlink);
        self.op(ZooOp::Symlink { path: path.to_vec(), target: target.to_vec() });
    }

    pub(super) fn link(&mut self, from: &[u8], to: &[u8]) {
        let kind = self.paths.get(from).copied().unwrap_or(FileKind::Regular);
        self.paths.insert(to.to_vec(), kind);
        self.op(ZooOp::Link { from: from.to_vec(), to: to.to_vec() });
    }

    /// Writes bytes different from those of any other write.
    pub(super) fn write(&mut self, path: &[u8], offset: u64, len: usize) {
        self.streams += 1;
        let stream = mixed(self.seed ^ self.streams << 20);
        self.op(ZooOp::Write { path: path.to_vec(), offset, len, stream });
    }

    /// A file with `len` bytes.
    pub(super) fn file(&mut self, path: &[u8], len: usize) {
        self.create(path);
        if len > 0 {
            self.write(path, 0, len);
        }
    }

    pub(super) fn set_xattr(&mut self, path: &[u8], name: &str, value: &[u8]) {
        self.op(ZooOp::SetXattr { path: path.to_vec(), name: name.into(), value: value.into() });
    }

    pub(super) fn unlink(&mut self, path: &[u8]) {
        self.paths.remove(path);
        self.op(ZooOp::Unlink { path: path.to_vec() });
    }

    pub(super) fn rmdir(&mut self, path: &[u8]) {
        self.paths.remove(path);
        self.op(ZooOp::Rmdir { path: path.to_vec() });
    }

    pub(super) fn rename(&mut self, from: &[u8], to: &[u8], flags: RenameFlags) {
        let moved = self.take(from);
        let replaced = self.take(to);
        self.put(to, moved);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.put(from, replaced);
        } else if flags.contains(RenameFlags::WHITEOUT) {
            self.paths.insert(from.to_vec(), FileKind::CharDevice);
        }
        self.op(ZooOp::Rename { from: from.to_vec(), to: to.to_vec(), flags });
    }

    /// Removes a path and everything below it; returns these paths relative to it.
    fn take(&mut self, path: &[u8]) -> Vec<(Vec<u8>, FileKind)> {
        let mut below = path.to_vec();
        below.push(b'/');
        let inside = |key: &[u8]| key == path || key.starts_with(&below);
        let taken: Vec<_> = self
            .paths
            .range(path.to_vec()..)
            .filter(|(key, _)| inside(key))
            .map(|(key, &kind)| (key[path.len()..].to_vec(), kind))
            .collect();
        self.paths.retain(|key, _| !inside(key));
        taken
    }

    fn put(&mut self, path: &[u8], nodes: Vec<(Vec<u8>, FileKind)>) {
        for (rest, kind) in nodes {
            self.paths.insert([path, &rest].concat(), kind);
        }
    }

    /// Ends with a mode for the root and times for every existing path, the root last.
    pub(super) fn finish(mut self) -> Vec<ZooOp> {
        let mut paths: Vec<Vec<u8>> = self.paths.keys().cloned().collect();
        paths.push(Vec::new());
        self.op(ZooOp::Chmod { path: Vec::new(), perm: 0o755 });
        for path in paths {
            let (sec, nsec) = match self.below(16) {
                // Before 1970, the 32-bit limit of 2038 and beyond it, that of 2106 and beyond.
                0 => (-1, 999_999_999),
                1 => (-86_400 * 365 * 60, 1),
                2 => (0x7fff_ffff, 0),
                3 => (0x8000_0000, 123_456_789),
                4 => (0x1_0000_0000 + 5, 500_000_000),
                5 => (0, 0),
                _ => (
                    i64::try_from(1_000_000_000 + self.below(700_000_000)).unwrap_or(0),
                    u32::try_from(self.below(1_000_000_000)).unwrap_or(0),
                ),
            };
            self.op(ZooOp::SetTimes { path, sec, nsec });
        }
        self.ops
    }
}
