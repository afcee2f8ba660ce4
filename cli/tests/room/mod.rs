//! A directory for one test, removed after it.

use std::path::PathBuf;

pub struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    pub fn new() -> Self {
        Room { dir: tempfile::tempdir().unwrap() }
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    /// The path of a name as an argument of a command.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}
