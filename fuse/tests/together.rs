//! All tests of this crate in one program, which links once and keeps all cores busy; each file is a module.
//! Tests that cannot run in parallel with others are separate programs; Cargo.toml gives the reasons.

mod support;

mod caches;
mod gauge;
mod operations;
