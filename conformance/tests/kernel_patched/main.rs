//! Linux with `kernel/patches` chooses the same segments as the policies in `victim`, does not change the unpatched
//! policies, and does not damage volumes.
//!
//! `make kernel` builds the kernels, sets `$JOULEFS_LINUX_STOCK`, `$JOULEFS_LINUX_PATCHED` and `$JOULEFS_LINUX_SMALL`, and
//! runs these tests; without them the tests are skipped with a message.

mod choices;
mod endures;
mod packs;
mod policies;
mod reads;
mod small;
mod unchanged;
mod uses;

use std::path::Path;

use judges::oracle::linux::Linux;

/// The kernel in an environment variable.
fn kernel(variable: &str) -> Option<Linux> {
    let Some(file) = std::env::var_os(variable) else {
        testlog::only_in("make kernel");
        return None;
    };
    assert!(Path::new(&file).is_file(), "${variable} names {}, which is not there", file.display());
    Some(Linux::Built(file.into()))
}

fn patched() -> Option<Linux> {
    kernel("JOULEFS_LINUX_PATCHED")
}
