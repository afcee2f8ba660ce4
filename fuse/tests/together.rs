//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.
//! Those that cannot run beside others are programs of their own; Cargo.toml says why.

mod support;

mod caches;
mod gauge;
mod operations;
