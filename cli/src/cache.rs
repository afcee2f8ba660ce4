//! Where does the program keep what later commands need again, and how much of it?
//!
//! Only aged volumes (`sim::replay::Cache`). Sweeps of the Python package put their runs next to them if `JOULEFS_CACHE`
//! is set.

use std::env::var_os;
use std::path::{Path, PathBuf};

use sim::replay::{Cache, sizes};

use crate::Failure;

/// Default limit in bytes.
const LIMIT: u64 = 4 << 30;

/// The cache of aged volumes; `None` if there is no directory for it.
pub fn of_aged_volumes() -> Result<Option<Cache>, Failure> {
    let named = |name: &str| var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // Relative paths in XDG_CACHE_HOME are invalid by its specification.
    let of_user = || named("XDG_CACHE_HOME").filter(|dir| dir.is_absolute());
    let of_home = || Some(named("HOME")?.join(".cache"));
    let directory = named("JOULEFS_CACHE").or_else(|| Some(of_user().or_else(of_home)?.join("joulefs")));
    let limit = match var_os("JOULEFS_CACHE_LIMIT") {
        Some(text) => sizes::of("JOULEFS_CACHE_LIMIT", &Path::new(&text).display().to_string())?,
        None => LIMIT,
    };
    Ok(directory.map(|directory| Cache { directory: directory.join("aged"), limit }))
}
