//! Where are external recordings that may not be shipped?
//!
//! In the directory named by the environment variable [`VARIABLE`]. Nothing is downloaded.

use std::path::{Path, PathBuf};

/// The variable that names the directory.
pub const VARIABLE: &str = "JOULEFS_TRACES";

/// Finds a file by name, if it exists.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(|dir| Path::new(&dir).join(name)).filter(|path| path.exists())
}

/// Message that a file is missing.
pub fn missing(name: &str) -> String {
    format!("{name} is not here; set {VARIABLE} to a directory that has it")
}
