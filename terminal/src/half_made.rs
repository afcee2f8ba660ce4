//! What becomes of a file that is being made when its command fails, or is ended by a signal?
//!
//! It is removed, so that nobody takes half of it for the whole. Left out on purpose: files inside images, which the
//! volume keeps whole, and files that were there before.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::interrupt;

/// Files that are removed when a signal ends the process.
static MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file that is being made, or a directory for such files. A directory that holds a whole file stays.
#[must_use = "the file is removed when this is dropped"]
pub struct HalfMade {
    path: Option<PathBuf>,
}

fn making() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a file, or a directory that holds nothing. An error here is not told: the command has told its own.
fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
}

/// Lets signals remove half-made files before they end the process. A command that handles signals itself must not
/// call this.
fn watch_signals() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        // Where signals cannot be watched, they end the process all the same.
        let Ok(mut signals) = Signals::new(interrupt::signals()) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let making = making();
                // What lies in a directory before the directory.
                making.iter().rev().for_each(|path| remove(path));
                // Ends the process, while nobody can begin anything new.
                let _ = emulate_default_handler(signal);
            }
        });
    });
}

impl HalfMade {
    /// To be removed if this is dropped.
    pub fn new(path: &Path) -> Self {
        HalfMade { path: Some(path.to_owned()) }
    }

    /// To be removed if this is dropped, and if a signal ends the process.
    pub fn watched(path: &Path) -> Self {
        watch_signals();
        making().insert(path.to_owned());
        Self::new(path)
    }

    /// It is whole: it stays.
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
