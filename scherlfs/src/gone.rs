//! What is known of files that are gone, and who answers beside the volume: what only those who count ask for.

use std::sync::OnceLock;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use scherlfs_format::Ino;
use vfs::{Accountant, Reporter};

/// Names of deleted files that are kept, at most.
const KEPT: usize = 65_536;

/// Who answers beside the volume.
#[derive(Default)]
pub(crate) struct Hooks {
    pub accountant: Mutex<Option<Accountant>>,
    pub reporter: Mutex<Option<Reporter>>,
    /// Asks for a turn of background work.
    pub wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The last names of files that are gone, if somebody wants them: the directory, and the name in it.
#[derive(Default)]
pub(crate) struct Gone(Option<FxHashMap<Ino, (Ino, Box<[u8]>)>>);

impl Gone {
    /// From now on names are kept.
    pub fn keep(&mut self) {
        self.0.get_or_insert_default();
    }
    /// A file lost its last name.
    pub fn note(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        if let Some(kept) = self.0.as_mut().filter(|kept| kept.len() < KEPT) {
            kept.insert(ino, (dir, name.into()));
        }
    }
    /// The number is another file's from now on.
    pub fn forget(&mut self, ino: Ino) {
        if let Some(kept) = &mut self.0 {
            kept.remove(&ino);
        }
    }
    /// The directory of a file that is gone, and its name there.
    pub fn of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        self.0.as_ref()?.get(&ino).map(|(dir, name)| (*dir, name.to_vec()))
    }
}
