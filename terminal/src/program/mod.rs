//! Which build of a program is this? Results of one build are not reused for another.
//!
//! A build is identified by a hash of the program's sources ([`sources`]), so that two builds of the same sources are
//! equal, wherever they were made and with or without git. Each program's build script computes it.

pub mod sources;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

static BUILD: OnceLock<&str> = OnceLock::new();

/// Sets the build; each program calls this first.
pub fn begin(build: &'static str) {
    let _ = BUILD.set(build);
}

/// The build, as one word.
pub fn build() -> &'static str {
    BUILD.get().copied().unwrap_or("unknown")
}
