//! Which build of a program is this? Results of another build are not taken for its own.
//!
//! A build is known by a hash of the sources of the program ([`sources`]), so that two builds of the same sources are one,
//! wherever they were made and with or without git. The build script of each program computes it.

pub mod sources;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

static BUILD: OnceLock<&str> = OnceLock::new();

/// Names the build: the first thing that a program does.
pub fn begin(build: &'static str) {
    let _ = BUILD.set(build);
}

/// The build, as one word.
pub fn build() -> &'static str {
    BUILD.get().copied().unwrap_or("unknown")
}
