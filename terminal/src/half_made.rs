//! What happens to a partial output file when its command fails or a signal ends it?
//!
//! It is removed, so that it cannot be mistaken for a complete one. Deliberately left out: files inside images, which
//! the volume keeps consistent, and files that existed before.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::interrupt;

/// Files to remove when a signal ends the process.
static MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file being created, or a directory for such files. A directory that holds a complete file stays.
#[must_use = "the file is removed when this is dropped"]
pub struct HalfMade {
    path: Option<PathBuf>,
}

fn making() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a file or an empty directory. Errors are ignored: the command has reported its own.
fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
}

/// Makes signals remove partial files before they end the process. A command that handles signals itself must not call
/// this.
fn watch_signals() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        // If signals cannot be watched, they still end the process.
        let Ok(mut signals) = Signals::new(interrupt::signals()) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let making = making();
                // Remove a directory's contents before the directory.
                making.iter().rev().for_each(|path| remove(path));
                // End the process while the lock keeps new files from being registered.
                let _ = emulate_default_handler(signal);
            }
        });
    });
}

impl HalfMade {
    /// Removes the file when dropped.
    pub fn new(path: &Path) -> Self {
        HalfMade { path: Some(path.to_owned()) }
    }

    /// Removes the file when dropped, or when a signal ends the process.
    pub fn watched(path: &Path) -> Self {
        watch_signals();
        making().insert(path.to_owned());
        Self::new(path)
    }

    /// The file is complete: keep it.
    pub fn keep(mut self) {
        if let Some(path) = self.path.take() {
            making().remove(&path);
        }
    }
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            remove(&path);
            making().remove(&path);
        }
    }
}
