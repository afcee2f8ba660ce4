//! By how many bytes do the files of a recording by inode grow at most?
//!
//! Sizes are tracked through the recording: initial files, writes, truncations, reservations, removals. An unlinked
//! file is gone when the kernel forgets it. Nodes, directories and writes into holes are not counted: the result may be
//! too small, but never much too large.

use record::calls::{Call, Event};
use rustc_hash::FxHashMap;

/// Tracked state of an inode.
#[derive(Debug, Clone, Copy, Default)]
struct File {
    /// Without holes.
    bytes: u64,
    size: u64,
    /// True if the last name is gone.
    unlinked: bool,
}

/// Bytes of files while the recording is read.
#[derive(Debug, Default)]
pub(super) struct Room {
    files: FxHashMap<u64, File>,
    /// The inode of each directory entry.
    names: FxHashMap<(u64, Vec<u8>), u64>,
    /// Link counts by inode.
    links: FxHashMap<u64, u64>,
    now: u64,
    most: u64,
    before: u64,
}

impl Room {
    /// Largest growth over the state before the calls.
    pub(super) fn grows(&self) -> u64 {
        self.most.saturating_sub(self.before)
    }

    fn set(&mut self, ino: u64, bytes: u64, size: u64) {
        let file = self.files.entry(ino).or_default();
        self.now = self.now.saturating_sub(file.bytes).saturating_add(bytes);
        (file.bytes, file.size) = (bytes, size);
        self.most = self.most.max(self.now);
    }

    fn cut(&mut self, ino: u64, size: u64) {
        let File { bytes, .. } = self.files.get(&ino).copied().unwrap_or_default();
        self.set(ino, bytes.min(size), size);
    }

    fn fills(&mut self, ino: u64, from: u64, len: u64) {
        let File { bytes, size, .. } = self.files.get(&ino).copied().unwrap_or_default();
        let end = from.saturating_add(len);
        self.set(ino, bytes.saturating_add(end.saturating_sub(size.max(from))), size.max(end));
    }

    fn named(&mut self, parent: u64, name: &[u8], ino: u64) {
        if matches!(name, b"." | b"..") {
            return;
        }
        match self.names.insert((parent, name.to_vec()), ino) {
            Some(before) if before == ino => {}
            before => {
                *self.links.entry(ino).or_default() += 1;
                before.into_iter().for_each(|before| self.lost(before));
            }
        }
    }

    /// Called when a name is removed.
    fn lost(&mut self, ino: u64) {
        let links = self.links.entry(ino).or_default();
        *links = links.saturating_sub(1);
        if *links == 0 {
            self.files.entry(ino).or_default().unlinked = true;
        }
    }

    fn unnamed(&mut self, parent: u64, name: &[u8]) {
        if let Some(ino) = self.names.remove(&(parent, name.to_vec())) {
            self.lost(ino);
        }
    }

    /// A new file: the previous one with its number is gone.
    fn created(&mut self, ino: u64) {
        self.set(ino, 0, 0);
        self.links.insert(ino, 0);
        self.files.insert(ino, File::default());
    }

    /// Tracks the next record.
    pub(super) fn add(&mut self, event: &Event) {
        let Ok(answer) = event.answer else { return };
        match &event.call {
            Call::Was { ino, was } => {
                let bytes = was.size.min(was.blocks512.saturating_mul(512));
                self.set(ino.0, bytes, was.size);
                self.before = self.before.saturating_add(bytes);
            }
            Call::Write { ino, offset, contents, .. } => {
                self.fills(ino.0, *offset, contents.len());
            }
            Call::Fallocate { ino, offset, len, what: vfs::Allocate::Reserve { .. } } => {
                self.fills(ino.0, *offset, *len);
            }
            Call::Setattr { ino, set } => {
                if let Some(size) = set.size {
                    self.cut(ino.0, size);
                }
            }
            Call::Open { ino, truncate: true } => self.cut(ino.0, 0),
            Call::Mknod { parent, name, .. } => {
                self.created(answer);
                self.named(parent.0, name, answer);
            }
            Call::Tmpfile { .. } => self.created(answer),
            Call::Lookup { parent, name } => self.named(parent.0, name, answer),
            Call::Link { ino, parent, name } => {
                self.named(parent.0, name, ino.0);
                self.files.entry(ino.0).or_default().unlinked = false;
            }
            Call::Unlink { parent, name } => self.unnamed(parent.0, name),
            Call::Rename { parent, name, to_parent, to_name, flags, .. } => {
                let moved = self.names.get(&(parent.0, name.clone())).copied();
                let other = self.names.get(&(to_parent.0, to_name.clone())).copied();
                let Some(moved) = moved else { return };
                self.named(to_parent.0, to_name, moved);
                match other.filter(|_| flags.contains(vfs::RenameFlags::EXCHANGE)) {
                    Some(other) => {
                        self.named(parent.0, name, other);
                        [moved, other].iter().for_each(|ino| self.files.entry(*ino).or_default().unlinked = false);
                    }
                    None => self.unnamed(parent.0, name),
                }
            }
            Call::Forget { ino, .. } if self.files.get(&ino.0).is_some_and(|f| f.unlinked) => {
                self.set(ino.0, 0, 0);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use record::calls::Contents;
    use vfs::{Caller, FileKind, Ino, NewNode, WriteFlags};

    use super::*;

    const ROOT: Ino = Ino(1);

    fn add(room: &mut Room, call: Call, answer: u64) {
        room.add(&Event { arrival: 0, took: 0, call, answer: Ok(answer) });
    }

    fn make(room: &mut Room, name: &[u8], ino: u64, bytes: u64) {
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
        let caller = Caller { uid: 0, gid: 0 };
        add(room, Call::Mknod { caller, parent: ROOT, name: name.to_vec(), new }, ino);
        let contents = Contents::Of { len: bytes, fingerprint: 0 };
        let flags = WriteFlags::empty();
        add(room, Call::Write { ino: Ino(ino), offset: 0, contents, flags }, bytes);
    }

    #[test]
    fn a_journal_created_and_removed_a_hundred_times_needs_the_space_of_one() {
        let mut room = Room::default();
        make(&mut room, b"db", 2, 4096);
        for n in 0..100 {
            make(&mut room, b"db-journal", 10 + n, 1000);
            add(&mut room, Call::Unlink { parent: ROOT, name: b"db-journal".to_vec() }, 0);
            assert_eq!(room.now, 5096, "it is there as long as the kernel knows it");
            add(&mut room, Call::Forget { ino: Ino(10 + n), count: 1 }, 0);
        }
        assert_eq!((room.now, room.grows()), (4096, 5096));
    }

    #[test]
    fn a_file_that_is_renamed_over_another_leaves_one() {
        let mut room = Room::default();
        make(&mut room, b"a", 2, 100);
        make(&mut room, b"b", 3, 200);
        let caller = Caller { uid: 0, gid: 0 };
        let (name, to_name, flags) = (b"b".to_vec(), b"a".to_vec(), vfs::RenameFlags::empty());
        add(&mut room, Call::Rename { caller, parent: ROOT, name, to_parent: ROOT, to_name, flags }, 0);
        add(&mut room, Call::Forget { ino: Ino(3), count: 1 }, 0);
        assert_eq!(room.now, 300, "it has a name");
        add(&mut room, Call::Forget { ino: Ino(2), count: 1 }, 0);
        assert_eq!((room.now, room.grows()), (200, 300));
    }
}
