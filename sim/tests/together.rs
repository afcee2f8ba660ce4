//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.

mod differential;
mod fit;
mod held_out;
mod replay;
