//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.
//! Tests that cannot run in parallel with others are separate programs; Cargo.toml gives the reasons.

mod support;

mod caches;
mod gauge;
mod operations;
