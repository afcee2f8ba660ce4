//! Which program is this, so that nobody takes what another one computed for its results?
//!
//! By a hash of the sources that it was built of (`sources`), so that two builds of the same sources are one program,
//! wherever they were made and with or without git. Where cargo built this crate alone, out of a package, no sources of
//! the others are there to be hashed: then by a hash of the program's own file.

#[cfg(test)]
mod sources;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use crate::Failure;

/// Its build, as one word.
pub fn build() -> Result<&'static str, Failure> {
    static BUILD: OnceLock<String> = OnceLock::new();
    if let Some(build) = option_env!("JOULEFS_SOURCES").or(BUILD.get().map(String::as_str)) {
        return Ok(build);
    }
    let own = own_file().map_err(|e| format!("the joulefs executable: {e}"))?;
    Ok(BUILD.get_or_init(|| own))
}

/// The hash of the file that runs: the one that was started, though another may lie under its name by now.
fn own_file() -> io::Result<String> {
    let mut all = blake3::Hasher::new();
    io::copy(&mut File::open("/proc/self/exe")?, &mut all)?;
    Ok(format!("file-{}", &all.finalize().to_hex()[..32]))
}
