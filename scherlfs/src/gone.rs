//! Names of deleted files, and registered callbacks: needed only for accounting.

use std::sync::OnceLock;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use scherlfs_format::Ino;
use vfs::{Accountant, Reporter};

/// Most names of deleted files to keep.
const KEPT: usize = 65_536;

/// Callbacks of front ends.
#[derive(Default)]
pub(crate) struct Hooks {
    pub accountant: Mutex<Option<Accountant>>,
    pub reporter: Mutex<Option<Reporter>>,
    /// Requests background work.
    pub wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The last names of deleted files, if recorded: the directory, and the name in it.
#[derive(Default)]
pub(crate) struct Gone(Option<FxHashMap<Ino, (Ino, Box<[u8]>)>>);

impl Gone {
    /// Starts recording names.
    pub fn keep(&mut self) {
        self.0.get_or_insert_default();
    }
    /// Records that a file lost its last name.
    pub fn note(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        if let Some(kept) = self.0.as_mut().filter(|kept| kept.len() < KEPT) {
            kept.insert(ino, (dir, name.into()));
        }
    }
    /// Drops an inode number that a new file uses.
    pub fn forget(&mut self, ino: Ino) {
        if let Some(kept) = &mut self.0 {
            kept.remove(&ino);
        }
    }
    /// The directory of a deleted file, and its name there.
    pub fn name_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        self.0.as_ref()?.get(&ino).map(|(dir, name)| (*dir, name.to_vec()))
    }
}
