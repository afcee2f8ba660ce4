//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.

mod driven;
mod drivers;
mod failing_device;
mod forged;
mod repair;
mod repair_cut;
mod rig;
