//! Which process has which files open, and where does a relative path begin?
//!
//! Threads share descriptors and directory, a fork copies them, `execve` closes some, and a file is closed with its
//! last descriptor.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::call::Handle;

/// Meaning of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// An open file or directory.
    Open(Handle),
    /// Another object: a socket, a pipe, a device; or a path opened with `O_PATH`.
    Other(Option<Vec<u8>>),
}

/// A descriptor.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) what: What,
    /// True if `execve` closes it.
    pub(super) until_exec: bool,
}

/// An open file, possibly shared by several processes.
#[derive(Debug)]
pub(super) struct File {
    slots: u32,
    pub(super) path: Vec<u8>,
    /// True while its directory is being listed.
    pub(super) listing: bool,
    /// True if it turned out to be a device, a pipe or a socket.
    pub(super) is_other: bool,
}

#[derive(Debug, Clone, Copy)]
struct Task {
    table: u64,
    directory: u64,
}

#[derive(Debug, Default)]
struct Table {
    tasks: u32,
    slots: BTreeMap<i32, Slot>,
}

#[derive(Debug)]
struct Directory {
    tasks: u32,
    path: Vec<u8>,
}

/// All processes of a recording.
#[derive(Debug)]
pub(super) struct Processes {
    tasks: FxHashMap<u32, Task>,
    tables: FxHashMap<u64, Table>,
    directories: FxHashMap<u64, Directory>,
    files: FxHashMap<Handle, File>,
    /// The first task, shared by tasks without a known parent.
    first: Task,
    numbers: u64,
}

