//! Which were the last names of deleted files?

use format::Ino;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Limit of kept names: a few megabytes of memory.
const GONE: usize = 65_536;

/// A name, and the directory it is in.
type Place = (Ino, Vec<u8>);

/// The last names of deleted files, if they are kept.
#[derive(Default)]
pub(crate) struct Gone {
    pub(crate) kept: Mutex<Option<FxHashMap<Ino, Place>>>,
}

impl Gone {
    /// Notes that a file lost its last name.
    pub(crate) fn note(&self, ino: Ino, last: impl FnOnce() -> Place) {
        if let Some(kept) = &mut *self.kept.lock()
            && (kept.len() < GONE || kept.contains_key(&ino))
        {
            kept.insert(ino, last());
        }
    }
    /// Locks the names, so that no other thread can add one.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.kept.lock()
    }
    pub(crate) fn of(&self, ino: Ino) -> Option<Place> {
        self.kept.lock().as_ref()?.get(&ino).cloned()
    }
}
