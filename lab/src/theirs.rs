//! Where are recordings that other people made and that may not be shipped?
//!
//! In the directory that the environment variable [`VARIABLE`] names. Nothing is fetched.

use std::path::{Path, PathBuf};

/// The variable that names the directory.
pub const VARIABLE: &str = "JOULEFS_TRACES";

/// A file by its name, if it is there.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(|dir| Path::new(&dir).join(name)).filter(|path| path.exists())
}

/// That it is not, for people.
pub fn missing(name: &str) -> String {
    format!("{name} is not here; set {VARIABLE} to a directory that has it")
}
