//! A volume whose disk sleeps: what its index, its stage and its timer promise.

extern crate joulefs_scherlfs as scherlfs;

mod index;
mod keep;
mod power;
mod stage;
mod support;
mod zoned;
