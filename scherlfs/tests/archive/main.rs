//! A volume whose disk sleeps: guarantees of its index, its stage and its timer.

extern crate joulefs_scherlfs as scherlfs;

mod index;
mod keep;
mod power;
mod stage;
mod support;
mod zoned;