impl Processes {
    /// No processes; the first one begins in `directory`.
    pub(super) fn new(directory: Vec<u8>) -> Self {
        let first = Task { table: 0, directory: 0 };
        Processes {
            tasks: FxHashMap::default(),
            tables: FxHashMap::from_iter([(0, Table::default())]),
            directories: FxHashMap::from_iter([(0, Directory { tasks: 0, path: directory })]),
            files: FxHashMap::default(),
            first,
            numbers: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn knows(&self, pid: u32) -> bool {
        self.tasks.contains_key(&pid)
    }

    /// The only task, if there is exactly one.
    pub(super) fn only(&self) -> Option<u32> {
        let mut all = self.tasks.keys();
        all.next().copied().filter(|_| all.next().is_none())
    }

    /// Adds a task from before the recording; all of these count as one process.
    pub(super) fn found(&mut self, pid: u32) {
        let task = self.first;
        self.tables.entry(task.table).or_default().tasks += 1;
        self.directories.entry(task.directory).or_insert(Directory { tasks: 0, path: b"/".to_vec() }).tasks += 1;
        if self.tasks.insert(pid, task).is_some() {
            self.leave(task);
        }
    }

    /// Changes the number of a task.
    pub(super) fn rename(&mut self, from: u32, to: u32) -> Vec<Handle> {
        let Some(task) = self.tasks.remove(&from) else { return Vec::new() };
        match self.tasks.insert(to, task) {
            Some(before) => self.leave(before),
            None => Vec::new(),
        }
    }

    /// Creates a task that shares its parent's descriptors and directory, or gets copies of them.
    pub(super) fn fork(&mut self, parent: u32, child: u32, share_files: bool, share_directory: bool) {
        if self.tasks.contains_key(&child) || child == parent {
            return;
        }
        let Some(Task { mut table, mut directory }) = self.tasks.get(&parent).copied() else {
            return self.found(child);
        };
        if !share_files {
            table = self.copy_table(table);
        }
        if !share_directory {
            directory = self.copy_directory(directory);
        }
        if let Some(table) = self.tables.get_mut(&table) {
            table.tasks += 1;
        }
        if let Some(directory) = self.directories.get_mut(&directory) {
            directory.tasks += 1;
        }
        self.tasks.insert(child, Task { table, directory });
    }

    fn copy_table(&mut self, table: u64) -> u64 {
        let slots = self.tables.get(&table).map(|t| t.slots.clone()).unwrap_or_default();
        for slot in slots.values() {
            if let What::Open(handle) = slot.what
                && let Some(file) = self.files.get_mut(&handle)
            {
                file.slots += 1;
            }
        }
        let number = self.number();
        self.tables.insert(number, Table { tasks: 0, slots });
        number
    }

    fn copy_directory(&mut self, directory: u64) -> u64 {
        let path = self.directories.get(&directory).map_or_else(|| b"/".to_vec(), |d| d.path.clone());
        let number = self.number();
        self.directories.insert(number, Directory { tasks: 0, path });
        number
    }

    /// Stops sharing (`unshare`, `execve`).
    pub(super) fn unshare(&mut self, pid: u32, files: bool, directory: bool) {
        let Some(mut task) = self.tasks.get(&pid).copied() else { return };
        if files && self.tables.get(&task.table).is_some_and(|t| t.tasks > 1) {
            let own = self.copy_table(task.table);
            for (table, tasks) in [(task.table, -1), (own, 1)] {
                if let Some(table) = self.tables.get_mut(&table) {
                    table.tasks = table.tasks.saturating_add_signed(tasks);
                }
            }
            task.table = own;
        }
        if directory && self.directories.get(&task.directory).is_some_and(|d| d.tasks > 1) {
            let own = self.copy_directory(task.directory);
            for (directory, tasks) in [(task.directory, -1), (own, 1)] {
                if let Some(directory) = self.directories.get_mut(&directory) {
                    directory.tasks = directory.tasks.saturating_add_signed(tasks);
                }
            }
            task.directory = own;
        }
        self.tasks.insert(pid, task);
    }

    /// A task starts another program; returns the files that no process has open any more.
    pub(super) fn exec(&mut self, pid: u32) -> Vec<Handle> {
        self.unshare(pid, true, false);
        let Some(table) = self.tasks.get(&pid).and_then(|t| self.tables.get_mut(&t.table)) else { return Vec::new() };
        let closed: Vec<i32> = table.slots.iter().filter(|(_, slot)| slot.until_exec).map(|(fd, _)| *fd).collect();
        let closed: Vec<What> = closed.iter().filter_map(|fd| table.slots.remove(fd)).map(|slot| slot.what).collect();
        closed.into_iter().filter_map(|what| self.let_go(&what)).collect()
    }

    /// A task ends; returns the files that no process has open any more.
    pub(super) fn exit(&mut self, pid: u32) -> Vec<Handle> {
        self.tasks.remove(&pid).map(|task| self.leave(task)).unwrap_or_default()
    }

    fn leave(&mut self, task: Task) -> Vec<Handle> {
        if let Some(directory) = self.directories.get_mut(&task.directory) {
            directory.tasks = directory.tasks.saturating_sub(1);
            if directory.tasks == 0 && task.directory != self.first.directory {
                self.directories.remove(&task.directory);
            }
        }
        let Some(table) = self.tables.get_mut(&task.table) else { return Vec::new() };
        table.tasks = table.tasks.saturating_sub(1);
        if table.tasks > 0 {
            return Vec::new();
        }
        let slots = std::mem::take(&mut table.slots);
        if task.table != self.first.table {
            self.tables.remove(&task.table);
        }
        slots.into_values().filter_map(|slot| self.let_go(&slot.what)).collect()
    }

    /// Removes one descriptor of a file; returns the file if that was the last one.
    pub(super) fn let_go(&mut self, what: &What) -> Option<Handle> {
        let What::Open(handle) = what else { return None };
        let file = self.files.get_mut(handle)?;
        file.slots = file.slots.saturating_sub(1);
        if file.slots > 0 {
            return None;
        }
        self.files.remove(handle).filter(|file| !file.is_other).map(|_| *handle)
    }

    /// Adds an open file, without a descriptor yet.
    pub(super) fn opened(&mut self, handle: Handle, path: Vec<u8>) {
        self.files.insert(handle, File { slots: 0, path, listing: false, is_other: false });
    }

    pub(super) fn file(&mut self, handle: Handle) -> Option<&mut File> {
        self.files.get_mut(&handle)
    }

    fn table(&mut self, pid: u32) -> Option<&mut Table> {
        let table = self.tasks.get(&pid)?.table;
        self.tables.get_mut(&table)
    }

    pub(super) fn slot(&mut self, pid: u32, fd: i32) -> Option<&mut Slot> {
        self.table(pid)?.slots.get_mut(&fd)
    }

    /// All descriptors of a task in an inclusive range.
    pub(super) fn range(&mut self, pid: u32, first: i32, last: i32) -> Vec<i32> {
        if first > last {
            return Vec::new();
        }
        self.table(pid).map(|t| t.slots.range(first..=last).map(|(fd, _)| *fd).collect()).unwrap_or_default()
    }

    /// Assigns a descriptor; returns the file that no process has open any more.
    pub(super) fn set(&mut self, pid: u32, fd: i32, slot: Slot) -> Option<Handle> {
        if let What::Open(handle) = slot.what
            && let Some(file) = self.files.get_mut(&handle)
        {
            file.slots += 1;
        }
        let before = self.table(pid)?.slots.insert(fd, slot)?;
        self.let_go(&before.what)
    }

    /// Removes a descriptor; the file must still be [let go](Self::let_go).
    pub(super) fn take(&mut self, pid: u32, fd: i32) -> Option<What> {
        self.table(pid)?.slots.remove(&fd).map(|slot| slot.what)
    }

    /// The directory for a descriptor's relative paths, if it is a directory.
    pub(super) fn path(&mut self, pid: u32, fd: i32) -> Option<Vec<u8>> {
        match self.slot(pid, fd)?.what.clone() {
            What::Open(handle) => self.files.get(&handle).map(|f| f.path.clone()),
            What::Other(path) => path,
        }
    }

    /// A task's current directory.
    pub(super) fn directory(&self, pid: u32) -> &[u8] {
        self.tasks.get(&pid).and_then(|t| self.directories.get(&t.directory)).map_or(b"/", |d| &d.path)
    }

    pub(super) fn go(&mut self, pid: u32, to: Vec<u8>) {
        if let Some(directory) = self.tasks.get(&pid).and_then(|t| self.directories.get_mut(&t.directory)) {
            directory.path = to;
        }
    }

    /// Renames everything below `from`.
    pub(super) fn moved(&mut self, from: &[u8], to: &[u8]) {
        let moved = |path: &mut Vec<u8>| {
            if let Some(rest) = path.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with(b"/"))
            {
                *path = [to, rest].concat();
            }
        };
        self.files.values_mut().for_each(|f| moved(&mut f.path));
        self.directories.values_mut().for_each(|d| moved(&mut d.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(handle: u64, until_exec: bool) -> Slot {
        Slot { what: What::Open(Handle(handle)), until_exec }
    }

    fn with_open() -> Processes {
        let mut all = Processes::new(b"/home".to_vec());
        all.found(1);
        for n in [3, 4] {
            all.opened(Handle(n), format!("/f{n}").into_bytes());
            assert_eq!(all.set(1, n as i32, slot(n, n == 4)), None);
        }
        all
    }

    #[test]
    fn a_fork_has_copies_and_a_file_is_closed_when_the_last_has_gone() {
        let mut all = with_open();
        all.fork(1, 2, false, false);
        let mine = all.take(1, 3).unwrap();
        assert_eq!(all.let_go(&mine), None);
        assert!(all.slot(1, 3).is_none() && all.slot(2, 3).is_some());
        all.go(2, b"/tmp".to_vec());
        assert_eq!((all.directory(1), all.directory(2)), (&b"/home"[..], &b"/tmp"[..]));
        assert_eq!(all.exit(2), [Handle(3)]);
        assert_eq!(all.exit(1), [Handle(4)]);
    }

    #[test]
    fn threads_share_and_the_last_of_them_closes() {
        let mut all = with_open();
        all.fork(1, 2, true, true);
        all.go(2, b"/tmp".to_vec());
        assert_eq!(all.directory(1), b"/tmp");
        all.take(2, 3);
        assert!(all.slot(1, 3).is_none());
        assert_eq!(all.exit(1), []);
        assert_eq!(all.exit(2), [Handle(4)]);
    }

    #[test]
    fn exec_keeps_descriptors_without_cloexec() {
        let mut all = with_open();
        all.fork(1, 2, true, true);
        assert_eq!(all.exec(2), [], "the other thread has it still");
        assert!(all.slot(2, 4).is_none() && all.slot(2, 3).is_some() && all.slot(1, 4).is_some());
        assert_eq!(all.exec(1), [Handle(4)]);
        assert_eq!(all.exit(1), []);
        assert_eq!(all.exit(2), [Handle(3)]);
    }

    #[test]
    fn the_contents_of_a_directory_move_with_it() {
        let mut all = with_open();
        all.opened(Handle(5), b"/home/x".to_vec());
        all.moved(b"/home", b"/root");
        assert_eq!(all.directory(1), b"/root");
        assert_eq!(all.file(Handle(5)).unwrap().path, b"/root/x");
        assert_eq!(all.file(Handle(3)).unwrap().path, b"/f3");
    }
}
